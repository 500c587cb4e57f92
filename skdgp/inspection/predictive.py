"""The predictive distribution along one feature."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_consistent_length, check_random_state, check_scalar

from .._scoring import is_own
from ._plotting import (
    Display,
    check_can_plot,
    in_lines,
    line_style,
    message_if_slow,
    plot_intervals,
)
from ._responses import central_intervals, select_output, target_name, unwrap_regressor
from ._slices import slice_along


@dataclass(eq=False, repr=False, kw_only=True)
class PredictiveDisplay(Display):
    """Predictive distribution of a regressor along one feature.

    The mean, central intervals as shaded bands, draws of the function and the data. It is best made
    by :meth:`from_estimator`.

    Parameters
    ----------
    x : ndarray of shape (n_points,)
        Values of the feature.
    mean : ndarray of shape (n_points,)
    intervals : ndarray of shape (n_coverage, n_points, 2)
        Lower and upper ends of the central intervals.
    coverage : array-like of shape (n_coverage,)
        Their probabilities.
    functions : ndarray of shape (n_points, n_functions), optional
        Draws of the function.
    x_data, y_data : ndarrays of shape (n_samples,), optional
        Data, shown as dots.
    feature_name, target_name : str, optional
        Labels of the axes.
    name : str, optional
        Name of the model, for the legend.
    discrete : bool, default=False
        Whether the feature has few values, which are shown as points with error bars.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The mean.
    bands_ : list of matplotlib PolyCollection
        One for each coverage; LineCollection if the feature is discrete.
    function_lines_ : list of matplotlib Line2D
    scatter_ : matplotlib PathCollection or None
        The data.
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    See Also
    --------
    LayersDisplay : The layers that the model is composed of.
    CoverageDisplay : Whether the intervals hold what they promise.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import DeepGPRegressor
    >>> from skdgp.inspection import PredictiveDisplay
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> y = (X[:, 0] > 0.5).astype(float)
    >>> model = DeepGPRegressor(inference="dsvi", max_iter=50, random_state=0).fit(X, y)
    >>> display = PredictiveDisplay.from_estimator(model, X, y, n_functions=3)
    >>> display.intervals.shape
    (2, 200, 2)
    """

    x: np.ndarray
    mean: np.ndarray
    intervals: np.ndarray
    coverage: ArrayLike
    functions: np.ndarray | None = None
    x_data: np.ndarray | None = None
    y_data: np.ndarray | None = None
    feature_name: str | None = None
    target_name: str | None = None
    name: str | None = None
    discrete: bool = False

    def _plot(self, ax, name, kwargs):
        style = line_style(kwargs, label="mean" if name is None else name, zorder=3)
        self.line_, self.bands_ = plot_intervals(
            ax, self.x, self.mean, self.intervals, self.coverage, self.discrete, **style
        )
        color = self.line_.get_color()
        self.function_lines_ = []
        if self.functions is not None:
            style = {"linestyle": "none", "marker": "_"} if self.discrete else {}
            style = {"color": color, "linewidth": 0.8, "alpha": 0.7, **style}
            self.function_lines_ = ax.plot(self.x, self.functions, **style)
            self.function_lines_[0].set_label("draws of the function")
        self.scatter_ = None
        if self.x_data is not None:
            self.scatter_ = ax.scatter(
                self.x_data, self.y_data, s=10, color="black", alpha=0.6, linewidth=0, label="data"
            )
        ax.set(xlabel=in_lines(self.feature_name or ""), ylabel=in_lines(self.target_name or ""))
        ax.legend()

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        feature: int | str = 0,
        feature_range: tuple[float, float] | None = None,
        output: int | str | None = None,
        n_points: int = 200,
        coverage: float | Sequence[float] = (0.5, 0.95),
        n_functions: int = 0,
        latent: bool = False,
        subsample: int | None = 1_000,
        random_state: int | np.random.RandomState | None = 0,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the predictive distribution of a fitted regressor.

        Parameters
        ----------
        estimator : fitted regressor, pipeline or search
            A regressor of skdgp, or one that has ``predict_quantiles(X, alpha)``, or whose ``predict`` takes
            ``return_std=True`` and whose intervals are taken to be Gaussian.
        X : array-like or DataFrame of shape (n_samples, n_features)
            Rows that give the range of the feature and the typical values of the others: the median
            of a numeric column, the most frequent value of any other column of a data frame.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            Targets of `X`, shown as dots. Their other features are not at the typical values, so
            the bands need not cover them.
        feature : int or str, default=0
            Position of the feature or, in a data frame, its name.
        feature_range : tuple of (float, float), default=None
            Where the feature starts and ends; None for its range in `X`.
        output : int, default=None
            The output to show, if there are several.
        n_points : int, default=200
            Number of points along the feature; all its values if these are few.
        coverage : float or array-like of floats in (0, 1), default=(0.5, 0.95)
            Probabilities of the central intervals.
        n_functions : int, default=0
            Number of function draws, without noise.
        latent : bool, default=False
            Show the latent function, without the noise of the observations. Functions of counts are
            logarithms of rates.
        subsample : int or None, default=1_000
            Largest number of dots; None for all.
        random_state : int, RandomState instance or None, default=0
            Determines the draws and the dots.
        name : str, default=None
            Name in the legend; None for the class of the estimator.
        ax, **kwargs
            Passed to :meth:`plot`.

        Returns
        -------
        display : PredictiveDisplay

        Raises
        ------
        NotFittedError, ValueError
            If the estimator is not fitted or predicts no distribution of numbers, or an argument
            makes no sense.
        """
        check_can_plot(cls, kwargs)
        rng = check_random_state(random_state)
        check_scalar(n_functions, "n_functions", Integral, min_val=0)
        line = slice_along(X, feature, n_points, feature_range, by_value=True)
        model, rows = unwrap_regressor(estimator, line.rows, cls.__name__)
        _check_latent(model, latent, n_functions, y)
        coverage = np.atleast_1d(np.asarray(coverage, dtype=np.float64))
        x_data, y_data = _dots(line.values, y, output, subsample, rng)
        y_name, functions = target_name(model, output, y), None
        what = f"{n_functions} functions" if n_functions else "moments and quantiles"
        with message_if_slow(cls, f"{what} at {len(line.grid)} points"):
            mean = model.predict(rows, latent=True) if latent else model.predict(rows)
            intervals = central_intervals(model, rows, coverage, output, latent)
            if n_functions:
                functions = model.sample_y(rows, n_functions, random_state=rng, latent=True)
                functions = select_output(functions, output, ndim=2)
        display = cls(
            x=line.grid,
            mean=select_output(mean, output),
            intervals=intervals,
            coverage=coverage,
            functions=functions,
            x_data=x_data,
            y_data=y_data,
            feature_name=line.name,
            target_name=f"latent function of {y_name}" if latent else y_name,
            name=type(model).__name__ if name is None else name,
            discrete=line.discrete,
        )
        return display.plot(ax, **kwargs)


def _check_latent(model, latent, n_functions, y):
    """Refuse what would put different units on one axis."""
    if not (latent or n_functions):
        return
    if not is_own(model):
        raise ValueError(
            f"latent=True and n_functions need a regressor of skdgp; got {type(model).__name__}."
        )
    likelihood = model.members_[0].likelihood
    name = type(likelihood).__name__
    if not likelihood.scales_target and not (latent and y is None):
        cure = "with latent=True leave y out" if latent else "n_functions needs latent=True"
        raise ValueError(
            f"The latent function of the {name} likelihood is not in the units of y; {cure}."
        )


def _dots(x, y, output, subsample, rng):
    """Some of the data."""
    if y is None:
        return None, None
    values = check_array(y, ensure_2d=False, input_name="y")
    check_consistent_length(x, values)
    values = select_output(values, output)
    if subsample is not None:
        check_scalar(subsample, "subsample", Integral, min_val=1)
        if subsample < len(values):
            chosen = np.sort(rng.choice(len(values), subsample, replace=False))
            x, values = x[chosen], values[chosen]
    return x, values
