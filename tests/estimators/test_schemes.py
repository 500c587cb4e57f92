"""What every scheme keeps to: rows alone, copies, weights, and fits that are killed."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skdgp import DeepGPRegressor
from skdgp.inference import (
    AEP,
    DSVI,
    NNGP,
    SCHEMES,
    SGHMC,
    VFE,
    CollapsedVI,
    DeepInverseWishart,
    EllipticalSlice,
    GlobalInducing,
    RandomFeatures,
    StructuredVI,
    as_scheme,
)
from skdgp.predictive import mixture as predictive
from skdgp.training import Checkpoint

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

PUBLISHED = SGHMC.published().set_params(n_samples=4, n_learn=9, n_burn_in=3, spacing=2)


def make(n_layers=2, **settings):
    settings = {"max_iter": 12, "n_predict_draws": 4, "random_state": 0, **settings}
    return DeepGPRegressor(n_layers, **settings)


def sparse(inference, n_layers=2, **settings):
    return make(n_layers, inference=inference, **{"n_inducing": 8, "batch_size": 11, **settings})


def features(frequencies, covariance):
    """Long enough for a last layer that becomes lazy."""
    scheme = RandomFeatures(8, frequencies, covariance=covariance)
    return make(inference=scheme, max_iter=60, batch_size=11)


#: models, and after how many steps of each attempt they are killed
CASES = {
    "dsvi": (sparse(DSVI(natural_gradient="all", n_draws=2)), (3, 5)),
    "structured": (sparse(StructuredVI(n_warmup=3), 3), (2, 3, 3)),
    "full": (sparse(StructuredVI("full", n_warmup=3), 3, likelihood="gaussian"), (2, 3, 3)),
    "aep": (sparse(AEP(0.5)), (3, 5)),
    "sampling": (sparse(AEP(0.5, "sampling"), input_connected=True), (3, 5)),
    "fixed": (features("fixed", "diagonal"), (11, 44)),
    "variational": (features("variational", "full"), (11, 44)),
    "resampled": (features("resampled", "full"), (11, 44)),
    "diwp": (sparse(DeepInverseWishart(), kernel="arc_cosine"), (3, 5)),
    "nngp": (sparse(NNGP(exact=False), batch_size=None), (3, 5)),
    "exact nngp": (make(inference=NNGP(), n_inducing=8), (3, 5)),
    "global": (sparse(GlobalInducing()), (3, 5)),
    "collapsed": (make(inference=CollapsedVI(n_draws=2), max_iter=45), (10, 30)),
    "exact": (make(1, inference="exact"), (3, 5)),
    "vecchia": (make(1, inference="vecchia"), (3, 8)),
    "vfe": (make(1, inference=VFE(train_inducing=True), n_inducing=8), (3, 5)),
    "pep": (make(1, inference="pep", n_inducing=8), (3, 5)),
    "sghmc": (sparse(SGHMC(n_chains=2, n_samples=8), max_iter=24, batch_size=None), (5, 12)),
    "published": (sparse(PUBLISHED, likelihood="student_t", max_iter=24), (5, 12)),
    "ess": (make(3, width=1, inference=EllipticalSlice(2, n_chains=2, n_samples=8), max_iter=24), (5, 12)),
    "near": (make(inference=EllipticalSlice(2, n_chains=2, n_samples=8, n_neighbors=5), max_iter=24), (5, 12)),
}  # fmt: skip


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(30, 2))
    return X, 50.0 + 10.0 * np.sin(2.0 * X[:, 0]) + rng.standard_normal(30)


@pytest.fixture(scope="module", params=CASES.values(), ids=CASES)
def case(request, data):
    model, kills = request.param
    return clone(model).fit(*data), kills


def test_rows_copies_and_functions(case, data, monkeypatch):
    (X, y), model = data, case[0]
    before = model.predict(X, return_std=True), model.log_predictive_density(X, y)
    draws = model.sample_y(X, 3, latent=True)
    assert_allclose(model.predict(X[7:8]), before[0][0][7:8], rtol=1e-7)
    assert_allclose(model.sample_y(X[[5, 2]], 3, latent=True), draws[[5, 2]], rtol=1e-7)
    other = pickle.loads(pickle.dumps(model))
    assert_array_equal(other.predict(X, return_std=True), before[0])
    assert_array_equal(other.log_predictive_density(X, y), before[1])
    assert_array_equal(other.sample_y(X, 3, latent=True), draws)
    monkeypatch.setattr(predictive, "_ROWS_BUDGET", 1)
    assert_allclose(model.predict(X, return_std=True), before[0], rtol=1e-7)
    assert_allclose(model.log_predictive_density(X, y), before[1], rtol=1e-7)
    assert_allclose(model.sample_y(X, 3, latent=True), draws, rtol=1e-7)


def test_weights_are_counts(case, data):
    (X, y), model = data, case[0]
    counts = np.random.default_rng(1).integers(0, 4, len(X))
    weighted, repeated = clone(model), clone(model)
    weighted.fit(X, y, sample_weight=counts)
    repeated.fit(np.repeat(X, counts, 0), np.repeat(y, counts))
    assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-7)
    assert np.abs(weighted.predict(X) - model.predict(X)).max() > 1e-3
    bounds = [getattr(one, "lower_bound_", 0.0) for one in (weighted, repeated)]
    assert_allclose(*bounds, rtol=1e-9)


def test_a_killed_fit_goes_on_to_the_last_bit(case, data, kill, tmp_path):
    whole, kills = case
    (member,) = whole.members_
    model = clone(whole).set_params(checkpoint=Checkpoint(tmp_path / "fit.npz", n_steps=1))
    for count in kills:
        kill(type(member.model("cpu")), count)
        with pytest.raises(RuntimeError, match="killed"):
            model.fit(*data)
    model.fit(*data)
    assert_array_equal(model.loss_curve_, whole.loss_curve_)
    assert getattr(model, "lower_bound_", None) == getattr(whole, "lower_bound_", None)
    for name, values in member.arrays.items():
        assert_array_equal(model.members_[0].arrays[name], values, err_msg=name)
    assert_array_equal(model.predict(data[0]), whole.predict(data[0]))


@pytest.mark.parametrize("name", [name for name in SCHEMES if not as_scheme(name).takes_chunks])
def test_chunks_are_for_schemes_that_take_them(data, name):
    with pytest.raises(AttributeError, match="has no attribute 'partial_fit'") as error:
        make(1, inference=name).partial_fit(*data)
    assert "all rows at once" in str(error.value.__cause__)
