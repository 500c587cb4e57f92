"""What the target does along single columns, and how sure that is."""

from numbers import Integral

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils import check_random_state, check_scalar

from .._scoring import check_coverage
from ..estimators.importances import draw_means
from ._plotting import check_matplotlib_support, line_style
from ._responses import model_and_rows, select_output
from ._slices import position

_N_ROWS = 50  #: over which effects are averaged: each costs `n_points` predictions for each column
_N_COLUMNS = 3  #: of a new figure
_N_SHOWN = 6  #: columns, if the user names none


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

    Attributes
    ----------
    lines_ : list of matplotlib Line2D
    bands_ : list of matplotlib PolyCollection
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

    def __init__(self, *, grids, effects, bands, feature_names, coverage, target_name="y"):
        self.grids = grids
        self.effects = effects
        self.bands = bands
        self.feature_names = feature_names
        self.coverage = coverage
        self.target_name = target_name

    def plot(self, ax=None, **kwargs):
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
        check_matplotlib_support(f"{type(self).__name__}.plot")
        axes = self._new_axes() if ax is None else np.atleast_1d(np.asarray(ax, object)).ravel()
        n = len(self.feature_names)
        if len(axes) != n:
            raise ValueError(f"ax must hold one Axes for each of the {n} columns; got {len(axes)}.")
        self.lines_, self.bands_ = [], []
        for i, axis in enumerate(axes):
            style = line_style(kwargs, label="mean")
            self.lines_ += axis.plot(self.grids[i], self.effects[i], **style)
            self.bands_.append(
                axis.fill_between(
                    self.grids[i],
                    *self.bands[i].T,
                    color=self.lines_[i].get_color(),
                    alpha=0.25,
                    linewidth=0,
                    label=f"{100 * self.coverage:g}% of draws",
                )
            )
            axis.set_xlabel(self.feature_names[i])
            if ax is not None or i % _N_COLUMNS == 0:  # those of a new figure share their scale
                axis.set_ylabel(f"Effect on {self.target_name}")
        axes[0].legend(fontsize="small")
        self.axes_, self.figure_ = axes, axes[0].figure
        return self

    def _new_axes(self):
        import matplotlib.pyplot as plt

        n = len(self.feature_names)
        n_columns = min(n, _N_COLUMNS)
        n_rows = -(-n // n_columns)
        size = (3.5 * n_columns, 2.8 * n_rows)
        _, axes = plt.subplots(
            n_rows, n_columns, figsize=size, sharey=True, squeeze=False, layout="constrained"
        )
        for axis in axes.ravel()[n:]:
            axis.set_axis_off()
        return axes.ravel()[:n]

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X=None,
        features=None,
        *,
        output=None,
        n_points=20,
        n_draws=64,
        coverage=0.9,
        random_state=0,
        ax=None,
        **kwargs,
    ):
        """Plot the main effects of a fitted model.

        Parameters
        ----------
        estimator : fitted regressor or classifier of skdgp, pipeline or search
            Columns are those that the last step of a pipeline sees.
        X : array-like of shape (n_samples, n_features), default=None
            Rows over which effects are averaged, 50 of them if they are more. None for training rows.
        features : list of int or str, default=None
            Positions or names of columns; None for the six with the largest ``feature_importances_``.
        output : int, default=None
            The output to show, if there are several; of a classifier, the position of a class in
            ``classes_``, of two classes the second one by default.
        n_points : int, default=20
            Number of points along a column, all its values if they are no more.
        n_draws : int, default=64
            Number of functions.
        coverage : float in (0, 1), default=0.9
            Probability of the bands, point by point.
        random_state : int, RandomState instance or None, default=0
            Determines the functions.
        ax : matplotlib Axes or array-like of these, default=None
            One for each column; None for a new figure.
        **kwargs : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : EffectsDisplay
            In units of the target, of its ``target_transform_`` if there is one, or of probabilities.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ValueError
            If the estimator is none of skdgp, has kernels whose functions cannot be drawn, or an argument
            makes no sense.
        """
        check_matplotlib_support(f"{cls.__name__}.from_estimator")
        check_scalar(n_points, "n_points", Integral, min_val=2)
        check_scalar(n_draws, "n_draws", Integral, min_val=2)
        check_coverage(coverage)
        seed = int(check_random_state(random_state).randint(2**31 - 2))
        model, X, names = model_and_rows(estimator, X, cls.__name__, _N_ROWS)
        if features is None:
            features = np.argsort(-model.feature_importances_, kind="stable")[:_N_SHOWN].tolist()
        columns = [position(feature, names, X.shape[1]) for feature in features]
        scale, target_name = 1.0, "y" if output is None else f"y{output}"
        if is_classifier(model):
            output = 1 if output is None and len(model.classes_) == 2 else output
            target_name = "P(y)" if output is None else f"P({model.classes_[output]})"
        else:
            scale, mapped = model._y_scaler.scale[output or 0], model._y_scaler.names[output or 0]
            target_name = target_name if mapped is None else f"{target_name} ({mapped})"
        ends = [0.5 * (1.0 - coverage), 0.5 * (1.0 + coverage)]
        grids = [_points(X[:, j], n_points) for j in columns]
        effects, bands = [], []
        for j, grid in zip(columns, grids):
            curves = scale * _curves(model, X, j, grid, output, n_draws, seed)
            effects.append(curves[:, 0])
            bands.append(np.quantile(curves[:, 1:], ends, axis=1).T)
        display = cls(
            grids=grids,
            effects=effects,
            bands=bands,
            feature_names=[names[j] for j in columns],
            coverage=coverage,
            target_name=target_name,
        )
        return display.plot(ax, **kwargs)


def _points(values, n_points):
    distinct = np.unique(values)
    return distinct if len(distinct) <= n_points else np.linspace(*distinct[[0, -1]], n_points)


def _curves(model, X, j, grid, output, n_draws, seed):
    """Effects (n_points, 1 + n_draws) of column `j`: of the mean, and of draws."""
    rows = np.repeat(X[None], len(grid), 0)
    rows[:, :, j] = grid[:, None]
    rows = rows.reshape(-1, X.shape[1])
    mean = select_output(model._centers(rows), output)
    draws = select_output(draw_means(model, rows, n_draws, seed), output, ndim=2)
    curves = np.column_stack([mean, draws]).reshape(len(grid), len(X), -1).mean(1)
    return curves - [np.interp(X[:, j], grid, curve).mean() for curve in curves.T]
