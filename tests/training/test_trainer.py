"""The training loop, with a model that is simple enough to be foretold."""

import math

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from skdgp.training.trainer import Trainer


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


class Averaged(Walk):
    """Whose state is half of the way, and that knows all of it while it trains."""

    def state(self):
        return {"position": np.array(0.5 * self.position)}

    def training_state(self):
        return {**super().training_state(), "last": np.array(self.position)}

    def load_training_state(self, arrays):
        super().load_training_state(arrays)
        self.position = float(arrays["last"])


def seen_of(model):
    return float(model.state()["position"])


def test_averages_are_looked_at_and_training_goes_on_from_where_it_was():
    model, seen = Averaged(), []
    trainer = make(
        model,
        validate=lambda: seen.append(seen_of(model)) or 0.0,
        on_block=lambda stop: seen.append(seen_of(model)) or False,
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
    assert seen_of(trainer.model) == 0.5 * trainer.n_iter


def test_averages_of_the_last_good_state():
    class Both(Spoiled, Averaged):
        pass

    trainer = make(Both(), max_iter=60)
    with pytest.warns(ConvergenceWarning, match="last good state"):
        trainer.run()
    assert seen_of(trainer.model) == 25.0
