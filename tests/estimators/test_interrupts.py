"""Ctrl-C at every stage of a fit."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score

from skdgp import DeepGPClassifier, DeepGPRegressor, SparseGPClassifier, SparseGPRegressor
from skdgp.estimators import base
from skdgp.estimators._sklearn import FitProgress
from skdgp.fitting import mixture as fit
from skdgp.fitting.stacking import ScoredRows
from skdgp.inference import CollapsedVI
from skdgp.inference.collapsed import CollapsedGP
from skdgp.inference.dsvi import DeepSparseGP
from skdgp.inference.exact import ExactGP
from skdgp.inference.sparse import full_batch
from skdgp.inference.sparse.full_batch import FullBatchGP
from skdgp.inference.vecchia.neighbors import NeighborGP
from skdgp.training import interrupts

FEW = {"max_iter": 5, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(40, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(40)


@pytest.fixture
def interrupt(watch):
    """Press Ctrl-C once, in the call with this number of some method, after what it does or before."""

    def patch(owner, name, at=0, after=False):
        original = getattr(owner, name)

        def look(n, *args, **kwargs):
            if n == at and after:
                original(*args, **kwargs)
            if n == at:
                raise KeyboardInterrupt

        return watch(owner, name, look)

    return patch


# Before the end of the first step

FIRST_STEPS = {
    "mixture": (DeepGPRegressor(**FEW), ExactGP),
    "mixture of classes": (DeepGPClassifier(**FEW), NeighborGP),
    "deep": (DeepGPRegressor(inference="dsvi", **FEW), DeepSparseGP),
    "vecchia": (DeepGPRegressor(1, inference="vecchia", **FEW), NeighborGP),
    "exact": (DeepGPRegressor(1, inference="exact", **FEW), ExactGP),
    "vfe": (SparseGPRegressor(**FEW), FullBatchGP),
    "sparse classes": (SparseGPClassifier(**FEW), FullBatchGP),
}


@pytest.mark.parametrize(
    ("case", "after"), [(name, i % 2 == 1) for i, name in enumerate((*FIRST_STEPS, "mixture"))]
)
def test_nothing_learned_is_nothing_kept(case, after, data, interrupt):
    model, owner = FIRST_STEPS[case]
    model = type(model)(**model.get_params(deep=False))
    X, y = data
    y = y > 0.0 if isinstance(model, (DeepGPClassifier, SparseGPClassifier)) else y
    interrupt(owner, "step", after=after)
    before = dict(model.__dict__)
    with pytest.raises(KeyboardInterrupt), pytest.warns(match="nothing has been learned"):
        model.fit(X, y)
    assert model.__dict__ == before
    assert model.fit(X, y).n_iter_ > 0


def test_the_last_fit_stays(data, interrupt):
    X, y = data
    model = DeepGPRegressor(warm_start=True, **FEW).fit(X, y)
    expected, n_iter = model.predict(X), model.n_iter_
    interrupt(ExactGP, "step")
    with pytest.raises(KeyboardInterrupt), pytest.warns(match="nothing has been learned"):
        model.fit(X, y + 1.0)
    assert model.n_iter_ == n_iter
    assert_array_equal(model.predict(X), expected)


def test_first_step_of_a_chunk(data, interrupt):
    X, y = data
    model = DeepGPRegressor(random_state=0).partial_fit(X, y)
    expected = model.predict(X)
    for chunk in (model, DeepGPRegressor(random_state=0)):
        interrupt(DeepSparseGP, "step")
        with pytest.raises(KeyboardInterrupt), pytest.warns(match="nothing has been learned"):
            chunk.partial_fit(X, y + 1.0)
    assert_array_equal(model.predict(X), expected)


def test_first_rounds_of_a_mixture(data, interrupt):
    """What the greedy start has found is kept, and the others predict with their start."""
    X, y = data
    interrupt(FullBatchGP, "step", at=3)
    with pytest.warns(ConvergenceWarning, match="interrupted after 0 steps; the model is the one"):
        model = DeepGPRegressor(init="greedy", **FEW).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all() and (std > 0.0).all()
    assert np.isfinite(model.sample_y(X, 2)).all()


# After the last step

LATE = "interrupted after training"


@pytest.mark.parametrize("where", ["lower_bound", "warn_of_pathologies"])
def test_lower_bound_and_diagnosis_can_be_missing(where, data, interrupt):
    X, y = data
    few = {"inference": "dsvi", **FEW}
    expected = DeepGPRegressor(**few).fit(X, y)
    model = DeepGPRegressor(**few).fit(X, -y)
    interrupt(base if where == "warn_of_pathologies" else fit, where)
    with pytest.warns(ConvergenceWarning, match=LATE) as caught:
        model.fit(X, y)
    assert caught[0].filename == __file__
    assert model.loss_curve_ == expected.loss_curve_
    assert_array_equal(model.predict(X), expected.predict(X))
    assert hasattr(model, "lower_bound_") == (where == "warn_of_pathologies")  # and not that of -y


def test_members_without_scores_have_equal_weights(data, interrupt):
    X, y = data
    interrupt(ScoredRows, "score", at=1)
    with pytest.warns(ConvergenceWarning, match="interrupted; 2 of"):
        model = DeepGPRegressor(**FEW).fit(X, y)
    assert [member.mixture_weight for member in model.members_] == [0.5, 0.5]
    assert model.score(X, y) > 0.5


def test_members_that_were_trained_predict(data, interrupt):
    """Ctrl-C in the first step of the last member."""
    X, y = data
    interrupt(CollapsedGP, "step")
    with pytest.warns(ConvergenceWarning, match="interrupted; 3 of 4"):
        model = DeepGPRegressor(**FEW).fit(X, y)
    assert CollapsedVI not in {type(one.scheme) for one in model.members_}
    assert model.score(X, y) > 0.5


@pytest.mark.parametrize(
    ("model", "owner", "name"),
    [
        (DeepGPRegressor(1, inference="exact", **FEW), ExactGP, "_condition"),
        (DeepGPRegressor(1, inference="exact", **FEW), ExactGP, "_learn_scale"),
        (SparseGPRegressor(**FEW), full_batch, "root_of_inverse"),
        (SparseGPRegressor(**FEW), base, "lasting"),
    ],
)
def test_what_is_needed_is_done_again(model, owner, name, data, interrupt):
    X, y = data
    expected = model.fit(X, y).predict(X, return_std=True)
    calls = interrupt(owner, name)
    with pytest.warns(ConvergenceWarning, match="interrupted after"):
        model.fit(X, y)
    assert_array_equal(model.predict(X, return_std=True), expected)
    assert len(calls) > 1


def test_interrupt_of_the_last_callback(data, interrupt):
    X, y = data
    few = {"inference": "dsvi", **FEW}
    expected = DeepGPRegressor(**few).fit(X, y).predict(X)
    interrupt(FitProgress, "end")
    with pytest.warns(ConvergenceWarning, match=LATE):
        model = DeepGPRegressor(**few).fit(X, y)
    assert_array_equal(model.predict(X), expected)
    assert hasattr(model, "lower_bound_")


# One fit after the other


@pytest.fixture
def calls(kill):
    """Steps of deep models; Ctrl-C is pressed in the first fit and in the second."""
    return kill(DeepSparseGP, 2, 6, error=KeyboardInterrupt)


def test_second_ctrl_c_ends_a_search(data, calls):
    model = DeepGPRegressor(inference="dsvi", **FEW)
    with pytest.raises(KeyboardInterrupt), pytest.warns(match="interrupted after 2") as caught:
        cross_val_score(model, *data, cv=5)
    assert len(calls) == 7
    assert sum("interrupted" in str(warning.message) for warning in caught) == 1


def test_second_ctrl_c_long_after(data, calls, monkeypatch):
    monkeypatch.setattr(interrupts, "SOON", 0.0)
    model = DeepGPRegressor(inference="dsvi", **FEW)
    with pytest.warns(match="interrupted after 3 steps"):
        assert np.isfinite(cross_val_score(model, *data, cv=2)).all()


def test_second_ctrl_c_leaves_the_last_fit(data, calls):
    X, y = data
    model = DeepGPRegressor(inference="dsvi", **FEW)
    with pytest.warns(match="interrupted after 2 steps"):
        expected = model.fit(X, y).predict(X)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y + 1.0)
    assert_array_equal(model.predict(X), expected)
