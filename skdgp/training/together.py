"""Several models that train side by side."""

import contextlib
import math

from .trainer import schedule


class Together:
    """Models as one: every step is a step of each.

    Parameters
    ----------
    models : list of Model
        The first one gives the loss.
    """

    def __init__(self, models):
        self.models = models

    def step(self, turns, generator, rate=1.0):
        losses = [
            model.step(turn[0], generator, rate * turn[1]) if turn else 0.0
            for model, turn in zip(self.models, turns)
        ]
        return losses[0] if all(map(math.isfinite, losses)) else math.nan

    @property
    def finished(self):
        return all(model.finished for model in self.models)

    def _collect(self, method):
        return {
            f"{i}/{name}": array
            for i, model in enumerate(self.models)
            for name, array in getattr(model, method)().items()
        }

    def _hand_out(self, method, arrays):
        for i, model in enumerate(self.models):
            own = {k.partition("/")[2]: v for k, v in arrays.items() if k.startswith(f"{i}/")}
            getattr(model, method)(own)

    def state(self):
        return self._collect("state")

    def load_state(self, arrays):
        self._hand_out("load_state", arrays)

    def training_state(self):
        return self._collect("training_state")

    def load_training_state(self, arrays):
        self._hand_out("load_training_state", arrays)

    @contextlib.contextmanager
    def averaged(self):
        with contextlib.ExitStack() as stack:
            for model in self.models:
                stack.enter_context(model.averaged())
            yield

    def settle(self):
        for model in self.models:
            model.settle()


class RowsTogether:
    """What :class:`Together` is fed with: for each model, its own minibatches.

    Parameters
    ----------
    rows : list
        Minibatches of each model.
    n_steps : list of int
        Number of steps of each model; the first one makes the most.
    early : list of int
        A model that needs fewer makes them at the beginning, one in so many steps, where its step
        size has a :func:`schedule` of its own; with 0 it makes them from time to time.
    """

    def __init__(self, rows, n_steps, early):
        self.rows = rows
        self._n_steps = n_steps[0]
        self._turns = []
        for n, pace in zip(n_steps, early):
            most = max(1, n_steps[0] // n)
            every = min(pace, most)
            self._turns.append((every, every * n) if pace else (most, n_steps[0]))

    def batch(self, step):
        """For each model rows and a factor of its step size, or None if this step is not its own."""
        return [self._turn(rows, step, *turn) for rows, turn in zip(self.rows, self._turns)]

    def _turn(self, rows, step, every, end):
        if step % every or step >= end:
            return None
        return rows.batch(step), schedule(step / end) if end < self._n_steps else 1.0
