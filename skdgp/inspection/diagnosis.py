"""Diagnosis of a fitted model, in words and figures."""

from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from ..estimators.diagnostics import Diagnostics, limit
from ..estimators.exposures import exposed_rows
from ..estimators.summary import html_table
from ..training.pathologies import PathologyWarning
from ._responses import unwrap_deep_gp

__all__ = ["Diagnosis", "PathologyWarning", "diagnose"]


def diagnose(
    estimator: BaseEstimator, X: ArrayLike, y: ArrayLike, *, exposure: ArrayLike | None = None
) -> "Diagnosis":
    """Look for known pathologies of a fitted deep Gaussian process.

    The log density of the rows, at most 1,000 and best those of training, is compared to that of a simple
    reference, a Gaussian process with one lengthscale that predicts every row from the others. A model that
    misses more than 40 % of what the reference gains over a constant prediction is pathological; 25 % are
    enough where inducing points are far too few, clumped, or away from the rows. Figures of what is known to
    go wrong ([1]_, [2]_) say why. Alone they harm nobody: a layer that ignores useless inputs has dead units.

    Parameters
    ----------
    estimator : fitted estimator of skdgp, pipeline or search
    X : array-like of shape (n_samples, n_features)
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
    exposure : array-like of shape (n_samples,), optional
        Of counts, as in ``fit``.

    Returns
    -------
    diagnosis : Diagnosis
        Prints as text, and shows as a table in notebooks.

    Raises
    ------
    NotFittedError, ValueError
        If the estimator is not fitted or none of skdgp, or the data or exposures do not fit it.

    References
    ----------
    .. [1] S. Pascual Diaz (2017). Pathologies of deep sparse Gaussian process regression. MPhil
       dissertation, University of Cambridge, section 4.2.1.
    .. [2] D. Duvenaud, O. Rippel, R. Adams and Z. Ghahramani (2014). Avoiding pathologies in very
       deep networks. AISTATS 17.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import DeepGPRegressor
    >>> from skdgp.inspection import diagnose
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> y = np.sin(6 * X[:, 0])
    >>> model = DeepGPRegressor(inference="dsvi", max_iter=100, random_state=0).fit(X, y)
    >>> diagnose(model, X, y).ok
    True
    """
    model, X = unwrap_deep_gp(estimator, X, "diagnose")
    X, offset = exposed_rows(model, X, exposure, "raise")
    y = model._check_y(X, y)
    if model._atoms is not None:  # of which the members know nothing
        rest = ~model._atoms.among(y[:, 0])
        X, y = X[rest], y[rest]
    X, y = model._x_scaler.transform(X), model._y_scaler.transform(y)
    y = y if offset is None else np.hstack([y, offset])
    with model._threads():
        diagnostics = Diagnostics(model.members_, X, y, model._prediction_device(), model)
        return Diagnosis(diagnostics.reports(), diagnostics.missed)


@dataclass(eq=False, repr=False)
class Diagnosis:
    """Result of :func:`diagnose`.

    Attributes
    ----------
    reports : list of Report
        For each model of the mixture its own `missed` and its `findings`, each with `name`,
        `layer`, `measure`, `value`, `threshold`, `flagged`, `advice`, `extreme` and `blamed`.
    missed : float or None
        Gain of the reference in log density over a constant prediction: the share of it that the model
        lacks, less two standard errors; negative if the model gains more, None if there is nothing to be
        compared.
    ok : bool
        Whether the model does not miss more than 40 %, or 25 % where inducing points are to blame.
    """

    reports: list
    missed: float | None

    @property
    def ok(self) -> bool:
        return self.missed is None or self.missed <= limit(self.reports)

    def _verdict(self):
        if self.missed is None:
            return (
                "No verdict: the rows are few, or a simple reference is no better than a constant."
            )
        if self.missed <= 0.0:
            return "OK: the model predicts the rows at least as well as a simple reference."
        verdict = "OK" if self.ok else "Suspect"
        return (
            f"{verdict}: the model misses {min(self.missed, 1.0):.0%} of what a simple reference gains over a "
            f"constant (suspect from {limit(self.reports):.0%})."
        )

    def _titled_findings(self):
        """For each model a title, if there are several, and triples of mark, layer and finding."""
        for i, report in enumerate(self.reports, start=1):
            suffers = ", predictions suffer" if report.severe else ""
            title = f"Model {i} of {len(self.reports)}{suffers}" if len(self.reports) > 1 else None
            bad = "SEVERE" if report.severe else "harmless"
            yield (
                title,
                [
                    (bad if f.flagged else "ok", "" if f.layer is None else f"layer {f.layer}", f)
                    for f in report.findings
                ],
            )

    def __str__(self):
        lines = [self._verdict()]
        for title, found in self._titled_findings():
            lines += [] if title is None else ["", title]
            for mark, where, f in found:
                lines.append(
                    f"  {mark:9s} {f.name:35s} {where:8s} {f.value:6.2f} ({f.threshold:g})"
                )
                if f.flagged:
                    lines += [f"            {f.measure}", f"            -> {f.advice}"]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self):
        parts = [f"<p><b>{escape(self._verdict())}</b></p>"]
        head = ("", "pathology", "where", "figure", "threshold", "what it is", "what to do")
        for title, found in self._titled_findings():
            parts += [] if title is None else [f"<p>{escape(title)}</p>"]
            cells = []
            for mark, where, f in found:
                figures = f"{f.value:.2f}", f"{f.threshold:g}"
                cells.append((mark, f.name, where, *figures, f.measure, f.advice * f.flagged))
            parts.append(html_table(head, *cells))
        return "".join(parts)
