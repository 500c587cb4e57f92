import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score

from skdgp.model_selection import ProjectionSplit


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(41, 3)) * [1.0, 100.0, 1e-3] + [0.0, 5.0, 1e4]


def test_test_rows_lie_beyond_the_training_rows(X):
    Z = (X - X.mean(0)) / X.std(0)
    rng = np.random.RandomState(3)
    splits = list(ProjectionSplit(5, random_state=3).split(X))
    assert len(splits) == 5
    for train, test in splits:
        U = Z @ rng.standard_normal(3)
        assert U[test].max() < U[train].min()
        assert len(test) == 21 and len(train) == 20
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(41))
        assert (np.diff(train) > 0).all() and (np.diff(test) > 0).all()


def test_units_and_constant_columns_do_not_matter(X):
    splits = list(ProjectionSplit(4, random_state=0).split(X))
    for other in (
        X * [1e6, 1.0, 1e-6] + 7.0,
        np.column_stack([np.full(41, 0.1), X]),
        X * [1e-13, 1e-160, 1e200],
    ):
        for split, same in zip(splits, ProjectionSplit(4, random_state=0).split(other)):
            for part, other_part in zip(split, same):
                np.testing.assert_array_equal(part, other_part)


def test_equal_rows_stay_in_their_order():
    X = np.repeat([0.0, 1.0], [2, 8])[:, None]
    for train, test in ProjectionSplit(20, test_size=6, random_state=0).split(X):
        first = [0, 1, 2, 3, 4, 5] if 0 in test else [2, 3, 4, 5, 6, 7]
        assert test.tolist() == first
        assert len(train) == 4


@pytest.mark.parametrize(
    ("test_size", "n_test"), [(0.5, 21), (0.1, 5), (7, 7), (0.99, None), (41, None), (1e-9, 1)]
)
def test_sizes(X, test_size, n_test):
    split = ProjectionSplit(2, test_size=test_size, random_state=0).split(X)
    if n_test is None:
        with pytest.raises(ValueError, match="leaves no rows on one side of 41"):
            next(split)
    else:
        assert [len(test) for _, test in split] == [n_test] * 2


@pytest.mark.parametrize(
    ("settings", "error"),
    [({"n_splits": 0}, ValueError), ({"n_splits": 1.5}, TypeError), ({"test_size": "half"}, TypeError),
     ({"test_size": 1.0}, ValueError), ({"test_size": 0}, ValueError), ({"test_size": -0.1}, ValueError),
     ({"test_size": True}, ValueError), ({"test_size": float("nan")}, ValueError)],
)  # fmt: skip
def test_settings_that_make_no_sense(X, settings, error):
    with pytest.raises(error, match=next(iter(settings))):
        next(ProjectionSplit(**settings).split(X))


def test_inputs_that_make_no_sense():
    with pytest.raises(ValueError, match="All columns of X are constant"):
        next(ProjectionSplit().split(np.full((5, 2), 0.1)))
    with pytest.raises(ValueError, match="NaN"):
        next(ProjectionSplit().split([[0.0], [np.nan]]))
    with pytest.raises(ValueError, match=r"1 sample\(s\) .* while a minimum of 2 is required"):
        next(ProjectionSplit().split([[0.0]]))


def test_random_state(X):
    one, two = (list(ProjectionSplit(3, random_state=5).split(X)) for _ in range(2))
    for a, b in zip(one, two):
        np.testing.assert_array_equal(a[1], b[1])
    assert not np.array_equal(one[0][1], one[1][1])
    other = list(ProjectionSplit(3, random_state=6).split(X))
    assert not np.array_equal(one[0][1], other[0][1])


def test_it_is_a_splitter_of_scikit_learn(X):
    y = X[:, 1] + 0.1 * X[:, 0] ** 2
    cv = ProjectionSplit(3, random_state=0)
    assert cv.get_n_splits(X) == 3
    assert repr(cv) == "ProjectionSplit(n_splits=3, random_state=0, test_size=0.5)"
    scores = cross_val_score(LinearRegression(), X, y, cv=cv)
    train, test = next(cv.split(X))
    expected = clone(LinearRegression()).fit(X[train], y[train]).score(X[test], y[test])
    assert scores[0] == pytest.approx(expected)
    search = GridSearchCV(LinearRegression(), {"fit_intercept": [True, False]}, cv=cv).fit(X, y)
    assert search.n_splits_ == 3
