"""Priors and fixed values of hyperparameters, columns by name, and the periodic kernel."""

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize_scalar
from scipy.special import lambertw
from scipy.stats import cauchy, multivariate_normal, norm
from sklearn.base import clone

from skdgp import DeepGPRegressor
from skdgp.gp.component import Trainable
from skdgp.gp.draws import prior_functions
from skdgp.gp.kernels import Anova, Linear, Matern, OnColumns, Periodic, SquaredExponential
from skdgp.gp.kernels.base import stacked
from skdgp.gp.likelihoods import Gaussian, HeteroscedasticGaussian
from skdgp.gp.priors import Fixed, LogNormal, negative_log_prior

SCHEMES = {
    "exact": 1, "vecchia": 1, "vfe": 1, "nngp": 2, "dsvi": 2, "structured": 2, "aep": 2, "rff": 2,
    "diwp": 2, "global": 2, "collapsed": 2, "sghmc": 2, "ess": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=40)


def fitted(rows, inference, n_iter, n_layers=None, **settings):
    if inference in ("sghmc", "ess"):
        settings["n_predict_draws"] = 2
    n_layers = n_layers or SCHEMES[inference]
    settings = {"standardize": False, "target_transform": None, **settings}
    model = DeepGPRegressor(n_layers, inference=inference, max_iter=n_iter, **settings)
    return model.set_params(random_state=0).fit(*rows)


def test_densities():
    """Of logarithms, by scipy, up to a constant."""
    module = Trainable(Anova(lengthscale=LogNormal([1.0, 2.0, 4.0], 0.8, 0.4)).bind(3))
    (one,) = [one for one in module.hyperparameters() if one.prior is not None]
    assert negative_log_prior([one]).item() == 0.0
    off = np.array([0.3, -1.0, 0.1])
    with torch.no_grad():
        one.parameter.add_(torch.as_tensor(off))
    each = norm.logpdf(off, scale=0.8) - norm.logpdf(0.0, scale=0.8)
    assert_allclose(negative_log_prior([one], by_columns=False).item(), -each.sum())
    shared = norm.logpdf(off.mean(), scale=0.8) - norm.logpdf(0.0, scale=0.8)
    shared += (cauchy.logpdf((off - off.mean()) / 0.4) - cauchy.logpdf(0.0)).sum()
    assert_allclose(negative_log_prior([one]).item(), -shared)


@pytest.mark.parametrize("inference", ["exact", "vecchia", "vfe", "nngp", "dsvi"])
def test_mode_of_the_posterior_in_closed_form(inference):
    """Targets that are noise alone, whose variance has a log-normal prior: Lambert's function."""
    rng = np.random.default_rng(1)
    X, y, spread, median = rng.normal(size=(50, 1)), rng.normal(size=50), 0.2, 0.3
    kernel = SquaredExponential(Fixed(1.0), Fixed(1e-9))
    noise = Gaussian(LogNormal(median, spread))
    n_iter = {"dsvi": 300, "vecchia": 150}.get(inference, 30)
    model = fitted((X, y), inference, n_iter, 1, kernel=kernel, likelihood=noise)
    a, S = len(y) / 2 - np.log(median) / spread**2, y @ y
    log_v = lambertw(0.5 * S * spread**2 * np.exp(spread**2 * a)).real - spread**2 * a
    rtol = 0.03 if inference in ("dsvi", "vecchia") else 1e-3
    assert_allclose(model.likelihood_.variance, np.exp(log_v), rtol=rtol)
    assert abs(np.exp(log_v) - median) > 0.1 and abs(np.exp(log_v) - S / 50) > 0.1


def test_lengthscale_against_a_search(rows):
    """The exact scheme, against a dense density and scipy's search."""
    X, y = rows[0][:, :1], rows[1]
    kernel = SquaredExponential(LogNormal(3.0, 0.1), Fixed(1.0))
    model = fitted((X, y), "exact", 40, kernel=kernel, likelihood=Gaussian(Fixed(0.3)))

    def loss(log_l):
        K = np.exp(-0.5 * np.square((X - X.T) / np.exp(log_l))) + 0.3 * np.eye(len(X))
        prior = norm.logpdf(log_l, np.log(3.0), 0.1)
        return -multivariate_normal.logpdf(y, cov=K) - prior

    best = minimize_scalar(loss, bounds=(-1.0, 2.0), method="bounded").x
    assert_allclose(model.kernels_[0].lengthscale, np.exp(best), rtol=2e-3)
    assert np.exp(best) < 2.9


@pytest.mark.parametrize("inference", SCHEMES)
def test_fixed_ones_stay_and_tight_priors_hold(rows, inference):
    """By all schemes, in all layers."""
    kernel = SquaredExponential(LogNormal(0.7, 1e-3), Fixed(1.3))
    likelihood = Gaussian(Fixed(0.07))
    n_iter = {"sghmc": 60, "collapsed": 12, "ess": 8}.get(inference, 15)
    settings = {"kernel": kernel, "likelihood": likelihood, "standardize": "auto"}
    model = fitted(rows, inference, n_iter, **settings)
    assert_array_equal(model.likelihood_.variance, 0.07)
    for layer in model.kernels_:
        for one in layer if isinstance(layer, list) else [layer]:
            assert one.variance == 1.3
            if inference not in ("diwp", "global", "nngp"):  # in units of Gram matrices
                assert_allclose(one.lengthscale, 0.7, rtol=0.02)


def test_priors_of_user_and_recipe_are_read_and_given(rows):
    model = fitted(rows, "exact", 5, kernel=Matern(variance=LogNormal(2.0, 0.5)))
    found = model.members_[0].priors_
    assert found["layers.0.kernel.variance"].get_params() == {
        "median": 2.0, "spread": 0.5, "deviation": None,
    }  # fmt: skip
    recipe = found["layers.0.kernel.lengthscale"]
    assert (recipe.spread, recipe.deviation) == (2.0, 0.5)
    assert_allclose(recipe.median, 2**0.5)
    same = fitted(rows, "exact", 5, kernel=Matern(lengthscale=recipe, variance=LogNormal(2.0, 0.5)))
    assert_array_equal(model.predict(rows[0]), same.predict(rows[0]))
    recipe.set_params(spread=0.01, median=0.3)
    other = fitted(rows, "exact", 20, kernel=Matern(lengthscale=recipe))
    assert abs(np.log(other.kernels_[0].lengthscale / 0.3).mean()) < 0.1
    other.set_params(kernel__lengthscale__median=1.0)
    assert clone(other).kernel.lengthscale.median == 1.0
    default = DeepGPRegressor(budget=0.2, max_iter=2, random_state=0).fit(*rows)
    assert all(member.priors_ for member in default.members_ if "Exact" in repr(member))


def test_columns_by_name(rows):
    X, y = rows
    frame = pd.DataFrame(X, columns=["a", "b"])
    kernel = Matern(lengthscale=LogNormal(0.5, 1.0), on=["b"]) + Linear(on=["a"])
    same = OnColumns(Matern(lengthscale=LogNormal(0.5, 1.0)), [1]) + OnColumns(Linear(), ["a"])
    one, other = (fitted((frame, y), "exact", 5, kernel=k) for k in (kernel, same))
    assert_array_equal(one.predict(frame), other.predict(frame))
    assert_allclose(one.predict(frame.assign(b=0.0)).std(), abs(np.polyfit(X[:, 0], one.predict(
        frame.assign(b=0.0)), 1)[0]) * X[:, 0].std())  # fmt: skip
    with pytest.raises(ValueError, match="no column 'c'"):
        fitted((frame, y), "exact", 1, kernel=Matern(on=["c"]))
    with pytest.raises(ValueError, match="hidden layers are not"):
        fitted((frame, y), "dsvi", 1, kernel=Matern(on=["a"]))


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Matern(lengthscale=LogNormal(-1.0)), "median of LogNormal must be positive"),
        (Matern(lengthscale=LogNormal(1.0, "x")), "spread of LogNormal must be positive"),
        (Matern(variance=Fixed(0.0)), "value of Fixed must be positive"),
        (Matern(trainable={"lengthscale": False}), "trainable of Matern must be True, False or"),
    ],
)
def test_bad_input(rows, kernel, message):
    with pytest.raises(ValueError, match=message):
        fitted(rows, "exact", 1, kernel=kernel)
    if "trainable" in message:
        noise = HeteroscedasticGaussian(trainable="variances")
        with pytest.raises(ValueError, match="trainable of Heteroscedastic"):
            fitted(rows, "exact", 1, likelihood=noise)


def test_samplers_refuse_priors_that_share_a_level(rows):
    kernel = Matern(lengthscale=LogNormal(1.0, 1.0, 0.5))
    with pytest.raises(ValueError, match="set deviation=None"):
        fitted(rows, "ess", 1, kernel=kernel)


def test_periodic_kernel():
    X = torch.tensor(np.random.default_rng(0).normal(size=(9, 2)))
    kernel = Periodic([0.7, 2.0], [0.5, 1.5], 1.2).bind(2)
    angle = np.pi * (X.numpy()[:, None] - X.numpy()) / [0.7, 2.0]
    expected = 1.2 * np.exp(-2.0 * np.square(np.sin(angle) / [0.5, 1.5]).sum(2))
    for K in (kernel(X, X), kernel.between(X, X), kernel.within(X[None])[0]):
        assert_allclose(K, expected)
    assert_allclose(kernel.diag(X), 1.2)
    both = stacked([Trainable(kernel)(), Trainable(kernel)()])
    assert_allclose(both.between(X[None], X[None]).detach()[1], expected)
    generator = torch.Generator().manual_seed(0)
    draws = prior_functions(kernel, 1000, 1, generator, X, 256)(X[:5])[..., 0]
    assert_allclose(draws.T @ draws / 1000, expected[:5, :5], atol=0.22)  # 4 standard errors
    step = torch.tensor([[1e-4, 0.0]], dtype=torch.float64)
    curvature = 2.0 * (1.2 - kernel(step, 0.0 * step).item()) / 1e-8
    assert_allclose(kernel.slopes[0], curvature, rtol=1e-4)


@pytest.mark.parametrize("inference", ["exact", "vfe", "dsvi"])
def test_periods_are_in_units_of_x_and_go_on(inference):
    t = np.arange(0.0, 120.0, 2.0)
    y = np.sin(2 * np.pi * t / 12.0)
    kernel = Periodic(Fixed(12.0), on=["month"])
    frame = pd.DataFrame({"month": t, "other": np.random.default_rng(0).normal(size=60)})
    settings = {"kernel": kernel, "standardize": "auto", "likelihood": "gaussian"}
    model = fitted((frame, y), inference, 150 if inference == "dsvi" else 15, 1, **settings)
    later = frame.assign(month=t + 600.0)
    assert np.abs(model.predict(later) - y).max() < 0.1
    assert_array_equal(model.kernels_[0].kernel.period, 12.0)
