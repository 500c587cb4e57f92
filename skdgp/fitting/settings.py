"""Settings of a fit, apart from its rows."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..training.checkpoint import Checkpoint, CheckpointFile, fingerprint

if TYPE_CHECKING:
    from .fitted import FittedMixture

DTYPES = {"auto": torch.float64, "float64": torch.float64, "float32": torch.float32}
#: compute capabilities of GPUs with half of the speed in double precision; others have a 32nd or less
_FAST_IN_DOUBLE = {(6, 0), (7, 0), (8, 0), (9, 0), (10, 0)}
#: parameters on which the result of a fit does not depend
_UNIMPORTANT = ("checkpoint", "verbose", "n_threads", "n_jobs", "random_state")


@dataclass(frozen=True)
class Task:
    """Kind of the predictions: numbers, or a number of classes."""

    n_columns: int  #: of X
    n_classes: int | None = None  #: None for numbers
    names: tuple = ()  #: of the columns

    def labels(self, table):
        """Classes of the rows, or None."""
        return None if self.n_classes is None else table.y[:, 0]

    def check(self, likelihood, y):
        """Raise ValueError if targets (n, k) do not suit the likelihood."""
        if self.n_classes is None:
            likelihood.check_target(y)
        else:
            likelihood.check_n_classes(self.n_classes)


@dataclass(frozen=True)
class Settings:
    """Parameters of an estimator that decide on its training; see there."""

    kernel: object = "auto"
    mean: str = "linear"
    input_connected: bool = False
    init: object = "kmeans"
    max_iter: int | None = None
    max_time: float | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    n_inducing: int | None = None
    n_predict_draws: int = 64
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 10
    tol: float = 0.0
    standardize: object = "auto"
    target_transform: str | None = None
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None
    device: str = "auto"
    dtype: str = "auto"
    n_jobs: int | None = None
    n_threads: int | None = None
    random_state: object = None
    verbose: int = 0
    warps: bool = False  #: whether inputs are warped if `standardize` is "auto"
    params: dict = field(default_factory=dict)  #: all parameters of the estimator

    @classmethod
    def of(cls, estimator) -> Settings:
        """The settings of an estimator."""
        given = [f for f in fields(cls) if f.name not in ("params", "warps")]
        values: dict[str, Any] = {f.name: getattr(estimator, f.name, f.default) for f in given}
        params = estimator.get_params(deep=False)
        return cls(**values, warps=estimator._warps(), params=params)

    def training_device(self):
        """Return the device for training; raises ValueError if torch cannot use it."""
        return training_device(self.device, self.dtype)

    def checkpoint_of(self, i, seed, start: Start, tables) -> CheckpointFile | None:
        """The file of the member number `i`, which training of the same rows alone may go on from."""
        if self.checkpoint is None:
            return None
        checkpoint = self.checkpoint
        if not isinstance(checkpoint, Checkpoint):
            checkpoint = Checkpoint(checkpoint)
        params = {name: value for name, value in self.params.items() if name not in _UNIMPORTANT}
        params["init"] = self.init if start.given is None else "estimator"
        of_tables = [t for t in tables if t is not None]
        rows = [[t.X, t.targets(), t.weights, t.precision] for t in of_tables]
        rows += [[t.groups, *["forward"] * t.forward] for t in of_tables if t.groups is not None]
        # without a seed of the user's, any fit of these data may go on
        seed = None if self.random_state is None else seed
        states = [member.arrays for member in start.members]
        return checkpoint.open(fingerprint(params, seed, rows, states, i), i)


@dataclass(frozen=True)
class Start:
    """Earlier fits that a fit goes on with."""

    last: FittedMixture | None = None  #: that of the same estimator, for a warm start
    given: FittedMixture | None = (
        None  #: that of another estimator, whose state and scaling are taken
    )

    @property
    def members(self):
        source = self.last or self.given
        return [] if source is None else source.members


def seed_of(seed, i, n):
    """The seed of one of `n` members: one that is left out does not change the others."""
    return seed if n == 1 else int(np.random.SeedSequence([seed, i]).generate_state(1)[0] >> 1)


def training_device(device, dtype):
    """Return the device for training; raises ValueError if torch cannot use it."""
    if device == "auto":
        fits = torch.cuda.is_available() and (
            dtype == "float32"
            or torch.version.hip is not None
            or torch.cuda.get_device_capability() in _FAST_IN_DOUBLE
        )
        return "cuda" if fits else "cpu"
    try:
        if device.partition(":")[0] not in ("cpu", "cuda"):
            raise RuntimeError("unknown to skdgp")
        torch.empty(0, device=device, dtype=torch.float64)
    except (RuntimeError, TypeError, AssertionError) as error:
        why = str(error).partition("\n")[0].partition(". ")[0]
        others = "'cpu', 'cuda' or 'auto'" if torch.cuda.is_available() else "'cpu' or 'auto'"
        raise ValueError(f"device={device!r} cannot be used here ({why}); use {others}.") from error
    return device
