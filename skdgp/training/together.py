"""Several models that train side by side."""

import math


class Together:
    """Models as one: every step is a step of each.

    Parameters
    ----------
    models : list of Model
        The first one gives the loss.
    """

    def __init__(self, models):
        self.models = models

    def step(self, batches, generator, rate=1.0):
        losses = [
            0.0 if batch is None else model.step(batch, generator, rate)
            for model, batch in zip(self.models, batches)
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


class RowsTogether:
    """What :class:`Together` is fed with: for each model, its own minibatches.

    Parameters
    ----------
    rows : list
        Minibatches of each model.
    every : list of int
        The number of steps of which each model makes one.
    """

    def __init__(self, rows, every):
        self.rows = rows
        self.every = every

    def batch(self, step):
        return [
            None if step % every else rows.batch(step) for rows, every in zip(self.rows, self.every)
        ]
