"""What a single deep model makes of few rows."""

import pickle

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skdgp import DeepGPRegressor
from skdgp.gp.likelihoods import HeteroscedasticGaussian
from skdgp.inference import DSVI, StructuredVI
from skdgp.inference.dsvi import DeepSparseGP
from skdgp.training.checkpoint import Checkpoint

both_schemes = pytest.mark.parametrize("scheme", [DSVI, StructuredVI])
FEW = {"n_inducing": 10, "n_predict_draws": 8, "random_state": 0}


def noisy(n, seed):
    """A sine of the first of two columns; the noise has half its amplitude."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.5 * rng.standard_normal(n)


@pytest.fixture(scope="module")
def rows():
    return noisy(40, seed=0)


def sizes(model):
    """Posterior means of the size of the noise."""
    arrays = model.members_[0].arrays
    return arrays["q.mean"][-1] if "q.mean" in arrays else arrays["layers.1.q.mean"][:, -1]


def test_steps(rows, monkeypatch):
    taken = []
    monkeypatch.setattr(DeepSparseGP, "step", lambda self, *args: taken.append(0) or 0.0)
    model = DeepGPRegressor(inference="dsvi", **FEW).fit(*rows)
    assert len(taken) == model.n_iter_ == 1000


@pytest.mark.parametrize("n_layers", [2, 3])
def test_depth_raises_the_lower_bound(n_layers):
    """A hidden layer that costs what it does not bring back lies below by .2 nats per row and more."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(60, 2))
    y = np.sign(X[:, 0]) + 0.1 * rng.standard_normal(60)  # with a jump, which one layer smoothes
    settings = FEW | {"inference": DSVI(inner_noise=0.0), "likelihood": "gaussian", "max_iter": 200}
    shallow, deep = (DeepGPRegressor(n, **settings).fit(X, y) for n in (1, n_layers))
    assert deep.lower_bound_ > shallow.lower_bound_
    narrow = settings["inference"].set_params(inner_scale=1e-5, inner_variance=1.0)
    published = DeepGPRegressor(n_layers, **settings).set_params(inference=narrow).fit(X, y)
    assert published.lower_bound_ < shallow.lower_bound_ - 12.0


def test_intervals_have_their_nominal_coverage():
    """Intervals of 90 % after 100 rows; those from narrow posteriors cover three quarters."""
    X, y = noisy(100, seed=1)
    X_test, y_test = noisy(2000, seed=2)

    def coverage(max_iter=None, **settings):
        model = DeepGPRegressor(inference=DSVI(**settings), max_iter=max_iter, random_state=0)
        model.fit(X, y)
        low, high = model.predict_interval(X_test, coverage=0.9).T
        return np.mean((low <= y_test) & (y_test <= high))

    # a standard error of .007 from the test rows, and the 100 rows are one draw of many
    assert 0.83 < coverage() < 0.97
    assert coverage(500, inner_scale=1e-5, inner_variance=1.0) < 0.8


@both_schemes
def test_noise_is_even_in_the_first_steps(rows, scheme):
    settings = {"inference": scheme(n_warmup=3), **FEW}
    first, later = (DeepGPRegressor(max_iter=n, **settings) for n in (3, 4))
    with pytest.warns(ConvergenceWarning, match="noise has the same size everywhere"):
        first.fit(*rows)
    later.fit(*rows)
    assert not sizes(first).any() and sizes(later).all()
    first.set_params(warm_start=True, max_iter=2).fit(*rows)  # five steps altogether
    assert sizes(first).all()


@both_schemes
def test_what_ends_in_the_first_steps_predicts_even_noise(rows, scheme):
    """Densities, deviations and draws: sizes that were never learned would add the prior's."""
    X, y = rows
    noise = HeteroscedasticGaussian(variance=1.0, trainable=False)
    scheme = scheme(n_warmup=9, inner_noise=0.0)
    model = DeepGPRegressor(inference=scheme, likelihood=noise, max_iter=3, **FEW)
    with pytest.warns(ConvergenceWarning, match="first ones"):
        model.fit(X, y)
    for each in (model, pickle.loads(pickle.dumps(model))):
        std, latent = (each.predict(X, return_std=True, latent=which)[1] for which in (False, True))
        np.testing.assert_allclose(std**2 - latent**2, 1.0, rtol=1e-6)
    if isinstance(scheme, StructuredVI):  # draws are made of the same parts
        return
    draws = model.sample_y(X[:1], 4_000)
    functions = model.sample_y(X[:1], 4_000, latent=True)
    added = draws.var() - functions.var()
    # the standard error of a difference of variances of normal draws
    error = np.hypot(draws.var(), functions.var()) * np.sqrt(2.0 / 4_000)
    assert abs(added - 1.0) < 4.0 * error < 0.2


@both_schemes
def test_a_warm_start_keeps_the_sizes_of_the_noise(rows, scheme):
    settings = {**FEW, "likelihood": "heteroscedastic", "max_iter": 120}
    model = DeepGPRegressor(inference=scheme(n_warmup=0), **settings).fit(*rows)
    before = sizes(model).copy()
    model.set_params(warm_start=True, max_iter=30, inference__n_warmup=200).fit(*rows)
    assert np.linalg.norm(sizes(model) - before) < 0.5 * np.linalg.norm(before)


def test_a_checkpoint_goes_on_in_the_first_steps(rows, tmp_path, kill):
    settings = {"inference": DSVI(n_warmup=8), "max_iter": 12, **FEW}
    expected = DeepGPRegressor(**settings).fit(*rows).predict(rows[0], return_std=True)
    checkpoint = Checkpoint(tmp_path / "state.npz", n_steps=1)
    kill(DeepSparseGP, 5)
    with pytest.raises(RuntimeError, match="killed"):
        DeepGPRegressor(checkpoint=checkpoint, **settings).fit(*rows)
    found = DeepGPRegressor(checkpoint=checkpoint, **settings).fit(*rows)
    np.testing.assert_array_equal(found.predict(rows[0], return_std=True), expected)
