"""Rows that are held out to score members of the default, and their return."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.fitting import plan as recipe
from skdgp.fitting import stacking as scored
from skdgp.fitting.member import Plan
from skdgp.fitting.member_fit import MemberFit, log_densities
from skdgp.fitting.mixture_fit import MixtureFit
from skdgp.fitting.stacking import ScoredRows
from skdgp.fitting.table import Data
from skdgp.fitting.weights import stack
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

    def trainer(self, model, plan, data, *args, **kwargs):
        if isinstance(plan.scheme, DSVI):
            seen.append(len(data))
        return make(self, model, plan, data, *args, **kwargs)

    monkeypatch.setattr(MemberFit, "trainer", trainer)
    return seen


@pytest.fixture
def trial(monkeypatch):
    """The deep member has a trial of 50 steps."""
    regression = recipe.regression

    def with_trial(*args):
        plans = regression(*args)
        for plan in plans:
            plan.trial = 50 if isinstance(plan.scheme, DSVI) else None
        return plans

    monkeypatch.setattr(recipe, "regression", with_trial)


def test_the_last_fifth_of_the_steps_sees_them(few_members, rows, data, monkeypatch):
    X, y = data
    model = DeepGPRegressor(**FEW).fit(X, y)
    member, n = sparse(model), len(np.unique(X, axis=0))
    assert rows == [n - round(0.2 * n), n]
    assert member.record.n_iter == len(member.record.loss_curve) == 100
    monkeypatch.setattr(MixtureFit, "_see_all_rows", lambda *args: None)
    before = sparse(DeepGPRegressor(**FEW).fit(X, y))
    assert before.record.n_iter == 80
    assert before.record.loss_curve == member.record.loss_curve[:80]
    # weights and scores are of rows that were not seen
    assert before.record.log_density == member.record.log_density
    assert before.mixture_weight == member.mixture_weight


def test_what_they_say_is_learned(few_members, monkeypatch):
    """Their log density rises once steps see them."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (60, 2))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.05 * rng.standard_normal(60)
    see, found = MixtureFit._see_all_rows, []

    def watched(self, result, *args):
        for call in (lambda: None, lambda: see(self, result, *args)):
            call()
            rows = self.data.part(self.scored.held)
            found.append(log_densities([result.member], rows, self.device).mean())

    monkeypatch.setattr(MixtureFit, "_see_all_rows", watched)
    DeepGPRegressor(**{**FEW, "max_iter": 400, "n_inducing": 40}).fit(X, y)
    before, afterwards = found
    assert afterwards > before + 0.1


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_a_member_stays_as_it_was_scored_if_further_training_fails(
    few_members, data, monkeypatch, error
):
    run, calls = MemberFit.run, []

    def fails(self, *args):
        calls.append(args)
        if len(calls) == n_runs:
            raise error
        return run(self, *args)

    n_runs = 0
    monkeypatch.setattr(MemberFit, "run", fails)
    whole = DeepGPRegressor(**FEW).fit(*data)
    calls.clear()
    before = [isinstance(member.scheme, DSVI) for member in whole.members_].index(True)
    n_runs = before + 2  # the second one of this member
    model = DeepGPRegressor(**FEW).fit(*data)
    assert sparse(model).record.n_iter == 80
    assert sparse(model).record.log_density == sparse(whole).record.log_density
    assert np.isfinite(model.predict(data[0])).all()


def test_members_with_leave_one_out_and_single_models_see_all_rows_at_once(rows, data):
    DeepGPRegressor(inference="dsvi", **FEW).fit(*data)
    assert rows == [len(data[0])]


def test_classes(rows):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    model = DeepGPClassifier(**FEW).fit(X, X[:, 0] > 0.0)
    assert rows[-1] == 60 and rows[0] < 60
    assert_allclose(model.predict_proba(X).sum(1), 1.0)


def test_members_side_by_side_wait_for_those_that_decide(few_members, trial, data):
    """A plane, which exact processes find at once."""
    X = data[0]
    y = X @ [1.0, -2.0]
    one, two = (DeepGPRegressor(n_jobs=n, **FEW).fit(X, y) for n in (1, 2))
    assert sparse(one).record.n_iter == sparse(two).record.n_iter == 50 + 12
    assert_array_equal(one.predict(X), two.predict(X))


@pytest.mark.parametrize(("weight", "n_steps"), [(0.05, 50 + 12), (0.2, 200)])
def test_a_member_that_hardly_counts_ends_after_its_trial(
    few_members, trial, rows, data, monkeypatch, weight, n_steps
):
    """A quarter of the steps that were made follow with all rows."""
    monkeypatch.setattr(ScoredRows, "weight_beside_others", lambda *args: weight)
    model = DeepGPRegressor(**{**FEW, "max_iter": 200}).fit(*data)
    assert sparse(model).record.n_iter == n_steps
    assert len(rows) == 2


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
    rows = Data(X, y[:, None], np.ones(len(y)))
    rows.scale_as(model._x_scaler, model._y_scaler)
    errors = scored.errors_of_mean(model.members_[0], rows, "cpu")
    assert_allclose(errors[:, 0] * model._y_scaler.scale, y - model.predict(X), rtol=1e-9)


def test_weight_beside_others(few_members, data, monkeypatch):
    """That of stacking by rows that no member has seen, when it is asked for."""
    score, found, scored = ScoredRows.score, [], []

    def asked(self, one, *args):
        if isinstance(one.member.scheme, DSVI):
            others = [other.loo for other in scored if other.loo is not None]
            rows = self.data.part(self.held)
            own = log_densities([one.member], rows, torch.device("cpu"))
            middle = np.argmin(np.abs(np.log(np.geomspace(np.exp(-0.7), np.exp(0.3), 21))))
            loo = [other[middle, : len(self.held)] for other in others]
            expected = stack(np.vstack([*loo, own]), rows.weights)[-1] if others else 1.0
            found.append((self.weight_beside_others(one.member), expected))
        score(self, one, *args)
        scored.append(one)

    monkeypatch.setattr(ScoredRows, "score", asked)
    DeepGPRegressor(**FEW).fit(*data)
    assert len(found) == 1
    assert_array_equal(*found[0])
    assert 0.0 < found[0][0] <= 1.0
