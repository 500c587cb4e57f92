"""What every deep model and its frozen posteriors keep to."""

import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from toys import architecture, everything, posterior, run, same, seeded, toy

from skdgp.gp.likelihoods import Gaussian, HeteroscedasticGaussian
from skdgp.inference import (
    AEP,
    DSVI,
    NNGP,
    VFE,
    DeepInverseWishart,
    GlobalInducing,
    RandomFeatures,
    StructuredVI,
)

SCHEMES = {
    "dsvi": DSVI(inner_noise=0.1, natural_gradient="all"),
    "dsvi, homoscedastic": DSVI(inner_noise=0.1, n_warmup=2),
    "dsvi, plain": DSVI(natural_gradient="none", shared_covariance=False),
    "structured": StructuredVI("full", n_warmup=0, n_inflation_splits=1),
    "structured, plain": StructuredVI(n_warmup=2, natural_gradient=False),
    "aep": AEP(),
    "aep, sampling": AEP(prediction="sampling"),
    "fixed": RandomFeatures(n_features=10),
    "variational": RandomFeatures(n_features=10, frequencies="variational"),
    "resampled": RandomFeatures(n_features=10, frequencies="resampled"),
    "vfe": VFE(),
}
CONNECTED = [SCHEMES[name] for name in ("dsvi", "structured", "aep", "variational")]


KERNEL_PROCESSES = {
    "wishart": DeepInverseWishart(),
    "nngp": NNGP(exact=False),
    "exact nngp": NNGP(exact=True),
    "global": GlobalInducing(),
}


SEARCHED = VFE, NNGP  # by quasi-Newton steps, some of them: see test_lbfgs.py


def build(scheme, seed):
    """A model without special values; some see the inputs in every layer."""
    rng = np.random.default_rng(seed)
    if scheme in KERNEL_PROCESSES.values():
        model = scheme.build(architecture((2, 2), 1, 8), Gaussian(np.array([0.1])))
        model.start(toy(40)[0].numpy(), np.ones(40), np.random.RandomState(seed))
        model.prepare(0.05, torch.float64)
        return model
    shallow, connected = isinstance(scheme, VFE), scheme in CONNECTED
    shape = ((), 1, 5) if shallow else ((2, 2), 2, 5)
    noise = Gaussian if shallow else HeteroscedasticGaussian
    model = scheme.build(architecture(*shape, connected=connected), noise(np.array([0.1])))
    with torch.no_grad():
        for name, tensor in model.layers.state_dict().items():
            if name.endswith((".Z", ".W", ".z", "q.mean")) and not name.startswith("2.q"):
                tensor.copy_(torch.as_tensor(rng.standard_normal(tensor.shape)))
        if model.state().keys() & {"variance_inflation.moments"}:
            model.variance_inflation.moments.copy_(torch.tensor([1.5, 0.7]))
    model.prepare(0.05, torch.float64)
    return model


EVERY = {**SCHEMES, **KERNEL_PROCESSES}


@pytest.fixture(params=EVERY.values(), ids=EVERY)
def scheme(request):
    return request.param


@pytest.fixture
def trained(scheme):
    """A model after a step, and a batch for the next ones."""
    X, y = toy(40)
    model = build(scheme, 0)
    batch = everything(X, y)
    model.step(batch, seeded())
    return model, batch


@pytest.fixture
def twin(scheme):
    """The same with other numbers."""
    return build(scheme, 1)


def frozen_of(model):
    frozen = posterior(model)
    frozen.n_features = 20  # for speed
    return frozen


def ask(frozen, X, seed):
    f = frozen.functions(3, seeded(seed))
    log_weights, mean, var = frozen.latent(X)
    assert float(log_weights.exp().sum()) == pytest.approx(1.0)
    assert len(log_weights) == len(mean) == len(var) == len(frozen.inflation)
    assert f.inflation.shape == (3,) and (var > 0.0).all()
    assert not any(part.requires_grad for part in (mean, var, *f(X)))
    return torch.cat([mean, var, *f(X), *f(X, noise=seeded(seed))])


def test_a_posterior_stays_as_it_was(trained):
    """Steps, loaded states and predictions change nothing of it; eight threads get the numbers of one."""
    model, batch = trained
    frozen, pieces = frozen_of(model), batch.X.split(10)
    expected = [ask(frozen, X, i) for i, X in enumerate(pieces)]
    for i in range(2):
        model.step(batch, seeded(i))
    state = model.state()
    progress = "warmup.progress"
    model.load_state({k: a if k == progress else 0.5 * a for k, a in state.items()})
    with ThreadPoolExecutor(8) as pool:
        again = pool.map(lambda i: ask(frozen, pieces[i % 4], i % 4), range(16))
        for i, got in enumerate(again):
            assert torch.equal(got, expected[i % 4])
    now = ask(frozen_of(model), pieces[0], 0)
    assert not torch.allclose(now[: len(expected[0])], expected[0])


def test_a_state_predicts_the_same(trained, twin):
    model, batch = trained
    expected = ask(frozen_of(model), batch.X, 0)
    model.step(batch, seeded(1))
    assert not torch.allclose(ask(frozen_of(model), batch.X, 0), expected)
    before = ask(frozen_of(model), batch.X, 0)
    state = pickle.loads(pickle.dumps(model.state()))
    model.load_state(state), twin.load_state(state)
    assert torch.equal(ask(frozen_of(model), batch.X, 0), before)
    assert torch.equal(ask(frozen_of(twin), batch.X, 0), before)


def test_rows_do_not_see_each_other(trained):
    model, batch = trained
    frozen = frozen_of(model)
    f, other = (frozen.functions(4, seeded(seed)) for seed in (5, 6))
    for whole, part in zip(f(batch.X), f(batch.X[[5, 2]])):
        torch.testing.assert_close(part, whole[:, [5, 2]], rtol=1e-9, atol=1e-9)
    assert not torch.equal(sum(f(batch.X)), sum(other(batch.X)))
    for rows in ([7], [3, 20, 4], list(range(39, -1, -1))):
        mean, var = frozen.latent(batch.X)[1:]
        own = frozen.latent(batch.X[rows])
        torch.testing.assert_close(own.mean, mean[:, rows], rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(own.var, var[:, rows], rtol=1e-8, atol=0)


def arrays_of(model):
    return {**model.state(), **{f"training {k}": v for k, v in model.training_state().items()}}


def test_training_goes_on_bit_for_bit(trained, twin):
    """From states that are copies, and that can be loaded twice."""
    model, batch = trained
    state, training_state = model.state(), model.training_state()
    kept = {name: array.copy() for name, array in arrays_of(model).items()}
    losses, expected = run(model, batch, 4), arrays_of(model)
    for other in (twin, model):
        other.load_state(state), other.load_training_state(training_state)
        same(arrays_of(other), kept)
        assert run(other, batch, 4) == losses
        same(arrays_of(other), expected)


@pytest.mark.parametrize(
    "scheme", [s for s in EVERY.values() if not isinstance(s, SEARCHED)], ids=repr, indirect=True
)
def test_a_loss_that_is_not_finite_changes_nothing(trained):
    model, batch = trained
    before = arrays_of(model)
    assert not math.isfinite(model.step(batch._replace(y=batch.y * torch.nan), seeded()))
    same(arrays_of(model), before)


def test_what_is_fitted_is_plain(scheme, trained):
    frozen = posterior(trained[0])
    n_kernels, n_inducing = len(frozen.kernels), len(frozen.inducing_inputs)
    if scheme in KERNEL_PROCESSES.values():
        assert (n_kernels, n_inducing) == (3, 1)
    else:
        assert n_kernels == n_inducing == len(trained[0].layers)
    assert isinstance(np.sum(frozen.likelihood.get_params()["variance"]), float)
    assert all(type(Z) is np.ndarray for Z in frozen.inducing_inputs)
