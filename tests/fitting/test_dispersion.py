"""Members whose components are narrower, or wider, than they say."""

import copy
from unittest import mock

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from scipy.stats import kstest, norm

from skdgp import DeepGPRegressor
from skdgp.fitting import stacking as scored
from skdgp.gp.likelihoods import Gaussian, HeteroscedasticGaussian, HeteroscedasticStudentT
from skdgp.inference import DSVI

pytestmark = pytest.mark.usefixtures("no_global_randomness")

MIXTURES = [
    Gaussian(0.3),
    HeteroscedasticGaussian(0.3),
    HeteroscedasticStudentT(df=5.0, scale=0.5),
]


class Dispersed:
    """A likelihood whose methods see the moments that dispersion leaves of given ones."""

    def __init__(self, likelihood, dispersion):
        self.likelihood, self.dispersion = likelihood, dispersion

    def __getattr__(self, name):
        def method(*args):
            *before, m, v = args
            likelihood, m, v = self.likelihood.dispersed(self.dispersion, m, v)
            return getattr(likelihood, name)(*before, m, v)

        return method

    def sample(self, f, generator):
        likelihood, f, _ = self.likelihood.dispersed(self.dispersion, f, torch.zeros_like(f))
        return likelihood.sample(f, generator)


def moments(likelihood):
    m, v = torch.tensor([[0.4, -0.3]]).double(), torch.tensor([[0.2, 0.6]]).double()
    k = likelihood.n_latents(1)
    return m[:, :k], v[:, :k]


def test_gaussian_noise_in_closed_form():
    m, v = moments(HeteroscedasticGaussian(0.3))  # two
    y = torch.tensor([[1.0, -1.1]]).double()
    narrow = Dispersed(Gaussian(0.3), 0.7)
    expected = norm(m.numpy(), 0.7 * np.sqrt(v.numpy() + 0.3))
    assert_allclose(narrow.log_partition(y, m, v), expected.logpdf(y).sum(1))
    assert_allclose(narrow.cdf(y, m, v), expected.cdf(y))
    mean, var = narrow.moments(m, v)
    assert_array_equal(mean, m)
    assert_allclose(var, expected.var())


@pytest.mark.parametrize("likelihood", MIXTURES)
@pytest.mark.parametrize("dispersion", [0.6, 1.0, 1.4])
def test_density_and_the_rest_agree(likelihood, dispersion):
    """All from the density by numerical integration."""
    m, v = moments(likelihood)
    narrow = Dispersed(likelihood, dispersion)

    # Gauss-Legendre in t of y = 0.4 + sinh(t), whose panels end where the distribution function is looked at
    targets = np.array([-0.5, 0.4, 1.3])
    ends = np.unique([*np.linspace(-14.0, 14.0, 85), *np.arcsinh(targets - 0.4)])
    x, weights = np.polynomial.legendre.leggauss(16)
    half = 0.5 * np.diff(ends)[:, None]
    t = (ends[:-1, None] + half * (1.0 + x)).ravel()
    y, weights = 0.4 + np.sinh(t), (half * weights).ravel() * np.cosh(t)

    def log_density(y):
        y = torch.tensor(y)[:, None]
        return narrow.log_partition(y, m.expand(len(y), -1), v.expand(len(y), -1)).numpy()

    density = np.exp(log_density(y)) * weights
    assert_allclose(density.sum(), 1.0, atol=1e-5)
    assert_allclose(density @ y, 0.4, atol=1e-4)
    mean, var = (float(moment) for moment in narrow.moments(m, v))
    assert mean == pytest.approx(0.4)
    # mixtures of few components cut the tails of t off, where some of its variance is
    assert_allclose(density @ (y - 0.4) ** 2, var, rtol=2e-3)
    for at, log_p in zip(targets, log_density(targets)):
        cdf = narrow.cdf(torch.tensor([[at]]).double(), m, v)
        assert_allclose(float(cdf), density[y < at].sum(), atol=1e-5)
        log_w, means, variances = (part.numpy() for part in narrow.components(m, v))
        parts = norm(means, np.sqrt(variances)).logpdf(at) + log_w
        assert_allclose(logsumexp(parts), log_p, atol=1e-4)


@pytest.mark.parametrize("likelihood", MIXTURES)
def test_samples_given_latent_values(likelihood):
    """Without variance of the latent functions only the noise is left, and it is scaled."""
    m, v = moments(likelihood)
    f = m.expand(20_000, *m.shape)
    narrow = Dispersed(likelihood, 0.6)
    y = narrow.sample(f, torch.Generator().manual_seed(0))[:, 0, 0].numpy()

    def cdf(y):
        y = torch.tensor(y)[:, None]
        k, zero = m.expand(len(y), -1), torch.zeros_like(v).expand(len(y), -1)
        return narrow.cdf(y, k, zero)[:, 0].numpy()

    assert kstest(y, cdf).pvalue > 1e-3


# In a mixture


@pytest.fixture(scope="module")
def model(data):
    settings = {"max_iter": 60, "n_inducing": 10, "n_predict_draws": 32}
    return DeepGPRegressor(random_state=0, **settings).fit(*data)


def only(model, i, dispersion):
    """The estimator with one of its members, of another dispersion, and as many draws as a single model has."""
    other = copy.deepcopy(model)
    member = other.members_[i]
    member.dispersion, member.draws = dispersion, member.model().draws(32, seed=0)
    member._posteriors = {}
    other.members_ = [member]
    return other


def test_all_members_share_one_spread(data):
    settings = {"max_iter": 2, "n_inducing": 10, "n_predict_draws": 32}
    model = DeepGPRegressor(random_state=1, **settings).fit(*data)
    (dispersion,) = {member.dispersion for member in model.members_}
    assert 0.5 < dispersion < 1.36 and dispersion != 1.0


def variance_of_means(model, X):
    """By how much the components of a model with one member differ, in squared units of the target."""
    (member,) = model.members_
    log_weights, means, _ = member.posterior().latent(torch.tensor(model._x_scaler.transform(X)))
    shares, means = log_weights.exp()[:, None], means[..., 0]
    off = means - (shares * means).sum(0)
    return (shares * off.square()).sum(0).numpy() * model._y_scaler.scale**2


@pytest.mark.parametrize("i", range(4))
def test_moments(i, model, data):
    """Means stay; each draw's variance is that of the model, times the square of the dispersion."""
    X = data[0][:7]
    one, half = only(model, i, 1.0), only(model, i, 0.5)
    for latent in (False, True):
        (mean, std), (mean_half, std_half) = (
            m.predict(X, return_std=True, latent=latent) for m in (one, half)
        )
        assert_allclose(mean_half, mean)
        parts = half.predict(X, return_std=True, decompose=True)[1:]
        assert_allclose(parts[0] if latent else np.hypot(*parts), std_half)
        if one.members_[0].architecture.widths:  # the means of the draws stay
            between = variance_of_means(one, X)
            assert (between > 0.0).all()
            assert_allclose(std_half**2 - between, 0.25 * (std**2 - between))
            continue
        assert_allclose(std_half, 0.5 * std)  # all components have the same mean


def check_draws(model, X, n):
    """Draws have the moments of predictions; those of targets, which come last, are returned."""
    for latent in (True, False):
        mean, std = model.predict(X, return_std=True, latent=latent)
        draws = model.sample_y(X, n, random_state=1, latent=latent)
        # Sobol draws of the hidden layers stand for all of them, features for the prior
        assert (abs(draws.mean(-1) - mean) < 4.5 * std / np.sqrt(n) + 0.05 * std).all()
        assert_allclose(draws.std(-1), std, rtol=0.12)  # five standard errors
    return mean, std, draws


@pytest.mark.parametrize("i", range(4))
def test_function_draws_follow_the_predictions(i, model, data):
    X, n = data[0][:5] + 0.1, 1000
    half = only(model, i, 0.5)
    _, _, draws = check_draws(half, X, n)
    lower, upper = half.predict_interval(X, 0.5).T
    inside = (lower[:, None] < draws) & (draws < upper[:, None])
    assert_allclose(inside.mean(1), 0.5, atol=0.075)


def test_means_do_not_depend_on_the_dispersion(model, data):
    other = copy.deepcopy(model)
    for member in other.members_:
        member.dispersion = 0.5
    scores = [
        m._predictor().mixture(data[0]).moments()[0].numpy(force=True) for m in (model, other)
    ]
    assert_array_equal(*scores)


def test_scores_agree_with_each_other(model, data):
    """Density and CRPS from the quantiles that the user sees."""
    X, y, model = data[0][:3], data[1][:3], copy.deepcopy(model)
    for member in model.members_:
        member.dispersion = 0.7
    alpha = (np.arange(1000) + 0.5) / 1000
    q = model.predict_quantiles(X, alpha)
    losses = 2.0 * (alpha - (y[:, None] < q)) * (y[:, None] - q)
    assert_allclose(model._crps(X, y), losses.mean(1), rtol=2e-3)
    middle = q[:, 250:750]
    slopes = (middle[:, 2:] - middle[:, :-2]) / (alpha[2] - alpha[0])
    for x, at, slope in zip(X, middle[:, 1:-1], slopes):
        chosen = slice(None, None, 50)
        density = model.log_predictive_density(np.tile(x, (len(at[chosen]), 1)), at[chosen])
        assert_allclose(np.exp(density), 1.0 / slope[chosen], rtol=1e-3)


@pytest.fixture(scope="module")
def two(data):
    """Two outputs: the second one is the first, of another scale and sign."""
    X, y = data
    settings = {"max_iter": 40, "n_inducing": 10, "n_predict_draws": 16}
    with mock.patch.object(
        scored, "_NEGLIGIBLE", 0.0
    ):  # the deep member, whose tails are light, stays
        return DeepGPRegressor(random_state=0, **settings).fit(
            X, np.column_stack([y, 3.0 - y / 10.0])
        )


@pytest.mark.parametrize("i", [0, 1])
def test_several_outputs(i, two, data):
    X, n = data[0][:4] + 0.1, 1000
    half = only(two, i, 0.5)
    mean, std, _ = check_draws(half, X, n)
    # the density integrates to one over both outputs, by points in the middle of a fine grid
    t = np.linspace(-7.0, 7.0, 71)
    a, b = np.meshgrid(mean[0, 0] + std[0, 0] * t, mean[0, 1] + std[0, 1] * t)
    both = np.column_stack([a.ravel(), b.ravel()])
    density = np.exp(half.log_predictive_density(np.tile(X[0], (len(both), 1)), both))
    assert_allclose(density.sum() * 0.2**2 * std[0].prod(), 1.0, atol=0.01)


def test_noise_that_is_given_is_honored(data):
    settings = {"max_iter": 5, "n_inducing": 5, "n_predict_draws": 8, "random_state": 0}
    for trainable in (True, False):
        noise = Gaussian(9.0, trainable=trainable)
        model = DeepGPRegressor(likelihood=noise, **settings).fit(*data)
        assert len(model.members_) > 1
        stds = [
            model.predict(data[0], return_std=True, latent=latent)[1] for latent in (True, False)
        ]
        if not trainable:
            assert {member.dispersion for member in model.members_} == {1.0}
            assert_allclose(stds[1] ** 2 - stds[0] ** 2, 9.0)
        else:
            assert model.members_[0].dispersion != 1.0


def test_layers_are_shown_as_they_predict(model, data):
    pytest.importorskip("matplotlib").use("Agg")
    from skdgp.inspection import LayersDisplay

    (deep,) = (i for i, member in enumerate(model.members_) if isinstance(member.scheme, DSVI))
    half, one = (
        LayersDisplay.from_estimator(only(model, deep, dispersion), data[0], n_functions=2).layers[
            -1
        ]
        for dispersion in (0.5, 1.0)
    )
    assert_allclose(half.mean, one.mean)
    ratio = half.std / one.std
    assert_allclose(ratio[:, 0], 0.5)
    assert_allclose(ratio[:, 1:], 1.0)  # the size of the noise
    away = [last.functions - last.mean for last in (half, one)]
    assert_allclose(away[0][..., 0], 0.5 * away[1][..., 0], atol=1e-12)
