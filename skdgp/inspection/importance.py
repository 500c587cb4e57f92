"""Which columns matter, and how sure that is."""

from numbers import Integral

import numpy as np
from sklearn.utils import check_random_state, check_scalar

from ..estimators.importances import draw_means, shares, total_effects
from ._plotting import axes_or_new, check_matplotlib_support
from ._responses import model_and_rows

_MOST_ROWS = 2_000  #: of those given: shares of a sum of three parts have a standard error of .01


class ImportanceDisplay:
    """Importances of the columns, with their uncertainty over function draws.

    Bars are mean shares of the columns in the variation of functions that the data leave possible, and
    error bars their standard deviations. It is best made by :meth:`from_estimator`.

    Parameters
    ----------
    importances_mean, importances_std : ndarrays of shape (n_features,)
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
    The importances of a draw are its total-effect Sobol indices, scaled to add up to one, as
    ``feature_importances_`` has them for the mean of all functions. A draw also varies where the data say
    nothing, so that columns which do not matter have a small share; where little is known, it is
    larger than in ``feature_importances_``.

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

    def __init__(self, importances_mean, importances_std, feature_names):
        self.importances_mean = importances_mean
        self.importances_std = importances_std
        self.feature_names = feature_names

    def plot(self, ax=None, *, max_features=20, **kwargs):
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
        new, ax = ax is None, axes_or_new(ax, self)
        if new:  # names are long
            ax.figure.set_layout_engine("constrained")
        order = np.argsort(-self.importances_mean, kind="stable")[:max_features][::-1]
        self.bars_ = ax.barh(
            [self.feature_names[j] for j in order],
            self.importances_mean[order],
            xerr=self.importances_std[order],
            **kwargs,
        )
        ax.set(xlabel="Importance (mean and standard deviation of draws)")
        ax.set_xlim(left=0.0)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X=None,
        *,
        n_draws=64,
        max_features=20,
        random_state=0,
        ax=None,
        **kwargs,
    ):
        """Plot the importances of a fitted model.

        Parameters
        ----------
        estimator : fitted regressor or classifier of skdgp, pipeline or search
            Columns are those that the last step of a pipeline sees.
        X : array-like of shape (n_samples, n_features), default=None
            Rows whose values the columns take; 2,000 of them if they are more. None for 200 training rows.
        n_draws : int, default=64
            Number of functions.
        max_features : int, default=20
            Number of bars at most.
        random_state : int, RandomState instance or None, default=0
            Determines the functions.
        ax : matplotlib Axes, default=None
            None for a new figure.
        **kwargs : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : ImportanceDisplay

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ValueError
            If the estimator is none of skdgp, or has kernels whose functions cannot be drawn.
        """
        check_matplotlib_support(f"{cls.__name__}.from_estimator")
        check_scalar(n_draws, "n_draws", Integral, min_val=2)
        seed = int(check_random_state(random_state).randint(2**31 - 2))
        model, X, names = model_and_rows(estimator, X, cls.__name__, _MOST_ROWS)
        of_draws = shares(total_effects(lambda rows: draw_means(model, rows, n_draws, seed), X))
        display = cls(of_draws.mean(1), of_draws.std(1, ddof=1), names)
        return display.plot(ax, max_features=max_features, **kwargs)
