"""Rows, shapes, what models say, and checks that tests of several schemes use."""

import contextlib

import numpy as np
import torch

from skdgp.gp.kernels import as_kernel
from skdgp.gp.likelihoods import Gaussian
from skdgp.inference.base import Architecture
from skdgp.inference.batch import Batch
from skdgp.linalg import workspace


def toy(n, n_features=2, k=1, seed=0):
    """Inputs (n, n_features) and targets (n, k) of a wave in the first input, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, n_features))
    y = np.sin(2.0 * X[:, :1]) + 0.3 * rng.standard_normal((n, k))
    return torch.as_tensor(X), torch.as_tensor(y)


def rows(n=40, k=1, seed=0):
    """The same as arrays, with a wave of its own for each target."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    y = np.column_stack([np.sin(2.0 * X[:, 0] + i) for i in range(k)])
    return X, y + 0.3 * rng.normal(size=(n, k))


def everything(X, y, weight=None, scale=1.0, total=None):
    """A batch of all rows, or of some with this scale and total weight of all."""
    X, y = (a if torch.is_tensor(a) else torch.tensor(a, dtype=torch.float64) for a in (X, y))
    weight = torch.ones(len(X)) if weight is None else torch.as_tensor(weight)
    total = float(weight.sum()) if total is None else total
    return Batch(X, y.reshape(len(X), -1), weight.double(), scale, total)


def architecture(
    widths=(),
    n_latents=1,
    n_inducing=1,
    kernel="squared_exponential",
    *,
    n_features=2,
    linear_mean=True,
    connected=False,
):
    """A shape with one kernel for all layers, or a list of one for each."""
    shape = Architecture(n_features, widths, n_latents, n_inducing, [], linear_mean, connected)
    inputs = shape.layer_inputs()
    kernels = kernel if isinstance(kernel, list) else [kernel] * len(inputs)
    shape.kernels = [as_kernel(kernel).bind(n) for kernel, n in zip(kernels, inputs)]
    return shape


def seeded(seed=5):
    return torch.Generator().manual_seed(seed)


def posterior(model, n=8, seed=0):
    return model.posterior(torch.as_tensor(model.draws(n, seed)))


def latents(model, X, n=8, seed=0):
    """Mean and variance of each component."""
    return posterior(model, n, seed).latent(X)[1:]


def draw_functions(model, n, generator, n_features=None):
    """Functions of rows, with fewer features than predictions have."""
    of_model = posterior(model)
    if n_features is not None:
        of_model.n_features = n_features
    f = of_model.functions(n, generator)
    return lambda X, noise=None: sum(f(X, noise))


def run(model, batch, n_steps, generator=None):
    """Losses of some steps."""
    generator = seeded(0) if generator is None else generator
    return [model.step(batch, generator) for _ in range(n_steps)]


def same(a, b):
    """Whether dicts have the same plain arrays."""
    assert a.keys() == b.keys()
    for name, array in a.items():
        assert type(array) is np.ndarray and array.dtype == b[name].dtype
        np.testing.assert_array_equal(array, b[name], err_msg=name)


def check_resumed(make, batch, n_steps, stops):
    """Models that go on from the arrays of one that stopped end as if it had not, bit for bit.

    Returns those that stopped.
    """
    whole, stopped = make(), []
    losses = run(whole, batch, n_steps)
    for stop in stops:
        generator, part, rest = seeded(0), make(), make()
        first = run(part, batch, stop, generator)
        rest.load_state(part.state())
        rest.load_training_state(part.training_state())
        again = first + run(rest, batch, n_steps - stop, generator)
        np.testing.assert_array_equal(again, losses)
        same(rest.state(), whole.state())
        stopped.append(part)
    return stopped


def noisy(k=1, likelihood=None):
    """A likelihood bound to `k` targets, with noises .1, .2, ..."""
    likelihood = Gaussian() if likelihood is None else likelihood
    likelihood.variance = 0.1 * np.arange(1, k + 1)
    return likelihood.bind(np.zeros((2, k)), np.ones(2), np.ones(k))


def mixed(model, X, n=200):
    """Mean and variance of the mixture of all components."""
    log_weights, mean, var = posterior(model, n).latent(X)
    share = log_weights.exp()[:, None, None]
    center = (share * mean).sum(0)
    return center, (share * (var + (mean - center).square())).sum(0)


@torch.no_grad()
def bound(model, batch, seed=5, averaged=True):
    """The bound, of averages over the last steps unless it is of the parameters themselves."""
    with model.averaged() if averaged else contextlib.nullcontext():
        ell = model.expected_log_likelihood(batch, seeded(seed))
        return float(ell - model.divergence()) if averaged else float(ell - model.kl())


def jump_to_optimum(model, batch, generator=None):
    """One full natural step of the last layer."""
    model.expected_log_likelihood(batch, generator).backward()
    q = model.layers[-1].q
    assert q.natural_step(q.collected_gradients(), 1.0)


def classes_of(y, likelihood):
    """Targets for a likelihood: two or three classes or counts of real ones."""
    if likelihood is None or not (likelihood.is_class or likelihood.discrete):
        return y
    return (y > 0.0).double() + (y > 1.0).double() * (likelihood.n_latents(3) > 2)


def check_progress(model, batch, n_steps, least):
    """Steps raise the bound by more than that."""
    model.learning_rate, generator, before = 0.03, seeded(), bound(model, batch)
    with workspace():
        assert np.isfinite(run(model, batch, n_steps, generator)).all()
    assert bound(model, batch) > before + least


def check_settings(predictions, settings, least):
    """Predictions are those of equal settings, and not those of any others."""
    expected = predictions()
    assert torch.equal(predictions(), expected)
    for own in settings:
        assert (predictions(**own) - expected).abs().max() > least, own


def objective(model, batch, seed=0):
    """What steps maximize."""
    return model.expected_log_likelihood(batch, seeded(seed)).item()


def without_priors(model):
    """The same model, whose hyperparameters are where their priors expect them."""
    model._priors = [
        one._replace(prior=one.prior.around(one.parameter.detach().clone()))
        for one in model._priors
    ]
    return model


def check_single_precision(model, X, y, eps, rtol, atol):
    """Moments of inputs in single precision are those in double precision, and training goes on from them."""
    with torch.no_grad():
        expected = model.propagate(X, eps)
        found = model.propagate(X.float(), [e.float() for e in eps])
    for part, wanted in zip(found, expected):
        assert part.dtype == torch.float32
        torch.testing.assert_close(part.double(), wanted, rtol=rtol, atol=atol)
    batch = everything(X, y)
    before = bound(model, batch)
    assert np.isfinite(run(model, batch._replace(X=X.float()), 20, seeded())).all()
    assert bound(model, batch) > before
    assert all(p.dtype == torch.float64 for p in model.parameters())


def check_chains(model, X, n_states, n_functions):
    """Predictions of states have rows that do not depend on others, and the moments of functions."""
    frozen = posterior(model, 64)
    latent, (center, total) = frozen.latent(X), mixed(model, X, 64)
    assert latent.mean.shape == latent.var.shape == (n_states, len(X), 1)
    alone = torch.cat([frozen.latent(x).mean for x in X.split(1)], 1)
    np.testing.assert_allclose(alone, latent.mean, atol=1e-9)
    frozen.n_features = 100
    f = frozen.functions(n_functions, seeded(0))
    values = sum(f(X))
    np.testing.assert_allclose(sum(f(X[2:])), values[:, 2:], atol=1e-7)
    # hidden values are drawn once for each state, and for `latent` often
    assert ((values.mean(0) - center).abs() < 4.0 * (total / n_states).sqrt()).all()
    return frozen, latent.mean
