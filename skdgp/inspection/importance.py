"""Which columns matter, and how sure that is."""

from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state, check_scalar

from ..estimators.importances import importances, importances_of_draws
from ._plotting import check_can_plot, in_lines, message_if_slow, several_axes
from ._responses import model_and_pairs

_BAR, _LINE = 0.28, 0.17  #: inches of height for a bar, at least, and for a line of its name


@dataclass(eq=False, repr=False)
class ImportanceDisplay:
    """Importances of the columns, with their uncertainty.

    Bars are ``feature_importances_``: shares of the columns in the variation of predicted means, or of
    predicted probabilities. Error bars are the standard deviations of the shares over functions that the data
    leave possible. It is best made by :meth:`from_estimator`.

    Parameters
    ----------
    importances_mean, importances_std : ndarrays of shape (n_features,)
        Importances for the mean of all functions, and the standard deviations over functions.
    feature_names : list of str

    Attributes
    ----------
    bars_ : matplotlib BarContainer
        The largest importance on top.
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    See Also
    --------
    EffectsDisplay : What the target does along a column.

    Notes
    -----
    The importances of a function are its total-effect Sobol indices, scaled to add up to one, in units of the
    target. A draw of the function also varies far from the data, the mean of all functions does not.

    References
    ----------
    A. Marrel, B. Iooss, B. Laurent and O. Roustant (2009). Calculations of Sobol indices for the Gaussian
    process metamodel. Reliability Engineering and System Safety 94.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import DeepGPRegressor
    >>> from skdgp.inspection import ImportanceDisplay
    >>> X = np.random.default_rng(0).uniform(size=(50, 2))
    >>> y = np.sin(6 * X[:, 0])
    >>> model = DeepGPRegressor(1, inference="exact", random_state=0).fit(X, y)
    >>> display = ImportanceDisplay.from_estimator(model)
    >>> display.importances_mean.round(1)
    array([1., 0.])
    """

    importances_mean: np.ndarray
    importances_std: np.ndarray
    feature_names: list

    def plot(self, ax: Any = None, *, max_features: int | None = 20, **kwargs: Any) -> Self:
        """Plot the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None for a new figure.
        max_features : int, default=20
            Number of bars at most: those of the largest importances.
        **kwargs : dict
            Passed to :meth:`matplotlib.axes.Axes.barh`.

        Returns
        -------
        display : ImportanceDisplay
        """
        check_scalar(max_features, "max_features", Integral, min_val=1)
        order = np.argsort(-self.importances_mean, kind="stable")[:max_features][::-1]
        names = [in_lines(self.feature_names[j]) for j in order]
        n_lines = sum(max(_BAR, _LINE * (1 + name.count("\n"))) for name in names)
        (ax,) = several_axes(ax, 1, self, figsize=(6.4, max(2.4, 1.0 + n_lines)))
        self.bars_ = ax.barh(
            np.arange(len(order)),
            self.importances_mean[order],
            **{"xerr": self.importances_std[order], "capsize": 2.0, **kwargs},
        )
        ax.set_yticks(np.arange(len(order)), names)
        ax.set(xlabel="Importance (error bars: standard deviation)")
        ax.set_xlim(left=0.0)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: ArrayLike | None = None,
        *,
        n_draws: int = 64,
        max_features: int | None = 20,
        random_state: int | np.random.RandomState | None = 0,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the importances of a fitted model.

        Parameters
        ----------
        estimator : fitted regressor or classifier of skdgp, pipeline or search
            Columns are those that the last step of a pipeline sees.
        X : array-like of shape (n_samples, n_features), default=None
            Rows whose values the columns take, at most 200 of them. None for training rows, with their weights.
        n_draws : int, default=64
            Number of functions.
        max_features : int, default=20
            Number of bars at most.
        random_state : int, RandomState instance or None, default=0
            Determines the functions.
        ax, **kwargs
            Passed to :meth:`plot`.

        Returns
        -------
        display : ImportanceDisplay

        Raises
        ------
        NotFittedError, ValueError
            If the estimator is not fitted or none of skdgp, or functions of its kernels cannot be drawn.
        """
        check_can_plot(cls, kwargs, "barh")
        check_scalar(n_draws, "n_draws", Integral, min_val=2)
        check_scalar(max_features, "max_features", Integral, min_val=1)
        seed = int(check_random_state(random_state).randint(2**31 - 2))
        model, pairs, names = model_and_pairs(estimator, X, cls.__name__)
        with message_if_slow(
            cls, f"{n_draws} functions at {len(pairs):,} rows; fewer n_draws are faster"
        ):
            mean = model.feature_importances_ if X is None else importances(model, pairs)
            std = importances_of_draws(model, pairs, n_draws, seed).std(1, ddof=1)
        return cls(mean, std, names).plot(ax, max_features=max_features, **kwargs)
