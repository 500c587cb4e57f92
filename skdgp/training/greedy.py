"""The greedy start: hidden units begin as a sparse Gaussian process trained on the target."""

import contextlib
import math
from types import SimpleNamespace

import numpy as np
import torch

from ..gp.inducing import centers
from ..gp.likelihoods import Gaussian
from ..inference.base import Architecture
from ..inference.batch import Batch
from ..inference.sparse.vfe import VFE
from .trainer import Trainer

_ROWS = 2000  #: rows for the sparse Gaussian processes
_STEPS = 100  #: iterations of L-BFGS
_TRIALS = (1.0, 0.3, 0.1, 0.03)  #: lengthscales that are tried, relative to the kernel's start
_TRIAL_STEPS = 15
_AMPLITUDE = 0.1  #: of a copy beside units that hand the inputs on, so that these get little noise
_ASYMMETRY = 0.1  #: by how many posterior standard deviations copies differ
_REFINE = 0.3  #: lengthscale of the last layer, which corrects, relative to the kernel's start


def greedy(model, X, y, weights, train, rng):
    """Two rounds that lead a deep model past bad optima (Pascual Diaz, 2017, section 5.1).

    Round 0: a sparse Gaussian process is trained on the rows; kernel, inducing inputs and posterior
    go to units of the first layer. The outputs of this layer are the rows of the next sparse
    Gaussian process, and so on up to the last hidden layer. Round 1: the last layer and the noise
    are trained while the hidden layers are held. With all layers free begins the training proper.

    Without mean functions, every unit is a copy, as published. With linear ones, copies are the
    units beyond the number of inputs, or else the last one; the others hand the inputs on, so that
    the last layer has the sparse Gaussian process and the inputs, and can correct the former.

    Inducing inputs and mean functions of the model are set, and `y` (n_rows, k) are targets as it
    sees them. ``train(trainer=None)`` runs a trainer within the time left, and returns it; None
    stands for that of this model in round 1.
    """
    *hidden, last = model.layers
    if not hidden:
        return
    if len(X) > _ROWS:
        chosen = np.sort(rng.choice(len(X), _ROWS, replace=False))
        X, y, weights = X[chosen], y[chosen], weights[chosen]
    likelihood = model.likelihood()
    targets, unit = stand_in(likelihood, likelihood.at_one_exposure(y), weights)
    X, targets, weights = (torch.tensor(np.array(part)) for part in (X, targets, weights))
    Z, copied_units, shallow = hidden[0].Z, None, None

    def visit(i, layer, H):
        nonlocal Z, copied_units, shallow
        if layer is last:
            return
        batch = Batch(H, targets, weights, 1.0, float(weights.sum()))
        shallow = sparse_gp(layer, batch, Z, train, rng)
        copied_units = choose_copied_units(layer, copied_units)
        copy_into(layer, shallow.layers[0], copied_units, rng)
        with torch.no_grad():
            Z = model.layers.inputs(layer.moments(layer.Z)[0], hidden[0].Z)
            return layer.moments(H)[0]

    model.layers.walk(X, visit)
    with torch.no_grad():
        last.Z.copy_(Z)
    scales = np.full(Z.shape[1], _REFINE)
    scales[copied_units] *= amplitude(hidden[-1])
    last.kernel.multiply("lengthscale", scales)
    if unit is not None:
        variance = shallow.likelihood.fitted().variance * unit**2
        model.likelihood.assign(variance=variance, scale=np.sqrt(variance))
    with held(hidden):
        train()


def as_numbers(likelihood, y, classes=None):
    """Targets, indicators of the given classes, or log counts, (n_rows, k)."""
    if likelihood.is_class:
        return (y == (classes[1:] if len(classes) == 2 else classes)).astype(np.float64)
    return y if likelihood.scales_target or (y < 0.0).any() else np.log1p(y)


def stand_in(likelihood, y, weights):
    """Standardized numbers (n_rows, k) in the place of the target, and its deviations (k,) or None.

    It stands for itself; classes have indicators, counts their logarithms, and both no deviations.
    """
    y = as_numbers(likelihood, y, np.unique(y) if likelihood.is_class else None)
    mean = np.average(y, axis=0, weights=weights)
    std = np.sqrt(np.average(np.square(y - mean), axis=0, weights=weights))
    std = np.where(std > 1e-12, std, 1.0)
    return (y - mean) / std, std if likelihood.scales_target else None


def sparse_gp(layer, batch, Z, train, rng):
    """A shallow model of the batch, with kernel and number of inducing inputs as the layer has them.

    L-BFGS finds no way from a long lengthscale to a short one, so that several are tried; nor do
    inducing inputs travel far, so that the search is repeated with more of them where the first
    result is wrong.
    """
    k, rows = batch.y.shape[1], SimpleNamespace(batch=lambda step: batch)
    likelihood = Gaussian().bind(batch.y.numpy(), batch.weight.numpy(), np.ones(k))
    shape = Architecture(
        Z.shape[1],
        (),
        k,
        len(Z),
        [layer.kernel.fitted()],
        linear_mean=False,
        input_connected=False,
    )

    def search(factor, Z):
        model = VFE(train_inducing=True).build(shape, likelihood)
        model.layers[0].jitter = layer.jitter  # whitened variables mean the same in both
        with torch.no_grad():
            model.layers[0].Z.copy_(torch.as_tensor(Z))
        scaled = model.layers[0].kernel.multiply("lengthscale", factor)
        return scaled, train(Trainer(model, rows, None, max_iter=_TRIAL_STEPS))

    def loss(trainer):
        return trainer.loss_curve[-1] if math.isfinite(trainer.loss_curve[-1]) else math.inf

    trials = []
    for factor in _TRIALS:
        scaled, trial = search(factor, Z)
        trials.append((loss(trial), factor, trial))
        if not scaled:
            break
    _, factor, best = min(trials, key=lambda trial: trial[0])
    best.max_iter = _STEPS
    train(best)
    wrong = best.model.posterior(batch.X.new_empty(1, 0)).latent(batch.X).mean[0] - batch.y
    wrong = wrong.abs().mean(1).numpy()
    wrong = batch.weight.numpy() * (wrong + 0.3 * wrong.mean() + 1e-9)
    _, again = search(factor, centers(batch.X.numpy(), wrong, len(Z), "kmeans", rng))
    again.max_iter = _STEPS
    best = min(best, train(again), key=loss)
    best.model.divergence()  # finds the posterior
    return best.model


def choose_copied_units(layer, before):
    """The units that become copies; those of the layer `before` stay where they are."""
    D = layer.n_outputs
    if layer.W is None:
        return np.arange(D)
    padded = np.flatnonzero(~layer.W.any(0).numpy())
    if len(padded):
        return padded
    return before if before is not None and before.max() < D else np.array([D - 1])


def amplitude(layer):
    """Scale of the copies in a layer: less than one only if they stand beside the inputs."""
    if layer.W is None or layer.kernel.component._parts:
        return 1.0
    free = any(one.role == "variance" for one in layer.kernel.hyperparameters())
    return _AMPLITUDE if free else 1.0


@torch.no_grad()
def copy_into(layer, source, copied_units, rng):
    """Let some units of a layer be the outputs of a shallow one, in turn.

    Copies differ by a fraction of a draw from the posterior. Otherwise the gradients of all of them
    would be the same, and so would be the units for ever.
    """
    layer.kernel.load_state_dict(source.kernel.state_dict())
    if amplitude(layer) != 1.0:
        layer.kernel.multiply("variance", amplitude(layer) ** 2)
    layer.Z.copy_(source.Z)
    if layer.W is not None:
        layer.W[:, copied_units] = 0.0
    for i, unit in enumerate(copied_units):
        mean, root = source.q.mean[:, i % source.n_outputs], source.q.root[i % source.n_outputs]
        xi = torch.tensor(rng.standard_normal(len(mean)))
        layer.q.mean[:, unit] = mean + _ASYMMETRY * (root @ xi)
        layer.q.root[unit if len(layer.q.root) > 1 else 0] = root


@contextlib.contextmanager
def held(layers):
    """No step changes these layers."""
    parameters = [p for layer in layers for p in layer.parameters() if p.requires_grad]
    blocks = [layer.q for layer in layers]
    for parameter in parameters:
        parameter.requires_grad_(False)
    for block in blocks:
        block.held = True
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)
        for block in blocks:
            block.held = False
