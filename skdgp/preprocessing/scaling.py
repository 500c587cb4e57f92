"""Standardization of inputs, and what is kept of it for other models."""

import copy
from typing import NamedTuple

import numpy as np
import torch

from ..linalg import is_exporting
from .encoding import ColumnEncoder
from .frames import FrameReader
from .levels import UNIT, UNSEEN
from .outliers import LEFT_OVER, left_over, ordinary_range, weighted_moments
from .target_scaling import TargetScaler

_MAX = np.finfo(np.float64).max
_LARGEST = 1e307  #: an eighteenth of the largest number: margins around a range do not overflow
_SAMPLE = 100_000  #: rows whose quantiles scale all others
_LINEAR = 5.0  #: standard deviations up to which inputs are scaled linearly
_FEWEST = 20  #: rows that tell rounding errors from a tiny unit
_CHANGE = 1e-6  #: of a constant, relative: less is rounding in single precision


class Versions(NamedTuple):
    """Rows with unknown cells, each as several complete rows."""

    rows: np.ndarray  #: (m,), their positions
    X: np.ndarray  #: (m, n_versions, n_columns), scaled
    factor: np.ndarray  #: (m,), of the variance between versions


class InputScaler:
    """Centers and scales columns, safe against outliers.

    Mean and standard deviation are those of the columns clipped to their
    :func:`~skdgp.preprocessing.robust.ordinary_range`, but for positions of levels. Values farther than
    five standard deviations from the mean grow only logarithmically; if scaling is `straight`, for kernels
    whose functions go on beyond all rows, only outliers do, in columns that have some in training. Constant
    columns are dropped, and those that hold nothing but rounding errors. What is scaled may then be warped.
    Without `standardize`, columns pass as they are. So do codes of levels and of the column `group`, if models
    `have_effects` of these; else the latter is dropped. A fitted `encoder` makes complete tables of rows with
    categories, dates and missing cells.

    Attributes
    ----------
    columns : ndarray of int
        Columns of the complete table that vary.
    center, scale : ndarray of shape (n_columns,)
    constants : ndarray of shape (n_encoded,)
        Means of all columns of the complete table.
    rows : ndarray of shape (n, n_features)
        Some training rows, from which missing cells are filled if there are none in training.
    rounding : float
        Size of the rounding errors of the table, below which a constant column has not changed.
    warp : Warp or None
        How scaled columns are warped.
    """

    warp = rows = None
    rounding = 0.0
    linear = _LINEAR  #: deviations up to which scaling is linear; a number, or one for each column
    blank = False  #: whether no column varies: models see a column of zeros, because they need one

    def __init__(
        self, standardize=True, encoder=None, straight=False, group=None, has_effects=False
    ):
        self.standardize, self.encoder, self._straight = standardize, encoder, straight
        self._group, self._has_effects = group, has_effects

    def fit(self, X, weights, rng):
        """Learn center and scale from rows of a complete table and their weights, in pieces."""
        n, is_code = len(X), self._is_code(X.shape[1])
        if not self.standardize:
            self.columns = np.flatnonzero(~is_code | self._has_effects)
            self.constants = np.zeros(X.shape[1])
            self.center, self.scale = np.zeros(len(self.columns)), np.ones(len(self.columns))
            return self
        rows = np.arange(n) if n <= _SAMPLE else np.sort(rng.choice(n, _SAMPLE, replace=False))
        sample = np.asarray(X[rows], dtype=np.float64)
        if np.abs(sample).max(initial=0.0) > _LARGEST:
            raise ValueError(
                f"X has values above {_LARGEST:.0e}, whose differences overflow; choose a larger unit for them."
            )
        # as StandardScaler: a deviation that rounding explains, of values or of sums, is none
        eps = np.finfo(np.float32 if X.dtype == np.float32 else np.float64).eps
        rounding = 10.0 * eps + n * np.finfo(np.float64).eps
        low, high = ordinary_range(sample, weights[rows], rounding)
        if self.encoder is not None:
            low[self.encoder.is_bounded], high[self.encoder.is_bounded] = -np.inf, np.inf
        mean, std = weighted_moments(X, weights, low, high)
        constant = std <= rounding * np.abs(mean)
        # around zero; of few rows, any column may be
        centered = (sample.min(0) < 0.0) & (sample.max(0) > 0.0) & (n >= _FEWEST)
        constant |= left_over(np.where(constant | is_code, 0.0, std), centered, eps)
        constant = np.where(is_code, not self._has_effects, constant)
        mean, std = np.where(is_code, 0.0, mean), np.where(is_code, 1.0, std)
        self.blank = bool(constant.all())
        self.columns = np.arange(1) if self.blank else np.flatnonzero(~constant)
        self.constants, self.center = mean, mean[self.columns]
        self.scale = np.where(constant, 1.0, std)[self.columns]
        if self._straight and not self.blank:
            outside = ((sample < low) | (sample > high)).any(0)[self.columns]
            ends = np.abs((np.stack([low, high])[:, self.columns] - self.center) / self.scale).max(
                0
            )
            self.linear = np.where(outside, np.maximum(ends, _LINEAR), np.inf)
        size = np.abs(mean).max() if self.blank else np.median(self.scale)
        self.rounding = float(LEFT_OVER[1] * eps * (size if size > 0.0 else 1.0))
        return self

    def bends(self):
        """Columns that are bent where scaling is straight elsewhere, and the values between which it is."""
        if not self._straight or np.ndim(self.linear) == 0:
            return np.empty(0, dtype=int), np.empty((2, 0))
        bent = np.flatnonzero(np.isfinite(self.linear))
        reach = self.linear[bent] * self.scale[bent]
        return bent, self.center[bent] + np.stack([-reach, reach])

    def _is_code(self, n_encoded):
        """Which columns of the complete table hold codes of levels."""
        return np.arange(n_encoded) == self._group if self.encoder is None else self.encoder.is_code

    @property
    def codes(self):
        """Scaled columns that hold codes of levels, for models with effects of these."""
        return np.flatnonzero(self._is_code(len(self.constants))[self.columns])

    @property
    def sources(self):
        """Columns of X that the scaled columns come from."""
        return self.columns if self.encoder is None else self.encoder.sources[self.columns]

    @property
    def n_features(self):
        """Number of columns of X."""
        return len(self.constants) if self.encoder is None else self.encoder.n_features

    def names(self, names):
        """Names of the scaled columns from those of the columns of X."""
        suffixes = [""] * len(self.constants) if self.encoder is None else self.encoder.suffixes
        return [names[j] + suffixes[i] for j, i in zip(self.sources, self.columns)]

    def constant_columns(self):
        """Columns of X that were constant in training, which models do not see, and their values."""
        if self.encoder is not None:
            return self.encoder.constant_columns()
        dropped = self._dropped()
        return dropped, self.constants[dropped]

    def _dropped(self):
        """Columns of the complete table that were constant in training."""
        dropped = ~self._is_code(len(self.constants))
        dropped[[] if self.blank else self.columns] = False
        return np.flatnonzero(dropped)

    def tolerance(self, constants):
        """Differences from constants that rounding explains."""
        return np.maximum(_CHANGE * np.abs(constants), self.rounding)

    def shares_of_levels(self):
        """See :meth:`~skdgp.preprocessing.encoding.ColumnEncoder.shares_of_levels`."""
        if self.encoder is not None:
            return self.encoder.shares_of_levels()
        return np.empty(0, dtype=int), np.empty(0)

    def with_rows(self, rows):
        """This scaler with some training rows, unless it has some, or an encoder that has its own."""
        if self.encoder is not None or self.rows is not None:
            return self
        new = copy.copy(self)
        new.rows = self.completed(rows)
        return new

    def completed(self, X):
        """Rows with the code of a new group behind them if they have none, and models know groups."""
        if X.shape[1] >= self.n_features:
            return X
        if isinstance(X, torch.Tensor):
            return torch.nn.functional.pad(X, (0, 1), value=UNIT * UNSEEN)
        return np.column_stack([X, np.full(len(X), UNIT * UNSEEN, X.dtype)])

    def _encoder_of(self, X):
        """The encoder, or one for rows with gaps where training rows have none; None if there are none."""
        if self.encoder is not None or not np.isnan(X[:, self.columns]).any():
            return self.encoder
        kinds = ["group" if j == self._group else "number" for j in range(self.rows.shape[1])]
        nothing, ones = np.zeros((len(self.rows), 1)), np.ones(len(self.rows))
        return ColumnEncoder().fit(self.rows, nothing, ones, kinds, np.random.RandomState(0))

    def transform(self, X):
        """Scaled rows, in float64."""
        X = self.completed(X)
        encoder = self._encoder_of(X)
        return self.scaled(X if encoder is None else encoder.transform(X))

    def versions(self, X, by_codes=False):
        """Versions of rows with cells that no training row prepares for; None without them.

        `by_codes` is for models with effects of levels.
        """
        encoder = self._encoder_of(X)
        rows = [] if encoder is None else np.flatnonzero(encoder.unknown(X, by_codes))
        if not len(rows):
            return None
        encoded, factor = encoder.versions(np.asarray(X[rows], dtype=np.float64), by_codes)
        m, K, d = encoded.shape
        return Versions(rows, self.scaled(encoded.reshape(m * K, d)).reshape(m, K, -1), factor)

    def scaled(self, X):
        """Scaled rows of a complete table, in float64: an array, or a tensor of a tensor."""
        if not isinstance(X, torch.Tensor):
            columns = np.asarray(X[:, self.columns], dtype=np.float64)
            return self._scaled(torch.from_numpy(columns)).numpy()
        return self._scaled(X[:, self.columns].double())

    def _scaled(self, X):
        """Scaled columns (n, n_columns) that vary; gradients flow back."""
        if self.blank:
            return torch.zeros_like(X)
        center, scale = (X.new_tensor(part) for part in (self.center, self.scale))
        X = (X - center) / scale
        if not self.standardize:
            return X
        X = self._bent(X.clamp(-_MAX, _MAX), torch.log1p)
        return X if self.warp is None else self.warp.transform(X)

    def _bent(self, X, bend):
        """Standardized rows that are bent beyond the linear range, away from it or back."""
        linear = X.new_tensor(self.linear)
        excess = torch.relu(X.abs() - linear)
        if not is_exporting() and not excess.any():
            return X
        return X.clamp(-linear, linear) + X.sign() * bend(excess)

    def with_encoder(self, encoder):
        """This scaler behind another encoder with the same columns."""
        new = copy.copy(self)
        new.encoder = encoder
        return new

    def with_changed(self, X, weights):
        """A scaler with columns, last, that were constant and are not in this complete table (n, n_encoded).

        What they were stays their center, so that all rows before have zeros there.
        """
        others, n = self._dropped(), 0 if self.blank else len(self.columns)
        constants, X = self.constants[others], np.asarray(X[:, others], dtype=np.float64)
        X = np.where(np.isnan(X), constants, X) - constants
        changed = (np.abs(X) > self.tolerance(constants)).any(0)
        if not changed.any():
            return self
        X, others = X[:, changed], others[changed]
        mean, std = weighted_moments(X, weights, *ordinary_range(X, weights))
        size = np.hypot(mean, std)
        size = np.where(size > 0.0, size, np.sqrt(weights @ np.square(X) / weights.sum()))
        new = copy.copy(self)
        new.columns, new.blank = np.append(self.columns[:n], others), False
        new.center = np.append(self.center[:n], self.constants[others])
        new.scale = np.append(self.scale[:n], size)
        linear = np.broadcast_to(self.linear, len(self.columns))[:n]
        most = np.inf if self._straight else _LINEAR
        new.linear = np.append(linear, np.full(len(others), most))
        if new.encoder is not None:
            new.encoder = new.encoder.with_changed(new.encoder.sources[others])
        return new

    def widened(self, X):
        """A scaler that is linear up to where these rows are, too, outliers apart."""
        new = copy.copy(self)
        if self.standardize and not self.blank:
            X = (np.asarray(X[:, self.columns], dtype=np.float64) - self.center) / self.scale
            new.linear = np.maximum(self.linear, np.quantile(np.abs(X), 0.99, axis=0))
        return new

    def curvature(self, n_features):
        """Return the curvature of the warp of each column; 0 for columns without warp."""
        curve = np.zeros(n_features)
        if self.warp is not None:
            curve[self.sources[self.warp.columns]] = self.warp.curve
        return curve

    def inverse_transform(self, X):
        """Rows of the complete table; constant columns have their constant value."""
        X = torch.tensor(X, dtype=torch.float64)
        if self.warp is not None:
            X = self.warp.inverse_transform(X)
        if self.standardize:
            X = self._bent(X, torch.expm1)
        full = np.tile(self.constants, (len(X), 1))
        full[:, self.columns] = X.numpy() * self.scale + self.center
        return full


class Scaling(NamedTuple):
    """The scaling of inputs and targets that a fit has learned, for the `standardize` of other models."""

    x_scaler: InputScaler
    y_scaler: TargetScaler
    reader: FrameReader | None = None  #: of data frames

    def __repr__(self):
        return f"Scaling(n_features={self.x_scaler.n_features}, maps={self.y_scaler.names})"

    def check(self, n_features, group=None):
        """Raise ValueError if inputs have another number of columns than the scaling was fitted to.

        Groups behind the others may be new.
        """
        known = self.x_scaler.n_features
        if n_features != known and (n_features - 1, group) != (known, known):
            raise ValueError(
                f"standardize has the scaling of {self.x_scaler.n_features} features, X has {n_features}."
            )
