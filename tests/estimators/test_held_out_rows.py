"""Rows that are held out to score members of the default, and their return."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.fitting.member_fit import MemberFit
from skdgp.inference import DSVI

FEW = {"max_iter": 100, "n_inducing": 10, "n_predict_draws": 8, "random_state": 0}


def sparse(model):
    (member,) = (member for member in model.members_ if isinstance(member.scheme, DSVI))
    return member


@pytest.fixture
def few_members(monkeypatch):
    """Members of small weight stay, to be looked at."""
    monkeypatch.setattr("skdgp.fitting.stacking._NEGLIGIBLE", 0.0)


@pytest.fixture
def rows(monkeypatch):
    """Numbers of rows that trainers of members without leave-one-out see."""
    seen, make = [], MemberFit.trainer

    def trainer(self, model, plan, table, *args, **kwargs):
        if isinstance(plan.scheme, DSVI):
            seen.append(len(table))
        return make(self, model, plan, table, *args, **kwargs)

    monkeypatch.setattr(MemberFit, "trainer", trainer)
    return seen


def test_members_with_leave_one_out_and_single_models_see_all_rows_at_once(rows, data):
    DeepGPRegressor(inference="dsvi", **FEW).fit(*data)
    assert rows == [len(data[0])]


def test_classes(rows):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    model = DeepGPClassifier(**FEW).fit(X, X[:, 0] > 0.0)
    assert all(n == 60 - 12 for n in rows)
    assert_allclose(model.predict_proba(X).sum(1), 1.0)


def test_members_without_leave_one_out_do_not_see_them(few_members, rows, data):
    X, y = data
    model = DeepGPRegressor(**FEW).fit(X, y)
    n = len(np.unique(X, axis=0))
    assert rows == [n - round(0.2 * n)]
    assert sparse(model).record.n_iter == 100


@pytest.mark.parametrize("inference", ["auto", "dsvi", "diwp"])
def test_the_last_rows_of_all_classes_are_not_held_out(inference):
    model = DeepGPClassifier(inference=inference, early_stopping=True, **FEW)
    with pytest.raises(ValueError, match="these are the last ones of their classes"):
        model.fit(np.arange(3.0)[:, None], ["a", "b", "c"])
