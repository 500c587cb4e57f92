"""Predictions of later times, beside the rows before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_consistent_length

from .._arrays import as_numpy
from ..estimators.row_columns import column, position_of
from ..estimators.times import axis, column_of
from ._plotting import Display, check_can_plot, in_lines, line_style, plot_intervals
from ._responses import central_intervals, select_output, target_name, unwrap_regressor


@dataclass(eq=False, repr=False, kw_only=True)
class ForecastDisplay(Display):
    """Means and central intervals of a regressor over time, with the targets before and at these times.

    It is best made by :meth:`from_estimator`.

    Parameters
    ----------
    time : ndarray of shape (n_samples,)
        Times of the predicted rows in their order, numbers or datetime64.
    mean : ndarray of shape (n_samples,)
    intervals : ndarray of shape (n_coverage, n_samples, 2)
        Lower and upper ends of the central intervals.
    coverage : array-like of shape (n_coverage,)
        Their probabilities.
    y_true : ndarray of shape (n_samples,), optional
        Targets of the predicted rows.
    past_time, past_y : ndarrays of shape (n_past,), optional
        Earlier rows, in the order of their times.
    time_name, target_name : str, optional
        Labels of the axes.
    name : str, optional
        Name of the model, for the legend.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The mean.
    bands_ : list of matplotlib PolyCollection
        One for each coverage.
    past_ : matplotlib Line2D or None
        Earlier targets.
    true_ : matplotlib Line2D or None
        Targets of the predicted rows.
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    See Also
    --------
    PredictiveDisplay : Predictions along any column, others at typical values.
    CoverageDisplay : Whether the intervals hold what they promise.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import DeepGPRegressor
    >>> from skdgp.inspection import ForecastDisplay
    >>> X = np.arange(60.0)[:, None]
    >>> y = np.sin(X[:, 0] / 3) + 0.1 * X[:, 0]
    >>> model = DeepGPRegressor(time=0, horizon=10, random_state=0).fit(X[:50], y[:50])
    >>> display = ForecastDisplay.from_estimator(model, X[50:], y[50:], past=(X[:50], y[:50]))
    >>> display.intervals.shape
    (2, 10, 2)
    """

    time: np.ndarray
    mean: np.ndarray
    intervals: np.ndarray
    coverage: ArrayLike
    y_true: np.ndarray | None = None
    past_time: np.ndarray | None = None
    past_y: np.ndarray | None = None
    time_name: str | None = None
    target_name: str | None = None
    name: str | None = None

    def _plot(self, ax, name, kwargs):
        style = line_style(kwargs, label="mean" if name is None else name, zorder=3)
        self.line_, self.bands_ = plot_intervals(
            ax, self.time, self.mean, self.intervals, self.coverage, **style
        )
        self.past_ = self.true_ = None
        if self.past_time is not None:
            past = {"color": "black", "linewidth": 1, "label": "before"}
            (self.past_,) = ax.plot(self.past_time, self.past_y, **past)
        if self.y_true is not None:
            dots = {"color": "black", "marker": ".", "markersize": 5, "linestyle": "none"}
            (self.true_,) = ax.plot(self.time, self.y_true, label="target", **dots)
        ax.set(xlabel=in_lines(self.time_name or ""), ylabel=in_lines(self.target_name or ""))
        ax.legend()

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        time: str | int | ArrayLike | None = None,
        past: tuple[ArrayLike, ArrayLike] | None = None,
        output: int | None = None,
        coverage: float | Sequence[float] = (0.5, 0.9),
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the predictions of a fitted regressor over time.

        Parameters
        ----------
        estimator : fitted regressor, pipeline or search
            As for :class:`PredictiveDisplay`.
        X : array-like of shape (n_samples, n_features)
            Rows to predict, in any order.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), optional
            Their targets, shown as dots.
        time : str, int or array-like of shape (n_samples,), optional
            Name or position of the column of X that holds the time, or the time itself. None takes the column
            that the parameter `time` of the estimator names.
        past : tuple of X and y, optional
            Earlier rows and their targets, shown as a line. They need a column of time.
        output : int, optional
            The output to show, if there are several.
        coverage : float or array-like of floats in (0, 1), default=(0.5, 0.9)
            Probabilities of the central intervals.
        name : str, optional
            Name in the legend; None for the class of the estimator.
        ax, **kwargs
            Passed to :meth:`plot`.

        Returns
        -------
        display : ForecastDisplay

        Raises
        ------
        NotFittedError, ValueError
            If the estimator is not fitted or predicts no distribution of numbers, or there is no time.
        """
        check_can_plot(cls, kwargs)
        model, rows = unwrap_regressor(estimator, X, cls.__name__)
        time = getattr(model, "time", None) if time is None else time
        if isinstance(time, str) and time == "auto":
            time = model._row_positions.get("time")
        if time is None:
            raise ValueError(
                "There is no time to show predictions over; give the name of its column as time=, or an array."
            )
        coverage = np.atleast_1d(np.asarray(coverage, dtype=np.float64))
        when, label = _times(X, time)
        order = np.argsort(when, kind="stable")
        found = {"past_time": None, "past_y": None}
        if past is not None:
            if not isinstance(time, str | int | np.integer):
                raise ValueError("past needs the name or position of the column of time.")
            found = dict(zip(found, _in_order(_times(past[0], time)[0], past[1], output)))
        y_true = None if y is None else _in_order(when, y, output)[1]
        display = cls(
            time=when[order],
            mean=select_output(model.predict(rows), output)[order],
            intervals=central_intervals(model, rows, coverage, output)[:, order],
            coverage=coverage,
            y_true=y_true,
            time_name=label,
            target_name=target_name(model, output, y),
            name=type(model).__name__ if name is None else name,
            **found,
        )
        return display.plot(ax, **kwargs)


def _times(X, time):
    """Times of rows for an axis, and their name."""
    X = as_numpy(X)
    if isinstance(time, str | int | np.integer):
        return axis(column(X, position_of("time", time, X))), str(time)
    return axis(column_of(time, len(X))), "time"


def _in_order(times, y, output):
    """Times and targets in their order."""
    values = select_output(check_array(as_numpy(y), ensure_2d=False, input_name="y"), output)
    check_consistent_length(times, values)
    order = np.argsort(times, kind="stable")
    return times[order], values[order]
