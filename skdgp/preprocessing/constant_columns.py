"""Effects of columns that were constant in all training rows."""

import numpy as np

from ..random import RowNoise
from .pieces import pieces

_ROUNDING = (
    1e-6  #: relative difference from the constant that counts as none, as in single precision
)


class ConstantColumns:
    """Rows in which columns have other values than the one that they had in all training rows.

    Models do not see these columns. If the effects of all columns were independent and of the same size,
    each would be one over their number of the variance of the function; and of a new value all that can
    be said is that the function changes by a number with twice that variance. For a standardized target
    the variance of the function is taken to be one.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
        In the user's units.
    scaler : InputScaler

    Attributes
    ----------
    columns : ndarray of int
        Those that differ from their constant in some row.
    differs : ndarray of shape (n_rows, n_columns), of bool
    values : ndarray of shape (n_rows, n_columns)
    variance : float
        Of the effect of one of them.
    """

    def __init__(self, X, scaler):
        columns, constants = scaler.constant_columns()
        values = np.asarray(X[:, columns], dtype=np.float64)
        tolerance = np.maximum(_ROUNDING * np.abs(constants), scaler.rounding)
        differs = np.where(
            np.isnan(constants), ~np.isnan(values), np.abs(values - constants) > tolerance
        )
        some = differs.any(0)
        self.columns = columns[some]
        self.values, self.differs = values[:, some], differs[:, some]
        self.variance = 2.0 / X.shape[1]

    def __bool__(self):
        return len(self.columns) > 0

    def variances(self):
        """Variance of all effects together, (n_rows,)."""
        return self.variance * self.differs.sum(1)

    def covariance(self):
        """Covariance of the rows, (n_rows, n_rows)."""
        n = len(self.values)
        common = np.zeros((n, n))
        for value, differs in zip(self.values.T, self.differs.T):
            common += (value[:, None] == value) & differs[:, None] & differs
        return self.variance * common

    def draws(self, n, n_means, seed, rows=slice(None)):
        """Draws (n, n_rows, n_means); a column and a value have the same effect wherever they appear."""
        effects = np.zeros((n, len(self.values[rows]), n_means))
        for j, value, differs in zip(self.columns, self.values[rows].T, self.differs[rows].T):
            keys = np.column_stack([np.full(len(value), float(j)), value])[differs]
            effects[:, differs] += RowNoise(keys, seed).draw((n, len(keys), n_means))
        return np.sqrt(self.variance) * effects


def changed_constant_columns(X, scaler):
    """Columns that were constant in training and are not in some row; looks at the rows in pieces."""
    if len(scaler.constant_columns()[0]) == 0:
        return []
    return sorted(
        {int(j) for rows in pieces(len(X)) for j in ConstantColumns(X[rows], scaler).columns}
    )
