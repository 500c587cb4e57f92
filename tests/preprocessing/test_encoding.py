import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skdgp.preprocessing.columns import N_FOLDS, Levels, shrunk_means
from skdgp.preprocessing.encoding import ColumnEncoder
from skdgp.preprocessing.levels import UNSEEN
from skdgp.preprocessing.scaling import InputScaler


def fitted(table, targets=None, kinds=None, weights=None, seed=0, weighs=False):
    table = np.asarray(table, dtype=float)
    targets = np.zeros((len(table), 1)) if targets is None else np.asarray(targets, dtype=float)
    weights = np.ones(len(table)) if weights is None else weights
    kinds = kinds or ["number"] * table.shape[1]
    return ColumnEncoder().fit(
        table, targets, weights, kinds, np.random.RandomState(seed), weighs=weighs
    )


def test_shrunk_means_are_those_of_a_balanced_mixed_model():
    """Closed form of the best linear unbiased predictions by moments (Searle et al., 1992, section 3.6)."""
    rng = np.random.default_rng(0)
    L, n = 8, 10
    codes = np.repeat(np.arange(L), n)
    y = rng.normal(size=L)[codes] + 0.5 * rng.normal(size=L * n)
    means = y.reshape(L, n).mean(1)
    noise = y.reshape(L, n).var(1, ddof=1).mean()
    between = means.var(ddof=1) - noise / n
    expected = (means - y.mean()) * between / (between + noise / n)
    found = shrunk_means(codes, y[:, None], np.ones(L * n), L)[0][:, 0]
    assert_allclose(found, expected, rtol=1e-10)


def test_shrunk_means_of_unequal_sizes_are_near_a_likelihood_fit():
    smf = pytest.importorskip("statsmodels.formula.api")
    rng = np.random.default_rng(0)
    codes = np.r_[rng.integers(0, 10, 300), np.arange(10)]
    y = rng.normal(size=10)[codes] + 0.7 * rng.normal(size=310)
    fit = smf.mixedlm("y ~ 1", pd.DataFrame({"y": y, "g": codes}), groups="g").fit()
    expected = np.array([fit.random_effects[level].iloc[0] for level in range(10)])
    found = shrunk_means(codes, y[:, None], np.ones(310), 10)[0][:, 0]
    expected, found = expected - expected.mean(), found - found.mean()
    assert_allclose(found, expected, atol=0.05)


def test_shrunk_means_count_weights_as_rows():
    rng = np.random.default_rng(1)
    codes, weights = rng.integers(0, 5, 60), rng.integers(1, 4, 60)
    y = rng.normal(size=60) + codes
    found, _ = shrunk_means(codes, y[:, None], weights.astype(float), 5)
    again = np.repeat(codes, weights), np.repeat(y, weights)[:, None]
    expected, _ = shrunk_means(*again, np.ones(weights.sum()), 5)
    assert_allclose(found, expected, rtol=1e-10)


def test_positions_of_training_rows_come_from_other_folds():
    """Targets of pure noise: levels of one row must not give it away."""
    rng = np.random.default_rng(0)
    n = 400
    codes, y = np.arange(n) % 200.0, rng.normal(size=(n, 1))
    encoder = fitted(codes[:, None], y, ["category"])
    encoded = encoder.transform(codes[:, None], encoder.folds)
    for fold in range(N_FOLDS):
        others = encoder.folds != fold
        of_others = codes[others].astype(int), y[others], np.ones(others.sum())
        own = shrunk_means(*of_others, 201)[0][:, 0]
        assert_allclose(np.abs(encoded[~others, 0]), np.abs(own[codes[~others].astype(int)]))


def test_levels_take_one_column_whatever_their_order_and_number():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 6, 100)
    y = np.sin(codes)[:, None] + 0.1 * rng.normal(size=(100, 1))
    order = rng.permutation(6)
    a = fitted(codes[:, None], y, ["category"])
    b = fitted(order[codes][:, None], y, ["category"])
    rows = codes[:, None].astype(float), order[codes][:, None].astype(float)
    assert_allclose(a.transform(rows[0]), b.transform(rows[1]))
    many = fitted(rng.integers(0, 5000, (6000, 1)), rng.normal(size=(6000, 1)), ["category"])
    assert len(many.sources) == 1


def test_gaps_are_filled_by_rows_near_in_the_other_columns():
    x = np.linspace(0.0, 1.0, 300)
    table = np.column_stack([x, 10.0 * x])
    table[::7, 1] = np.nan
    filled = fitted(table).transform(table)
    assert np.isfinite(filled).all()
    assert_allclose(filled[::7, 1], 10.0 * x[::7], atol=0.3)
    assert_array_equal(filled[1::7], table[1::7])


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e8])
def test_gaps_are_filled_alike_wherever_columns_lie(offset):
    """Small differences of large numbers, as of times counted from 1970."""
    rng = np.random.default_rng(0)
    table = rng.integers(0, 1024, (40, 3)) / 1024.0
    table[::4, 1] = np.nan
    y, kinds, found = rng.standard_normal((40, 1)), ["number"] * 3, []
    for shift in (0.0, offset):
        rows = table + shift
        encoder = ColumnEncoder().fit(rows, y, np.ones(40), kinds, np.random.RandomState(0))
        each = [encoder.transform(rows[i : i + 1]) for i in range(40)]
        assert_allclose(np.vstack(each), encoder.transform(rows), rtol=1e-13)
        assert_allclose(encoder.versions(rows[:8])[0][0], encoder.versions(rows[:1])[0][0])
        found.append(encoder.transform(rows) - shift)
    assert_allclose(found[1], found[0], atol=1e-5)


@pytest.mark.parametrize(("d", "seed"), [(4, 1), (6, 7)])
def test_rows_with_gaps_are_filled_alone_as_beside_others(d, seed):
    """Columns of few values, in which many donors are equally near."""
    rng = np.random.default_rng(seed)
    first = rng.standard_normal(70)
    table = np.column_stack([first, rng.choice([0.1, 0.37, 1.9], (70, d - 1))])
    table[::5, 0] = np.nan
    y, kinds = rng.standard_normal((70, 1)), ["number"] * d
    encoder = ColumnEncoder().fit(table, y, np.ones(70), kinds, np.random.RandomState(0))
    new = table[::-1][:9].copy()
    new[::3, 0] = np.nan
    together, versions = encoder.transform(new), encoder.versions(new)[0]
    for i in range(9):
        assert_allclose(encoder.transform(new[i : i + 1])[0], together[i], rtol=1e-12)
        assert_allclose(encoder.versions(new[i : i + 1])[0][0], versions[i], rtol=1e-12)


def test_an_indicator_where_gaps_go_with_other_targets():
    rng = np.random.default_rng(0)
    y, x = rng.normal(size=(200, 1)), rng.normal(size=200)
    x[y[:, 0] > 1.0] = np.nan
    assert fitted(x[:, None], y).suffixes == ["", " (missing)"]
    x = rng.normal(size=200)
    x[rng.random(200) < 0.2] = np.nan
    assert fitted(x[:, None], y).suffixes == [""]


def test_dates_have_the_circles_that_they_cover():
    days = np.arange(18000.0, 18100.0)
    encoder = fitted(days[:, None], kinds=["date"])
    assert encoder.suffixes == ["", " (sine of week)", " (cosine of week)"]
    hours = 18000.0 + np.arange(100) / 24.0
    assert " (sine of day)" in fitted(hours[:, None], kinds=["date"]).suffixes
    a, b = encoder.transform(np.array([[18001.0], [18008.0]]))
    assert_allclose(a[1:], b[1:], atol=1e-9)


def test_versions_of_an_unseen_level_are_the_known_ones():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 4, 200).astype(float)
    y = codes[:, None] + 0.1 * rng.normal(size=(200, 1))
    encoder = fitted(np.column_stack([codes, rng.normal(size=200)]), y, ["category", "number"])
    row = np.array([[UNSEEN, 0.5]])
    assert_array_equal(encoder.unknown(row), [True])
    versions, factor = encoder.versions(row)
    known = encoder.transform(np.column_stack([np.arange(4.0), np.full(4, 0.5)]))
    found, counts = np.unique(versions[0, :, 0], return_counts=True)
    assert_allclose(found, np.sort(known[:, 0]))
    assert_array_equal(counts, 4)
    assert_array_equal(versions[0, :, 1], 0.5)
    # s^2 (1 + 1/L) (nu + L - 1) / (nu + L - 3) of a new level, nu = 3
    assert_allclose(factor, 4 / 3 * 5 / 4 * 6 / 4)


@pytest.mark.parametrize("effect", [0.5, 1.0, 2.0])
def test_intervals_at_a_new_level_beside_those_of_a_mixed_model_with_known_variances(effect):
    """Noise of 1/4; four other columns, which are known, have the variance 1 together."""
    rng, covers = np.random.default_rng(0), []
    for L in (2, 3, 5, 10):
        codes, inside, width = np.repeat(np.arange(L), 20), [], []
        for _ in range(100):
            effects = effect * rng.normal(size=L + 1)
            y = effects[codes] + 0.5 * rng.normal(size=20 * L)
            column = Levels().fit(codes.astype(float), y[:, None], np.ones(20 * L), codes % N_FOLDS)
            means, (_, factor) = y.reshape(L, 20).mean(1), column.alternatives(16)
            more = factor * means.var() + column.share() * (y.var() + 1.0) / 5
            width.append(1.645 * np.sqrt(more + 0.25))
            inside.append(abs(effects[L] + 0.5 * rng.normal() - means.mean()) < width[-1])
        assert np.mean(width) < 1.5 * 1.645 * np.sqrt(effect**2 * (1.0 + 1.0 / L) + 0.25)
        covers.append(np.mean(inside))
    error = (0.9 * 0.1 / 400) ** 0.5
    assert abs(np.mean(covers) - 0.9) < 0.04 + 2.0 * error


def test_versions_of_a_new_gap_are_those_of_near_rows():
    x = np.linspace(0.0, 1.0, 400)
    encoder = fitted(np.column_stack([x, 5.0 * x]))
    row = np.array([[0.5, np.nan]])
    assert_array_equal(encoder.unknown(row), [True])
    versions, factor = encoder.versions(row)
    assert_allclose(versions[0, :, 1], 2.5, atol=0.15)
    assert np.ptp(versions[0, :, 1]) > 0.0
    assert_array_equal(factor, 1.0)
    assert not encoder.unknown(np.array([[0.5, 2.0]])).any()


def test_a_column_of_gaps_alone_and_one_level_are_constant():
    table = np.column_stack([np.full(50, np.nan), np.zeros(50), np.arange(50.0)])
    encoder = fitted(table, kinds=["number", "category", "number"])
    assert np.isfinite(encoder.transform(table)).all()
    columns, values = encoder.constant_columns()
    assert_array_equal(columns, [0, 1])
    assert_array_equal(values, [np.nan, 0.0])


def test_versions_of_two_new_gaps_are_draws_of_both_together():
    """Closed form: the conditional Gaussian of two columns given a third."""
    rng = np.random.default_rng(0)
    cov = np.array([[1.0, 0.6, 0.9], [0.6, 1.0, 0.6], [0.9, 0.6, 1.0]])
    table = rng.multivariate_normal(np.zeros(3), cov, 500, method="cholesky")
    rows = np.column_stack([np.full(60, np.nan), np.linspace(-1.0, 1.0, 60), np.full(60, np.nan)])
    versions, _ = fitted(table).versions(rows)
    conditional = cov[::2, ::2] - 0.6**2
    for sign in (1.0, -1.0):  # of a sum of both; independent gaps would have 1.28 for either
        found = versions[:, :, 0] + sign * versions[:, :, 2]
        variance = conditional.sum() if sign > 0.0 else 2.0 * (1.0 - 0.9)
        # 60 rows share most of 16 donors: as if there were ten, of 16 values each, four standard errors
        assert_allclose(found.var(1).mean(), variance, rtol=4.0 * (2.0 / 160) ** 0.5)
        error = 4.0 * (variance / 160) ** 0.5
        assert_allclose((found.mean(1) - (1.0 + sign) * 0.6 * rows[:, 1]).mean(), 0.0, atol=error)


def test_an_ordered_level_that_is_not_known_is_a_gap():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 4, 200).astype(float)
    encoder = fitted(np.column_stack([codes, codes]), kinds=["ordered", "number"])
    row, gap = np.array([[UNSEEN, 2.0]]), np.array([[np.nan, 2.0]])
    assert_array_equal(encoder.unknown(row), [True])
    assert_array_equal(encoder.transform(row), encoder.transform(gap))
    assert_array_equal(encoder.versions(row)[0], encoder.versions(gap)[0])


def test_the_mean_noise_of_training_rows_is_what_models_learn():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    y = np.column_stack([x[:, 0] + 0.5 * rng.normal(size=300), x[:, 1]])
    x[rng.random(x.shape) < 0.2] = np.nan
    encoder = fitted(x, (y - y.mean(0)) / y.std(0))
    assert_allclose(encoder.noise(x).mean(0), 1.0)
    assert encoder.precision(x) is None
    rows = np.array([[0.0, 0.0], [np.nan, 0.0], [0.0, np.nan]])
    noise = encoder.noise(rows)
    # of independent columns: 1/4 of noise, 1 that a gap hides, a fifth of it on average
    assert_allclose(noise[:, 0] * 0.45, [0.25, 1.25, 0.25], rtol=0.2)
    assert noise[2, 1] > 3.0 > 1.0 > noise[1, 1]
    assert fitted(np.nan_to_num(x), y).noise(rows) is None


@pytest.mark.parametrize("k", [1, 2])
def test_rows_count_by_what_their_gaps_hide(k):
    """Weighted squares of errors with these variances add up to the unit of the noise."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    y = np.column_stack([x[:, 0] + 0.5 * rng.normal(size=300), x[:, 1]])[:, :k]
    x[rng.random(x.shape) < 0.2] = np.nan
    encoder = fitted(x, (y - y.mean(0)) / y.std(0), weighs=True)
    noise, precision = encoder.noise(x), encoder.precision(x)
    assert_allclose(precision.mean(), 1.0)
    assert_allclose(precision @ noise / len(x), 1.0)
    if k == 1:
        assert_allclose(precision * noise[:, 0], 1.0)


@pytest.mark.parametrize("d", [5, 120])
def test_gaps_are_filled_by_near_rows_and_by_a_gaussian_of_few_columns(d):
    """Brute force; complete rows of training have the moments of their sample, all but shrunk."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(400, d)) + rng.normal(size=(400, 1))
    encoder, row = fitted(table), rng.normal(size=(1, d))
    row[0, 0] = np.nan
    scaled = (table - table.mean(0)) / table.std(0)
    x = ((row[0] - table.mean(0)) / table.std(0))[1:]
    near = np.argsort(np.square(scaled[:, 1:] - x).sum(1))[:8]
    expected = table[near, 0].mean()
    if d == 5:
        cov = np.cov(table.T)
        conditional = table[:, 0].mean() + np.linalg.solve(cov[1:, 1:], cov[0, 1:]) @ (
            row[0, 1:] - table[:, 1:].mean(0)
        )
        expected = 0.5 * expected + 0.5 * conditional
    assert_allclose(encoder.transform(row)[0, 0], expected, atol=0.01 if d == 5 else 1e-9)


def test_rows_without_any_cell_are_filled_from_all_rows():
    """Also where donors come in the order of their values, as merged rows do."""
    x = np.linspace(-1.0, 1.0, 201)
    table = np.column_stack([x, 3.0 + 2.0 * x])
    encoder, nothing = fitted(table), np.full((1, 2), np.nan)
    assert_allclose(encoder.transform(nothing)[0], table.mean(0), atol=1e-9)
    versions = encoder.versions(nothing)[0][0]
    assert_allclose(versions.mean(0), table.mean(0), atol=4.0 * table.std(0).max() / 16**0.5)
    assert_allclose(versions.std(0), table.std(0), rtol=4.0 / (2.0 * 16) ** 0.5)
    table[::5, 1] = np.nan  # gaps in training, too
    found = fitted(table).transform(nothing)[0]
    assert_allclose(found, np.nanmean(table, 0), atol=0.2)


def test_equally_near_rows_are_chosen_at_random():
    x = np.sort(np.random.default_rng(0).normal(size=300))
    table = np.column_stack([x, np.zeros(300)])
    row = np.array([[np.nan, 0.0]])
    assert abs(fitted(table).transform(row)[0, 0]) < 4.0 * 0.5 / 8**0.5


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_with_the_same_common_levels_are_encoded_alike(weighted):
    """Rows that agree stay alike, and none of its fold's targets goes the other way in its position."""
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(4.0), [40, 50, 60, 8])
    weights = np.ones(158)
    if weighted:  # a weight of two is a row twice
        codes, weights = codes[::2], weights[::2] * 2.0
    y = np.cos(codes)[:, None] + rng.normal(size=(len(codes), 1))
    encoder = fitted(codes[:, None], y, ["category"], weights)
    training = encoder.transform(codes[:, None], encoder.folds)[:, 0]
    new, common = encoder.transform(codes[:, None])[:, 0], codes < 3.0
    assert_array_equal(training[common], new[common])
    assert len(np.unique(training[~common])) > 1


def test_alike_levels_are_told_apart_by_the_standard_error_of_their_variance():
    """Closed form of balanced levels: the variance of L of them is sqrt(2 (L - 1)) of noise over n (L - 1)."""
    L, n = 4, 50
    codes = np.repeat(np.arange(L), n)
    y = np.tile(np.linspace(-1.0, 1.0, n), L) + np.repeat([0.01, -0.02, 0.03, -0.02], n)
    means, ratio = shrunk_means(codes, y[:, None], np.ones(L * n), L)
    expected = n * (L - 1.0) / np.sqrt(2.0 * (L - 1.0))
    assert_allclose(ratio, expected)
    own = y.reshape(L, n).mean(1) - y.mean()
    assert_allclose(means[:, 0], own * n / (n + expected))


def test_a_level_far_from_the_others_is_scaled_as_it_is():
    """Closed form: mean and deviation of positions, of which the third is neither code nor outlier."""
    rng = np.random.default_rng(0)
    codes = np.repeat([0.0, 1.0, 2.0], [90, 5, 85])
    y = np.array([-0.30, -0.29, 0.6])[codes.astype(int)] + 0.01 * rng.normal(size=180)
    weights = rng.uniform(5.0, 8.0, 180)
    encoder = fitted(codes[:, None], y[:, None], ["category"], weights)
    encoded = encoder.transform(codes[:, None], encoder.folds)
    scaler = InputScaler(True, encoder).fit(encoded, weights, rng)
    mean = np.average(encoded, axis=0, weights=weights)
    assert_array_equal(scaler.columns, [0])
    assert_allclose(scaler.center, mean)
    std = np.sqrt(np.average(np.square(encoded - mean), axis=0, weights=weights))
    assert_allclose(scaler.scale, std)
    assert_allclose(scaler.scaled(encoded), (encoded - mean) / std)


def test_codes_of_numbers_still_do_not_flatten_them_beside_levels():
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.integers(0, 3, 300), rng.uniform(size=300)]).astype(float)
    table[:30, 1] = -999.0
    encoder = fitted(table, rng.normal(size=(300, 1)), ["category", "number"])
    encoded = encoder.transform(table, encoder.folds)
    assert InputScaler(True, encoder).fit(encoded, np.ones(300), rng).scale[1] < 1.0


def test_points_of_circles_are_no_outliers():
    """Sines of quarters of a day are rounding errors, but for 1 and -1."""
    days = np.arange(80)[:, None] / 4.0
    encoder = fitted(days, kinds=["date"])
    scaler = InputScaler(encoder=encoder, straight=True).fit(
        encoder.transform(days), np.ones(80), np.random.RandomState(0)
    )
    assert not len(scaler.bends()[0])
    assert_allclose(scaler.scale[1:3], 0.5**0.5)
