"""Pre-training of some starts before the training proper."""

import sys
import time

from ..parallel import from_first

_SHARE = 0.3  #: of the time that all pre-training may take
_STEPS = 0.5  #: steps of a pre-training run of the model itself, relative to the training proper


class Interrupted(Exception):
    """Ctrl-C in pre-training."""


class PreTraining:
    """Context of the pre-training runs of a fit: their time, and whether to go on.

    On exit it keeps an interrupt for the training proper, which then makes no steps. `max_time` are
    the seconds of the whole fit, which began when the monotonic clock stood at `started`.
    """

    def __init__(self, max_time, started):
        self.max_time, self.started = max_time, started
        self.trainer, self.most = None, sys.maxsize
        self.skipped = self.interrupted = False

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        return kind is Interrupted

    def train(self, trainer=None):
        """Run a trainer, or that of the model itself, without output."""
        if trainer is None:
            trainer = self.trainer()
            trainer.max_iter = int(-(-trainer.max_iter * _STEPS // 1))
        trainer.quiet, trainer.verbose = True, 0
        if self.max_time is not None:
            trainer.max_time = _SHARE * self.max_time
            trainer.elapsed = from_first(lambda: time.monotonic() - self.started)
        trainer.max_iter = min(trainer.max_iter, 1 if self.skipped else self.most)
        trainer.run()
        if trainer.interrupted:
            self.interrupted = True
            raise Interrupted
        return trainer
