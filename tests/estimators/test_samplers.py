"""The samplers behind the estimators: what every scheme keeps to, and what only chains have."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from skdgp import DeepGPRegressor
from skdgp.inference import SGHMC, EllipticalSlice
from skdgp.inference.elliptical_slice.model import SlicedDeepGP
from skdgp.inference.sghmc.model import SampledDeepGP

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

FEW = {"n_chains": 2, "n_samples": 8}
STEPS = {"random_state": 0, "max_iter": 24}
WINDOW = SGHMC.published().set_params(n_samples=4, n_learn=9, n_burn_in=3, spacing=2)
SLICES = EllipticalSlice(2, **FEW)
MODELS = {
    "sghmc": DeepGPRegressor(inference=SGHMC(**FEW), likelihood="gaussian", n_inducing=8, **STEPS),
    "published": DeepGPRegressor(  # steps on minibatches, with a window
        inference=WINDOW, likelihood="student_t", n_inducing=8, batch_size=11, **STEPS
    ),
    "ess": DeepGPRegressor(3, width=1, inference=SLICES, likelihood="gaussian", **STEPS),
}
OWNERS = {"sghmc": SampledDeepGP, "published": SampledDeepGP, "ess": SlicedDeepGP}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(30, 2))
    return X, 3.0 * np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(30) + 20.0


@pytest.mark.parametrize("name", MODELS)
def test_skops(name, data):
    skops = pytest.importorskip("skops.io")
    X, model = data[0], clone(MODELS[name]).fit(*data)
    content = skops.dumps(model)
    untrusted = skops.get_untrusted_types(data=content)
    assert all(name.startswith("skdgp.") for name in untrusted)
    other = skops.loads(content, trusted=untrusted)
    assert_array_equal(other.predict(X, return_std=True), model.predict(X, return_std=True))


def test_minibatches_in_single_precision(data):
    model = clone(MODELS["sghmc"]).set_params(batch_size=10, dtype="float32").fit(*data)
    assert np.isfinite(model.predict(data[0])).all()


def test_draws_have_the_moments_of_predictions(data):
    """Functions are draws of the same distribution, up to their number and that of hidden draws."""
    X, y = data
    for name in ("sghmc", "ess"):
        model = clone(MODELS[name]).set_params(n_layers=1, width=None).fit(X, y)
        Xs = np.array([[0.0, 0.0], [1.0, 5.0]])
        mean, std = model.predict(Xs, return_std=True, latent=True)
        cov = model.predict(Xs, return_cov=True, latent=True)[1]
        assert_allclose(np.diag(cov), std**2)
        draws = model.sample_y(Xs, 400, latent=True)
        assert_allclose(draws.mean(1), mean, atol=4.0 * std.max() / 20.0)
        assert_allclose(draws.std(1), std, rtol=4.0 * 0.05 + 0.02)


@pytest.mark.parametrize(
    ("name", "after"), [("sghmc", 2), ("published", 17), ("ess", 2), ("ess", 17)]
)
def test_what_was_sampled_before_ctrl_c_predicts(name, after, data, kill):
    kill(OWNERS[name], after, error=KeyboardInterrupt)
    model = clone(MODELS[name])
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(*data)
    messages = " ".join(str(warning.message) for warning in caught)
    assert f"interrupted after {after} steps" in messages
    assert "Sampling ended before all states were kept" in messages
    assert ("burn-in was not over" in messages) == (after == 2)
    assert model.n_iter_ == after
    assert np.isfinite(model.predict(data[0])).all()


def test_time_runs_out(data):
    for name in ("sghmc", "ess"):
        model = clone(MODELS[name]).set_params(max_time=1e-6)
        with pytest.warns(ConvergenceWarning, match="max_time"):
            model.fit(*data)
        assert model.n_iter_ == 1 and np.isfinite(model.predict(data[0])).all()


@pytest.mark.parametrize("name", ["sghmc", "ess"])
def test_a_warm_start_moves_on(name, data):
    X, y = data
    model = clone(MODELS[name]).set_params(warm_start=True).fit(X, y)
    last = model.members_[0].arrays["chains/" + ("v" if name == "ess" else "v0")]
    first, scheme = model.predict(X), model.inference
    scheme.set_params(n_samples=2, n_burn_in=0, spacing=1)
    scheme.set_params(**({"n_learn": 0} if name == "sghmc" else {}))
    model.set_params(max_iter=1).fit(X, y)
    assert len(model.members_[0].posterior().inflation) == 2  # old states are forgotten
    assert np.abs(model.predict(X) - first).max() > 0.0
    if name == "sghmc":  # one step of a small size from where chains had been
        moved = model.members_[0].arrays["chains/v0"]
        assert 0.0 < np.abs(moved - last).mean() < 0.5
    other = clone(MODELS[name]).set_params(warm_start=True).fit(X, y)
    assert np.isfinite(other.fit(X[:20], y[:20]).predict(X)).all()  # other rows


def test_search(data):
    X, y = data
    grid = {"inference__n_samples": [2, 4]}
    search = GridSearchCV(MODELS["sghmc"], grid, cv=2, error_score="raise").fit(X, y)
    n_draws = len(search.best_estimator_.members_[0].draws)
    assert n_draws == search.best_params_["inference__n_samples"]


def test_chains_that_disagree_are_warned_of(data):
    X, y = data
    scheme = EllipticalSlice(1, "fixed", n_chains=2, n_samples=40, n_burn_in=0, spacing=1)
    model = DeepGPRegressor(inference=scheme, likelihood="gaussian", max_iter=20, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"with an R-hat of \d.* raise max_iter"):
        model.fit(X, y)


def test_chains_that_are_too_short_beyond_the_rows_are_warned_of():
    X = np.linspace(0.0, 1.0, 12)[:, None]
    scheme = EllipticalSlice(1, "sample", n_chains=2, n_samples=80, n_burn_in=20, spacing=1)
    model = DeepGPRegressor(1, inference=scheme, max_iter=60, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"states worth \d+ independent draws"):
        model.fit(X, np.sin(6.0 * X[:, 0]))


def test_a_variational_model_as_the_start(data):
    first = DeepGPRegressor(inference="dsvi", likelihood="gaussian", n_inducing=8, **STEPS)
    first.fit(*data)
    model = clone(MODELS["sghmc"]).set_params(init=first, inference__n_learn=0).fit(*data)
    assert repr(model.kernels_) == repr(first.kernels_)
    for own, theirs in zip(model.inducing_inputs_, first.inducing_inputs_):
        assert_array_equal(own, theirs)


def test_too_many_rows():
    X = np.random.default_rng(0).normal(size=(501, 1))
    with pytest.raises(ValueError, match="at most 500; got 501"):
        DeepGPRegressor(inference="ess", max_iter=1).fit(X, X[:, 0])
