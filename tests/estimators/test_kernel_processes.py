"""Deep kernel processes inside the estimators: what every scheme promises."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from skdgp import DeepGPRegressor
from skdgp.gp.kernels import Linear, Matern
from skdgp.inference import NNGP, DeepInverseWishart, GlobalInducing
from skdgp.inference.deep_kernel_process.model import GramModel
from skdgp.inference.deep_kernel_process.nngp import ExactNNGP
from skdgp.inspection import LayersDisplay, diagnose

SCHEMES = {
    "diwp": DeepInverseWishart(),
    "nngp": NNGP(exact=False),
    "exact": NNGP(),
    "global": GlobalInducing(),
}
every_scheme = pytest.mark.parametrize("name", SCHEMES)


def make(name, kind=DeepGPRegressor, **changes):
    settings = {"n_layers": 2, "max_iter": 12, "n_predict_draws": 4, "random_state": 0}
    return kind(inference=SCHEMES[name], n_inducing=8, **{**settings, **changes})


@every_scheme
def test_covariances_and_precisions(data, name):
    X, y = data
    model = make(name, kernel="arc_cosine").fit(X, y)
    if name in ("nngp", "exact"):  # closed forms; else it is that of draws
        _, cov = model.predict(X[:4], return_cov=True, latent=True)
        _, latent = model.predict(X[:4], return_std=True, latent=True)
        assert_allclose(np.sqrt(np.diagonal(cov)), latent, rtol=1e-6)
    single = clone(model).fit(X.astype(np.float32), y).predict(X.astype(np.float32))
    assert single.dtype == np.float64
    assert_allclose(single, model.predict(X), atol=1e-2 * y.std())


@every_scheme
def test_rows_with_gaps_take_weights_and_known_noise(data, name):
    X, y = data
    X = np.where(np.arange(len(X))[:, None] % 5 == [0, 9], np.nan, X)
    counts = np.arange(len(X)) % 3 + 1
    weighted = make(name).fit(X, y, sample_weight=counts).predict(X)
    repeated = make(name).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts, axis=0))
    assert_allclose(weighted, repeated.predict(X), rtol=1e-6)
    make(name).fit(X, y, noise_variance=0.1 * counts)


@every_scheme
def test_what_there_is_to_read(data, name):
    model = make(name, n_layers=5, kernel=Matern(2.5) + Linear()).fit(*data)
    first, *others = model.kernels_
    assert first.left.lengthscale.shape == first.right.variance.shape == (2,)
    assert [np.shape(kernel.left.lengthscale) for kernel in others] == [()] * 4
    (Z,) = model.inducing_inputs_
    assert Z.shape == ((80, 2) if name == "exact" else (8, 2))
    assert np.abs(Z).max() < 5.0 and 0.0 < model.likelihood_.variance[0] < 200.0
    assert np.isfinite(model.lower_bound_)
    assert (getattr(model, "delta_", None) is not None) == (name == "diwp")
    diagnose(model, *data)
    with pytest.raises(ValueError, match="LayersDisplay"):
        LayersDisplay.from_estimator(model, data[0])
    if name == "diwp":
        assert model.delta_.shape == (5,) and (model.delta_ > 0.0).all()
        assert not hasattr(model.set_params(inference="nngp").fit(*data), "delta_")


def test_the_bound_of_the_exact_process_is_its_log_marginal_likelihood(data):
    X, y = data
    model = make("exact", likelihood="gaussian").fit(X, y)
    expected = 80 * (-model.loss_curve_[-1] - np.log(y.std()))
    # the white noise of the kernel, 1e-6 of its variance, is new to each row that is predicted
    white = 1e-6 * model.kernels_[-1].variance / (model.likelihood_.variance[0] / y.var())
    lowest, highest = expected - 80 * 2.0 * white - 1e-3, expected + 1e-9 * abs(expected)
    assert lowest < model.lower_bound_ <= highest


def test_searches_outputs_and_limits(data):
    X, y = data
    grid = {"inference__delta": [1.0, 100.0], "n_layers": [1, 3]}
    search = GridSearchCV(make("diwp", max_iter=4), grid, cv=2).fit(X, y)
    assert len(search.cv_results_["params"]) == 4
    both = make("diwp", likelihood="heteroscedastic").fit(X, np.column_stack([y, X[:, 1]]))
    assert both.predict(X).shape == (80, 2) and both.sample_y(X, 2).shape == (80, 2, 2)
    with pytest.warns(ConvergenceWarning, match="max_time"):
        model = make("diwp", max_iter=100_000, max_time=0.2).fit(X, y)
    assert 0 < model.n_iter_ < 100_000
    warm = make("exact", warm_start=True).fit(X, y)
    assert warm.fit(X, y).lower_bound_ >= -np.inf
    assert isinstance(warm.members_[0].model(), ExactNNGP)
    assert isinstance(make("nngp").fit(X, y).members_[0].model(), GramModel)
