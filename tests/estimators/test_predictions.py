"""What every prediction has to satisfy, whatever was learned."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from latents import latent_mixture
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, stats
from scipy.special import logsumexp

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.inference import DSVI
from skdgp.predictive import functions
from skdgp.predictive import mixture as predictive
from skdgp.predictive.mixture import Mixture
from skdgp.quadrature import inverse

FEW = {"max_iter": 20, "learning_rate": 0.02, "n_inducing": 10, "random_state": 0}
CONTINUOUS = ("gaussian", "heteroscedastic", "student_t", "heteroscedastic_student_t")
LIKELIHOODS = (*CONTINUOUS, "poisson")


@pytest.fixture(scope="module")
def data():
    """Inputs and a target in units that scaling has to deal with."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(60, 2)) * [30.0, 0.1] + [1000.0, -5.0]
    f = np.sin(X[:, 0] / 10.0) + 10.0 * (X[:, 1] + 5.0)
    return X, 200.0 + 50.0 * f + 10.0 * rng.standard_normal(60)


@pytest.fixture(scope="module")
def counts(data):
    return np.random.default_rng(1).poisson(np.exp(data[1] / 100.0 - 1.0))


@pytest.fixture(scope="module")
def models(data, counts):
    """One fitted regressor for each likelihood; their hidden layers are uncertain."""
    scheme = DSVI(inner_scale=0.3, inner_noise=0.0)
    fitted = {}
    for likelihood in LIKELIHOODS:
        model = DeepGPRegressor(likelihood=likelihood, inference=scheme, n_predict_draws=8, **FEW)
        fitted[likelihood] = model.fit(data[0], counts if likelihood == "poisson" else data[1])
    return fitted


@pytest.fixture(scope="module")
def targets(data):
    """Two targets of different units."""
    return np.column_stack([data[1], 3.0 - 0.01 * data[1]])


@pytest.fixture(scope="module")
def joint_model(data, targets):
    scheme = DSVI(inner_scale=0.5, inner_noise=0.0)
    model = DeepGPRegressor(inference=scheme, likelihood="gaussian", n_predict_draws=8, **FEW)
    return model.fit(data[0], targets)


@pytest.fixture(scope="module")
def classifier(data):
    X, y = data
    labels = np.array(["a", "b", "c"])[np.digitize(y, [180.0, 220.0])]
    model = DeepGPClassifier(inference=DSVI(inner_scale=0.3), n_predict_draws=8, **FEW)
    return model.fit(X, labels)


def everything(model, X, y):
    """All predictions that are made row by row."""
    found = {
        "log_predictive_density": model.log_predictive_density(X, y),
        "latent draws": model.sample_y(X, 3, latent=True),
    }
    if isinstance(model, DeepGPClassifier):
        return {"predict_proba": model.predict_proba(X), **found}
    found["mean"], found["std"] = model.predict(X, return_std=True)
    found["latent std"] = model.predict(X, return_std=True, latent=True)[1]
    return {"quantiles": model.predict_quantiles(X, [0.1, 0.7]), **found}


@pytest.fixture(params=[*LIKELIHOODS, "joint", "classifier"])
def case(request, models, joint_model, classifier, data, counts, targets):
    X, y = data
    if request.param == "joint":
        return joint_model, X, targets
    if request.param == "classifier":
        return classifier, X, classifier.predict(X)
    return models[request.param], X, counts if request.param == "poisson" else y


regression = pytest.mark.parametrize("case", [*LIKELIHOODS, "joint"], indirect=True)


# Rows


def test_rows_do_not_see_each_other(case):
    model, X, y = case
    together = everything(model, X, y)
    order = np.random.default_rng(0).permutation(len(X))
    for rows in (order, slice(0, 1), slice(7, 30), np.repeat(order[:3], 2)):
        for name, values in everything(model, X[rows], y[rows]).items():
            assert_allclose(values, together[name][rows], rtol=1e-7, atol=1e-7, err_msg=name)


def test_chunks_do_not_matter(case, monkeypatch):
    model, X, y = case
    together = everything(model, X, y)
    for budget in ("_BUDGET", "_ROWS_BUDGET"):
        monkeypatch.setattr(predictive, budget, 3 * len(model.members_[0].draws) * 40)
    monkeypatch.setattr(functions, "_AT_ONCE", 7 * 16 * 1024)  # seven rows of a block of draws
    assert predictive.rows_at_once(model.members_, "cpu") < 10
    for name, values in everything(model, X, y).items():
        assert_allclose(values, together[name], rtol=1e-9, atol=1e-9, err_msg=name)


def test_covariance_of_some_rows(models, data):
    X = data[0][:12]
    cov = models["gaussian"].predict(X, return_cov=True)[1]
    rows = np.array([3, 11, 7])
    some = models["gaussian"].predict(X[rows], return_cov=True)[1]
    assert_allclose(some, cov[np.ix_(rows, rows)], rtol=1e-7, atol=1e-7)
    with pytest.raises(RuntimeError, match="At most one of return_std or return_cov"):
        models["gaussian"].predict(X, return_std=True, return_cov=True)


@pytest.mark.parametrize("case", ["gaussian", "classifier"], indirect=True)
def test_container_and_dtype_of_inputs(case):
    model, X, y = case
    X = X[:9].astype(np.float32)  # so that every version holds the same numbers
    read_only = X.astype(np.float64)
    read_only.flags.writeable = False
    expected = everything(model, X.astype(np.float64), y[:9])
    for other in (X, X.tolist(), np.asfortranarray(X), read_only, torch.as_tensor(X)):
        for name, values in everything(model, other, y[:9]).items():
            assert_allclose(values, expected[name], rtol=1e-12, atol=1e-12, err_msg=name)
            assert values.dtype == np.float64


# Fits


def fits(seed):
    return (
        DeepGPRegressor(batch_size=16, max_iter=10, n_inducing=10, random_state=seed),
        DeepGPClassifier(early_stopping=True, max_iter=10, n_inducing=10, random_state=seed),
    )


@pytest.fixture(scope="module")
def plain(data):
    return fits(0)[0].fit(*data)


def curves(model):
    return [member.record.loss_curve for member in model.members_]


@pytest.mark.parametrize("which", [0, 1])
def test_same_random_state_same_result(data, which, no_global_randomness):
    X, y = data
    y = y > 200.0 if which else y
    first, second = (fits(seed)[which].fit(X, y) for seed in (3, 3))
    for name, values in everything(first, X, y).items():
        assert_array_equal(values, everything(second, X, y)[name], err_msg=name)
    assert curves(first) == curves(second)
    again = first.fit(X, y)  # nothing is left over from the first time
    assert curves(again) == curves(second)
    other = fits(4)[which].fit(X, y)
    assert curves(other) != curves(second)


def test_random_state_instance_advances(data):
    X, y = data
    state = np.random.RandomState(5)
    first, second = (fits(state)[0].fit(X, y).predict(X) for _ in range(2))
    assert not np.array_equal(first, second)
    assert_array_equal(first, fits(np.random.RandomState(5))[0].fit(X, y).predict(X))


def test_order_of_training_rows_does_not_matter(plain, data):
    X, y = data
    order = np.random.default_rng(0).permutation(len(X))
    other = fits(0)[0].fit(X[order], y[order])
    assert_array_equal(plain.predict(X), other.predict(X))


def test_weights_are_counts(plain, data):
    X, y = data
    weights = np.arange(len(X)) % 3
    rows = np.repeat(np.arange(len(X)), weights)
    first, second = fits(0)[0].fit(X, y, sample_weight=weights), fits(0)[0].fit(X[rows], y[rows])
    for name, values in everything(first, X, y).items():
        assert_array_equal(values, everything(second, X, y)[name], err_msg=name)
    weights = [[member.mixture_weight for member in model.members_] for model in (first, second)]
    assert weights[0] == weights[1]
    assert np.abs(plain.predict(X) - first.predict(X)).max() > 1e-3


# Units


def units(likelihood):
    return DeepGPRegressor(likelihood=likelihood, n_predict_draws=8, inference="dsvi", **FEW)


@pytest.fixture(scope="module")
def plain_units(data):
    """Predictions and bounds before the units change, for each likelihood."""
    X, y = data
    found = {}
    for likelihood in CONTINUOUS:
        model = units(likelihood).fit(X, y)
        upper = model.predict_quantiles(X, 0.9)[:, 0]
        found[likelihood] = {**everything(model, X, y), "upper": upper}, model.lower_bound_
    return found


@pytest.mark.parametrize(
    ("likelihood", "a", "b"),
    [
        ("gaussian", -3.7, 1e4),
        ("heteroscedastic", 1e-6, 0.0),
        ("student_t", 1e6, -1e7),
        ("heteroscedastic_student_t", -3.7, 1e4),
        ("heteroscedastic_student_t", 1e6, -1e7),
    ],
)
def test_units_of_the_target(data, plain_units, likelihood, a, b):
    X, y = data
    model = units(likelihood)
    plain, bound = plain_units[likelihood]
    other = everything(model.fit(X, a * y + b), X, a * y + b)
    tolerance = 1e-6 * abs(a) * np.std(y)  # rounding grows a little over 20 steps
    assert_allclose(other["mean"], a * plain["mean"] + b, rtol=0, atol=tolerance)
    assert_allclose(other["std"], abs(a) * plain["std"], rtol=0, atol=tolerance)
    assert_allclose(other["latent std"], abs(a) * plain["latent std"], rtol=0, atol=tolerance)
    expected = plain["log_predictive_density"] - np.log(abs(a))
    assert_allclose(other["log_predictive_density"], expected, atol=1e-6)
    assert_allclose(model.lower_bound_, bound - len(X) * np.log(abs(a)), rtol=1e-7)
    upper = model.predict_quantiles(X, 0.9 if a > 0.0 else 0.1)[:, 0]
    expected = a * plain["upper"] + b
    assert_allclose(upper, expected, rtol=0, atol=10.0 * tolerance)


def test_affine_changes_of_the_inputs(data):
    """Rows and training draws keep their order, so only rounding separates the fits."""
    X, y = data
    model = DeepGPRegressor(n_predict_draws=8, **FEW)
    plain = everything(model.fit(X, y), X, y)
    for Z, rtol, atol in (
        (X * [2.0**-9, 2.0**20], 1e-9, 0.0),
        (X * [1e-3, 1e5] + [-77.0, 1e4], 1e-5, 1e-4),
    ):
        for name, values in everything(model.fit(Z, y), Z, y).items():
            assert_allclose(values, plain[name], rtol=rtol, atol=atol, err_msg=name)


# The mixture


def mixture(model, X, y):
    """The same in the target's units, if there is one latent for each output."""
    mean, var = latent_mixture(model, X)
    return y.mean(0) + y.std(0) * mean, y.var(0) * var


def normal_grid(mean, var, n=2001, width=9.0):
    """Points and probabilities along a new last axis that replace a normal distribution."""
    z = np.linspace(-width, width, n)
    p = stats.norm.pdf(z)
    return mean[..., None] + np.sqrt(var)[..., None] * z, p / p.sum()


def direct(likelihood, numbers, m, v, y):
    """Density, mean and variance of y given latent moments (latents, n), by brute force."""
    if likelihood == "gaussian":
        noise = numbers.variance[0]
        return stats.norm.pdf(y, m[0], np.sqrt(v[0] + noise)), m[0], v[0] + noise
    if likelihood == "heteroscedastic":
        g, p = normal_grid(m[1], v[1])
        noise = numbers.variance[0] * np.exp(g)
        std = np.sqrt(v[0][:, None] + noise)
        return stats.norm.pdf(y[:, None], m[0][:, None], std) @ p, m[0], v[0] + noise @ p
    if likelihood == "heteroscedastic_student_t":
        g, p = normal_grid(m[1], v[1], n=101)
        f, p_f = normal_grid(m[0], v[0], n=301)
        df, scale = numbers.df[0], numbers.scale[0] * np.exp(0.5 * g)
        density = stats.t.pdf(y[:, None, None], df, f[:, None, :], scale[..., None]) @ p_f @ p
        return density, m[0], v[0] + scale**2 @ p * df / (df - 2.0)
    f, p = normal_grid(m[0], v[0])
    if likelihood == "student_t":
        df, scale = numbers.df[0], numbers.scale[0]
        density = stats.t.pdf(y[:, None], df, f, scale) @ p
        return density, m[0], v[0] + scale**2 * df / (df - 2.0)
    rate = numbers.rate[0] * np.exp(f)
    mean = rate @ p
    return stats.poisson.pmf(y[:, None], rate) @ p, mean, mean + rate**2 @ p - mean**2


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_mixture_by_brute_force(models, data, counts, likelihood):
    X, model = data[0][:10], models[likelihood]
    y = counts if likelihood == "poisson" else data[1]
    m, v = latent_mixture(model, X)  # S, n, 1 or 2
    center, scale = (0.0, 1.0) if likelihood == "poisson" else (y.mean(), y.std())
    m[..., 0], v[..., 0] = center + scale * m[..., 0], scale**2 * v[..., 0]
    m, v = m.transpose(0, 2, 1), v.transpose(0, 2, 1)  # S, 1 or 2, n
    parts = [direct(likelihood, model.likelihood_, m[s], v[s], y[:10]) for s in range(len(m))]
    density, means, variances = (np.array(part) for part in zip(*parts))
    # the quadrature of the library has 20 nodes
    assert_allclose(model.log_predictive_density(X, y[:10]), np.log(density.mean(0)), atol=1e-5)
    mean, std = model.predict(X, return_std=True)
    assert_allclose(mean, means.mean(0), rtol=1e-6)
    assert_allclose(std**2, variances.mean(0) + means.var(0), rtol=1e-5)
    assert_allclose(model.predict_var(X), std**2, rtol=1e-12)
    mean, std = model.predict(X, return_std=True, latent=True)
    rate = (
        model.likelihood_.rate if likelihood == "poisson" else 1.0
    )  # of which functions have the log
    assert_allclose(mean, m[:, 0].mean(0) + np.log(rate), rtol=1e-9)
    assert_allclose(std**2, v[:, 0].mean(0) + m[:, 0].var(0), rtol=1e-9)


def test_density_of_several_outputs_is_joint(joint_model, data, targets):
    X, y = data[0][:10], targets[:10]
    mean, var = mixture(joint_model, X, targets)
    logs = stats.norm.logpdf(y, mean, np.sqrt(var + joint_model.likelihood_.variance))
    joint = logsumexp(logs.sum(-1), axis=0) - np.log(len(logs))
    assert_allclose(joint_model.log_predictive_density(X, y), joint, rtol=1e-9)
    product = (logsumexp(logs, axis=0) - np.log(len(logs))).sum(-1)
    assert np.abs(joint - product).max() > 0.01  # the outputs are not independent


def test_joint_density_integrates_to_one(joint_model, data):
    X = data[0][:1]
    mean, std = joint_model.predict(X, return_std=True)
    grids = [np.linspace(m - 9.0 * s, m + 9.0 * s, 121) for m, s in zip(mean[0], std[0])]
    y = np.stack(np.meshgrid(*grids, indexing="ij"), -1).reshape(-1, 2)
    density = np.exp(joint_model.log_predictive_density(np.tile(X, (len(y), 1)), y))
    inner = integrate.simpson(density.reshape(121, 121), x=grids[1])
    assert_allclose(integrate.simpson(inner, x=grids[0]), 1.0, atol=1e-6)


def density_at(model, x, y):
    return np.exp(model.log_predictive_density(np.tile(x, (len(y), 1)), y))


def integral(model, x, a, b, n=400):
    """Probability of an interval, by Gauss-Legendre on the density."""
    nodes, weights = np.polynomial.legendre.leggauss(n)
    y = 0.5 * (a + b) + 0.5 * (b - a) * nodes
    return 0.5 * (b - a) * weights @ density_at(model, x, y)


@pytest.mark.parametrize("likelihood", CONTINUOUS)
def test_quantiles_invert_the_distribution(models, data, likelihood):
    model, X = models[likelihood], data[0][:3]
    alpha = np.array([1e-3, 0.05, 0.3, 0.5, 0.95, 0.999])
    quantiles = model.predict_quantiles(X, alpha)
    assert quantiles.shape == (3, 6)
    error = 5e-6 if likelihood == "heteroscedastic_student_t" else 1e-6  # of its components
    for x, q in zip(X, quantiles):
        between = [integral(model, x, a, b) for a, b in pairwise(q)]
        assert_allclose(between, np.diff(alpha), atol=error)
        # tails: substitute y = q -/+ s / (1 - s), for their length is unknown
        s, weights = np.polynomial.legendre.leggauss(400)
        s, unit = 0.5 * (s + 1.0), q[-1] - q[0]
        for end, sign, tail in ((q[0], -1.0, alpha[0]), (q[-1], 1.0, 1.0 - alpha[-1])):
            y = end + sign * unit * s / (1.0 - s)
            mass = 0.5 * weights @ (density_at(model, x, y) * unit / (1.0 - s) ** 2)
            assert_allclose(mass, tail, atol=error)  # so the total is one


def test_quantiles_of_counts(models, data, watch):
    """They are those of sums, and take few evaluations."""
    model, X = models["poisson"], data[0][:5]
    alpha = np.array([0.01, 0.25, 0.5, 0.9, 0.999])
    for x, quantiles in zip(X, model.predict_quantiles(X, alpha)):
        pmf = density_at(model, x, np.arange(500))
        assert_allclose(pmf.sum(), 1.0, atol=1e-8)
        assert_array_equal(quantiles, np.searchsorted(np.cumsum(pmf), alpha))
    calls = watch(Mixture, "cdf")
    model.predict_quantiles(X, 0.5)
    assert 1 < len(calls) < 15
    with pytest.raises(ValueError, match="Some values of y are negative"):
        model.log_predictive_density(X[:2], [-1.0, 2.0])


def test_quantiles_of_several_outputs(joint_model, data, targets):
    X = data[0][:4]
    quantiles = joint_model.predict_quantiles(X, [0.2, 0.8])
    assert quantiles.shape == (4, 2, 2)
    mean, var = mixture(joint_model, X, targets)
    std = np.sqrt(var + joint_model.likelihood_.variance)
    for i, alpha in enumerate((0.2, 0.8)):
        cdf = stats.norm.cdf(quantiles[..., i], mean, std).mean(0)
        assert_allclose(cdf, alpha, atol=1e-9)


def test_intervals_are_quantiles(models, joint_model, data):
    X = data[0][:4]
    for model in (models["gaussian"], joint_model):
        for given, alpha in (({}, (0.05, 0.95)), ({"coverage": 0.5}, (0.25, 0.75))):
            quantiles = model.predict_quantiles(X, alpha)
            assert_allclose(model.predict_interval(X, **given), quantiles, rtol=1e-9)
        assert_array_equal(model.predict_quantiles(X), model.predict_quantiles(X, [0.05, 0.95]))
    assert models["gaussian"].predict_quantiles(X, 0.5).shape == (4, 1)


@pytest.mark.parametrize("alpha", [0.0, 1.0, [0.5, 1.5], [[0.5]], np.nan, []])
def test_orders_that_are_none(models, data, alpha):
    with pytest.raises(ValueError, match="alpha must hold numbers between 0 and 1"):
        models["gaussian"].predict_quantiles(data[0], alpha)
    with pytest.raises(ValueError, match="coverage must lie between 0 and 1"):
        models["gaussian"].predict_interval(data[0], alpha)


# Covariance and draws


@pytest.mark.parametrize(
    ("case", "latent"),
    [
        ("gaussian", True),
        ("heteroscedastic_student_t", False),
        ("poisson", False),
        ("joint", False),
    ],
    indirect=["case"],
)
def test_diagonal_of_the_covariance(case, latent):
    model, X, y = case
    X, y = X[:20], y[:20]
    mean, cov = model.predict(X, return_cov=True, latent=latent)
    same, std = model.predict(X, return_std=True, latent=latent)
    assert_array_equal(mean, same)
    assert cov.shape == (len(X), *y.shape)
    cov, std = cov.reshape(len(X), len(X), -1), std.reshape(len(X), -1)
    for k in range(std.shape[1]):
        block = cov[..., k]
        assert_allclose(np.diag(block), std[:, k] ** 2, rtol=1e-9)
        assert_allclose(block, block.T, rtol=1e-12)
        assert np.linalg.eigvalsh(block).min() > -1e-9 * np.trace(block)


@regression
def test_function_and_noise_add_up(case):
    model, X, _ = case
    X = X[:20]
    mean, function, noise = model.predict(X, return_std=True, decompose=True)
    same, std = model.predict(X, return_std=True)
    assert_allclose(mean, same, rtol=1e-12)
    assert_allclose(function**2 + noise**2, std**2, rtol=1e-9)
    if model.likelihood_.discrete:  # the variance of a Poisson variable is its mean
        assert_allclose(noise**2, mean, rtol=1e-9)
    else:
        assert_allclose(function, model.predict(X, return_std=True, latent=True)[1], rtol=1e-9)
    others = [{"return_std": False}, {"return_cov": True}, {"latent": True}, {"quantiles": [0.5]}]
    for other in others:
        with pytest.raises(ValueError, match="decompose=True takes the standard deviation"):
            model.predict(X, **{"return_std": True, "decompose": True, **other})


N_DRAWS = 1000
LIMIT = 4.5  #: standard errors; the largest of 100 normal variables exceeds it once in 1,500 times


def standard_errors_of(draws, mean, cov):
    """How far moments of draws (n_rows, n_draws) are from predicted ones, in standard errors."""
    n = draws.shape[1]
    centered = draws - mean[:, None]
    products = centered[:, None] * centered[None]
    means = centered.mean(1) / np.sqrt(np.diag(cov) / n)
    return means, (products.mean(-1) - cov) / (products.std(-1) / np.sqrt(n))


def check_correlations(draws, mean, cov):
    """Moments of draws against predicted ones, whose correlations come from 512 draws themselves."""
    means, covariances = standard_errors_of(draws, mean, cov)
    assert np.abs(means).max() < LIMIT
    assert np.abs(np.diag(covariances)).max() < LIMIT
    covariances /= np.sqrt(1.0 + N_DRAWS / 512)
    assert np.abs(covariances[np.triu_indices(len(cov), 1)]).max() < LIMIT


def accurate(X, y, likelihood="gaussian", inner_noise=0.0, inner_scale=0.3):
    """A model whose integral over the hidden layer leaves no error but that of the draws."""
    scheme = DSVI(inner_scale=inner_scale, inner_noise=inner_noise)
    model = DeepGPRegressor(likelihood=likelihood, inference=scheme, n_predict_draws=2048, **FEW)
    return model.fit(X, y)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_moments_of_draws(data, counts, likelihood):
    """At rows inside and outside the range of the data; noise that is Gaussian adds to variances alone."""
    model = accurate(data[0], counts if likelihood == "poisson" else data[1], likelihood)
    near = data[0][0] + np.array([[0.0, 0.0], [5.0, 0.003]])
    X = np.vstack([near, near + [45.0, 0.0]])
    draws = model.sample_y(X, N_DRAWS, random_state=1)
    assert draws.shape == (4, N_DRAWS)
    mean, std = model.predict(X, return_std=True)
    means, covariances = standard_errors_of(draws, mean, np.diag(std**2))
    assert np.abs(means).max() < LIMIT
    if likelihood != "student_t":  # whose squares have no variance
        assert np.abs(np.diag(covariances)).max() < LIMIT
    if likelihood in ("gaussian", "poisson"):
        mean, cov = model.predict(X, return_cov=True)
        check_correlations(draws, mean, cov)
        assert cov[2, 3] / np.sqrt(cov[2, 2] * cov[3, 3]) > 0.1  # so there is something to see
    if likelihood == "poisson":
        assert_array_equal(draws, draws.round())
    else:
        below = draws[:, None] < model.predict_quantiles(X, [0.1, 0.5, 0.9])[..., None]
        share = np.array([0.1, 0.5, 0.9])
        errors = (below.mean(-1) - share) / np.sqrt(share * (1.0 - share) / N_DRAWS)
        assert np.abs(errors).max() < LIMIT
    if likelihood in ("gaussian", "heteroscedastic"):
        draws = model.sample_y(X, N_DRAWS, random_state=2, latent=True)
        check_correlations(draws, *model.predict(X, return_cov=True, latent=True))


def test_rows_do_not_share_the_noise_of_hidden_layers(data):
    """The noise is large here, so a covariance that counted it would be far too large."""
    model = accurate(*data, inner_noise=0.3)
    X = data[0][0] + np.array([[0.0, 0.0], [2.0, 0.003], [0.0, 0.01]])
    draws = model.sample_y(X, N_DRAWS, random_state=3)
    check_correlations(draws, *model.predict(X, return_cov=True))


def test_outputs_share_the_hidden_layers_of_a_draw(data, targets):
    model, X = accurate(data[0], targets, inner_scale=0.7), data[0][:4]
    draws = model.sample_y(X, N_DRAWS, random_state=0, latent=True)
    assert draws.shape == (4, 2, N_DRAWS)
    means, variances = mixture(model, X, targets)
    correlations = []
    for row in range(4):
        mean, var = means[:, row], variances[:, row]
        cov = np.cov(mean.T, bias=True) + np.diag(var.mean(0))
        _, errors = standard_errors_of(draws[row], mean.mean(0), cov)
        assert np.abs(errors).max() < LIMIT
        correlations.append(cov[0, 1] / np.sqrt(cov[0, 0] * cov[1, 1]))
    assert np.abs(correlations).max() > 0.3


def test_latent_draws_are_functions(models, joint_model, classifier, data):
    X, _ = data
    for model in (models["gaussian"], models["heteroscedastic"], joint_model, classifier):
        first = model.sample_y(X[:40], 3, random_state=7, latent=True)
        second = model.sample_y(X[20:], 3, random_state=7, latent=True)
        assert_allclose(first[20:], second[:20], rtol=1e-9, atol=1e-9)
        other = model.sample_y(X[20:], 3, random_state=8, latent=True)
        assert np.abs(other - second).max() > 1e-3
        # the three draws differ from each other, and nearby rows hardly
        assert np.ptp(second, axis=-1).max() > 1e-3
        near = model.sample_y(X[20:] + [1e-4, 0.0], 3, random_state=7, latent=True)
        assert np.abs(near - second).max() < 1e-3 * np.abs(second).max()


def test_noise_is_fresh_for_every_row(models, data):
    model = models["gaussian"]
    X = np.tile(data[0][:1], (2, 1))
    latent = model.sample_y(X, 500, latent=True)
    assert_array_equal(latent[0], latent[1])
    noisy = model.sample_y(X, 500)
    difference = noisy[0] - noisy[1]
    noise = model.likelihood_.variance[0]
    # the variance of 500 normal variables has a relative standard error of 0.063
    assert_allclose(difference.var(), 2.0 * noise, rtol=4.0 * 0.063)
    assert_array_equal(noisy, model.sample_y(X, 500))


def test_random_state_of_draws(models, data, no_global_randomness):
    model, X = models["gaussian"], data[0][:5]
    state = np.random.RandomState(0)
    first, second = (model.sample_y(X, 2, random_state=state) for _ in range(2))
    assert not np.array_equal(first, second)
    assert_array_equal(first, model.sample_y(X, 2, random_state=0))
    assert_array_equal(first, model.sample_y(X, 2))
    one, other = (model.sample_y(X, 2, random_state=seed, latent=True) for seed in (0, 1))
    assert not np.array_equal(one, other)


def test_number_of_draws(models, data):
    """Functions are made in groups; no group repeats another."""
    model, X = models["gaussian"], data[0][:5]
    assert model.sample_y(X).shape == (5, 1)
    assert len(np.unique(model.sample_y(X, 200, latent=True)[0])) == 200
    with pytest.raises(ValueError, match="n_samples"):
        model.sample_y(X, n_samples=0)


@pytest.mark.parametrize("count", [0.0, 1.0, 17.0, 2.0**52 + 1.0, 3e19, 1e200])
def test_quantiles_of_counts_end_where_numbers_do(count):
    """The lowest number with enough of the distribution, also where not all integers are numbers."""
    mean = torch.tensor([[4.0 * count + 9.0]], dtype=torch.float64)
    found = inverse(
        lambda y: (y >= count).double(), 0.5, mean, torch.ones_like(mean), discrete=True
    )
    assert found.item() == count
