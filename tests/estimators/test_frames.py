"""Data frames as they are: categories, missing cells, dates."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import rel_entr
from scipy.stats import norm
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from skdgp import DeepGPClassifier, DeepGPRegressor, SparseGPClassifier, SparseGPRegressor

EXACT = DeepGPRegressor(1, inference="exact", kernel="squared_exponential", random_state=0)


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    n = 120
    return pd.DataFrame(
        {
            "size": rng.uniform(size=n),
            "kind": rng.choice(["a", "b", "c", "d"], n),
            "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 60, n), unit="D"),
            "flag": rng.random(n) < 0.5,
        }
    )


@pytest.fixture(scope="module")
def target(frame):
    rng = np.random.default_rng(1)
    effect = frame["kind"].map({"a": 0.0, "b": 1.0, "c": 2.0, "d": 3.0}).to_numpy()
    return np.sin(6 * frame["size"].to_numpy()) + effect + 0.1 * rng.standard_normal(len(frame))


@pytest.fixture(scope="module")
def fitted(frame, target):
    return clone(EXACT).fit(frame, target)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_is_fitted_and_predicted_as_it_is(frame, target, library):
    X = frame if library == "pandas" else pl.DataFrame({c: frame[c].tolist() for c in frame})
    model = clone(EXACT).fit(X, target)
    assert model.score(X, target) > 0.95
    assert list(model.column_kinds_.values()) == ["number", "category", "date", "boolean"]
    assert model.n_features_in_ == 4
    assert_array_equal(model.feature_names_in_, frame.columns)
    assert model.feature_importances_.shape == (4,)
    assert_allclose(model.predict(X[:7]), model.predict(X)[:7], atol=1e-9)
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize(
    "estimator",
    [
        DeepGPRegressor(inference="dsvi", max_iter=30, random_state=0),
        DeepGPRegressor(1, inference="vecchia", max_iter=20, random_state=0),
        SparseGPRegressor(max_iter=20, random_state=0),
    ],
)
def test_other_regressors_take_frames(frame, target, estimator):
    X = frame.copy()
    X.loc[::9, "size"] = np.nan
    X.loc[::11, "kind"] = None
    model = clone(estimator).fit(X, target)
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all() and (std > 0.0).all()
    assert np.isfinite(model.log_predictive_density(X, target)).all()
    assert model.sample_y(X[:5], 3).shape == (5, 3)


@pytest.mark.parametrize(
    "estimator",
    [
        DeepGPClassifier(inference="dsvi", max_iter=30, random_state=0),
        SparseGPClassifier(max_iter=20, random_state=0),
    ],
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_classifiers_take_frames(frame, target, estimator, n_classes):
    labels = np.array(["low", "middle", "high"])[
        np.minimum((target > 1.0).astype(int) + (target > 2.0), n_classes - 1)
    ]
    X = frame.copy()
    X.loc[::9, "size"] = np.nan
    model = clone(estimator).fit(X, labels)
    probabilities = model.predict_proba(X)
    assert_allclose(probabilities.sum(1), 1.0)
    new = X.assign(kind="z")
    assert_allclose(model.predict_proba(new).sum(1), 1.0)


def test_a_frame_of_numbers_gives_what_the_array_gives(frame, target):
    numbers = pd.DataFrame({"size": frame["size"], "flag": frame["flag"].astype(float)})
    a, b = clone(EXACT).fit(numbers, target), clone(EXACT).fit(numbers.to_numpy(), target)
    assert_array_equal(a.predict(numbers), b.predict(numbers.to_numpy()))
    nullable = numbers.convert_dtypes()
    assert_array_equal(
        clone(EXACT).fit(nullable, target).predict(nullable), b.predict(numbers.to_numpy())
    )


def test_names_of_levels_do_not_matter(frame, target, fitted):
    renamed = frame.assign(kind=frame["kind"].map({"a": "z", "b": "y", "c": "w", "d": "q"}))
    other = clone(EXACT).fit(renamed, target)
    assert_allclose(fitted.predict(frame), other.predict(renamed), rtol=1e-5, atol=1e-5)


def test_an_unseen_level_widens_error_bars_by_the_variance_between_levels():
    """Levels with effects of variance tau^2: intervals of rows of a new level cover as they say."""
    rng = np.random.default_rng(0)
    n, L, tau, noise = 300, 12, 1.0, 0.2
    effects = tau * rng.normal(size=L)
    codes = rng.integers(0, L, n)
    X = pd.DataFrame({"x": rng.uniform(size=n), "g": [f"g{code}" for code in codes]})
    y = np.sin(6 * X["x"].to_numpy()) + effects[codes] + noise * rng.normal(size=n)
    model = clone(EXACT).fit(X, y)
    new = X[:50].assign(g="new")
    mean, std = model.predict(new, return_std=True)
    # predictive variance of a new level, from L of them: a scaled t distribution with L - 1 degrees of freedom
    right = np.sqrt(effects.var(ddof=1) * (1 + 1 / L) * (L + 2) / L + noise**2)
    assert_allclose(std, right, rtol=0.3)
    expected = np.sin(6 * new["x"].to_numpy()) + effects.mean()
    assert np.abs(mean - expected).max() < 0.5
    _, known = model.predict(X[:50], return_std=True)
    assert (std > 2.0 * known).all()
    draws = model.sample_y(new, 500)
    assert_allclose(draws.std(1).mean(), std.mean(), rtol=0.1)
    assert_allclose(draws.mean(1).mean(), mean.mean(), atol=0.15)


def test_a_new_gap_widens_error_bars_and_rows_do_not_see_each_other(frame, target):
    X = frame[["size", "flag"]].assign(twin=frame["size"] + 0.01)
    for table in (X, X.to_numpy(dtype=float)):
        model = clone(EXACT).fit(table, np.sin(6 * frame["size"].to_numpy()))
        gap = X.assign(size=np.nan, twin=np.nan)
        gap = gap if table is X else gap.to_numpy(dtype=float)
        _, std = model.predict(gap, return_std=True)
        _, known = model.predict(table, return_std=True)
        assert std.mean() > 3.0 * known.mean()
        both = model.predict(gap, return_std=True)
        few = model.predict(gap[:3], return_std=True)
        assert_allclose(few, [part[:3] for part in both], atol=1e-12)


def test_arrays_with_gaps_are_accepted(target, frame):
    X = frame[["size"]].to_numpy(copy=True)
    X[::8] = np.nan
    assert np.isfinite(clone(EXACT).fit(X, target).predict(X)).all()
    assert np.isfinite(cross_val_score(clone(EXACT), X, target, cv=2)).all()
    with pytest.raises(ValueError, match="NaN"):
        clone(EXACT).fit(frame, np.where(target > 2, np.nan, target))


def test_weights_count_rows_of_frames(frame, target):
    """Positions of levels depend on folds, which are drawn for distinct rows."""
    weights = np.r_[2.0, np.ones(len(frame) - 1)]
    twice = pd.concat([frame, frame[:1]])
    a = clone(EXACT).fit(frame, target, sample_weight=weights)
    b = clone(EXACT).fit(twice, np.r_[target, target[0]])
    assert_allclose(a.predict(frame), b.predict(frame), atol=1e-7)


def test_text_columns_are_left_out_with_one_warning(frame, target):
    X = frame.assign(note=[f"text {i}" for i in range(len(frame))])
    with pytest.warns(UserWarning, match=r"Columns \['note'\] of X are left out"):
        model = clone(EXACT).fit(X, target)
    assert model.column_kinds_["note"] == "text"
    assert_allclose(model.feature_importances_[4], 0.0)
    with pytest.raises(ValueError, match="no column that can be used"):
        clone(EXACT).fit(X[["note"]], target)


def test_other_columns_in_predict_are_an_error(frame, target, fitted):
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame.rename(columns={"kind": "sort"}))
    with pytest.raises(ValueError, match="'size' of X had numbers"):
        fitted.predict(frame.assign(size="big"))


@pytest.mark.parametrize("estimator", [EXACT, DeepGPClassifier(1, inference="dsvi", max_iter=5)])
def test_levels_read_as_numbers_and_frames_that_cannot_be_read(frame, target, estimator):
    X = frame[["size"]].assign(zip=frame["kind"].map({"a": "1", "b": "2", "c": "3", "d": "4"}))
    model = clone(estimator).fit(X, np.where(target > 2.0, 1, 0))
    assert_array_equal(model.predict(X), model.predict(X.astype({"zip": int})))
    twice = pd.concat([X, X[["size"]]], axis=1)
    for rows, words in (
        (twice, "several columns named 'size'"),
        (pl.LazyFrame(X.to_dict("list")), "collect it"),
    ):
        with pytest.raises(ValueError, match=words):
            clone(estimator).fit(rows, target > 2.0)
        with pytest.raises(ValueError, match=words):
            model.predict(rows)


def test_partial_fit_learns_new_levels():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.uniform(size=400), "g": rng.choice(["a", "b"], 400)})
    X.loc[200:, "g"] = rng.choice(["a", "b", "c"], 200)
    y = X["g"].map({"a": 0.0, "b": 1.0, "c": 5.0}).to_numpy() + 0.05 * rng.normal(size=400)
    model = DeepGPRegressor(1, inference="dsvi", random_state=0)
    model.partial_fit(X[:200], y[:200])
    for _ in range(3):
        model.partial_fit(X[200:], y[200:])
    of_c = X[200:][X[200:]["g"] == "c"]
    assert np.abs(model.predict(of_c) - 5.0).mean() < 0.5


@pytest.mark.parametrize("chunks", [1, 2])
def test_levels_get_positions_by_mapped_targets(chunks):
    """The same as with the map before: levels of a second chunk and gaps, too."""
    rng = np.random.default_rng(0)
    kind = np.r_[rng.integers(0, 4, 250), rng.integers(0, 6, 100)]
    X = pd.DataFrame({"size": rng.normal(size=350), "kind": np.array(list("abcdef"))[kind]})
    y = np.exp(1.5 * X["size"] + kind + 0.3 * rng.normal(size=350))
    X.loc[::9, "size"] = np.nan
    parts = [slice(0, 250), slice(250, 350)][:chunks]
    encoded, noise = [], []
    for transform, targets in (("log", y), (None, np.log(y))):
        model = DeepGPRegressor(
            1, inference="dsvi", max_iter=2, target_transform=transform, random_state=0
        )
        for part in parts if chunks > 1 else ():
            model.partial_fit(X[part], targets[part])
        scaler = (model if chunks > 1 else model.fit(X[:250], targets[:250]))._x_scaler
        rows = model._reader.transform(X)
        encoded.append(scaler.encoder.transform(rows))
        noise.append(scaler.encoder.noise(rows))
    assert len(np.unique(encoded[0][kind >= 4, 1])) == chunks
    assert_allclose(*encoded)
    assert_allclose(*noise)


@pytest.mark.parametrize("levels", [1, 2, 5000])
def test_any_number_of_levels_is_finite(levels):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"g": [f"g{i % levels}" for i in range(60)], "x": rng.uniform(size=60)})
    model = DeepGPRegressor(
        1, inference="exact", categorical_features=["g"], max_iter=5, random_state=0
    )
    mean, std = model.fit(X, X["x"].to_numpy()).predict(X.assign(g=None), return_std=True)
    assert np.isfinite(mean).all() and np.isfinite(std).all()


def test_instants_do_not_depend_on_their_resolution(frame, target):
    model = clone(EXACT).fit(frame[["when", "size"]], target)
    seconds = frame[["when", "size"]].assign(when=frame["when"].astype("M8[s]"))
    assert_array_equal(model.predict(seconds), model.predict(frame[["when", "size"]]))
    seconds["when"] = frame["when"].dt.to_period("D")
    days = frame[["when", "size"]].assign(when=frame["when"].dt.normalize())
    assert_array_equal(model.predict(seconds), model.predict(days))
    seconds["when"] = pd.arrays.IntervalArray.from_breaks(np.arange(len(frame) + 1))
    with pytest.raises(ValueError, match="'when' of X holds Interval objects"):
        clone(EXACT).fit(seconds, target)


def test_dates_of_a_csv_file_are_dates(frame, target, fitted):
    text = frame.assign(when=frame["when"].dt.strftime("%Y-%m-%d"))
    model = clone(EXACT).fit(text, target)
    assert model.column_kinds_["when"] == "date"
    assert_array_equal(model.predict(text), fitted.predict(frame))
    text.loc[3, "when"] = "soon"
    with pytest.raises(ValueError, match="'when' of X had dates in fit, and has 'soon' now"):
        model.predict(text)
    text.loc[3, "when"] = "2020-02-30"
    with pytest.warns(UserWarning, match=r"'when' as dates \('2020-02-30' as missing\)"):
        model = clone(EXACT).fit(text, target)
    assert model.column_kinds_["when"] == "date" and np.isfinite(model.predict(text)).all()


def test_width_at_an_unseen_level_is_that_of_a_mixed_model():
    mixedlm = pytest.importorskip("statsmodels.formula.api").mixedlm
    rng = np.random.default_rng(2)
    sites = np.repeat(np.arange(12), 12)
    offsets = 2.0 * rng.standard_normal(12)
    frame = pd.DataFrame({"x": rng.uniform(-1.0, 1.0, 144), "site": [f"s{i:02}" for i in sites]})
    y = frame["x"].to_numpy() + offsets[sites] + 0.5 * rng.standard_normal(144)
    model = DeepGPRegressor(1, inference="exact", random_state=0).fit(frame, y)
    new = frame[:20].assign(site="new")
    width = np.ptp(model.predict_interval(new, 0.9), axis=1).mean()
    fit = mixedlm("y ~ x", frame.assign(y=y), groups="site").fit()
    variance = fit.cov_re.to_numpy()[0, 0] * (1.0 + 1.0 / 12.0) + fit.scale
    right = 2.0 * 1.645 * np.sqrt(variance)
    assert 0.85 * right < width < 1.5 * right
    assert right == pytest.approx(2.0 * 1.645 * np.hypot(2.0, 0.5), rel=0.4)  # four standard errors


def _alike_levels(n_levels):
    """Rows of levels that do not matter, and whose means differ by less than noise explains."""
    rng = np.random.default_rng(1)
    X = pd.DataFrame({"x": rng.uniform(size=90), "g": [f"g{i % n_levels}" for i in range(90)]})
    return X, np.sin(6 * X["x"].to_numpy()) + 0.1 * rng.normal(size=90)


@pytest.mark.parametrize("n_levels", [2, 3, 9])
def test_a_new_level_may_differ_though_all_known_ones_are_alike(n_levels):
    """The mean of the posterior of the variance between levels, by quadrature."""
    X, y = _alike_levels(n_levels)
    model = clone(EXACT).fit(X, y)
    new = X[:5].assign(g="new")
    more = model.predict(new, return_std=True, latent=True)[1] ** 2
    more -= model.predict(X[:5], return_std=True, latent=True)[1] ** 2
    # effects 0 of all levels but their mean; the prior variance of one is half that of the target
    log_v = np.linspace(-25.0, 25.0, 200_001)
    prior = scaled_inverse_chi2(log_v, 3.0, 0.5 / 3.0)
    posterior = prior * np.exp(-0.5 * (n_levels - 1) * log_v)
    variance = (np.exp(log_v) * posterior).sum() / posterior.sum() * (1.0 + 1.0 / n_levels)
    assert_allclose(more / y.var(), variance, rtol=0.1)
    new, known = (model.sample_y(x, 4000, latent=True).var(1) for x in (new, X[:5]))
    assert_allclose(new - known, more, rtol=0.1)  # four standard errors of a variance: .09


def scaled_inverse_chi2(log_v, dof, scale):
    """Density in the logarithm of the variance."""
    return np.exp(-0.5 * dof * log_v - 0.5 * dof * scale * np.exp(-log_v))


def test_a_new_level_makes_classes_less_sure():
    X, y = _alike_levels(2)
    model = DeepGPClassifier(1, inference="dsvi", max_iter=60, random_state=0).fit(X, y > 0.0)
    sure, less = (model.predict_proba(x).max(1).mean() for x in (X, X.assign(g="new")))
    assert less < sure - 0.01


def test_rows_of_a_new_level_share_its_effect():
    X, y = _alike_levels(3)
    model = clone(EXACT).fit(X, y)
    _, cov = model.predict(X[:4].assign(g=["new", "new", "g0", "g1"]), return_cov=True, latent=True)
    _, known = model.predict(X[:4].assign(g="g0"), return_cov=True, latent=True)
    more = (cov - known) / y.var()
    assert_allclose(more[:2, :2], 4 / 3 / 3 / 2, rtol=0.1)
    assert_allclose(more[2:], 0.0, atol=0.01)


def test_a_new_gap_is_predicted_from_the_other_cells_of_its_row():
    """Closed form of a linear Gaussian model: mean and variance of the target given the other column."""
    rng = np.random.default_rng(0)
    n, rho, noise = 300, 0.6, 0.2
    X = rng.multivariate_normal(np.zeros(2), [[1.0, rho], [rho, 1.0]], n, method="cholesky")
    y = X[:, 0] - 0.5 * X[:, 1] + noise * rng.normal(size=n)
    model = clone(EXACT).fit(X, y)
    x = np.linspace(-1.2, 1.2, 25)
    mean, std = model.predict(np.column_stack([np.full(25, np.nan), x]), return_std=True)
    variance = 1.0 - rho**2 + noise**2
    # neighbors shrink in number towards the ends; eight values of each mean, and about ten that differ
    assert_allclose((mean - (rho - 0.5) * x).mean(), 0.0, atol=4.0 * (variance / 80) ** 0.5)
    assert np.sqrt(np.square(mean - (rho - 0.5) * x).mean()) < 3.0 * (variance / 16) ** 0.5
    assert_allclose(np.square(std).mean(), variance, rtol=4.0 * (2.0 / 160) ** 0.5)


@pytest.mark.parametrize("trained_on_gaps", [False, True])
def test_gaps_do_not_narrow_intervals(frame, target, trained_on_gaps):
    X = frame[["size", "kind"]].copy()
    if trained_on_gaps:
        X.loc[::4, "size"], X.loc[1::5, "kind"] = np.nan, None
    model = clone(EXACT).fit(X, target)
    width = np.diff(model.predict_interval(frame[["size", "kind"]])).mean()
    for gap in ({"size": np.nan}, {"kind": None}, {"size": np.nan, "kind": None}):
        wider = np.diff(model.predict_interval(frame[["size", "kind"]].assign(**gap))).mean()
        assert wider >= width


@pytest.mark.parametrize("n_layers", [1, 2])
def test_covariances_of_rows_with_unknown_cells(frame, target, n_layers):
    X = frame[["size", "kind"]]
    model = clone(EXACT).set_params(n_layers=n_layers, max_iter=20)
    if n_layers > 1:
        model.set_params(inference="dsvi")
    model.fit(X, target)
    rows = X[:6].assign(kind=["new", "new", None, *X["kind"][3:6]])
    rows.loc[[2, 4], "size"] = np.nan
    rows.loc[1, "size"] = rows.loc[0, "size"]
    mean, cov = model.predict(rows, return_cov=True, latent=True)
    again, std = model.predict(rows, return_std=True, latent=True)
    assert_allclose(mean, again)
    exact = n_layers == 1  # otherwise covariances are those of 512 draws
    assert_allclose(cov.diagonal(), std**2, rtol=1e-6 if exact else 4.0 * (2.0 / 512) ** 0.5)
    assert_allclose(cov[0, 1], std[0] ** 2, rtol=1e-6 if exact else 0.3)


LINEAR = np.array([1.0, -0.7, 0.5, 0.3])


def _given_known_cells(coef, cov, x, gaps):
    """Mean and variance of a linear function of Gaussian cells, given those that are known."""
    B = cov[np.ix_(gaps, ~gaps)] @ np.linalg.pinv(cov[np.ix_(~gaps, ~gaps)])
    V = cov[np.ix_(gaps, gaps)] - B @ cov[np.ix_(~gaps, gaps)]
    return (coef[~gaps] + coef[gaps] @ B) @ x[~gaps], coef[gaps] @ V @ coef[gaps]


def _with_gaps(n, share, seed):
    """Rows of a linear Gaussian model, with cells missing at random, and the exact predictive moments."""
    rng, cov = np.random.default_rng(seed), 0.5 + 0.5 * np.eye(4)
    X = rng.multivariate_normal(np.zeros(4), cov, n, method="cholesky")  # the same everywhere
    y = X @ LINEAR + 0.3 * rng.normal(size=n)
    X[rng.random(X.shape) < share] = np.nan
    mean, variance = np.empty(n), np.full(n, 0.09)
    for i, gaps in enumerate(np.isnan(X)):
        mean[i], more = _given_known_cells(LINEAR, cov, X[i], gaps)
        variance[i] += more
    return X, y, mean, variance


@pytest.mark.parametrize("share", [0.1, 0.3])
@pytest.mark.parametrize("inference", ["exact", "dsvi"])
def test_gaps_of_a_linear_model_are_predicted_as_its_closed_form_says(inference, share):
    """Means over four training sets: the noise that 300 rows tell has a standard error of a tenth."""
    coverage, ratios, behind = [], [], []
    for seed in (0, 10, 20, 30):
        X, y, _, _ = _with_gaps(300, share, seed)
        rows, targets, mean, variance = _with_gaps(1000, share, seed + 1)
        model = DeepGPRegressor(
            1, inference=inference, kernel="linear", max_iter=400, random_state=0
        )
        found, std = model.fit(X, y).predict(rows, return_std=True)
        assert np.square(found - mean).mean() < 0.1 * np.square(mean).mean()
        coverage.append((np.abs(targets - found) < 1.645 * std).mean())
        n_gaps = np.isnan(rows).sum(1)
        of_few = [n_gaps == few for few in (0, 1, 2)]  # rows with so many gaps
        ratios.append([np.square(std[own]).mean() / variance[own].mean() for own in of_few])
        right = norm.logpdf(targets, mean, np.sqrt(variance)).mean()
        behind.append(right - model.log_predictive_density(rows, targets).mean())
    assert abs(np.mean(coverage) - 0.9) < 0.03
    assert (0.75 < np.mean(ratios, 0)).all() and (np.mean(ratios, 0) < 1.35).all()
    assert np.mean(behind) < 0.1
    draws = model.sample_y(rows[:40], 1000)
    # sizes of noise that are shared by all rows, beside 5 standard errors of .022
    assert_allclose(draws.std(1), std[:40], rtol=0.15)


def test_decompositions_of_many_rows_with_gaps_under_a_map():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    y = np.exp(X[:, 0] + 0.2 * rng.normal(size=500))
    X[::3, 1] = np.nan
    settings = {"inference": "exact", "max_iter": 2, "target_transform": "log", "random_state": 0}
    model = DeepGPRegressor(1, **settings).fit(X[:100], y[:100])
    whole = model.predict(X, return_std=True, decompose=True)
    some = model.predict(X[:50], return_std=True, decompose=True)
    for a, b in zip(whole, some):
        np.testing.assert_allclose(a[:50], b, rtol=1e-9, atol=1e-12)


def test_probabilities_of_rows_with_gaps():
    """Closed form of probit regression with Gaussian columns: a threshold, noise and what gaps hide."""
    coef, cov = np.array([2.0, 1.0, 0.5]), 0.3 + 0.7 * np.eye(3)

    def rows(n, seed):
        rng = np.random.default_rng(seed)
        X = rng.multivariate_normal(np.zeros(3), cov, n, method="cholesky")
        y = X @ coef + rng.normal(size=n) > 0.0
        X[rng.random(X.shape) < 0.3] = np.nan
        p = np.empty(n)
        for i, gaps in enumerate(np.isnan(X)):
            mean, variance = _given_known_cells(coef, cov, X[i], gaps)
            p[i] = norm.cdf(mean / np.sqrt(1.0 + variance))
        return X, y, p

    confidence, excess = [], []  # of three training sets
    for seed in (0, 10, 40):
        X, y, _ = rows(600, seed)
        tested, _, right = rows(2000, seed + 1)
        model = SparseGPClassifier(random_state=0).fit(X, y)
        proba = model.predict_proba(tested)
        more = proba.max(1) - np.maximum(right, 1.0 - right)
        n_gaps = np.isnan(tested).sum(1)
        confidence.append([more[n_gaps == few].mean() for few in range(3)])
        nothing = proba[n_gaps == 3, 1]
        assert_allclose(nothing, nothing[0])
        assert abs(nothing[0] - 0.5) < 0.1
        excess.append((rel_entr(right, proba[:, 1]) + rel_entr(1.0 - right, proba[:, 0])).mean())
    assert (np.abs(np.mean(confidence, 0)) < 0.035).all()
    assert np.mean(excess) < 0.015
    draws = model.sample_y(tested[:40], 1000)
    assert_allclose(draws.mean(1), proba[:40, 1], atol=5.0 * (0.25 / 1000) ** 0.5)
