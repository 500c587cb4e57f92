"""Standardization of inputs and targets."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from skdgp import DeepGPRegressor
from skdgp.preprocessing import outliers as pieces_module
from skdgp.preprocessing import scaling
from skdgp.preprocessing.outliers import codes, pieces, weighted_moments
from skdgp.preprocessing.scaling import InputScaler
from skdgp.preprocessing.target_scaling import TargetScaler


@pytest.fixture
def rng():
    return np.random.RandomState(0)


def fit(X, weights=None, standardize=True, seed=0):
    weights = np.ones(len(X)) if weights is None else weights
    return InputScaler(standardize).fit(X, weights, np.random.RandomState(seed))


@pytest.mark.parametrize("n", [0, 1, 65536, 65537, 200_000])
def test_pieces_cover_all_rows_once(n):
    rows = np.concatenate([np.arange(n)[piece] for piece in pieces(n)] or [np.arange(0)])
    assert_array_equal(rows, np.arange(n))
    assert all(piece.stop - piece.start <= 65536 for piece in pieces(n))


@pytest.mark.parametrize("offset", [0.0, 1e6, -1e9])
def test_moments(rng, offset, monkeypatch):
    X = rng.standard_normal((1000, 3)) * [1.0, 10.0, 1e-3] + offset
    weights = rng.randint(0, 4, 1000).astype(float)
    repeated = np.repeat(X, weights.astype(int), axis=0)
    monkeypatch.setattr(pieces_module, "_ROWS", 64)
    mean, std = weighted_moments(X, weights)
    assert_allclose(mean, repeated.mean(0), rtol=1e-12)
    assert_allclose(std**2, repeated.var(0), rtol=1e-9 if offset > -1e9 else 1e-3)
    mean, std = weighted_moments(X, weights, offset - 0.5, offset + 0.5)
    clipped = np.clip(repeated, offset - 0.5, offset + 0.5)
    assert_allclose(std**2, clipped.var(0), rtol=1e-9 if offset > -1e9 else 1e-3)


@pytest.mark.parametrize(("unit", "far"), [(1e-170, 1e-200), (1e140, 1e200)])
def test_moments_and_targets_in_any_unit(rng, unit, far):
    X = rng.standard_normal((60, 2)) + [0.0, 3.0]
    moments = weighted_moments(far * X, np.ones(60))
    assert_allclose(moments, [far * X.mean(0), far * X.std(0)], rtol=1e-12)
    y = X[:, 0] + 0.1 * rng.standard_normal(60)
    one, other = (
        DeepGPRegressor(1, inference="exact", random_state=0).fit(X, scale * y)
        for scale in (1.0, unit)
    )
    expected = one.predict(X, return_std=True)
    assert_allclose(other.predict(X, return_std=True), np.multiply(unit, expected), rtol=1e-6)


@pytest.mark.parametrize("draw", ["normal", "uniform", "integers"])
def test_clean_columns_as_standard_scaler(rng, draw):
    X = {
        "normal": rng.standard_normal((2000, 3)),
        "uniform": rng.uniform(5.0, 9.0, (2000, 3)),
        "integers": rng.randint(0, 3, (2000, 3)).astype(float),
    }[draw] * [1e-8, 1.0, 1e8] + [0.0, 1e6, 0.0]
    expected = StandardScaler().fit_transform(X)
    assert_allclose(fit(X).transform(X), expected, rtol=1e-8, atol=1e-8)


def test_outliers_do_not_set_the_scale(rng):
    """A hundredth of the rows at up to a billion standard deviations moves the rest by little."""
    clean = rng.standard_normal((1000, 1))
    X = clean.copy()
    X[:5], X[5:9] = 1e9, -1e9
    rest = fit(X).transform(X)[9:]
    expected = fit(clean).transform(clean)[9:]
    # the outliers count as three ranges of the rest: nine values of about 16
    assert np.abs(rest - expected).max() < 2.0
    assert np.corrcoef(rest.ravel(), expected.ravel())[0, 1] > 0.9999
    assert 0.5 < rest.std() < 1.0


def test_far_values_grow_logarithmically(rng):
    scaler = fit(rng.standard_normal((1000, 1)))
    z = np.array([[0.0], [3.0], [5.0], [5.0 + 1e-9], [5.0 + np.expm1(1.0)], [5.0 + np.expm1(20.0)]])
    z = np.vstack([z, -z])
    X = z * scaler.scale + scaler.center
    expected = np.array([0.0, 3.0, 5.0, 5.0 + 1e-9, 6.0, 25.0])
    assert_allclose(scaler.transform(X)[:, 0], np.concatenate([expected, -expected]), atol=1e-6)
    X = np.sort(np.concatenate([-np.logspace(-3, 300, 500), np.logspace(-3, 300, 500)]))[:, None]
    z = scaler.transform(X)
    assert (np.diff(z[:, 0]) > 0.0).all() and np.abs(z).max() < 1000.0


@pytest.mark.parametrize("standardize", [True, False])
def test_inverse(rng, standardize):
    """Without standardization, rows stay as they are."""
    X = rng.standard_normal((500, 4)) * [1.0, 100.0, 1e-6, 0.0] + [0.0, -3.0, 1.0, 7.0]
    X[0, 0] = 1e4  # an outlier comes back, too
    scaler = fit(X, standardize=standardize)
    assert_allclose(scaler.inverse_transform(scaler.transform(X)), X, rtol=1e-9, atol=1e-12)
    if not standardize:
        assert_array_equal(scaler.transform(X), X)
        assert_array_equal(scaler.inverse_transform(X), X)


def test_constant_columns_are_dropped(rng):
    X = np.tile([0.1, 0.0, 1e12, 0.0], (50, 1))
    X[:, 1] = rng.standard_normal(50)
    scaler = fit(X)
    assert_array_equal(scaler.columns, [1])
    assert scaler.transform(X).shape == (50, 1)
    back = scaler.inverse_transform(np.zeros((2, 1)))
    assert_allclose(back[:, [0, 2, 3]], [[0.1, 1e12, 0.0]] * 2)
    # what was constant in training has no effect later
    other = X + [5.0, 0.0, -1e12, 3.0]
    assert_array_equal(scaler.transform(other), scaler.transform(X))


def test_all_columns_constant():
    X = np.tile([3.0, 4.0], (5, 1))
    scaler = fit(X)
    assert_array_equal(scaler.constant_columns()[0], [0, 1])
    assert_array_equal(scaler.transform(X + [[7.0, 1e-3]]), np.zeros((5, 1)))
    assert_array_equal(scaler.inverse_transform(np.zeros((1, 1))), [[3.0, 4.0]])


def test_rounding_is_no_variance():
    """0.1 summed many times has a mean that is not exactly 0.1; nor is rounding all that varies."""
    for value in (0.1, 1e8 / 3.0, 1e-300):
        X = np.full((100_003, 2), value)
        X[:, 1] = np.arange(100_003)
        assert_array_equal(fit(X).columns, [1])
        assert_array_equal(fit(X.astype(np.float32)).columns, [1])
    column = [0.0, 0.0, 1.0, 1.0 + 1e-15, 1.0]
    assert_array_equal(fit(np.column_stack([column, np.arange(5.0)])).columns, [0, 1])


@pytest.mark.parametrize("offset", [0.0, 3.0])
@pytest.mark.parametrize(("n_features", "rank"), [(3, 2), (20, 5), (60, 3)])
def test_principal_components_without_variance_are_no_features(rng, n_features, rank, offset):
    X = rng.uniform(-1.0, 1.0, (80, rank)) @ rng.standard_normal((rank, n_features)) + offset
    Z = PCA().fit_transform(X)
    assert np.all(np.ptp(Z[:, rank:], axis=0) > 0.0)
    assert_array_equal(fit(Z).columns, np.arange(rank))


def test_tiny_units_are_features(rng):
    X = rng.standard_normal((80, 4)) * [1e-12, 1.0, 1e4, 1e-150]
    capacitance = rng.uniform(1.0, 9.0, 80) * 1e-12  # beside pressures of any size
    for other in (1.0, 1e4, 1e9, 1e300):
        assert len(fit(np.column_stack([capacitance, other * X[:, 1]])).columns) == 2
    assert len(fit(X).columns) == 4 and len(fit(X[:, :2]).columns) == 2
    assert len(fit(1e-200 * X[:, :2]).columns) == 2
    rounded = 1e8 + 1e-9 * X[:, 1]
    assert_array_equal(fit(np.column_stack([rounded, X[:, 1]])).columns, [1])


def test_rare_values_are_no_outliers(rng):
    """An indicator that is one in 1 of 500 rows is not constant, and keeps its size."""
    X = np.zeros((5000, 1))
    X[:10] = 1.0
    z = fit(X).transform(X)
    assert_allclose(z.mean(), 0.0, atol=0.1)
    assert z[0, 0] > 5.0 and np.isfinite(z).all()


def test_weights_are_counts(rng):
    X, weights = rng.standard_normal((300, 2)), rng.randint(1, 5, 300)
    X[0] = 1e6
    first, second = fit(X, weights.astype(float)), fit(np.repeat(X, weights, axis=0))
    assert_allclose(first.center, second.center, rtol=1e-12)
    assert_allclose(first.scale, second.scale, rtol=1e-12)


def test_single_precision_and_memory_maps(rng, tmp_path):
    X = (rng.standard_normal((5000, 3)) + 1e3).astype(np.float32)
    mapped = np.memmap(tmp_path / "X", np.float32, "w+", shape=X.shape)
    mapped[:] = X
    read_only = np.memmap(tmp_path / "X", np.float32, "r", shape=X.shape)
    first, second = fit(X.astype(np.float64)), fit(read_only)
    assert_allclose(second.center, first.center, rtol=1e-12)
    assert_allclose(second.scale, first.scale, rtol=1e-12)
    assert second.transform(read_only[:5]).dtype == np.float64


def test_large_data_are_sampled_for_quantiles_only(rng, monkeypatch):
    monkeypatch.setattr(scaling, "_SAMPLE", 2000)
    X = rng.standard_normal((10_000, 1))
    scaler = fit(X)
    assert_allclose(scaler.center, X.mean(0), atol=1e-12)  # of all rows, for nothing is clipped
    assert_allclose(scaler.scale, X.std(0), rtol=1e-12)


@settings(max_examples=60, deadline=None)
@example(X=np.array([[1.0], [1.0], [0.0], [1.0 + 14 * 2.0**-52]]))  # rounding, but for one value
@given(
    X=arrays(
        np.float64,
        st.tuples(st.integers(1, 12), st.integers(1, 3)),
        elements=st.floats(-1e100, 1e100).map(lambda x: x if abs(x) > 1e-100 else 0.0),
    )
)
def test_any_columns(X):
    scaler = fit(X)
    z = scaler.transform(X)
    assert z.shape == (len(X), len(scaler.columns)) and len(scaler.columns) >= 1
    assert np.isfinite(z).all() and (scaler.scale > 0.0).all()
    varies = np.ptp(X, axis=0) > 1e-12 * np.abs(X).max(0)
    assert set(np.flatnonzero(varies)) <= set(scaler.columns) or not varies.any()


# Targets


def test_targets(rng):
    y = rng.standard_normal((200, 3)) * [1.0, 1e-8, 1e8] + [0.0, 5.0, 1e12]
    weights = rng.randint(1, 4, 200)
    scaler = TargetScaler().fit(y, weights.astype(float))
    repeated = np.repeat(y, weights, axis=0)
    assert_allclose(scaler.center, repeated.mean(0), rtol=1e-12)
    assert_allclose(scaler.scale, repeated.std(0), rtol=1e-6)
    z = scaler.transform(np.repeat(y, weights, axis=0))
    assert_allclose(z.mean(0), 0.0, atol=1e-6)
    assert_allclose(z.std(0), 1.0, rtol=1e-6)


def test_constant_targets_and_targets_as_they_are():
    y = np.tile([0.1, 0.0, 1e10, 1e20, 1e100, -1e300], (150, 1))
    scaler = TargetScaler().fit(y, np.ones(150))
    assert_allclose(scaler.scale, [0.01, 1.0, 1e9, 1e19, 1e99, 1e299], rtol=1e-12)
    assert_array_equal(scaler.center, y[0])
    assert_array_equal(scaler.transform(y), 0.0)
    y = np.arange(10.0)[:, None]
    scaler = TargetScaler(standardize=False).fit(y, np.ones(10))
    assert_array_equal(scaler.transform(y), y)
    assert_array_equal([scaler.center, scaler.scale], [[0.0], [1.0]])


@pytest.mark.parametrize("n", [20, 60, 1000])
@pytest.mark.parametrize("weighted", [False, True])
def test_one_outlier_of_few_rows_does_not_flatten_the_others(n, weighted):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 1))
    X[3] = 1e8
    weights = np.ones(n)
    if weighted:  # counts of the others
        weights[4:] = 2.0
    scaled = InputScaler().fit(X, weights, rng).transform(X)
    others = np.delete(scaled[:, 0], 3)
    assert 0.5 < others.std() < 1.2
    assert 5.0 < scaled[3, 0] < 30.0


@pytest.mark.parametrize("code", [-999.0, 9999.0])
@pytest.mark.parametrize("dtype", [float, np.float32])
def test_a_code_for_missing_values_does_not_flatten_the_others(rng, code, dtype):
    """A tenth of the rows hold it; they count as the value next to it."""
    X = rng.standard_normal((500, 2)).astype(dtype)
    others = X[:450, 0].copy()
    X[450:, 0] = code
    scaler, scaled = fit(X), fit(X).transform(X)
    counted = np.where(X[:, 0] == code, others.min() if code < 0 else others.max(), X[:, 0])
    assert_allclose(scaler.center[0], counted.mean(), rtol=1e-5)
    assert_allclose(scaler.scale[0], counted.std(), rtol=1e-5)
    assert scaled[:450, 0].std() > 0.5
    assert abs(scaled[450:, 0]).min() > 5.0 and abs(scaled[:450, 0]).max() < 5.0
    assert_allclose(scaler.inverse_transform(scaled), X, rtol=1e-4, atol=1e-4)


def test_what_is_no_code(rng):
    """Amounts with many zeros, flags, grades, and what is skewed are scaled as ever."""
    amounts = np.where(rng.uniform(size=500) < 0.8, 0.0, rng.lognormal(size=500))
    flags, grades = rng.randint(0, 2, 500), rng.randint(1, 6, 500)
    X = np.column_stack([amounts, flags, grades, rng.lognormal(sigma=2.0, size=500)])
    for column in X.T:
        assert len(codes(column, np.ones(500), 1.5)) == 0


ORDINARY = {
    "measured": lambda rng, n: rng.uniform(size=n),
    "counted": lambda rng, n: rng.randint(0, 20, n).astype(float),
    "flag": lambda rng, n: rng.randint(0, 2, n).astype(float),
    "sensor": lambda rng, n: 30_000.0 + 50.0 * rng.standard_normal(n),
}


@pytest.mark.parametrize(("n", "n_outliers"), [(120, 0), (120, 3), (1000, 0), (1000, 3)])
@pytest.mark.parametrize("kind", ORDINARY)
@pytest.mark.parametrize(
    "coded", [[-999.0, 999_999.0], [-999.0, 999.0], [-999.0, -99.0, 9999.0], [1e30, -1e30]]
)
def test_several_codes_do_not_hide_each_other(rng, n, kind, coded, n_outliers):
    """In any order of size, on one side or both, beside gross outliers or not."""
    if kind == "sensor":  # which is at its ends
        coded = [0.0, 65_535.0]
    x = ORDINARY[kind](rng, n)
    share = n // 10
    for i, code in enumerate(coded):
        x[i * share : (i + 1) * share] = code
    rest = slice(len(coded) * share, n - n_outliers)
    x[n - n_outliers :] = [1e7, -2e7, 3e8][:n_outliers]
    scaled = fit(x[:, None]).transform(x[:, None])[rest, 0]
    assert scaled.std() > 0.5
    assert np.unique(x[: len(coded) * share : share]).tolist() == sorted(coded)
    found = codes(x, np.ones(n), 1.5 if n == 120 else 2.0)
    assert set(coded) <= set(found)


def test_two_codes_cost_no_more_than_one():
    rng = np.random.default_rng(2)
    X = rng.uniform(0, 1, (500, 2))
    y = np.sin(8 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(500)
    u = rng.uniform(size=500)
    X[u < 0.1, 0], X[(u >= 0.1) & (u < 0.2), 0] = -999, 999_999
    test = (u >= 0.2) & (np.arange(500) >= 200)
    model = DeepGPRegressor(1, inference="exact", random_state=0).fit(X[:200], y[:200])
    assert np.mean((model.predict(X[test]) - y[test]) ** 2) ** 0.5 < 0.13
