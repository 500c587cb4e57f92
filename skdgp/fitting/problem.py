"""Inputs and results of a fit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ..training.trainer import Trainer
from .fitted import FittedMixture
from .member import Member, Plan
from .sample import TrainingSample
from .settings import Settings, Start, Task
from .table import Table


class Progress:
    """Receiver of the ends of blocks of steps; this one does nothing."""

    stopped = False  #: whether the fit is to end

    def begin(self, n_tasks: int) -> None:
        """Called before the first of so many blocks."""

    def block_ends(self, fitted: Callable, last: bool) -> bool:
        """Note the end of a block; ``fitted()`` makes the present mixture or None. True ends the fit."""
        return self.stopped


@dataclass(frozen=True)
class Problem:
    """All that a fit starts from."""

    table: Table
    make_plans: Callable[[Table], list[Plan]]
    settings: Settings
    task: Task
    held_out: Table | None = None  #: rows that stop the training by their log density
    start: Start = field(default_factory=Start)
    find_masses: bool = False  #: whether values that many targets equal get a probability
    read: Callable | None = None  #: reads rows that this rank alone has
    started: float = field(default_factory=lambda: time.monotonic())


@dataclass(eq=False)
class Trained:
    """A trained member with the log densities of rows that it has not seen."""

    member: Member
    trainer: Trainer | None = None  #: of a single model
    loo: np.ndarray | None = None  #: log densities of scored rows, (n_dispersions, n_rows)
    held_out: np.ndarray | None = None  #: log densities of held-out rows, (n_held_out,)
    #: standardized targets of these rows less their means, (n_scored or n_held_out, k); None of classes
    mean_errors: np.ndarray | None = None
    errors: np.ndarray | None = None  #: of log densities with the first draws alone, (n_draws,)
    interrupted: bool = False
    unfinished: str | None = None  #: a sentence on what training has not reached
    unsaved: str | None = None  #: a checkpoint that could not be written
    is_late: bool = False  #: whether time ended the training


@dataclass(frozen=True)
class Outcome:
    """The fitted mixture of a fit, and what is to be known of its training."""

    fitted: FittedMixture
    table: Table  #: rows of training, scaled
    sample: TrainingSample  #: some of the rows, those with point masses included
    settled: bool  #: whether a single model has converged, or made all steps of a default
    complete: bool  #: whether nothing was interrupted after training
    left: Callable  #: seconds that are left, or None without a limit
