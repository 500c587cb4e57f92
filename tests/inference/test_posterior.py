"""What every frozen posterior of a deep model keeps to."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from toys import posterior, seeded, toy

from skdgp.gp.kernels import as_kernel
from skdgp.gp.likelihoods import Gaussian, HeteroscedasticGaussian
from skdgp.inference import AEP, DSVI, VFE, RandomFeatures, StructuredVI
from skdgp.inference.base import Architecture

pytestmark = pytest.mark.usefixtures("no_global_randomness")

SCHEMES = {
    "dsvi": DSVI(inner_noise=0.1, natural_gradient="all"),
    "dsvi, homoscedastic": DSVI(inner_noise=0.1, n_warmup=2),
    "structured": StructuredVI("full", n_warmup=0, n_inflation_splits=1),
    "aep": AEP(),
    "aep, separate": AEP(separate=True),
    "aep, sampling": AEP(prediction="sampling"),
    "fixed": RandomFeatures(n_features=10),
    "variational": RandomFeatures(n_features=10, frequencies="variational"),
    "resampled": RandomFeatures(n_features=10, frequencies="resampled"),
    "vfe": VFE(),
}


@pytest.fixture(params=SCHEMES.values(), ids=SCHEMES)
def trained(request, make_batch):
    """A model after a step, and a batch for the next ones."""
    scheme, (X, y), rng = request.param, toy(40), np.random.default_rng(0)
    shallow = isinstance(scheme, VFE)
    shape = Architecture(2, () if shallow else (2,), 1 if shallow else 2, 5, [], True, False)
    shape.kernels = [as_kernel("squared_exponential").bind(n) for n in shape.layer_inputs()]
    noise = Gaussian if shallow else HeteroscedasticGaussian
    model = scheme.build(shape, noise(np.array([0.1])))
    with torch.no_grad():
        for name, tensor in model.layers.state_dict().items():
            if name.endswith((".Z", ".W", ".z", "q.mean")) and not name.startswith("1.q"):
                tensor.copy_(torch.as_tensor(rng.standard_normal(tensor.shape)))
        if isinstance(scheme, StructuredVI):
            model.variance_inflation.moments.copy_(torch.tensor([1.5, 0.7]))
    batch = make_batch(X, y)
    model.prepare(0.05, torch.float64)
    model.step(batch, seeded())
    return model, batch


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
    model.load_state({name: 0.5 * array for name, array in state.items() if name != "progress"})
    with ThreadPoolExecutor(8) as pool:
        again = pool.map(lambda i: ask(frozen, pieces[i % 4], i % 4), range(16))
        for i, got in enumerate(again):
            assert torch.equal(got, expected[i % 4])
    now = ask(frozen_of(model), pieces[0], 0)
    assert not torch.allclose(now[: len(expected[0])], expected[0])


def test_a_state_predicts_the_same(trained):
    model, batch = trained
    expected = ask(frozen_of(model), batch.X, 0)
    model.step(batch, seeded(1))
    assert not torch.allclose(ask(frozen_of(model), batch.X, 0), expected)
    before = ask(frozen_of(model), batch.X, 0)
    model.load_state(model.state())
    assert torch.equal(ask(frozen_of(model), batch.X, 0), before)


def test_functions_are_consistent_over_rows(trained):
    model, batch = trained
    f = frozen_of(model).functions(4, seeded())
    for whole, part in zip(f(batch.X), f(batch.X[[5, 2]])):
        torch.testing.assert_close(part, whole[:, [5, 2]], rtol=1e-9, atol=1e-9)


def test_what_is_fitted_is_plain(trained):
    frozen = posterior(trained[0])
    assert len(frozen.kernels) == len(frozen.inducing_inputs) == len(trained[0].layers)
    assert isinstance(np.sum(frozen.likelihood.get_params()["variance"]), float)
    assert all(type(Z) is np.ndarray for Z in frozen.inducing_inputs)
