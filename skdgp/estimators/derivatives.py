"""Derivatives of predictions."""

from typing import Any

from numpy.typing import ArrayLike

from ..predictive.gradients import check_numeric, gradients
from .exposures import exposed_rows


def predict_gradient(
    self: Any,
    X: ArrayLike,
    return_std: bool = False,
    *,
    exposure: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> Any:
    """Predict how the mean changes with each column of X.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Rows of numbers without gaps.
    return_std : bool, default=False
        Whether to return the gradients of standard deviations, too.
    exposure, groups : array-likes of shape (n_samples,), optional
        As for :meth:`predict`.

    Returns
    -------
    gradient : ndarray of shape (n_samples, n_features) or (n_samples, n_outputs, n_features)
        Derivatives of ``predict(X)``, in units of the target over those of the columns.
    gradient_of_std : ndarray of the shape of `gradient`
        Only if `return_std` is True: derivatives of the standard deviations.

    Raises
    ------
    ValueError
        If the model was fitted to categories, dates or gaps, or X has gaps.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import SparseGPRegressor
    >>> X = np.linspace(0, 1, 30)[:, None]
    >>> model = SparseGPRegressor(random_state=0).fit(X, 3 * X[:, 0])
    >>> model.predict_gradient([[0.5]]).round(1)
    array([[3.]])
    """
    X, offset = exposed_rows(self, X, exposure, groups=groups)
    predictor = self._predictor()
    check_numeric(predictor, X)
    found = gradients(predictor, X, lambda d: d.moments()[: 1 + return_std], offset)
    found = [part[..., : self.n_features_in_] for part in found]
    found = [part[:, 0] if self._y_ndim == 1 else part for part in found]
    return tuple(found) if return_std else found[0]
