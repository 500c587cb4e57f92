"""Whether predictive intervals hold what they promise."""

from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_consistent_length, check_scalar, column_or_1d

from .._checks import check_alpha
from .._scoring import take_apart_to_score
from ._plotting import Display, check_can_plot, line_style, message_if_slow
from ._responses import central_intervals, pit_shares, select_output, unwrap_regressor

_CONFIDENCE = 0.95


@dataclass(eq=False, repr=False)
class CoverageDisplay(Display):
    """Empirical against nominal coverage of predictive intervals.

    A calibrated model follows the diagonal; above it the intervals are too wide, below it too
    narrow. The shaded band holds the empirical coverage of a calibrated model with a probability of
    at least 95 %, level by level: the number of `n_samples` independent targets inside an interval
    is binomial. It is best made by :meth:`from_estimator` or :meth:`from_predictions`, from rows
    that the model was not trained on.

    Parameters
    ----------
    nominal : ndarray of shape (n_levels,)
        Increasing probabilities of the intervals.
    empirical : ndarray of shape (n_levels,)
        Shares of the targets inside.
    n_samples : int
        Number of targets.
    name : str, optional
        Name of the model, for the legend.
    kind : {"interval", "pit"}, default="interval"
        ``"pit"`` shows the distribution of the probability integral transform: the shares of targets at which
        the predicted distribution function is at most each level.

    Attributes
    ----------
    calibration_error : float
        Mean absolute difference of empirical and nominal coverage.
    line_ : matplotlib Line2D
        The coverage.
    reference_line_ : matplotlib Line2D or None
        The diagonal; None if the axes had one.
    band_ : matplotlib PolyCollection or None
        The binomial band; None if the axes had one for as many samples.
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    See Also
    --------
    PredictiveDisplay : The intervals themselves.

    Notes
    -----
    A central interval of a target that counts holds at least its nominal probability, so the curve
    of a calibrated model lies above the diagonal where the counts are small. The transform of a count is
    taken to be uniform between the probabilities of less and of no more (Czado et al., 2009).

    Central intervals may be right while both tails are wrong, one too heavy and one too light. The transform
    shows it: its curve is above the diagonal where targets are lower than predicted.

    References
    ----------
    V. Kuleshov, N. Fenner and S. Ermon (2018). Accurate uncertainties for deep learning using
    calibrated regression. ICML 35.

    C. Czado, T. Gneiting and L. Held (2009). Predictive model assessment for count data. Biometrics 65.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import BayesianRidge
    >>> from skdgp.inspection import CoverageDisplay
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BayesianRidge().fit(X[:300], y[:300])
    >>> display = CoverageDisplay.from_estimator(model, X[300:], y[300:])
    >>> display.calibration_error
    0.03...
    """

    nominal: np.ndarray
    empirical: np.ndarray
    n_samples: int
    _: KW_ONLY
    name: str | None = None
    kind: str = "interval"

    _figure = {"figsize": (5.2, 5.8)}

    @property
    def calibration_error(self) -> float:
        """Mean absolute difference of empirical and nominal coverage."""
        return float(np.abs(self.empirical - self.nominal).mean())

    def _plot(self, ax, name, kwargs):
        there = ax.get_legend_handles_labels()[1]
        self.reference_line_ = self.band_ = None
        if (label := "perfectly calibrated") not in there:
            (self.reference_line_,) = ax.plot([0, 1], [0, 1], "k:", label=label)
        if (label := f"95% band, n = {self.n_samples}") not in there:
            levels = np.concatenate([[0.0], self.nominal, [1.0]])
            low, high = binom.interval(_CONFIDENCE, self.n_samples, levels)
            style = {"color": "gray", "alpha": 0.2, "linewidth": 0, "label": label}
            self.band_ = ax.fill_between(
                levels, low / self.n_samples, high / self.n_samples, **style
            )
        label = f"calibration error = {self.calibration_error:.3f}"
        label = label if name is None else f"{name} ({label})"
        style = line_style(kwargs, marker="o", markersize=4, label=label)
        (self.line_,) = ax.plot(self.nominal, self.empirical, **style)
        ax.set(
            xlabel="Probability integral transform" if self.kind == "pit" else "Nominal coverage",
            ylabel="Share of the targets" if self.kind == "pit" else "Empirical coverage",
            xlim=(-0.02, 1.02),
            ylim=(-0.02, 1.02),
            aspect="equal",
        )
        # a distance in letters, for that in heights of the axes would change with the room that it takes
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "borderaxespad": 4.5}
        below["frameon"] = False
        makes_room = ax.figure.get_layout_engine() is not None
        ax.legend(fontsize="small", **(below if makes_room else {}))

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: ArrayLike,
        y: ArrayLike,
        *,
        kind: str = "interval",
        n_levels: int = 19,
        output: int | str | None = None,
        exposure: ArrayLike | None = None,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the coverage of a fitted regressor, or its probability integral transform.

        Parameters
        ----------
        estimator : fitted regressor, pipeline or search
            A regressor of skdgp, or one that has ``predict_quantiles(X, alpha)``, or whose ``predict`` takes
            ``return_std=True`` and whose intervals are taken to be Gaussian.
        X : array-like of shape (n_samples, n_features)
            Held-out rows.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their targets.
        kind : {"interval", "pit"}, default="interval"
            Central intervals, or the distribution of the probability integral transform.
        n_levels : int, default=19
            Number of levels, spread evenly over (0, 1); 19 are 0.05, 0.1, ..., 0.95.
        output : int, default=None
            The output to show, if there are several.
        exposure : array-like of shape (n_samples,), optional
            Of counts, as in ``fit``.
        name : str, default=None
            Name in the legend; None for the class of the estimator.
        ax, **kwargs
            Passed to :meth:`plot`.

        Returns
        -------
        display : CoverageDisplay

        Raises
        ------
        NotFittedError, ValueError
            If the estimator is not fitted or predicts no distribution of numbers, or an argument
            makes no sense.
        """
        check_can_plot(cls, kwargs)
        check_scalar(n_levels, "n_levels", Integral, min_val=1)
        if kind not in ("interval", "pit"):
            raise ValueError(f"kind must be 'interval' or 'pit'; got {kind!r}.")
        given = {} if exposure is None else {"exposure": exposure}
        model, rows = unwrap_regressor(estimator, X, cls.__name__)
        take_apart_to_score(model, rows, given)
        coverage = np.arange(1, n_levels + 1) / (n_levels + 1)
        y = select_output(check_array(y, ensure_2d=False, input_name="y"), output)
        check_consistent_length(rows, y)
        name = type(model).__name__ if name is None else name
        if kind == "pit":
            with message_if_slow(cls, f"distribution functions of {len(y):,} rows"):
                share = pit_shares(model, rows, y, output, coverage, given)
            return cls(coverage, share, len(y), name=name, kind=kind).plot(ax, **kwargs)
        with message_if_slow(cls, f"quantiles of {len(y):,} rows"):
            ends = central_intervals(model, rows, coverage, output, given=given)
        lower, upper = np.moveaxis(ends, -1, 0)
        return cls.from_predictions(y, lower.T, upper.T, coverage, name=name, ax=ax, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        lower: ArrayLike,
        upper: ArrayLike,
        coverage: ArrayLike,
        *,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the coverage of given intervals.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            True targets.
        lower, upper : array-likes of shape (n_samples, n_levels)
            Ends of the intervals; both belong to them.
        coverage : array-like of shape (n_levels,)
            Nominal probabilities of the intervals.
        name : str, default=None
            Name in the legend.
        ax, **kwargs
            Passed to :meth:`plot`.

        Returns
        -------
        display : CoverageDisplay

        Raises
        ------
        ValueError
            If shapes do not fit, or `coverage` leaves (0, 1).

        Examples
        --------
        >>> import numpy as np
        >>> from skdgp.inspection import CoverageDisplay
        >>> display = CoverageDisplay.from_predictions(
        ...     [0.2, 0.4, 1.9], np.zeros((3, 2)), np.tile([1.0, 3.0], (3, 1)), [0.5, 0.9]
        ... )
        >>> display.empirical
        array([0.67, 1.  ])
        """
        check_can_plot(cls, kwargs, caller="from_predictions")
        y_true = column_or_1d(y_true)
        lower, upper = check_array(lower), check_array(upper)
        check_consistent_length(y_true, lower, upper)
        coverage = check_alpha(coverage, "coverage")
        if not lower.shape[1] == upper.shape[1] == len(coverage):
            raise ValueError(
                "lower and upper need one column for each coverage; got "
                f"{lower.shape[1]} and {upper.shape[1]} columns for {len(coverage)}."
            )
        inside = (lower <= y_true[:, None]) & (y_true[:, None] <= upper)
        order = np.argsort(coverage)
        display = cls(coverage[order], inside.mean(0)[order], len(y_true), name=name)
        return display.plot(ax, **kwargs)
