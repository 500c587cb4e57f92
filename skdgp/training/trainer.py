"""The training loop."""

import math
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from .._warnings import warn
from ..linalg import workspace
from ..parallel import divides, ends_all, from_first
from .asynchronous import asynchronous
from .checkpoint import CheckpointFile
from .interrupts import InterruptGuard, note_interrupt

BLOCK = 50  #: max_time: steps between two looks at the progress
_DRAWS = 8  #: max_time: steps that making the draws of a posterior takes, about
_MOST_OF_DRAWS = 0.1  #: max_time: share of the time that is kept for it at most
_MAX_FAILURES = 10  #: max_time: steps in a row that are not finite, after which training fails
#: attributes that checkpoints hold beside arrays
_NUMBERS = (
    "loss_curve",
    "validation_scores",
    "n_iter",
    "_shrink",
    "_failures",
    "_stalled",
    "_best_score",
    "n_learned",
    "elapsed",
)
_PARTS = "model", "training", "best"  #: prefixes of these arrays


def schedule(progress):
    """Fraction of the full step size: constant for half of the budget, then a cosine to .01."""
    if progress < 0.5:
        return 1.0
    return 0.01 + 0.99 * 0.5 * (1.0 + math.cos(math.pi * (2.0 * min(progress, 1.0) - 1.0)))


@dataclass(eq=False, repr=False)
class Trainer:
    """Trains one model."""

    model: object
    rows: object  #: ``rows.batch(step)`` gives the training rows of a step
    generator: torch.Generator
    _: KW_ONLY
    max_iter: int  #: steps
    #: seconds, counted over interruptions; the schedule follows the budget that is spent sooner
    max_time: float | None = None
    #: least change of the score, or of the loss averaged over a block, that counts; 0 for no test
    tol: float = 0.0
    patience: int = 10  #: blocks without progress after which training stops
    #: returns the score of the model on held-out rows; the best state is kept
    validate: Callable | None = None
    #: called after each block with a flag for the last one; returns True to stop
    on_block: Callable | None = None
    checkpoint: CheckpointFile | None = None
    decay: bool = True  #: whether the step size follows :func:`schedule`, or stays
    advice: str = "Look for extreme values in X and y."  #: where numbers overflow
    all_or_nothing: bool = False  #: whether an interrupted training is to leave no model
    verbose: int = 0

    loss_curve: list = field(default_factory=list, init=False)  #: of each step
    validation_scores: list = field(default_factory=list, init=False)  #: of each block
    n_iter: int = field(default=0, init=False)  #: steps made
    n_learned: int = field(default=0, init=False)  #: steps that the present state has taken

    elapsed = 0.0  #: seconds spent; a value set before :meth:`run` counts
    reserve = 0.0  #: seconds that are kept for the work after the last step
    quiet = False  #: whether to keep warnings back, as those of a start that was not asked for
    is_late = False  #: whether time ended the training
    interrupted = False  #: whether Ctrl-C ended the training; set beforehand, no steps are made
    _shrink, _failures, _stalled, _best_score = 1.0, 0, 0, -math.inf
    unsaved = None  # a sentence for the user if a checkpoint could not be written
    _best_state, _of_step = None, 0.0

    def train(self):
        """Like :meth:`run`, but Ctrl-C is raised if it leaves no model: before the end of the first step."""
        begun = self.interrupted
        self.run()
        if self.interrupted and (self.all_or_nothing or (self.n_iter == 0 and not begun)):
            raise KeyboardInterrupt

    def run(self):
        """Train until a budget is spent or a test stops it; the best state stays."""
        finished = self.checkpoint is not None and self._resume()
        with ends_all(), asynchronous(self):
            self._keep()
            self._run(finished)
        try:
            self._settle()
        except KeyboardInterrupt:  # there is nothing to leave out
            self._note_interrupt()
            self._settle()
        return self

    def _run(self, finished):
        start = time.monotonic() - self.elapsed
        stop = self._spent(self.elapsed) or finished
        try:
            if self.interrupted:
                raise KeyboardInterrupt
            with workspace(), InterruptGuard(self.checkpoint is not None) as ctrl_c:
                while not stop:
                    self._step()
                    now = self._seconds_since(start)
                    self._of_step = now - self.elapsed if self.n_iter > 1 else 0.0
                    self.elapsed = now
                    stop = self._spent(self.elapsed)
                    if self.n_iter % BLOCK == 0 or stop:
                        stop = self._look(stop)
                    if self.checkpoint is not None:
                        if ctrl_c.pressed or self.checkpoint.due(self.n_iter, stop):
                            self._save(stop)
                    if ctrl_c.pressed:
                        raise KeyboardInterrupt
        except KeyboardInterrupt:
            if divides():  # other ranks do not stop at the same step
                raise
            self._note_interrupt()

    def _seconds_since(self, start):
        """Seconds by the own clock or, if they decide when to stop, that of the first rank."""
        if self.max_time is None:
            return time.monotonic() - start
        return from_first(lambda: time.monotonic() - start)

    def _note_interrupt(self):
        if not self.interrupted:  # in a round before, or a moment ago
            note_interrupt()
        begun = not self.all_or_nothing and (self.n_iter > 0 or self.interrupted)
        what = "the model is the one of that moment" if begun else "nothing has been learned"
        self.interrupted = True
        self._warn(f"Training was interrupted after {self.n_iter} steps; {what}.")

    def _settle(self):
        """Take the best state, and no broken one."""
        if self.n_iter == 0:
            self._back()
        if self._best_state is not None:
            self.model.load_state(self._best_state)
        elif not all(np.isfinite(array).all() for array in self.model.state().values()):
            self._back()
            self._warn(
                "The last step left numbers that are not finite; the model is the last good state.",
            )
        if self.learned_nothing:
            why = (
                "The loss was not finite in the first steps"
                if np.isfinite(self.loss_curve).any()
                else "The loss was never finite"
            )
            self._warn(f"{why}: nothing was learned, and the model is its start. {self.advice}")

    @property
    def learned_nothing(self):
        """Whether steps were made, and the model is its start all the same."""
        return self.n_iter > 0 and self.n_learned == 0

    def _warn(self, message):
        if not self.quiet:
            warn(message, ConvergenceWarning)

    def _spent(self, elapsed):
        if self.n_iter >= self.max_iter:
            return True
        if self.max_time is None:
            late = False
        else:  # the posterior's draws take as long as some steps of minibatches
            draws = 0.0 if self.model.is_full_batch else _DRAWS * self._of_step
            reserve = self.reserve + min(draws, _MOST_OF_DRAWS * self.max_time)
            late = elapsed + self._of_step >= self.max_time - reserve
        if late and self.n_iter > 0:
            self.is_late = True
            over = "had passed" if elapsed > self.max_time else "would have passed with another one"
            self._warn(
                f"Training stopped after {self.n_iter} of {self.max_iter} steps because max_time="
                f"{self.max_time} seconds {over}.",
            )
            return True
        if self.tol > 0.0 and self.n_iter > 0 and self.model.finished:
            return True
        return self._failures >= _MAX_FAILURES

    def _step(self):
        progress = self.n_iter / self.max_iter if self.decay else 0.0
        if self.max_time is not None:
            left = max(self.max_time - self.reserve, 1e-3)
            progress = min(1.0, max(progress, self.elapsed / left))
        state = None
        if self.n_iter % BLOCK == 0:
            state = self.model.state_in_training(), self.model.training_state(), self.n_learned
        try:
            loss = self.model.step(
                self.rows.batch(self.n_iter), self.generator, self._shrink * schedule(progress)
            )
        except torch.linalg.LinAlgError:
            loss = math.nan
        self.n_iter += 1
        if math.isfinite(loss):
            if state is not None:
                self._good = state
            self.loss_curve.append(loss)
            self.n_learned += 1
            return
        self._back()
        self._shrink *= 0.5
        self._failures += 1
        self.loss_curve.append(self.loss_curve[-1] if self.loss_curve else math.inf)
        if self._failures == 1:
            self._warn(
                "The loss was not finite; training stepped back to the last good state and goes on with half "
                f"the step size. {self.advice}",
            )
        if self._failures == _MAX_FAILURES and self.n_learned:
            self._warn(
                "The loss was not finite again and again; training ended early, with the last good state."
            )

    def _look(self, stop):
        """Judge the progress once a block; True to stop."""
        recent = self.loss_curve[-BLOCK:]
        score = -sum(recent) / len(recent)
        if self.validate is not None:
            score = self.validate()
            self.validation_scores.append(score)
        if self.verbose:
            print(
                f"step {self.n_iter}/{self.max_iter}  loss {recent[-1]:.4f}"
                + (f"  validation {score:.4f}" if self.validate is not None else "")
                + f"  {self.elapsed:.1f} s"
            )
        self._stalled = 0 if score > self._best_score + self.tol else self._stalled + 1
        if score > self._best_score:
            self._best_score = score
            if self.validate is not None:
                self._best_state = self.model.state()
        if self.tol > 0.0 or self.validate is not None:
            stop = stop or self._stalled >= self.patience
        if self.on_block is not None and from_first(lambda: self.on_block(stop)):
            stop = True
        return stop

    def _keep(self):
        self._good = self.model.state(), self.model.training_state(), self.n_learned

    def _back(self):
        state, training_state, self.n_learned = self._good
        self.model.load_state(state)
        self.model.load_training_state(training_state)
        self.model.hold(self.rows.batch(0))

    def _save(self, finished):
        self._keep()
        try:
            self.checkpoint.save(*self._everything(), finished=finished)
        except OSError as error:
            if self.unsaved is None:
                rest = "training goes on, and tries again later."
                if isinstance(error, FileExistsError):
                    rest = "training goes on without it. Each fit needs its own file, as in a directory."
                path, why = self.checkpoint.path, error.strerror or error
                self.unsaved = f"The checkpoint {path!r} could not be written ({why}); {rest}"
                self._warn(self.unsaved)

    def _everything(self):
        arrays = {"generator": self.generator.get_state().numpy()}
        for part, values in zip(_PARTS, (*self._good[:2], self._best_state or {})):
            arrays.update({f"{part}/{name}": value for name, value in values.items()})
        return arrays, {name: getattr(self, name) for name in _NUMBERS}

    def _resume(self):
        """Take up the saved state, if there is one; True if nothing is left to do."""
        loaded = self.checkpoint.load()
        if loaded is None:
            return False
        arrays, numbers, finished = loaded
        for name in _NUMBERS:
            setattr(self, name, numbers[name])
        model, training, best = (
            {key.removeprefix(part): value for key, value in arrays.items() if key.startswith(part)}
            for part in (f"{part}/" for part in _PARTS)
        )
        self.model.load_state(model)
        self.model.load_training_state(training)
        self._best_state = best or None
        self.generator.set_state(torch.as_tensor(arrays["generator"]))
        return finished
