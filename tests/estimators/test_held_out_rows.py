"""Rows that are held out to score members of the default, and their return."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.fitting import plan as recipe
from skdgp.fitting import stacking as scored
from skdgp.fitting.member import Plan
from skdgp.fitting.member_fit import MemberFit
from skdgp.fitting.table import Table
from skdgp.gp.likelihoods import HeteroscedasticGaussian
from skdgp.inference import DSVI, Vecchia

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


def test_means_decide_too_beside_two_models_that_train_on_left_out_rows(data, monkeypatch):
    """Errors are those of predictions of rows that are left out or held out."""
    found, regression, weigh = [], recipe.regression, scored.mixture_weights
    kernels = [["matern32", "rbf"], ["matern32"]]

    def spy(*args):
        found.append(args[-1])
        return weigh(*args)

    def with_neighbors(*args):
        others = [plan for plan in regression(*args) if not isinstance(plan.scheme, Vecchia)]
        noise = HeteroscedasticGaussian()
        return others + [Plan(Vecchia(8), noise, kernel=kernel) for kernel in kernels.pop()]

    monkeypatch.setattr(scored, "mixture_weights", spy)
    monkeypatch.setattr(recipe, "regression", with_neighbors)
    for _ in range(2):
        DeepGPRegressor(**FEW).fit(*data)
    (none, nothing), (of_loo, of_others) = found
    assert none is None and nothing is None
    n, n_held = len(data[0]), round(0.2 * len(data[0]))
    assert of_loo.shape[0] >= 3 and of_loo.shape[1:] == (n, 1)
    assert of_others.shape == (1, n_held, 1)
    assert (np.sqrt(np.square(of_loo).mean((1, 2))) < 0.7).all()  # of standardized targets


def test_errors_of_means_are_those_of_predictions(data):
    X, y = data
    model = DeepGPRegressor(inference="dsvi", **FEW).fit(X, y)
    rows = Table(X, y[:, None], np.ones(len(y)))
    rows.scale_as(model._x_scaler, model._y_scaler)
    errors = scored.errors_of_mean(model.members_[0], rows, "cpu")
    assert_allclose(errors[:, 0] * model._y_scaler.scale, y - model.predict(X), rtol=1e-9)


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
