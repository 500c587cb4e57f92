"""Training and test rows on two sides of a hyperplane."""

from __future__ import annotations

import math
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.model_selection import BaseShuffleSplit
from sklearn.utils import check_array, check_random_state, check_scalar

_CONSTANT = 1e-12  #: spread of a column, relative to its size, up to which it counts as none


class ProjectionSplit(BaseShuffleSplit):
    """Test rows that lie beyond the training rows, in a random direction.

    For each split, the standardized inputs are projected to a random direction, whose components
    are independent and standard normal. The rows with the lowest projections are tested, all others
    are for training. A model has to extrapolate to most of the test rows, so that its error bars,
    and not only its mean, are put to the test.

    Parameters
    ----------
    n_splits : int, default=10
        Number of directions.
    test_size : float or int, default=0.5
        Share of test rows, rounded up, or their number.
    random_state : int, RandomState instance or None, default=None
        Determines the directions.

    Raises
    ------
    ValueError
        If a split leaves no rows on one side, or all columns of `X` are constant.

    Notes
    -----
    Results differ more between directions than between models. Compare models on the same splits,
    and average the differences.

    References
    ----------
    J. Lindinger, D. Reeb, C. Lippert and B. Rakitsch (2020). Beyond the mean-field: structured deep
    Gaussian processes improve the predictive uncertainties. Advances in Neural Information
    Processing Systems 33, section 4.1.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp.model_selection import ProjectionSplit
    >>> X = np.arange(6.0)[:, None]
    >>> for train, test in ProjectionSplit(2, random_state=1).split(X):
    ...     print(train, test)
    [3 4 5] [0 1 2]
    [0 1 2] [3 4 5]
    """

    def __init__(
        self,
        n_splits: int = 10,
        *,
        test_size: float = 0.5,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        super().__init__(n_splits, test_size=test_size, random_state=random_state)

    def _iter_indices(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Sorted row numbers of each split."""
        X = check_array(X, dtype=np.float64, ensure_min_samples=2)
        n_splits = check_scalar(self.n_splits, "n_splits", Integral, min_val=1)
        n_test, size = self._n_test(len(X)), np.abs(X).max(0)
        # or squares may overflow
        X = X / np.exp2(np.floor(np.log2(np.where(size > 0.0, size, 1.0))))
        spread = X.std(0)
        varying = spread > _CONSTANT
        if not varying.any():
            raise ValueError(
                "All columns of X are constant, so that no direction tells rows apart."
            )
        X = (X - X.mean(0))[:, varying] / spread[varying]
        rng = check_random_state(self.random_state)
        for _ in range(n_splits):
            order = np.argsort(X @ rng.standard_normal(X.shape[1]), kind="stable")
            yield np.sort(order[n_test:]), np.sort(order[:n_test])

    def _n_test(self, n):
        n_test = self.test_size
        if isinstance(n_test, bool) or not isinstance(n_test, Integral):
            bounds = {"min_val": 0, "max_val": 1, "include_boundaries": "neither"}
            share = check_scalar(n_test, "test_size", Real, **bounds)
            if math.isnan(share):
                raise ValueError("test_size is NaN; give an int, or a share between 0 and 1.")
            n_test = math.ceil(share * n)
        if not 0 < n_test < n:
            raise ValueError(
                f"test_size={self.test_size} leaves no rows on one side of {n}; give a number between 1 and "
                f"{n - 1}, or another share."
            )
        return int(n_test)
