"""Sensitivity of a function to its inputs over a box."""

import warnings
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import qmc
from sklearn.base import is_regressor
from sklearn.utils import Bunch, check_array, check_scalar

from .._checks import check_coverage
from ..estimators.row_columns import replaced
from ..estimators.summary import feature_names
from ._responses import unwrap_deep_gp

_NUMBERS = "number", "duration", "time"  #: kinds of columns that are numbers of some unit
_DRAWN = 256  #: points at which functions are drawn


def sobol_indices(
    estimator: Any,
    bounds: ArrayLike,
    *,
    n_points: int = 4096,
    n_draws: int = 64,
    coverage: float = 0.9,
    random_state: int | None = 0,
) -> Bunch:
    r"""Sobol indices of each column over a box, first and total, with error bars.

    Columns are independent and uniform. The first index of a column is the share of the variance of the
    function that its mean given this column has; the total one is the share that is left if all other columns
    are known. Both are found for the predicted mean by the estimators of Jansen (1999) from scrambled Sobol
    points. Draws of the function at some of the points tell how far its own indices are from those of the mean:
    error bars hold what the rows leave open (Le Gratiet et al., 2014). Noise is no part of the function.

    Parameters
    ----------
    estimator : fitted regressor of skdgp, pipeline or search
        Of numeric columns. Indices are those of the columns that the last step sees.
    bounds : array-like of shape (n_features, 2)
        Lowest and highest value of each column.
    n_points : int, default=4096
        Points of each of the two samples, rounded up to a power of two: ``n_points * (n_features + 2)`` rows
        are predicted. Draws are looked at the rows of the first 256 points.
    n_draws : int, default=64
        Draws of the function.
    coverage : float, default=0.9
        Probability of the error bars.
    random_state : int or None, default=0
        Scrambles points, and chooses draws.

    Returns
    -------
    indices : Bunch
        `first` and `total` of shape (n_features,) or (n_features, n_outputs), medians over draws;
        `first_interval` and `total_interval` with one more axis for their ends; and `names` of the columns.

    Raises
    ------
    ValueError
        If bounds do not fit the columns, or are no intervals, or if columns hold categories or dates.

    See Also
    --------
    skdgp.inspection.ImportanceDisplay : Total effects where the training rows are.

    References
    ----------
    M. Jansen (1999). Analysis of variance designs for model output. Computer Physics Communications 117.

    L. Le Gratiet, C. Cannamela and B. Iooss (2014). A Bayesian approach for global sensitivity analysis of
    (multifidelity) computer codes. SIAM/ASA Journal on Uncertainty Quantification 2.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import DeepGPRegressor
    >>> from skdgp.inspection import sobol_indices
    >>> X = np.random.default_rng(0).uniform(size=(40, 2))
    >>> model = DeepGPRegressor(n_layers=1, inference="exact", random_state=0).fit(X, X @ [2, 1])
    >>> indices = sobol_indices(model, [[0, 1], [0, 1]], n_points=256)
    >>> bool(abs(indices.first - [0.8, 0.2]).max() < 0.02)
    True
    """
    model, _ = unwrap_deep_gp(estimator, None, "sobol_indices")
    if not is_regressor(model):
        raise ValueError(f"sobol_indices is for regressors; got {type(model).__name__}.")
    others = [name for name, kind in model.column_kinds_.items() if kind not in _NUMBERS]
    others += [name for j, name in enumerate(model.column_kinds_) if j in replaced(model)]
    if others := list(dict.fromkeys(others)):
        raise ValueError(
            f"sobol_indices is for numbers that vary in a box, and columns {others} are others; "
            "ImportanceDisplay has the shares of all columns."
        )
    check_coverage(coverage)
    for name, value in (("n_points", n_points), ("n_draws", n_draws)):
        check_scalar(value, name, Integral, min_val=1)
    low, high = _box(bounds, model.n_features_in_)
    rng, d = np.random.RandomState(random_state), len(low)
    n, seed = 2 ** int(np.ceil(np.log2(n_points))), rng.randint(2**31 - 2)
    points = qmc.Sobol(2 * d, rng=np.random.default_rng(rng.randint(2**31 - 1))).random(n)
    A, B = (low + (high - low) * half for half in np.split(points, 2, axis=1))
    with model._threads(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        means = model._centers(model._check_X(_designed(A, B)))
        some = model._check_X(_designed(A[:_DRAWN], B[:_DRAWN]))
        draws = model._draw_centers(some, n_draws, seed)
    at_some = means.reshape(d + 2, n, -1)[:, :_DRAWN].reshape(1, len(some), -1)
    parts = zip(_indices(means[None], d), _indices(draws, d), _indices(at_some, d))
    found, ends = {}, [0.5 - 0.5 * coverage, 0.5, 0.5 + 0.5 * coverage]
    for name, (of_mean, of_draws, of_same) in zip(("first", "total"), parts):
        values = np.clip(of_mean + of_draws - of_same, 0.0, None)
        lower, middle, upper = np.quantile(values, ends, axis=0)
        interval = np.stack([lower, upper], -1)
        flat = model._y_ndim == 1
        found[name] = middle[:, 0] if flat else middle
        found[f"{name}_interval"] = interval[:, 0] if flat else interval
    return Bunch(**found, names=feature_names(model))


def _designed(A, B):
    """Rows of two samples, and those of the first with one column of the second."""
    rows = [A, B]
    for j in range(A.shape[1]):
        changed = A.copy()
        changed[:, j] = B[:, j]
        rows.append(changed)
    return np.concatenate(rows)


def _box(bounds, n_features):
    """Ends of the columns, (n_features,) each."""
    bounds = check_array(bounds, dtype=np.float64, input_name="bounds")
    if bounds.shape != (n_features, 2):
        raise ValueError(
            f"bounds needs a lowest and a highest value for each of the {n_features} columns, shape "
            f"({n_features}, 2); got {bounds.shape}."
        )
    low, high = bounds.T
    if not (low < high).all():
        raise ValueError(
            f"bounds must be increasing; those of column {np.argmin(low < high)} are not."
        )
    return low, high


def _indices(values, d):
    """First and total indices (n_draws, d, k) of functions (n_draws, (d + 2) n, k)."""
    f = values.reshape(len(values), d + 2, -1, values.shape[-1])
    a, b, changed = f[:, :1], f[:, 1:2], f[:, 2:]
    var = f[:, :2].var((1, 2))[:, None]
    varies, unit = var > 0.0, np.where(var > 0.0, var, 1.0)  # of a constant all indices are zero
    first = varies - 0.5 * np.square(b - changed).mean(2) / unit
    return first, 0.5 * np.square(a - changed).mean(2) / unit
