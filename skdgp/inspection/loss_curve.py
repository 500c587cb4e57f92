"""The course of training."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np
from scipy.ndimage import median_filter
from sklearn.base import BaseEstimator
from sklearn.utils import check_scalar

from ..training.trainer import BLOCK
from ._plotting import Display, check_can_plot, line_style
from ._responses import member_name, unwrap_deep_gp


@dataclass(eq=False, repr=False)
class LossCurveDisplay(Display):
    """Loss and validation score over the steps of training.

    The loss of single steps is thin, its moving median thick. The highest 2 % of the losses, which
    come first as a rule, do not count for the limits of the axes. It is best made by
    :meth:`from_estimator`.

    Parameters
    ----------
    loss_curve : array-like of shape (n_steps,)
        Loss per row at each step.
    validation_scores : array-like of shape (n_blocks,), optional
        Score of the held-out rows after each block of 50 steps, and after the last step.
    smooth : int or None, default=50
        Number of steps around a step over which the median is taken; None for none.
    name : str, optional
        Name of the model, for the legend.

    Attributes
    ----------
    line_ : matplotlib Line2D
        Loss of single steps.
    smooth_line_ : matplotlib Line2D or None
        Its moving median.
    validation_line_ : matplotlib Line2D or None
    best_ : matplotlib Line2D or None
        Marks the best validation score, whose state was kept.
    ax_ : matplotlib Axes
    validation_ax_ : matplotlib Axes or None
        Twin of `ax_` on the right.
    figure_ : matplotlib Figure

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skdgp import DeepGPRegressor
    >>> from skdgp.inspection import LossCurveDisplay
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = DeepGPRegressor(inference="dsvi", max_iter=60, random_state=0).fit(X, y)
    >>> display = LossCurveDisplay.from_estimator(model, smooth=10)
    >>> len(display.loss_curve)
    60
    """

    loss_curve: Sequence
    validation_scores: Sequence | None = None
    _: KW_ONLY
    smooth: int | None = BLOCK
    name: str | None = None

    def _plot(self, ax, name, kwargs):
        if self.smooth is not None:
            check_scalar(self.smooth, "smooth", Integral, min_val=1)
        label = "loss" if name is None else f"{name}, loss"
        loss = np.asarray(self.loss_curve, dtype=np.float64)
        steps = np.arange(1, len(loss) + 1)
        limits, self.smooth_line_ = ax.dataLim.frozen(), None
        style = line_style(kwargs, label=label)
        if self.smooth is not None:
            thick = {"linewidth": 2.0, "zorder": 3, **style}
            (self.smooth_line_,) = ax.plot(steps, moving_median(loss, self.smooth), **thick)
            style = {"color": self.smooth_line_.get_color(), "alpha": 0.4}
        (self.line_,) = ax.plot(steps, loss, **{"linewidth": 0.6, **style})
        ax.dataLim.set(limits)
        if (finite := loss[np.isfinite(loss)]).size:
            range_ = np.quantile(finite, [0.0, 0.98])
            ax.update_datalim(np.column_stack([steps[[0, -1]], range_]))
        self.validation_ax_ = self.validation_line_ = self.best_ = None
        if self.validation_scores is not None and len(self.validation_scores):
            self._plot_validation(ax, "validation" if name is None else f"{name}, validation")
        ax.set(xlabel="Step", ylabel="Loss per row")
        _legend(ax)

    def _plot_validation(self, ax, label):
        self.validation_ax_ = _twin(ax) or ax.twinx()
        scores = np.asarray(self.validation_scores, dtype=np.float64)
        steps = np.minimum(BLOCK * np.arange(1, len(scores) + 1), len(self.loss_curve))
        style = {"color": (self.smooth_line_ or self.line_).get_color(), "zorder": 4}
        plot = self.validation_ax_.plot
        (self.validation_line_,) = plot(steps, scores, "--", label=label, **style)
        if not np.isnan(scores).all():
            best = np.nanargmax(scores)
            at = steps[best], scores[best]
            (self.best_,) = plot(*at, "o", markersize=8, fillstyle="none", **style)
        self.validation_ax_.set_ylabel("Validation score (dashed)")

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        *,
        smooth: int | None = BLOCK,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the course of the training of a fitted estimator; of a mixture, of its heaviest member.

        Parameters
        ----------
        estimator : fitted estimator of skdgp, pipeline or search
        smooth : int or None, default=50
            Number of steps around a step over which the median is taken; None for none.
        name : str, default=None
            Name in the legend; None for the class of the estimator and, of a mixture, the member.
        ax, **kwargs
            Passed to :meth:`plot`.

        Returns
        -------
        display : LossCurveDisplay

        Raises
        ------
        NotFittedError, ValueError
            If the estimator is not fitted, or none of skdgp.
        """
        check_can_plot(cls, kwargs)
        model, _ = unwrap_deep_gp(estimator, None, cls.__name__)
        member = max(model.members_, key=lambda member: member.mixture_weight)
        display = cls(
            member.record.loss_curve,
            member.record.validation_scores,
            smooth=smooth,
            name=member_name(model, member) if name is None else name,
        )
        return display.plot(ax, **kwargs)


def moving_median(values, window):
    """Median of the values around each one; a window that would leave the ends shrinks.

    It shrinks on both sides, so that a curve that falls or rises throughout stays as it is.
    """
    n = len(values)
    half = max(0, min(window // 2, (n - 1) // 2))
    medians = median_filter(values, 2 * half + 1)
    for i in range(half):
        medians[i] = np.median(values[: 2 * i + 1])
        medians[n - 1 - i] = np.median(values[n - 1 - 2 * i :])
    return medians


def _twin(ax):
    """The axes that an earlier display has laid over these, or None."""
    siblings = ax.get_shared_x_axes().get_siblings(ax)
    return next((a for a in siblings if a is not ax and a.bbox.bounds == ax.bbox.bounds), None)


def _legend(ax):
    """One legend for both axes, on the upper one."""
    twin = _twin(ax)
    if twin is None:
        ax.legend()
        return
    if ax.get_legend() is not None:
        ax.get_legend().remove()
    both = zip(*(axes.get_legend_handles_labels() for axes in (ax, twin)))
    handles, labels = (first + second for first, second in both)
    # a loss that falls and a score that rises leave the middle free
    twin.legend(handles, labels, loc="center right")
