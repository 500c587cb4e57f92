"""Effects of single columns on the target, with their uncertainty."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logit
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import check_random_state, check_scalar

from .._checks import check_coverage
from ._plotting import (
    check_axes,
    check_can_plot,
    in_lines,
    line_style,
    message_if_slow,
    plot_response,
    several_axes,
)
from ._points import points_along
from ._responses import model_and_pairs, select_output, target_name
from ._slices import position

_N_ROWS = 50  #: over which effects of the mean are averaged: each costs a prediction for each point
_CHANGES = 800  #: changed rows at which functions are drawn, for all columns together
_FEWEST_ROWS = 6  #: over which effects of functions are averaged
_N_COLUMNS = 3  #: of a new figure
_NEXT_TO_NONE = 0.25  #: share of the data near a value, relative to an even one
_PROBABILITIES = 1e-9, 1.0 - 1e-9  #: of which there are log-odds: 9 digits of a draw are right
_N_SHOWN = 6  #: columns, if the user names none


@dataclass(eq=False, repr=False, kw_only=True)
class EffectsDisplay:
    r"""Main effects of columns, with bands.

    The main effect of column `j` is :math:`E[f(x)\,|\,x_j] - E[f(x)]`: what the function does along the column,
    averaged over rows that have all values of the others. Lines are effects of the predicted mean, bands
    the central intervals of the effects of function draws. It is best made by :meth:`from_estimator`.

    Parameters
    ----------
    grids : list of ndarray of shape (n_points,)
        Values of each column.
    effects : list of ndarray of shape (n_points,)
    bands : list of ndarray of shape (n_points, 2)
        Lower and upper ends.
    feature_names : list of str
    coverage : float
        Probability of the bands.
    target_name : str, default="y"
    discrete : list of bool, optional
        Which columns have few values, and are shown as points with error bars; none by default.
    levels : list of (list of str or None), optional
        Names of the values of categories; none by default.
    shares : list of ndarray of shape (n_points,), optional
        Shares of the data near to each value. Values that next to no data have do not set the scale.
    notes : list of str, optional
        What stands below the names of the columns.

    Attributes
    ----------
    lines_ : list of matplotlib Line2D
    bands_ : list of matplotlib PolyCollection, or of LineCollection for discrete columns
    axes_ : ndarray of matplotlib Axes
    figure_ : matplotlib Figure

    See Also
    --------
    ImportanceDisplay : Which columns matter.
    PredictiveDisplay : Predictions along one column, the others at typical values.
    sklearn.inspection.PartialDependenceDisplay : The same lines, but for their mean, without a band.

    Notes
    -----
    A line is the partial dependence of the predicted mean, less its mean over the rows. Partial dependence of
    other estimators has no band, and the scatter of its individual curves shows interactions. The band here
    shows what the data leave open: every draw is a function that they leave possible, whose effect is computed
    like that of the mean. Rows combine values that may never be seen together, as with partial dependence.

    References
    ----------
    N. Durrande, D. Ginsbourger, O. Roustant and L. Carraro (2013). ANOVA kernels and RKHS of zero mean
    functions for model-based sensitivity analysis. Journal of Multivariate Analysis 115.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import DeepGPRegressor
    >>> from skdgp.inspection import EffectsDisplay
    >>> X = np.random.default_rng(0).uniform(size=(50, 2))
    >>> y = 2 * X[:, 0] + X[:, 1] ** 2
    >>> model = DeepGPRegressor(1, inference="exact", random_state=0).fit(X, y)
    >>> display = EffectsDisplay.from_estimator(model, features=[0, 1])
    >>> [round(float(np.ptp(effect)), 1) for effect in display.effects]
    [2.0, 1.0]
    """

    grids: list
    effects: list
    bands: list
    feature_names: list
    coverage: float
    target_name: str = "y"
    discrete: list | None = None
    levels: list | None = None
    shares: list | None = None
    notes: list | None = None

    def __post_init__(self):
        n = len(self.grids)
        self.discrete = [False] * n if self.discrete is None else self.discrete
        self.levels = [None] * n if self.levels is None else self.levels
        self.notes = [""] * n if self.notes is None else self.notes
        if self.shares is None:
            self.shares = [np.full(len(grid), 1.0 / len(grid)) for grid in self.grids]

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Plot the display.

        Parameters
        ----------
        ax : matplotlib Axes or array-like of these, default=None
            One for each column; None for a new figure, with equal scales of the effects.
        **kwargs : dict
            Passed to :meth:`matplotlib.axes.Axes.plot` for the lines; the bands take their color.

        Returns
        -------
        display : EffectsDisplay
        """
        n = len(self.feature_names)
        n_rows = -(-n // _N_COLUMNS)
        size = 3.5 * min(n, _N_COLUMNS), 2.8 * n_rows + 0.3
        axes = several_axes(ax, n, self, _N_COLUMNS, figsize=size, sharey=True)
        style, label = line_style(kwargs, label="mean"), f"{100 * self.coverage:g}% of functions"
        self.lines_, self.bands_ = [], []
        kinds = zip(axes, self.discrete or [], self.levels or [], self.notes or [])
        for i, (axis, discrete, levels, note) in enumerate(kinds):
            curve = self.grids[i], self.effects[i], [self.bands[i]], [label], [0.25]
            line, (band,) = plot_response(axis, *curve, discrete, levels, **style)
            self.lines_.append(line)
            self.bands_.append(band)
            axis.set_xlabel("\n".join(filter(None, (in_lines(self.feature_names[i]), note))))
            if ax is not None or i % _N_COLUMNS == 0:  # those of a new figure share their scale
                axis.set_ylabel(f"Effect on {in_lines(self.target_name)}")
        if ax is None:
            self._scale(axes)
            handles, place = [self.lines_[0], self.bands_[0]], "outside upper right"
            axes[0].figure.legend(handles=handles, loc=place, ncols=2, frameon=False)
        else:
            axes[0].legend(fontsize="small")
        self.axes_, self.figure_ = axes, axes[0].figure
        return self

    def _scale(self, axes):
        """A common scale that values with next to no data do not set."""
        ends = [
            band[share >= _NEXT_TO_NONE / len(share)]
            for band, share in zip(self.bands, self.shares)
        ]
        low, high = np.min(np.concatenate(ends)), np.max(np.concatenate(ends))
        margin = 0.05 * (high - low) or 1.0
        axes[0].set_ylim(low - margin, high + margin)
        for axis, effect in zip(axes, self.effects):
            n_beyond = np.count_nonzero((effect < low - margin) | (effect > high + margin))
            if n_beyond:
                rare = "1 rare value" if n_beyond == 1 else f"{n_beyond} rare values"
                axis.set_title(f"{rare} beyond the scale", fontsize="small")

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: ArrayLike | None = None,
        features: Sequence[int | str] | None = None,
        *,
        output: int | str | None = None,
        n_points: int = 20,
        n_draws: int = 64,
        coverage: float = 0.9,
        random_state: int | np.random.RandomState | None = 0,
        log_odds: bool = False,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the main effects of a fitted model.

        Parameters
        ----------
        estimator : fitted regressor or classifier of skdgp, pipeline or search
            Columns are those that the last step of a pipeline sees.
        X : array-like of shape (n_samples, n_features), default=None
            Rows over which effects are averaged, 50 of them if they are more; None for training rows, with
            their weights. Bands average over fewer rows, so many that functions are drawn at 800 changed rows
            for all columns together, but six at least. Effects are centered over the values of up to 200 rows.
        features : list of int or str, int or str, default=None
            Positions or names of columns; None for the six with the largest ``feature_importances_``.
        output : int, default=None
            The output to show, if there are several; of a classifier, the position of a class in
            ``classes_``, of two classes the second one by default.
        n_points : int, default=20
            Number of points along a column; all its values if these are few, and the most frequent levels of a
            category. Dates have four points for each week or year that they show, or steps of whole days,
            weeks or years where these cycles are too many.
        n_draws : int, default=64
            Number of functions.
        coverage : float in (0, 1), default=0.9
            Probability of the bands, point by point.
        random_state : int, RandomState instance or None, default=0
            Determines the functions.
        log_odds : bool, default=False
            Whether effects of a classifier are those on the log-odds of the class, where effects that add up
            do not fade near 0 and 1. Lines are then means over the functions.
        ax, **kwargs
            Passed to :meth:`plot`.

        Returns
        -------
        display : EffectsDisplay
            In units of the target, of probabilities, or of their log-odds.

        Raises
        ------
        NotFittedError, ValueError
            If the estimator is not fitted or none of skdgp, has kernels whose
            functions cannot be drawn, or an argument makes no sense.
        """
        check_can_plot(cls, kwargs)
        check_scalar(n_points, "n_points", Integral, min_val=2)
        check_scalar(n_draws, "n_draws", Integral, min_val=2)
        check_coverage(coverage)
        seed = int(check_random_state(random_state).randint(2**31 - 2))
        model, pairs, names = model_and_pairs(estimator, X, cls.__name__)
        n_features = pairs.rows.shape[1]
        if features is None:
            n_shown = _N_SHOWN if ax is None else min(n_features, np.size(ax))
            features = np.argsort(-model.feature_importances_, kind="stable")[:n_shown].tolist()
        listed = [features] if isinstance(features, (str, Integral)) else features
        columns = [position(feature, names, n_features) for feature in listed]
        if ax is not None:
            check_axes(ax, len(columns))
        if log_odds and not is_classifier(model):
            raise ValueError("log_odds=True is for classifiers; leave it out.")
        if is_classifier(model):
            n_outputs = len(model.classes_)
            output = 1 if output is None and n_outputs == 2 else output
            select_output(np.empty((1, n_outputs)), output)
            of_class = "log-odds of {}" if log_odds else "P({})"
            name = of_class.format(model.classes_[output])
        else:
            select_output(np.empty((1, model._n_outputs)), output)
            name = target_name(model, output)
        reader = vars(model).get("_reader")  # tells numbers, dates and categories apart
        kinds, levels = ([None] * n_features,) * 2
        if reader is not None:
            kinds, levels = reader.kinds, reader.levels
        points = [
            points_along(pairs.rows[:, j], pairs.weights, n_points, kinds[j], levels[j])
            for j in columns
        ]

        def curves(rows, centers, ndim=1):
            """Effects (n_points, n_functions) of each column, of functions that `centers` evaluates."""

            def predict(X):
                found = select_output(centers(X), output, ndim)
                return logit(found.clip(*_PROBABILITIES)) if log_odds else found

            return _curves(rows, columns, points, predict)

        def draws(X):
            return np.moveaxis(model._draw_centers(X, n_draws, seed), 0, -1)

        what = f"{n_draws} functions along {len(columns)} columns; fewer n_draws or n_points are faster"
        with message_if_slow(cls, what):
            mean = curves(pairs.sample(_N_ROWS), model._centers)
            n_changes = sum(len(of.values) for of in points)
            n_rows = np.clip(_CHANGES // n_changes, _FEWEST_ROWS, _N_ROWS)
            rows = pairs.sample(int(n_rows))
            of_draws, of_mean = curves(rows, draws, 2), curves(rows, model._centers)
        ends, bands = [0.5 * (1.0 - coverage), 0.5 * (1.0 + coverage)], []
        for j, (drawn, same) in enumerate(zip(of_draws, of_mean)):
            off = drawn - same
            if log_odds:  # those of a mean are closer to zero than their mean
                shift = off.mean(1, keepdims=True)
                mean[j], off = mean[j] + shift, off - shift
            bands.append(mean[j] + np.quantile(off, ends, axis=1).T)
        display = cls(
            grids=[of.shown for of in points],
            effects=[effect[:, 0] for effect in mean],
            bands=bands,
            feature_names=[names[j] for j in columns],
            coverage=coverage,
            target_name=name,
            discrete=[of.discrete for of in points],
            levels=[of.levels for of in points],
            shares=[of.near for of in points],
            notes=[of.note for of in points],
        )
        return display.plot(ax, **kwargs)


def _curves(rows, columns, points, predict):
    """Effects (n_shown, n_functions) of columns: means over rows, less those over all values."""
    changed = []
    for j, of in zip(columns, points):
        table = np.repeat(rows[None], len(of.values), 0)
        table[:, :, j] = of.values[:, None]
        changed.append(table.reshape(-1, rows.shape[1]))
    values = predict(np.concatenate(changed))
    values = values.reshape(len(values) // len(rows), len(rows), -1).mean(1)
    ends = np.cumsum([len(of.values) for of in points])[:-1]
    return [
        curves[: len(of.shown)] - of.center @ curves
        for of, curves in zip(points, np.split(values, ends))
    ]
