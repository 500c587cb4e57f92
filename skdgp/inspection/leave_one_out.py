"""Training targets beside predictions from all other rows."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.base import is_regressor

from .._checks import check_coverage
from ..estimators.given_rows import left_out_rows
from ._plotting import Display, check_can_plot, line_style
from ._responses import select_output, target_name, unwrap_deep_gp

KINDS = ("actual_vs_predicted", "residual_vs_predicted")


@dataclass(eq=False, repr=False)
class LeaveOneOutDisplay(Display):
    """Targets of the training rows against predictions from all other rows.

    The first look at an emulator: no run has to be kept for tests. It is best made by :meth:`from_estimator`.

    Parameters
    ----------
    y_true : ndarray of shape (n_samples,)
        Targets.
    mean, std : ndarray of shape (n_samples,)
        Predictions of each row from all others.
    kind : {"actual_vs_predicted", "residual_vs_predicted"}, default="actual_vs_predicted"
        Targets over means with error bars, or errors in standard deviations over means.
    coverage : float, default=0.95
        Probability of the error bars, and of the band of standardized errors.
    target : str, default="y"
        Name of the target.
    name : str, optional
        Name of the model, for the title.

    Attributes
    ----------
    residuals : ndarray of shape (n_samples,)
        Errors in standard deviations.
    outside : float
        Share of the rows whose errors are larger than `coverage` allows.
    line_ : matplotlib Line2D
        The points.
    bars_ : matplotlib LineCollection or None
        The error bars; None if errors are shown.
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    See Also
    --------
    CoverageDisplay : All levels at once, for rows that were held out.

    References
    ----------
    L. Bastos and A. O'Hagan (2009). Diagnostics for Gaussian process emulators. Technometrics 51.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import DeepGPRegressor
    >>> from skdgp.inspection import LeaveOneOutDisplay
    >>> X = np.linspace(0, 1, 20)[:, None]
    >>> model = DeepGPRegressor(n_layers=1, inference="exact", random_state=0)
    >>> display = LeaveOneOutDisplay.from_estimator(model.fit(X, np.sin(6 * X[:, 0])))
    >>> display.residuals.shape
    (20,)
    """

    y_true: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    _: KW_ONLY
    kind: str = "actual_vs_predicted"
    coverage: float = 0.95
    target: str = "y"
    name: str | None = None

    @property
    def residuals(self) -> np.ndarray:
        """Errors in standard deviations."""
        return (self.y_true - self.mean) / self.std

    @property
    def outside(self) -> float:
        """Share of the rows whose errors are larger than `coverage` allows."""
        return float(np.mean(np.abs(self.residuals) > self._reach))

    @property
    def _reach(self):
        return norm.ppf(0.5 + 0.5 * self.coverage)

    def _plot(self, ax, name, kwargs):
        style = line_style(kwargs, linestyle="none", marker="o", markersize=4)
        label = f"{self.outside:.0%} outside of {self.coverage:.0%} bars"
        self.bars_, reach = None, self._reach
        if self.kind == KINDS[0]:
            ends = np.concatenate([self.mean, self.y_true])
            ends = np.array([ends.min(), ends.max()])
            ax.plot(ends, ends, "k:", label="perfect")
            (self.line_,) = ax.plot(self.mean, self.y_true, **{"label": label, **style})
            low, high = self.mean - reach * self.std, self.mean + reach * self.std
            color = self.line_.get_color()
            self.bars_ = ax.hlines(self.y_true, low, high, color=color, linewidth=1, alpha=0.5)
            ax.set_ylabel(self.target)
        else:
            ax.axhspan(-reach, reach, color="gray", alpha=0.2, linewidth=0)
            ax.axhline(0.0, color="black", linestyle=":")
            (self.line_,) = ax.plot(self.mean, self.residuals, **{"label": label, **style})
            ax.set_ylabel("Error in standard deviations")
        ax.set_xlabel(f"{self.target}, predicted from all other rows")
        ax.legend(fontsize="small")
        if name is not None:
            ax.set_title(name)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        kind: str = KINDS[0],
        coverage: float = 0.95,
        output: int | None = None,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> LeaveOneOutDisplay:
        """Plot leave-one-out predictions of a fitted regressor.

        Parameters
        ----------
        estimator : fitted regressor of skdgp, pipeline or search
            Whose models hold their training rows: see ``loo_predict``.
        kind : {"actual_vs_predicted", "residual_vs_predicted"}, default="actual_vs_predicted"
            Targets over means with error bars, or errors in standard deviations over means.
        coverage : float, default=0.95
            Probability of the error bars, taken to be Gaussian.
        output : int, default=None
            The output to show, if there are several.
        name : str, default=None
            Name in the title; None for the class of the estimator.
        ax, **kwargs
            Passed to :meth:`plot`.

        Returns
        -------
        display : LeaveOneOutDisplay

        Raises
        ------
        NotFittedError, ValueError
            If the estimator is not fitted, none of skdgp or without leave-one-out predictions, or an argument
            makes no sense.
        """
        check_can_plot(cls, kwargs)
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}; got {kind!r}.")
        check_coverage(coverage)
        model, _ = unwrap_deep_gp(estimator, None, cls.__name__)
        if not is_regressor(model):
            raise ValueError(f"{cls.__name__} shows regressors; got {type(model).__name__}.")
        parts = (select_output(part, output) for part in left_out_rows(model))
        name = type(model).__name__ if name is None else name
        settings = {"kind": kind, "coverage": coverage, "target": target_name(model, output)}
        return cls(*parts, **settings, name=name).plot(ax, **kwargs)
