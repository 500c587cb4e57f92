"""Skewed and positive targets: predictions of mapped targets in the user's units."""

import copy
import pickle

import numpy as np
import pytest
import torch
from amounts import drizzle
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.base import clone

from skdgp import DeepGPClassifier, DeepGPRegressor, SparseGPRegressor
from skdgp.fitting.target_maps import Log, YeoJohnson
from skdgp.gp.kernels import Linear
from skdgp.gp.likelihoods import Gaussian
from skdgp.predictive.transformed import mapped_moments
from skdgp.preprocessing.target_scaling import TargetScaler

EXACT = {"n_layers": 1, "inference": "exact", "random_state": 0}
DSVI = {"n_layers": 1, "inference": "dsvi", "max_iter": 30, "random_state": 0}


NAMES = ["log", "exponential-normal", "yeo-johnson"]
every_map = pytest.mark.parametrize("name", NAMES)


def skewed(n, size=1.0, seed=3):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    return X, np.exp(size * rng.standard_normal(n) + np.sin(3.0 * X[:, 0]))


@pytest.fixture(scope="module")
def exact():
    X, y = skewed(120)
    return DeepGPRegressor(**EXACT).fit(X, y)


@pytest.mark.parametrize(
    "params", [EXACT, {"max_iter": 50, "random_state": 0}], ids=["exact", "auto"]
)
def test_quantiles_of_log_normal_targets_hold_what_they_promise(params):
    X, y = skewed(800, size=2.0)
    model = DeepGPRegressor(**params).fit(X[:150], y[:150])
    assert model.target_transform_ == "log"
    alpha = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    quantiles = model.predict_quantiles(X[150:], alpha)
    shares = (y[150:, None] < quantiles).mean(0)
    # binomial errors of 650 rows, and as much again of what 150 rows leave open
    errors = np.sqrt(alpha * (1.0 - alpha)) * np.sqrt(1.0 / 650 + 1.0 / 150)
    assert (np.abs(shares - alpha) < 3.0 * errors).all()
    assert (np.abs(shares - alpha) < 0.07).all()


@pytest.mark.parametrize("seed", range(3))
def test_totals_of_drizzle(seed):
    """Most amounts are thousandths of the others; a logarithm would give two to three times the total."""
    X, y, expected = drizzle(seed, 1000)
    model = DeepGPRegressor(**EXACT).fit(X[:500], y[:500])
    assert model.target_transform_ == "exponential-normal"
    # of 500 targets, the sum has an error of a tenth
    assert model.predict(X[500:]).sum() == pytest.approx(expected[500:].sum(), rel=0.3)


@pytest.mark.parametrize("params", [EXACT, {**DSVI, "n_layers": 2}], ids=["exact", "dsvi"])
def test_a_logarithm_inside_is_one_outside(params):
    X, y = skewed(80)
    inside = DeepGPRegressor(target_transform="log", **params).fit(X[:60], y[:60])
    outside = DeepGPRegressor(target_transform=None, **params).fit(X[:60], np.log(y[:60]))
    seen, X, y = np.log(y[:60]), X[60:], y[60:]
    alpha = [0.01, 0.3, 0.5, 0.99]
    assert_allclose(inside.predict_quantiles(X, alpha), np.exp(outside.predict_quantiles(X, alpha)))
    log_density = outside.log_predictive_density(X, np.log(y)) - np.log(y)
    assert_allclose(inside.log_predictive_density(X, y), log_density, rtol=1e-10)
    for latent in (False, True):
        draws = (model.sample_y(X, 3, 1, latent=latent) for model in (inside, outside))
        # ends, as moments have them: of the training targets, or two deviations of the row
        mean, std = outside.predict(X, return_std=True, latent=latent)
        low = np.exp(np.minimum(mean - 2.0 * std, seen.min()))[:, None]
        high = np.exp(np.maximum(mean + 2.0 * std, seen.max()))[:, None]
        found, drawn = next(draws), np.exp(next(draws))
        kept = (drawn > low) & (drawn < high)
        assert kept.mean() > 0.9
        assert_allclose(found[kept], drawn[kept])
        assert_allclose(found, np.clip(drawn, low, high), rtol=1e-6)
    assert outside.target_transform_ is None and inside.target_transform_ == "log"
    assert inside.loss_curve_ == outside.loss_curve_


@every_map
@pytest.mark.parametrize("latent", [False, True])
def test_moments_are_those_of_draws(name, latent):
    X, y = skewed(100, size=0.5)
    model = DeepGPRegressor(target_transform=name, likelihood="gaussian", **EXACT).fit(X, y)
    x, n = X[:5], 40_000
    scaler, mixture = model._y_scaler, model._predictor().mixture
    mean, sd = (
        part[:, 0].numpy() for part in (mixture(x).latent(1) if latent else mixture(x)).moments()
    )
    low, high = (np.asarray(end)[0] for end in (scaler.low, scaler.high))
    draws = mean + sd * np.random.default_rng(0).standard_normal((n, 5))
    draws = np.clip(draws, np.minimum(mean - 2.0 * sd, low), np.maximum(mean + 2.0 * sd, high))
    draws = scaler.inverse(draws[..., None])[..., 0]
    found, std = model.predict(x, return_std=True, latent=latent)
    assert_allclose(found, draws.mean(0), atol=4.0 * draws.std() / np.sqrt(n))
    assert_allclose(std, draws.std(0), rtol=0.04)
    if name == "log":
        _, cov = model.predict(x, return_cov=True, latent=latent)
        assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-10)
        assert np.linalg.eigvalsh(cov).min() > -1e-10 * np.diag(cov).max()
    if not latent:
        assert_allclose(model.predict_var(x), std**2)
        ys = y[:5]
        gaps = np.abs(draws - ys).mean(0), np.abs(draws[::2] - draws[1::2]).mean(0)
        assert_allclose(
            model._crps(x, ys), gaps[0] - 0.5 * gaps[1], atol=5.0 * draws.std() / np.sqrt(n)
        )


def test_crps_of_a_log_normal_target_beyond_its_support():
    X, y = skewed(100, size=0.5)
    model = DeepGPRegressor(target_transform="log", **EXACT).fit(X, y)
    at = model._crps(X[:3], np.zeros(3))
    assert_allclose(model._crps(X[:3], np.full(3, -2.0)), at + 2.0, rtol=1e-6)
    assert_array_equal(model.log_predictive_density(X[:2], [0.0, -1.0]), -np.inf)


def test_densities_add_up_to_one():
    X, y = skewed(100, size=0.5)
    for name in NAMES:
        model = DeepGPRegressor(target_transform=name, **EXACT).fit(X, y)
        grid = np.linspace(-20.0 if name == "yeo-johnson" else 1e-6, 40.0, 4_001)
        log_density = model.log_predictive_density(np.repeat(X[:1], len(grid), 0), grid)
        assert np.trapezoid(np.exp(log_density), grid) == pytest.approx(1.0, abs=2e-3)


def test_positive_targets_have_positive_predictions(exact):
    X = np.random.default_rng(0).uniform(-3.0, 3.0, (50, 2))
    assert (exact.predict_quantiles(X, [1e-6, 0.5]) > 0.0).all()
    assert (exact.predict(X) > 0.0).all() and (exact.sample_y(X, 20) > 0.0).all()


def test_score_of_unseen_rows_is_in_units_of_the_target():
    X, y = skewed(100)
    made = [DeepGPRegressor(max_iter=20, random_state=0).fit(X, c * y) for c in (1.0, 1000.0)]
    first, second = ([member.record.log_density for member in model.members_] for model in made)
    assert_allclose(np.subtract(first, second), np.log(1000.0), atol=0.05)
    assert made[0].summary().startswith("targets: log\n")
    seen = made[0].log_predictive_density(X, y).mean()
    assert abs(np.mean(first) - seen) < 0.7


def test_lower_bound_has_the_jacobian():
    X, y = skewed(60)
    inside = DeepGPRegressor(target_transform="log", **DSVI).fit(X, y)
    outside = DeepGPRegressor(target_transform=None, **DSVI).fit(X, np.log(y))
    assert inside.lower_bound_ == pytest.approx(outside.lower_bound_ - np.log(y).sum(), rel=1e-8)


def test_none_and_ordinary_targets_are_as_ever():
    X, y = skewed(60)
    y = np.log(y)
    auto, plain = (
        DeepGPRegressor(target_transform=name, **DSVI).fit(X, y) for name in ("auto", None)
    )
    assert auto.target_transform_ is None
    assert_array_equal(auto.predict(X), plain.predict(X))


@pytest.mark.parametrize(
    "params",
    [
        {"standardize": False},
        {"likelihood": Gaussian(variance=0.1)},
        {"likelihood": "poisson"},
        {"target_transform": None},
    ],
)
def test_auto_leaves_alone(params):
    X, y = skewed(60)
    y = np.ceil(y) if params.get("likelihood") == "poisson" else y
    model = DeepGPRegressor(**{**DSVI, "max_iter": 2, **params}).fit(X, y)
    assert model.target_transform_ is None


def test_several_outputs():
    X, y = skewed(80)
    Y = np.column_stack([y, np.log(y)])
    model = DeepGPRegressor(**DSVI).fit(X, Y)
    assert model.target_transform_ == ["log", None]
    mean, std = model.predict(X[:6], return_std=True)
    assert mean.shape == std.shape == (6, 2) and (mean[:, 0] > 0.0).all()
    assert_allclose(
        std[:, 1],
        model._predictor().mixture(X[:6]).moments()[1][:, 1].numpy() * model._y_scaler.scale[1],
        rtol=1e-5,
    )
    assert model.predict_quantiles(X[:6], 0.5).shape == (6, 2, 1)
    assert model._crps(X[:6], Y[:6]).shape == (6, 2)
    assert model.predict(X[:6], return_cov=True)[1].shape == (6, 6, 2)


def test_messages():
    X, y = skewed(40)
    with pytest.raises(ValueError, match="needs positive targets"):
        DeepGPRegressor(target_transform="log", **DSVI).fit(X, y - 1.0)
    with pytest.raises(ValueError, match="needs positive targets"):
        DeepGPRegressor(target_transform="log", **DSVI).fit(X, y, X_val=X, y_val=0.0 * y)
    with pytest.raises(ValueError, match="likelihoods of real numbers"):
        DeepGPRegressor(target_transform="log", likelihood="poisson", **DSVI).fit(X, np.ceil(y))
    with pytest.raises(ValueError, match="target_transform"):
        DeepGPRegressor(target_transform="box-cox", **DSVI).fit(X, y)
    with pytest.raises(TypeError):
        DeepGPClassifier(target_transform="log")


def test_chunks_and_warm_starts():
    X, y = skewed(80)
    model = DeepGPRegressor(**DSVI).partial_fit(X[:40], y[:40])
    assert model.target_transform_ is None  # what is still to come may be negative
    model = DeepGPRegressor(target_transform="log", **DSVI).partial_fit(X[:40], y[:40])
    assert model.partial_fit(X[40:], y[40:]).target_transform_ == "log"
    with pytest.raises(ValueError, match="have no logarithm"):
        model.partial_fit(X, y - 1.0)
    assert (model.predict(X) > 0.0).all()
    model = DeepGPRegressor(n_inducing=20, warm_start=True, **DSVI).fit(X[:60], y[:60])
    assert model.target_transform_ == "log" and model.fit(X, y).target_transform_ == "log"
    with pytest.raises(ValueError, match="target_transform must stay"):
        model.set_params(target_transform=None).fit(X, y)
    other = DeepGPRegressor(n_inducing=20, init=model, **{**DSVI, "max_iter": 2})
    assert other.fit(X, y).target_transform_ == "log"
    with pytest.raises(ValueError, match="init"):
        other.set_params(target_transform="yeo-johnson").fit(X, y)


def test_copies_predict_alike(exact):
    X = skewed(5, seed=9)[0]
    for other in (pickle.loads(pickle.dumps(exact)), copy.deepcopy(exact)):
        assert_array_equal(other.predict(X), exact.predict(X))
        assert other.target_transform_ == "log"
    model = DeepGPRegressor(target_transform="log")
    assert clone(model).get_params()["target_transform"] == "log"


def test_weights_are_counts():
    X, y = skewed(60)
    counts = np.random.default_rng(0).integers(1, 3, 60)
    weighted = DeepGPRegressor(target_transform="yeo-johnson", **EXACT).fit(X, y, counts)
    repeated = clone(weighted).fit(np.repeat(X, counts, 0), np.repeat(y, counts))
    assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-7)


def test_a_sparse_baseline_takes_a_map():
    X, y = skewed(80)
    model = SparseGPRegressor(20, target_transform="log", random_state=0).fit(X, y)
    plain = SparseGPRegressor(20, random_state=0).fit(X, np.log(y))
    assert_allclose(model.predict_quantiles(X), np.exp(plain.predict_quantiles(X)))
    assert SparseGPRegressor(20).fit(X, y).target_transform_ is None


def cut(k, m, s, low, high):
    """E exp(k clip(z)) of Gaussian z."""
    a, b = (low - m) / s, (high - m) / s
    inside = np.exp(k * m + 0.5 * (k * s) ** 2) * (norm.cdf(b - k * s) - norm.cdf(a - k * s))
    return inside + np.exp(k * low) * norm.cdf(a) + np.exp(k * high) * norm.sf(b)


def moments_of(*parts, scaler):
    return tuple(part.numpy() for part in mapped_moments(*map(torch.tensor, parts), scaler))


def moments_of_logarithms(m, size):
    """Means and deviations that are found, and the first two moments in closed form."""
    scaler = TargetScaler(maps=[Log()]).fit(np.exp([[-3.0], [3.0]]), np.ones(2))  # -1 to 1
    m, s = np.array(m), np.full(len(m), size) / scaler.scale
    parts = np.ones((1, len(m), 1)), m[None, :, None], s[None, :, None] ** 2
    mean, std = moments_of(*parts, scaler=scaler)
    low, high = np.clip(m - 2.0 * s, -3.0, -1.0), np.clip(m + 2.0 * s, 1.0, 3.0)
    unit = scaler.scale * np.stack([m, s, low, high])
    return mean[:, 0], std[:, 0], cut(1.0, *unit), cut(2.0, *unit)


@pytest.mark.parametrize("size", [1e-6, 0.3, 2.0])
def test_moments_of_a_logarithm_are_their_closed_forms(size):
    mean, std, first, second = moments_of_logarithms([-1.0, 2.5, 0.4], size)
    assert_allclose(mean, first, rtol=1e-8)
    if size > 1e-3:
        assert_allclose(std, np.sqrt(second - first**2), rtol=1e-6)
    else:  # where the end is far away
        assert std[2] == pytest.approx(first[2] * size, rel=1e-6)


@pytest.mark.parametrize("size", [0.3, 2.0])
def test_moments_end_one_range_beyond_the_training_targets(size):
    mean, std, first, second = moments_of_logarithms([2.9, 40.0, -2.9, -40.0], size)
    assert_allclose(mean, first, rtol=1e-8)
    right = np.sqrt(np.maximum(second - first**2, 0.0))
    assert_allclose(std, right, rtol=1e-6, atol=1e-7 * first.max())
    assert_allclose(mean[[1, 3]], np.exp([9.0, -9.0]), rtol=1e-6)


@pytest.mark.filterwarnings("ignore:overflow")  # of the closed form
def test_moments_of_a_logarithm_that_is_not_known_at_all():
    """Half of a very wide distribution is at each of its ends."""
    found = [moments_of_logarithms([0.0, 1.5], size)[:2] for size in np.geomspace(1e6, 1e18, 50)]
    mean, std = np.array(found).swapaxes(0, 1)
    assert_allclose(mean, np.cosh(9.0), rtol=1e-4)  # three times the range of targets
    assert_allclose(std, np.sinh(9.0), rtol=1e-4)


@every_map
def test_a_row_far_from_all_others_predicts_no_astronomic_number(name):
    """A straight line through logarithms goes on to e^300 for a row at 100 times the range of the inputs."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (60, 1))
    y = np.exp(3.0 * X[:, 0] + 0.1 * rng.standard_normal(60))
    params = {"n_layers": 1, "inference": "exact", "kernel": Linear(), "random_state": 0}
    model = DeepGPRegressor(**params, target_transform=name).fit(X, y)
    g = model._y_scaler.maps[0]
    low, high = g.forward(y.min()), g.forward(y.max())
    most = g.inverse(torch.tensor(2.0 * high - low)).item()  # one more range
    x = [[1.0], [2.0], [100.0], [-100.0]]
    mean, std = model.predict(x, return_std=True)
    draws, quantiles = model.sample_y(x, 2000), model.predict_quantiles(x)
    assert y.max() < mean[1] < mean[2] <= most * (1.0 + 1e-9) and std[2] <= most
    assert (draws <= most * (1.0 + 1e-9)).all() and np.isfinite(quantiles).all()
    assert_allclose(
        mean, draws.mean(1), atol=4.5 * draws.std(1).max() / np.sqrt(2000) + 1e-9 * most
    )
    assert (np.diff(quantiles) >= 0.0).all() and np.isfinite(
        model.log_predictive_density(x, mean)
    ).all()


def test_later_targets_widen_the_range_of_predictions():
    """Chunks that grow by two decades each: what the first one held does not bound the others."""
    rng = np.random.default_rng(0)
    model = DeepGPRegressor(1, inference="dsvi", target_transform="log", random_state=0)
    for size in (1.0, 1e2, 1e4):
        X = rng.uniform(-0.1, 0.1, (50, 1)) + np.log(size)
        y = size * np.exp(0.1 * rng.standard_normal(50))
        model.partial_fit(X, y)
    assert model._y_scaler.inverse(model._y_scaler.transform(y[:, None]))[:, 0] == pytest.approx(y)
    assert model._y_scaler.high[0] == model._y_scaler.transform(y[:, None]).max()
    again = DeepGPRegressor(
        1, inference="exact", target_transform="log", warm_start=True, max_iter=2
    )
    again.fit(X[:, :1], y / 1e4).fit(X, y)
    assert again._y_scaler.high[0] >= again._y_scaler.transform(y[:, None]).max()


@pytest.mark.parametrize("curve", [0.0, 0.4, 1.6])
@pytest.mark.parametrize("size", [0.05, 1.0])
def test_moments_across_a_kink_are_those_of_many_nodes(curve, size):
    g = YeoJohnson(1.0, 2.0, curve)
    scaler = TargetScaler(maps=[g]).fit(
        g.inverse(torch.tensor([[-3.0], [2.0]]).double()).numpy(), np.ones(2)
    )
    m = np.linspace(-1.0, 1.0, 9)
    parts = np.ones((1, 9, 1)), m[None, :, None], np.full((1, 9, 1), size**2)
    mean, std = moments_of(*parts, scaler=scaler)
    z = m[:, None] + size * norm.ppf((np.arange(200_000) + 0.5) / 200_000)
    z = np.clip(z, np.minimum(m - 2 * size, -1.0)[:, None], np.maximum(m + 2 * size, 1.0)[:, None])
    y = scaler.inverse(z[..., None])[..., 0]
    assert_allclose(mean[:, 0], y.mean(1), atol=1e-5 * y.std())
    assert_allclose(std[:, 0], y.std(1), rtol=1e-4)


def test_the_heaviest_components_of_a_row_do_not_depend_on_other_rows():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.full(40, 0.02), (6, 1)).transpose(2, 0, 1)
    parts = weights, rng.normal(size=(40, 6, 1)), rng.uniform(0.01, 1.0, (40, 6, 1))
    scaler = TargetScaler(maps=[Log()]).fit(np.exp([[-3.0], [3.0]]), np.ones(2))
    together = moments_of(*parts, scaler=scaler)
    alone = [moments_of(*(part[:, i : i + 1] for part in parts), scaler=scaler) for i in range(6)]
    for both, single in zip(together, zip(*alone)):
        assert_allclose(both, np.concatenate(single), rtol=1e-12)


@pytest.mark.parametrize("noise", [0.3, 1.2])
def test_parts_of_a_log_target_are_those_of_the_mean_given_the_function(noise):
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, (40, 1))
    y = np.exp(np.sin(3.0 * X[:, 0]) + noise * rng.standard_normal(40))
    model = DeepGPRegressor(likelihood="gaussian", target_transform="log", **EXACT).fit(X, y)
    T = np.linspace(-0.8, 0.8, 5)[:, None]
    _, function, rest = model.predict(T, return_std=True, decompose=True)
    s2 = model.likelihood_.variance[0]
    middle, upper = np.log(model.predict_quantiles(T, [0.5, norm.cdf(1.0)])).T
    v = (upper - middle) ** 2 - s2
    expected = np.exp(middle + 0.5 * v + 0.5 * s2) * np.sqrt(np.expm1(v))
    assert_allclose(function, expected, rtol=0.02)
    assert_allclose(np.hypot(function, rest), model.predict(T, return_std=True)[1], rtol=1e-9)


@pytest.mark.parametrize(
    "params",
    [EXACT, {**DSVI, "likelihood": "student_t"}, {**DSVI, "likelihood": "heteroscedastic"}],
    ids=["exact", "student_t", "heteroscedastic"],
)
@every_map
def test_draws_quantiles_and_moments_are_of_one_distribution(name, params):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (60, 1))
    y = rng.gamma(2.0, np.exp(X[:, 0]))
    model = DeepGPRegressor(**params, target_transform=name).fit(X, y)
    x, n = X[:8], 4_000
    draws = model.sample_y(x, n)
    mean, std = model.predict(x, return_std=True)
    assert_allclose(mean, draws.mean(1), atol=4.5 * draws.std(1).max() / np.sqrt(n))
    assert draws.mean(1).sum() == pytest.approx(mean.sum(), rel=0.1)
    assert_allclose(std, draws.std(1), rtol=0.15)
    alpha = np.array([0.1, 0.5, 0.9])
    shares = (draws[..., None] < model.predict_quantiles(x, alpha)[:, None]).mean(1)
    assert_allclose(shares, np.broadcast_to(alpha, shares.shape), atol=0.03)


@pytest.mark.parametrize("name", ["auto", "log", "yeo-johnson"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_extreme_targets_give_numbers(name):
    X, y = skewed(60)
    y = np.where(np.arange(60) % 2, 1e140, 1e-300) * y
    model = DeepGPRegressor(target_transform=name, **{**DSVI, "max_iter": 5}).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    for values in (mean, std, model.predict_quantiles(X), model.sample_y(X, 3)):
        assert not np.isnan(values).any()
    assert not np.isnan(model.log_predictive_density(X, y)).any()


@pytest.mark.parametrize("name", ["log", "yeo-johnson"])
def test_noise_of_a_well_known_function_under_a_local_scale(name):
    """Sizes of the noise that are hardly possible have means without end, and leave no noise otherwise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (300, 1))
    y = np.exp(np.sin(3.0 * X[:, 0]) + 0.3 * rng.standard_normal(300))
    model = DeepGPRegressor(1, inference="exact", target_transform=name, random_state=0).fit(X, y)
    new = np.linspace(-0.8, 0.8, 9)[:, None]
    _, by_function, noise = model.predict(new, return_std=True, decompose=True)
    right = np.exp(np.sin(3.0 * new[:, 0]) + 0.045) * np.sqrt(np.expm1(0.09))  # of a log-normal
    assert_allclose(noise, right, rtol=0.35)
    assert (by_function < 0.6 * noise).all()
