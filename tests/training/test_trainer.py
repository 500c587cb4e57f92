"""The training loop, with a model that is simple enough to be foretold."""

import math

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from skdgp.training.trainer import Trainer


class Averaged:
    """A model that goes one rate each step; its state is half of the way, and it knows all while it trains."""

    finished = False

    def __init__(self, interrupted_at=None, spoiled_at=None):
        self.interrupted_at, self.spoiled_at = interrupted_at, spoiled_at
        self.position, self.calls = 0.0, 0

    def step(self, batch, generator, rate=1.0):
        if self.calls == self.interrupted_at:
            raise KeyboardInterrupt
        self.calls += 1
        loss, self.position = 1e9 - self.position, self.position + rate
        if self.calls == self.spoiled_at:  # its loss is a number still
            self.position = math.nan
        return loss

    def state(self):
        return {"position": np.array(0.5 * self.position)}

    state_in_training = state

    def hold(self, batch):
        """Nothing: there are no rows."""

    def load_state(self, arrays):
        self.position = float(arrays["position"])

    def training_state(self):
        return {"last": np.array(self.position)}

    def load_training_state(self, arrays):
        self.position = float(arrays["last"])


class Rows:
    def batch(self, step):
        return step


def make(model, **settings):
    settings = {"max_iter": 120, "decay": False, **settings}
    return Trainer(model, Rows(), torch.Generator().manual_seed(0), **settings)


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


def test_averages_stay_in_the_end():
    trainer = make(Averaged())
    trainer.run()
    assert seen_of(trainer.model) == 0.5 * trainer.n_iter == 60.0
    trainer = make(Averaged(interrupted_at=70))
    with pytest.warns(ConvergenceWarning, match="interrupted after 70 steps"):
        trainer.run()
    assert seen_of(trainer.model) == 0.5 * trainer.n_iter == 35.0


def test_averages_of_the_last_good_state():
    trainer = make(Averaged(spoiled_at=60), max_iter=60)
    with pytest.warns(ConvergenceWarning, match="last good state"):
        trainer.run()
    assert seen_of(trainer.model) == 25.0
