"""Groups that are left out as a whole."""

import pickle
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.fitting.left_out import held_groups
from skdgp.fitting.member import Plan
from skdgp.fitting.stacking import ScoredRows, with_twins
from skdgp.fitting.table import Table
from skdgp.fitting.warm_start import warm_start_sources
from skdgp.gp.likelihoods import Gaussian
from skdgp.inference import CollapsedVI, Exact
from skdgp.model_selection import cross_val_distribution
from skdgp.torch import as_module

N_GROUPS, SIZE = 30, 6
GROUPS = np.repeat(np.arange(N_GROUPS), SIZE)


def panel(seed=0):
    """A column of the group, one of the row, and an effect of the group that no column tells."""
    rng = np.random.default_rng(seed)
    of_group, effect = rng.normal(size=(2, N_GROUPS))
    x = rng.uniform(-2.0, 2.0, len(GROUPS))
    noise = 0.1 * rng.normal(size=len(GROUPS))
    return np.column_stack([of_group[GROUPS], x]), np.sin(2.0 * x) + effect[GROUPS] + noise


def regressor(**settings):
    return DeepGPRegressor(max_iter=30, random_state=0, **settings)


@pytest.fixture(scope="module")
def fitted():
    X, y = panel()
    return regressor().fit(X, y, groups=GROUPS)


@pytest.fixture(scope="module")
def column_of_groups():
    X, y = panel()
    model = DeepGPRegressor(1, inference="exact", groups=2, max_iter=10, target_transform=None)
    return model.fit(np.column_stack([X, GROUPS]), y)


def test_members_are_judged_by_new_groups(fitted):
    """Single rows are told by their group; their log density is off by more than a nat for new groups."""
    X, y = panel()
    alone = regressor().fit(X, y)
    rng = np.random.default_rng(1)
    of_group = rng.normal(size=500)
    x, effect = rng.uniform(-2.0, 2.0, 500), rng.normal(size=500)
    y_new = np.sin(2.0 * x) + effect + 0.1 * rng.normal(size=500)
    actual = fitted.log_predictive_density(np.column_stack([of_group, x]), y_new)
    told, error = max(m.record.log_density for m in fitted.members_), actual.std() / 500**0.5
    assert abs(told - actual.mean()) < 0.3 + 3.0 * error
    assert max(m.record.log_density for m in alone.members_) > told + 1.0


def test_names_and_types_of_groups_change_nothing():
    X, y = panel()
    model = DeepGPRegressor(1, inference="exact", max_iter=3, random_state=0)
    expected = model.fit(X, y, groups=GROUPS).predict(X, return_std=True, groups=GROUPS)
    names = np.array([f"group {97 * i % 31}" for i in GROUPS])
    for groups in (names, pd.Series(pd.Categorical(names)), list(names), GROUPS[:, None] + 0.5):
        found = model.fit(X, y, groups=groups).predict(X, return_std=True, groups=groups)
        assert_array_equal(found, expected)


@pytest.mark.parametrize("estimator", [DeepGPRegressor, DeepGPClassifier])
@pytest.mark.parametrize(
    ("groups", "match"),
    [
        (GROUPS[1:], "one group for each of the 180 rows; got 179"),
        (np.zeros(len(GROUPS)), "a single group"),
        (np.where(GROUPS == 3, np.nan, GROUPS), "missing in row 18"),
        (np.where(GROUPS == 3, None, GROUPS.astype(object)), "missing in row 18"),
        (np.column_stack([GROUPS, GROUPS]), r"groups must have one value for each row; got shape"),
    ],
)
def test_groups_that_are_none(estimator, groups, match):
    X, y = panel()
    model = estimator(max_iter=2)
    with pytest.raises(ValueError, match=match):
        model.fit(X, y > 0.0 if estimator is DeepGPClassifier else y, groups=groups)
    assert not model._is_fitted()


def test_held_out_rows_are_whole_groups():
    rng = np.random.default_rng(0)
    for n_held in (1, 20, 60, 1000):
        held = held_groups(GROUPS, n_held, None, rng)
        inside = np.isin(np.arange(len(GROUPS)), held).reshape(N_GROUPS, SIZE)
        assert_array_equal(inside.any(1), inside.all(1))
        n_groups = np.count_nonzero(inside.any(1))
        assert n_groups == min(max(1, round(n_held / SIZE)), N_GROUPS - 1)
    labels = (GROUPS == 5).astype(int)  # the only group with this class stays
    assert not np.isin(np.flatnonzero(labels), held_groups(GROUPS, 1000, labels, rng)).any()


def test_early_stopping_looks_at_whole_groups():
    X, y = panel()
    table = Table(X, y[:, None], np.ones(len(y)), groups=GROUPS).merged()
    rest, held = table.split(0.2, np.random.default_rng(0))
    assert len(held) == 36
    assert not set(rest.groups) & set(held.groups)
    assert set(rest.groups) | set(held.groups) == set(range(N_GROUPS))


def test_rows_of_weight_zero_have_no_group(fitted):
    X, y = panel()
    more = np.concatenate([X, X[:5] + 1.0]), np.append(y, np.full(5, 50.0))
    weights, groups = np.repeat([1.0, 0.0], [180, 5]), np.append(GROUPS, np.full(5, 77))
    model = regressor().fit(*more, sample_weight=weights, groups=groups)
    assert_array_equal(model.predict(X), fitted.predict(X))


def test_no_group_can_be_held_out():
    X, y = panel()
    settings = {"inference": "dsvi", "early_stopping": True, "max_iter": 2}
    with pytest.raises(ValueError, match="each group has the last rows of a class; give X_val"):
        DeepGPClassifier(1, **settings).fit(X, GROUPS > 14, groups=GROUPS > 14)
    with pytest.raises(ValueError, match="a single group"):  # among the rows that count
        DeepGPRegressor(1, **settings).fit(X, y, 1.0 * (GROUPS == 3), groups=GROUPS)


def test_classes_in_groups():
    X, y = panel()
    labels = np.where(y > 0.5, "b", "a")
    model = DeepGPClassifier(max_iter=30, random_state=0).fit(X, labels, groups=GROUPS)
    alone = DeepGPClassifier(max_iter=30, random_state=0).fit(X, labels)
    best = (max(m.record.log_density for m in one.members_) for one in (model, alone))
    assert next(best) < next(best)
    assert model.predict_proba(X).shape == (180, 2)


def test_no_member_is_scored_row_by_row():
    """The group alone decides on the class: of its other rows, every member is told the label."""
    rng = np.random.default_rng(3)
    of_group = rng.normal(size=(N_GROUPS, 2))
    labels = np.where(rng.random(N_GROUPS) > 0.5, "b", "a")[GROUPS]
    X = of_group[GROUPS] + 0.01 * rng.normal(size=(len(GROUPS), 2))
    model = DeepGPClassifier(max_iter=30, random_state=0).fit(X, labels, groups=GROUPS)
    assert len(model.members_) > 1
    assert all(member.record.log_density < -0.5 for member in model.members_)


def test_searches_and_pipelines_pass_groups_on():
    X, y = panel()
    seen = []

    class Noting(DeepGPRegressor):
        def fit(self, X, y, sample_weight=None, *, groups=None):
            seen.append(groups)
            return super().fit(X, y, sample_weight, groups=groups)

    model = Noting(1, inference="exact", max_iter=3, random_state=0)
    pipeline = make_pipeline(StandardScaler(), model)
    pipeline.fit(X, y, noting__groups=GROUPS)
    assert_array_equal(seen.pop(), GROUPS)
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(model.set_fit_request(groups=True), {"tol": [0.0]}, cv=GroupKFold(3))
        search.fit(X, y, groups=GROUPS)
        cross_val_score(model, X, y, params={"groups": GROUPS}, cv=GroupKFold(3))
    assert [len(groups) for groups in seen] == [120, 120, 120, 180, 120, 120, 120]
    assert not set(seen[0]) >= set(GROUPS)


# The group in a column of X


def framed():
    X, y = panel()
    names = np.array([f"shop {i}" for i in GROUPS])
    return pd.DataFrame({"of_group": X[:, 0], "shop": names, "x": X[:, 1]}), y


@pytest.fixture(scope="module")
def named():
    X, y = framed()
    return regressor(n_layers=1, inference="exact", groups="shop").fit(X, y)


@pytest.mark.parametrize("kind", ["shuffled", "polars", "array", "category"])
def test_kinds_of_columns_change_nothing(kind, named):
    X, y = framed()
    column = "shop"
    expected = named.predict(X, return_std=True)
    if kind == "shuffled":  # with other names of rows
        X = X.set_index(np.random.default_rng(0).permutation(len(X)))
    elif kind == "polars":
        X = pytest.importorskip("polars").DataFrame({name: X[name].tolist() for name in X})
    elif kind == "category":
        X["shop"] = X["shop"].astype("category")
    elif kind == "array":
        X, column = np.insert(panel()[0], 1, GROUPS + 5.0, axis=1), 1
    model = regressor(n_layers=1, inference="exact", groups=column).fit(X, y)
    assert_allclose(model.predict(X, return_std=True), expected, rtol=1e-6)
    assert [m.record.log_density for m in model.members_] == pytest.approx(
        [m.record.log_density for m in named.members_]
    )
    assert list(model.column_kinds_.values())[1] == "groups"


def test_new_groups_are_predicted_without_a_word(recwarn):
    X, y = framed()
    model = DeepGPRegressor(1, inference="exact", max_iter=3, groups="shop").fit(X, y)
    expected = model.predict(X.assign(shop="newer"))
    for shop in ("new", None, 7):
        assert_array_equal(model.predict(X.assign(shop=shop)), expected)
    assert np.abs(model.predict(X) - expected).mean() > 0.1
    assert not [w for w in recwarn if "level" in str(w.message)]


def test_pipelines_and_searches_need_no_routing():
    X, y = framed()
    seen = []

    class Noting(DeepGPRegressor):
        def _plans(self, data):
            seen.append(data.groups)
            return super()._plans(data)

    model = Noting(1, inference="exact", max_iter=3, random_state=0, groups="shop")
    search = GridSearchCV(model, {"tol": [0.0]}, cv=GroupKFold(3)).fit(X, y, groups=X["shop"])
    cross_val_score(model, X, y, cv=GroupKFold(3), groups=X["shop"])
    found = cross_val_distribution(model, X, y, cv=GroupKFold(3), groups=X["shop"])
    assert np.isfinite(found.log_density).all()
    assert search.best_score_ > -1.0
    counts = [len(np.unique(groups)) for groups in seen]
    assert counts == [20, 20, 20, 30, 20, 20, 20, 20, 20, 20]


def test_chunks_leave_the_column():
    X, y = framed()
    model = DeepGPRegressor(1, inference="dsvi", groups="shop", random_state=0)
    model.partial_fit(X[:6], y[:6]).partial_fit(X[6:], y[6:])  # the first of one group
    assert_array_equal(model.predict(X), model.predict(X.assign(shop="new")))


@pytest.mark.parametrize(
    ("groups", "change", "match"),
    [
        ("town", {}, "groups='town' names a column that X does not have"),
        (3, {}, "groups=3 is the position of a column, and X has 3 columns"),
        ("shop", {"shop": "one"}, "groups has a single group"),
        ("shop", {"shop": [None, *["a", "b"] * 89, "c"]}, "groups is missing in row 0"),
    ],
)
def test_wrong_columns(groups, change, match):
    X, y = framed()
    for estimator, target in ((DeepGPRegressor, y), (DeepGPClassifier, y > 0.0)):
        with pytest.raises(ValueError, match=match):
            estimator(max_iter=2, groups=groups).fit(X.assign(**change), target)


def test_rows_without_the_column(column_of_groups):
    X, _ = panel()
    rows = np.column_stack([X, GROUPS])
    for lacking, match in ((rows[:, :2], "X has 2 features"), (rows[0], "Expected 2D array")):
        with pytest.raises(ValueError, match=match):
            column_of_groups.predict(lacking)


def test_modules_read_the_column(column_of_groups):
    """Of known and new groups; as_model of BoTorch reads it in the same way."""
    X, _ = panel()
    rows = np.column_stack([X, GROUPS])[::7]
    rows[3, 2] = 99.0
    means = as_module(column_of_groups)(torch.tensor(rows))[1]
    assert_allclose(means.mean(0), column_of_groups.predict(rows), rtol=1e-8)
    pytest.importorskip("botorch")
    from skdgp.integrations.botorch import as_model

    posterior = as_model(column_of_groups).posterior(torch.tensor(rows))
    found = posterior.mean.numpy()[:, 0], posterior.variance.sqrt().numpy()[:, 0]
    expected = column_of_groups.predict(rows, return_std=True, latent=True)
    assert_allclose(found, expected, rtol=1e-6)


def test_groups_are_given_once():
    X, y = framed()
    with pytest.raises(ValueError, match="groups is given twice"):
        regressor(groups="shop").fit(X, y, groups=GROUPS)


def intercepts(rng, groups, effects):
    """Rows of groups with two columns of the group, and the functions in which the target is linear."""
    of_groups = np.random.default_rng(7).normal(size=(len(effects), 2))[groups]
    x = rng.uniform(-2.0, 2.0, len(groups))
    y = np.sin(2.0 * x) + 0.7 * of_groups[:, 0] + effects[groups] + 0.5 * rng.normal(size=len(x))
    X = pd.DataFrame({"group": groups, "a": of_groups[:, 0], "b": of_groups[:, 1], "x": x})
    return X, y, np.column_stack([np.ones(len(x)), of_groups, np.sin(2.0 * x)])


def test_known_groups_have_the_effects_of_a_mixed_model_and_new_ones_their_variance():
    """By generalized least squares with the right functions and variances, 45 groups of 10 rows."""
    rng = np.random.default_rng(0)
    effects = rng.normal(size=345)
    effects[:45] /= effects[:45].std()
    known, new = np.arange(45), np.arange(45, 345)
    X, y, F = intercepts(rng, known.repeat(10), effects)
    model = regressor(groups="group").fit(X, y)
    X_new, y_new, F_new = intercepts(rng, known.repeat(20), effects)
    same = np.equal.outer(X["group"].to_numpy(), X["group"].to_numpy())
    V = 1.0 * same + 0.25 * np.eye(len(y))
    beta = np.linalg.solve(F.T @ np.linalg.solve(V, F), F.T @ np.linalg.solve(V, y))
    to_new = np.equal.outer(X_new["group"].to_numpy(), X["group"].to_numpy())
    best = F_new @ beta + to_new @ np.linalg.solve(V, y - F @ beta)
    error, least = (np.sqrt(np.mean((m - y_new) ** 2)) for m in (model.predict(X_new), best))
    assert error < 1.05 * least
    low, high = model.predict_interval(X_new, 0.9).T
    assert 0.84 < ((low < y_new) & (y_new < high)).mean() < 0.96  # three standard errors
    X_new, y_new, _ = intercepts(rng, new.repeat(3), effects)
    low, high = model.predict_interval(X_new, 0.9).T
    assert 0.84 < ((low < y_new) & (y_new < high)).mean() < 0.96  # three standard errors
    assert model.feature_importances_[0] > 0.1
    assert as_module(model)(torch.tensor(X_new.to_numpy()[:2])) is not None


def test_new_rows_of_known_and_of_new_groups_are_learned_from():
    X, y = framed()
    model = DeepGPRegressor(1, inference="exact", groups="shop", random_state=0).fit(X, y)
    given = model.condition_on(X[:2].assign(shop=["new", "newer"]), y[:2] + [3.0, -3.0])
    row = X[50:51]
    up, down, level = (given.predict(row.assign(shop=one))[0] for one in ("new", "newer", "newest"))
    assert up > level + 0.5
    assert down < level - 0.5


def test_deviations_count_that_groups_are_few():
    """By the predictive variance of one more group, (1 + 1/L)(L + 2)/L of that of L groups."""
    X, y = panel()
    exact = regressor(n_layers=1, inference="exact")
    (alone,) = exact.fit(X, y).members_
    assert alone.dispersion == 1.0
    for n, groups in ((30, GROUPS), (2, GROUPS % 2), (180, np.arange(180))):
        (member,) = exact.fit(X, y, groups=groups).members_
        more = np.sqrt((1.0 + 1.0 / n) * (n + 2.0) / n)
        assert 0.9 * more < member.dispersion < 1.1 * more
        assert np.isfinite(member.record.log_density)
    (member,) = exact.fit(X, y, time=np.arange(180)).members_
    assert member.dispersion > 1.05  # five blocks


def test_members_without_effects_of_groups_are_to_be_clearly_better():
    def trained(scheme, loo):
        return SimpleNamespace(member=SimpleNamespace(scheme=scheme), loo=loo[None], held_out=None)

    rng = np.random.default_rng(0)
    loo, noise = rng.normal(size=(2, 180))
    scored = object.__new__(ScoredRows)
    scored.data = SimpleNamespace(group=0, weights=np.ones(180), groups=GROUPS)
    scored.rows, scored.held, scored.disperses = np.arange(180), None, False
    own, equal = trained(Exact(), loo), trained(CollapsedVI(), loo + 0.3 * noise)
    better = trained(CollapsedVI(), loo + 0.5)
    assert scored._of_groups([own, equal]) == [own]
    assert scored._of_groups([own, better]) == [own, better]
    assert scored._of_groups([better]) == [better]
    scored.held = np.arange(2)  # of which minibatch members alone are judged
    twin = trained(Exact().without_effects(), loo + 0.1)
    for one in (own, twin):
        one.loo = np.atleast_2d(one.loo)
    assert scored._of_groups([own, twin]) == [own, twin]
    scored.rows = np.arange(40)
    own.loo, twin.loo = own.loo[:, :40], twin.loo[:, :40]
    assert scored._of_groups([own, twin]) == [own]
    scored.data.group = None
    assert scored._of_groups([own, equal]) == [own, equal]


def test_twins_know_neither_groups_nor_levels():
    plan = Plan(Exact(), Gaussian())
    (twin,) = with_twins([plan], SimpleNamespace(group=0))[1:]
    assert plan.scheme.has_effects
    assert not twin.scheme.has_effects
    assert twin.scheme.leaves_groups_out
    assert with_twins([plan], SimpleNamespace(group=None)) == [plan]
    shape = SimpleNamespace(kernels=[twin.last_kernel()])
    known, other = (SimpleNamespace(scheme=p.scheme, architecture=shape) for p in (plan, twin))
    assert warm_start_sources([plan, twin], [other, known]) == [known, other]


@pytest.mark.parametrize("inference", ["auto", "vecchia"])
def test_without_groups_and_time_nothing_of_theirs_is_used(monkeypatch, inference):
    """The fit is the same, to the last bit, where all that is for groups, blocks and effects fails."""
    X, y = panel()
    X = pd.DataFrame(X, columns=["a", "b"]).assign(c=np.array(["u", "v", "w"])[GROUPS % 3])
    model = DeepGPRegressor(inference=inference, n_layers=1, max_iter=5, random_state=0)
    expected = model.fit(X, y).predict(X, return_std=True)

    def used(*args, **kwargs):
        raise AssertionError

    for where in (
        "fitting.stacking.variance_of_new",
        "fitting.table.held_groups",
        "fitting.table.last_groups",
        "estimators.left_out.group_numbers",
        "estimators.left_out.blocks",
        "estimators.regressor.trend_plans",
        "estimators.regressor.of_the_future",
        "gp.kernels.indicator.Indicator.__init__",
        "gp.kernels.indicator.OnColumns.__init__",
        "inference.vecchia.neighbors.LevelNeighbors.__init__",
    ):
        monkeypatch.setattr(f"skdgp.{where}", used)
    assert_array_equal(model.fit(X, y).predict(X, return_std=True), expected)


def test_checkpoints_and_pickles_keep_effects(tmp_path):
    X, y = framed()
    model = DeepGPRegressor(1, inference="exact", max_iter=3, random_state=0, groups="shop")
    expected = model.fit(X, y).predict(X, return_std=True)
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X, return_std=True), expected)
    model.set_params(checkpoint=tmp_path / "state")
    for _ in range(2):  # the second one goes on from the end of the first
        found = clone(model).fit(X, y).predict(X, return_std=True)
        assert_allclose(found, expected, rtol=1e-9)


def test_warm_starts_go_on_with_effects_and_learn_more_groups():
    X, y = framed()
    model = DeepGPRegressor(1, inference="exact", max_iter=9, groups="shop", random_state=0)
    model.set_params(warm_start=True).fit(X, y)
    rows, more = X[-12:].assign(shop=["new"] * 6 + ["newer"] * 6), y[-12:] + np.repeat([3, -3], 6)
    model.fit(pd.concat([X, rows]), np.append(y, more))
    row = X[50:51]
    up, down, level = (model.predict(row.assign(shop=one))[0] for one in ("new", "newer", "newest"))
    assert up > level + 0.5
    assert down < level - 0.5
