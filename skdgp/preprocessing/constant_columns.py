"""Effects of values that no training row has: of columns that were constant, and of new levels."""

import numpy as np
import torch

from .._warnings import warn
from ..linalg import is_exporting
from ..random import RowNoise
from .levels import UNSEEN
from .outliers import pieces


class ConstantColumns:
    """Rows in which columns have another value than the only one of training, or a new level.

    Models do not see these columns. If the effects of all columns were independent and of the same
    size, each would be one over their number of the variance of the function; and with a new value
    the function changes by a number with twice that variance. For a standardized target the
    variance of the function is taken to be one. A new level of a category has an effect of its own,
    too, beside the variance between known levels (see
    :class:`~skdgp.preprocessing.encoding.ColumnEncoder`).

    Rows `X` (n, n_features), an array or a tensor, are in the user's units. The `columns` are the indices of
    those that were constant or have levels. They have `values` (n, n_columns), which are new where `differs`
    is True, and effects with a `variance`.
    """

    def __init__(self, X, scaler):
        columns, constants = scaler.constant_columns()
        categories, shares = scaler.shares_of_levels()
        self.columns = np.r_[columns, categories].astype(np.intp)
        if not len(self.columns) and not is_exporting():
            self.values, self.differs = np.empty((len(X), 0)), np.empty((len(X), 0), dtype=bool)
            self.variance = np.empty(0)
            return
        parts = constants, scaler.tolerance(constants), ~np.isnan(constants)
        variance = np.r_[np.full(len(columns), 2.0), shares] / X.shape[1]
        if isinstance(X, torch.Tensor):  # of numbers alone
            X = X.detach()
            *parts, variance = (torch.as_tensor(p, device=X.device) for p in (*parts, variance))
            values = X[:, columns]
        else:
            values = np.asarray(X[:, columns], dtype=np.float64)
        constants, tolerance, known = parts
        differs = abs(values - constants) > tolerance  # False where one is unknown
        differs = differs | ((values == values) & ~known)
        if len(categories):
            codes = np.asarray(X[:, categories], dtype=np.float64)
            values, differs = np.hstack([values, codes]), np.hstack([differs, codes == UNSEEN])
        self.values, self.differs, self.variance = values, differs, variance

    def __bool__(self):
        return len(self.columns) > 0 and (is_exporting() or bool(self.differs.any()))

    def changed(self):
        """The columns that are new in some row."""
        return self.columns[self.differs.any(0)]

    def variances(self):
        """Variance of all effects together, (n_rows,)."""
        return (self.differs * self.variance).sum(-1)

    def covariance(self):
        """Covariance of the rows, (n_rows, n_rows)."""
        each = zip(self.values.T, self.differs.T, self.variance)
        return sum(v * ((x[:, None] == x) & new[:, None] & new) for x, new, v in each)

    def draws(self, n, n_means, seed, rows=slice(None)):
        """Draws (n, n_rows, n_means); a column and a value have the same effect wherever they appear."""
        effects = np.zeros((n, len(self.values[rows]), n_means))
        each = self.columns, self.values[rows].T, self.differs[rows].T, np.sqrt(self.variance)
        for j, value, differs, deviation in zip(*each):
            if differs.any():
                keys = np.column_stack([np.full(len(value), float(j)), value])[differs]
                draws = RowNoise(keys, seed).draw((n, len(keys), n_means))
                effects[:, differs] += deviation * draws
        return effects


def changed_constant_columns(X, scaler):
    """Columns that were constant in training and are not in some row; looks at the rows in pieces."""
    constant = scaler.constant_columns()[0]
    if len(constant) == 0:
        return []
    changed = {
        int(j) for rows in pieces(len(X)) for j in ConstantColumns(X[rows], scaler).changed()
    }
    return sorted(changed.intersection(constant.tolist()))


def warn_of_changed(X, x_scaler, names):
    """Warn of columns that were constant in training and have other values now, by names if there are some."""
    changed = changed_constant_columns(X, x_scaler)
    if changed:
        listed = [str(j if names is None else names[j]) for j in changed[:5]]
        columns = ", ".join(listed) + ", ..." * (len(changed) > 5)
        warn(
            f"Columns {columns} of X were constant in fit, and have other values now. Means do not "
            "depend on them, and error bars are wider; leave out columns that do not matter.",
            UserWarning,
        )
