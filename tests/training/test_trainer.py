"""The training loop, with a model that is simple enough to be foretold."""

import contextlib
import math
import signal
import threading
import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from skdgp.training import trainer as module
from skdgp.training.together import RowsTogether
from skdgp.training.trainer import BLOCK, Trainer, schedule


class Walk:
    """A model whose steps add the rate to a position; its loss is the distance from a goal."""

    finished = False

    def __init__(self, goal=1e9, troubles=None):
        self.goal, self.troubles = goal, troubles or {}
        self.position, self.momentum = 0.0, 0
        self.calls, self.rates, self.batches = 0, [], []

    def step(self, batch, generator, rate=1.0):
        call, self.calls = self.calls, self.calls + 1
        self.rates.append(rate)
        self.batches.append(batch)
        self.last_draw = float(torch.rand((), generator=generator))
        trouble = self.troubles.get(call)
        if isinstance(trouble, BaseException):
            raise trouble
        if trouble is not None:
            self.position = trouble
            return trouble
        loss = abs(self.goal - self.position)
        self.position += rate
        self.momentum += 1
        return loss

    def state(self):
        return {"position": np.array(self.position)}

    def load_state(self, arrays):
        self.position = float(arrays["position"])

    def training_state(self):
        return {"momentum": np.array(self.momentum)}

    def load_training_state(self, arrays):
        self.momentum = int(arrays["momentum"])

    def averaged(self):
        return contextlib.nullcontext()

    def settle(self):
        pass


class Spoiled(Walk):
    """Whose 60th step leaves what is no number."""

    def step(self, *args):
        loss = super().step(*args)
        if self.calls == 60:
            self.position = math.nan
        return loss


class Rows:
    def batch(self, step):
        return step


def make(model=None, **settings):
    settings = {"max_iter": 120, "decay": False, **settings}
    model = Walk() if model is None else model
    return Trainer(model, Rows(), torch.Generator().manual_seed(0), **settings)


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on by one second whenever it is read."""
    now = [0.0]

    def monotonic():
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr(module.time, "monotonic", monotonic)
    return now


def test_a_finished_model_ends_training_unless_all_steps_are_asked_for():
    class Arrived(Walk):
        @property
        def finished(self):
            return self.position >= 7.0

    for tol, n_iter in ((1e-6, 7), (0.0, 120)):
        assert make(Arrived(), tol=tol).run().n_iter == n_iter


# Schedule


def test_schedule():
    assert schedule(0.0) == schedule(0.25) == schedule(0.4999) == 1.0
    assert schedule(0.75) == pytest.approx(0.505)
    assert schedule(1.0) == schedule(2.0) == pytest.approx(0.01)
    values = [schedule(progress) for progress in np.linspace(0.0, 1.0, 1001)]
    assert (np.diff(values) <= 0.0).all() and np.abs(np.diff(values)).max() < 0.01


def test_schedule_follows_the_steps():
    model = Walk()
    make(model, max_iter=10, decay=True).run()
    assert model.rates == [schedule(i / 10) for i in range(10)]


def test_schedule_follows_the_clock(clock):
    """Whichever budget is spent sooner sets the rate."""
    model = Walk()
    with pytest.warns(ConvergenceWarning, match="max_time=20"):
        trainer = make(model, max_iter=10**6, max_time=20.0, decay=True).run()
    assert trainer.n_iter == 20
    np.testing.assert_allclose(model.rates, [schedule(i / 20) for i in range(20)])
    slow = Walk()
    make(slow, max_iter=10, max_time=1e6, decay=True).run()
    np.testing.assert_allclose(slow.rates, [schedule(i / 10) for i in range(10)])


# Budgets


@pytest.mark.parametrize("max_iter", [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
def test_max_iter(max_iter):
    model = Walk(goal=5.0)
    trainer = make(model, max_iter=max_iter).run()
    assert trainer is not None and trainer.n_iter == model.calls == max_iter
    assert model.batches == list(range(max_iter))
    assert trainer.loss_curve == [abs(5.0 - i) for i in range(max_iter)]
    assert model.position == max_iter


def test_max_time(clock):
    with pytest.warns(ConvergenceWarning) as record:
        trainer = make(max_iter=1000, max_time=70.0).run()
    assert len(record) == 1
    assert "stopped after 70 of 1000 steps because max_time=70.0 seconds" in str(record[0].message)
    assert trainer.n_iter == trainer.model.calls == 70


def test_at_least_one_step_is_made(clock):
    with pytest.warns(ConvergenceWarning, match="after 1 of 1000 steps"):
        assert make(max_iter=1000, max_time=1e-9).run().n_iter == 1


def test_nothing_is_said_if_all_is_well():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(max_time=1e9).run()


# Progress


def test_tol_without_validation():
    """The loss falls by 50 a block; that is no progress if the tolerance is larger."""
    assert make(max_iter=1000, tol=49.0, patience=3).run().n_iter == 1000
    assert make(max_iter=1000, tol=51.0, patience=3).run().n_iter == 4 * BLOCK
    assert make(max_iter=1000, tol=51.0, patience=1).run().n_iter == 2 * BLOCK


def test_no_test_without_tol():
    """The loss grows from step 100 on, but nobody asked."""
    assert make(Walk(goal=100.0), max_iter=1000, patience=1).run().n_iter == 1000
    assert make(Walk(goal=100.0), max_iter=1000, patience=2, tol=1e-9).run().n_iter < 400


def test_validation_keeps_the_best_state():
    """The score is best near position 100, so the state after the second block stays."""
    model = Walk()
    trainer = make(
        model, max_iter=1000, patience=3, validate=lambda: -abs(model.position - 110.0)
    ).run()
    assert trainer.n_iter == 5 * BLOCK
    assert trainer.validation_scores == [-60.0, -10.0, -40.0, -90.0, -140.0]
    assert model.position == 100.0


def test_small_progress_does_not_count_but_is_kept():
    """Patience counts blocks that gain less than tol; the best state is the best all the same."""
    model = Walk()
    trainer = make(model, max_iter=1000, tol=60.0, patience=2, validate=lambda: model.position)
    assert trainer.run().n_iter == 3 * BLOCK
    assert model.position == 3 * BLOCK


def test_validation_after_an_incomplete_block():
    model = Walk()
    trainer = make(model, max_iter=BLOCK + 7, validate=lambda: model.position).run()
    assert trainer.validation_scores == [BLOCK, BLOCK + 7]
    assert model.position == BLOCK + 7


def test_validation_that_is_not_a_number():
    """A score that cannot be compared never wins."""
    model = Walk()
    scores = iter([1.0, math.nan, math.nan, math.nan])
    trainer = make(model, max_iter=1000, patience=2, validate=lambda: next(scores)).run()
    assert trainer.n_iter == 3 * BLOCK and model.position == BLOCK


def test_on_block_can_stop():
    calls = []
    trainer = make(max_iter=1000)
    trainer.on_block = lambda stop: calls.append((trainer.n_iter, stop)) or len(calls) == 2
    assert trainer.run().n_iter == 2 * BLOCK
    assert calls == [(BLOCK, False), (2 * BLOCK, False)]
    calls.clear()
    trainer = make(max_iter=BLOCK)
    trainer.on_block = lambda stop: calls.append((trainer.n_iter, stop))
    trainer.run()
    assert calls == [(BLOCK, True)]


def test_verbose(capsys):
    make(max_iter=60, verbose=1, validate=lambda: 0.25).run()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("step 50/60  loss") and "validation 0.2500" in lines[0]
    make(max_iter=60).run()
    assert capsys.readouterr().out == ""


# Troubles

TROUBLES = [
    math.nan,
    math.inf,
    -math.inf,
    torch.linalg.LinAlgError("The matrix is not positive definite."),
]


@pytest.mark.parametrize("trouble", TROUBLES)
def test_step_back(trouble):
    """Back to the start of the block, at half the rate, with one warning."""
    model = Walk(troubles={70: trouble})
    with pytest.warns(ConvergenceWarning, match="half the step size") as record:
        trainer = make(model, max_iter=120).run()
    assert len(record) == 1
    assert trainer.n_iter == len(trainer.loss_curve) == model.calls == 120
    assert model.rates == [1.0] * 71 + [0.5] * 49
    assert model.position == 50.0 + 0.5 * 49 and model.momentum == 50 + 49
    assert np.isfinite(trainer.loss_curve).all()


@pytest.mark.parametrize("trouble", TROUBLES)
def test_step_back_at_the_start_of_a_block(trouble):
    """The step before may have spoiled the state that is there at the start of the block."""
    model = Walk(troubles={50: trouble})
    with pytest.warns(ConvergenceWarning):
        make(model, max_iter=60).run()
    assert model.position == 0.5 * 9


def test_first_step_fails():
    model = Walk(troubles={0: math.nan})
    with pytest.warns(ConvergenceWarning):
        trainer = make(model, max_iter=10).run()
    assert model.position == 0.5 * 9 and trainer.n_iter == 10


def test_troubles_add_up():
    model = Walk(troubles=dict.fromkeys([3, 60, 61], math.nan))
    with pytest.warns(ConvergenceWarning) as record:
        make(model, max_iter=100).run()
    assert len(record) == 1
    assert model.rates == [1.0] * 4 + [0.5] * 57 + [0.25] + [0.125] * 38


def test_nothing_but_troubles():
    model = Walk(troubles=dict.fromkeys(range(60, 1000), math.nan))
    with pytest.warns(ConvergenceWarning) as record:
        trainer = make(model, max_iter=1000).run()
    assert [text in str(w.message) for w, text in zip(record, ["half the step", "again and again"])]
    assert len(record) == 2
    assert trainer.n_iter == 70 and model.position == 50.0


def test_other_errors_are_not_hidden():
    model = Walk(troubles={3: ZeroDivisionError()})
    with pytest.raises(ZeroDivisionError):
        make(model).run()


def test_last_update_spoils_the_model():
    """No later loss can show it, so the trainer has to look."""
    model = Spoiled()
    with pytest.warns(ConvergenceWarning, match="last good state"):
        make(model, max_iter=60).run()
    assert math.isfinite(model.position)


# Interrupts


def test_interrupt():
    """The model is the one of that moment, as the warning says."""
    model = Walk(troubles={70: KeyboardInterrupt()})
    with pytest.warns(ConvergenceWarning, match="interrupted after 70 steps"):
        trainer = make(model).run()
    assert trainer.n_iter == len(trainer.loss_curve) == 70
    assert model.position == 70.0


def test_interrupt_of_a_step_that_was_half_done():
    """A state that an interrupted step has left with holes is not kept."""

    class HalfDone(Walk):
        def step(self, *args):
            if self.calls == 70:
                self.position = math.nan
            return super().step(*args)

    model = HalfDone(troubles={70: KeyboardInterrupt()})
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        make(model).run()
    assert math.isfinite(model.position)


def test_interrupt_with_validation():
    model = Walk(troubles={130: KeyboardInterrupt()})
    scores = iter([2.0, 1.0])
    with pytest.warns(ConvergenceWarning, match="interrupted after 130 steps"):
        make(model, max_iter=1000, validate=lambda: next(scores)).run()
    assert model.position == BLOCK


def test_interrupt_in_a_callback():
    trainer = make(max_iter=1000)

    def interrupt(stop):
        raise KeyboardInterrupt

    trainer.on_block = interrupt
    with pytest.warns(ConvergenceWarning, match="interrupted after 50 steps"):
        trainer.run()
    assert trainer.n_iter == 50 and trainer.model.position > 0.0


def test_interrupt_in_the_first_step():
    model = Walk(troubles={0: KeyboardInterrupt()})
    with pytest.warns(ConvergenceWarning, match="interrupted after 0 steps"):
        trainer = make(model).run()
    assert trainer.n_iter == 0 and model.position == 0.0


def test_interrupt_before_anything_is_learned():
    model = Walk(troubles={0: KeyboardInterrupt()})
    trainer = make(model)
    with pytest.raises(KeyboardInterrupt), pytest.warns(match="nothing has been learned"):
        trainer.train()
    begun = make(Walk())
    begun.interrupted = True  # in a first round, which has learned something
    with pytest.warns(ConvergenceWarning, match="after 0 steps; the model is the one"):
        begun.train()
    assert begun.n_iter == trainer.n_iter == 0


def test_interrupt_when_the_best_state_comes_back(monkeypatch):
    """After the last step nothing is lost."""
    model, load, interrupts = Walk(), Walk.load_state, [KeyboardInterrupt()]
    scores = iter([2.0, 1.0, 1.0])

    def interrupted(self, arrays):
        if interrupts:
            raise interrupts.pop()
        load(self, arrays)

    monkeypatch.setattr(Walk, "load_state", interrupted)
    with pytest.warns(ConvergenceWarning, match="interrupted after 120 steps"):
        make(model, validate=lambda: next(scores)).run()
    assert model.position == BLOCK and not interrupts


class Saves:
    """A checkpoint that is never due."""

    path, saved = "here", None

    def load(self):
        return None

    def due(self, step, stop):
        return False

    def save(self, arrays, numbers, finished):
        self.saved = int(arrays["training/momentum"]), numbers["n_iter"], finished


class Pressed(Walk):
    """Ctrl-C in the middle of the 71st step, so many times."""

    def __init__(self, times):
        super().__init__()
        self.times = times

    def step(self, *args):
        if self.calls == 70:
            for _ in range(self.times):
                signal.raise_signal(signal.SIGINT)
        return super().step(*args)


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_waits_for_a_step_that_is_to_be_saved(times):
    """The second one does not, and a step that is half done is not saved."""
    usual, trainer = signal.getsignal(signal.SIGINT), make(Pressed(times), checkpoint=Saves())
    with pytest.warns(ConvergenceWarning, match=f"interrupted after {72 - times} steps"):
        trainer.run()
    assert trainer.checkpoint.saved == ((71, 71, False) if times == 1 else None)
    assert trainer.model.position == trainer.n_iter == 72 - times
    assert signal.getsignal(signal.SIGINT) is usual


def test_ctrl_c_waits_for_nothing_else():
    """Without a checkpoint, with a handler of the user's, or in another thread."""
    with pytest.warns(ConvergenceWarning, match="interrupted after 70 steps"):
        make(Pressed(1)).run()
    calls = []
    usual = signal.signal(signal.SIGINT, lambda number, frame: calls.append(number))
    try:
        assert make(Pressed(1), checkpoint=Saves()).run().n_iter == 120
    finally:
        signal.signal(signal.SIGINT, usual)
    assert len(calls) == 1
    trainer = make(checkpoint=Saves())
    thread = threading.Thread(target=trainer.run)
    thread.start()
    thread.join()
    assert trainer.n_iter == 120


def test_randomness_comes_from_the_generator(no_global_randomness):
    first, second, other = Walk(), Walk(), Walk()
    make(first).run()
    make(second).run()
    Trainer(other, Rows(), torch.Generator().manual_seed(1), max_iter=120, decay=False).run()
    assert first.last_draw == second.last_draw != other.last_draw


def test_models_that_need_fewer_steps():
    """An early one makes them first, on a schedule of its own; another one from time to time."""
    turns = RowsTogether([Rows()] * 4, [60, 20, 20, 20], [0, 1, 0, 2])
    always, early, slow, half = zip(*(turns.batch(step) for step in range(60)))
    assert always == tuple((step, 1.0) for step in range(60))
    assert early[:20] == tuple((step, schedule(step / 20)) for step in range(20))
    assert early[20:] == (None,) * 40
    assert [turn for turn in slow if turn] == [(step, 1.0) for step in range(0, 60, 3)]
    assert half[:40:2] == tuple((step, schedule(step / 40)) for step in range(0, 40, 2))
    assert half[1:40:2] == (None,) * 20 and half[40:] == (None,) * 20


def test_early_model_with_as_many_steps_has_the_common_schedule():
    turns = RowsTogether([Rows()] * 3, [10, 10, 10], [0, 1, 2])
    for step in range(10):
        assert turns.batch(step)[1:] == [(step, 1.0)] * 2


class Averaged(Walk):
    """What is looked at, and what stays, is half of the way."""

    @contextlib.contextmanager
    def averaged(self):
        position, self.position = self.position, 0.5 * self.position
        yield
        self.position = position

    def settle(self):
        self.position *= 0.5


def test_averages_are_looked_at_and_training_goes_on_from_where_it_was():
    model, seen = Averaged(), []
    trainer = make(
        model,
        validate=lambda: seen.append(model.position) or 0.0,
        on_block=lambda stop: seen.append(model.position) or False,
    )
    trainer.patience = 9
    trainer.run()
    assert seen == [25.0, 25.0, 50.0, 50.0, 60.0, 60.0]
    assert model.position == 25.0  # the best state is one that was looked at


@pytest.mark.parametrize("trouble", [KeyboardInterrupt(), None])
def test_averages_stay_in_the_end(trouble):
    trainer = make(Averaged(troubles={70: trouble}))
    if trouble is None:
        trainer.run()
    else:
        with pytest.warns(ConvergenceWarning, match="interrupted after 70 steps"):
            trainer.run()
    assert trainer.model.position == 0.5 * trainer.n_iter


def test_averages_of_the_last_good_state():
    class Both(Spoiled, Averaged):
        pass

    trainer = make(Both(), max_iter=60)
    with pytest.warns(ConvergenceWarning, match="last good state"):
        trainer.run()
    assert trainer.model.position == 25.0
