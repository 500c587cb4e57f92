"""Methods of regressors that hold their training rows: conditioning, and leave-one-out predictions."""

import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from ..fitting.held_rows import conditioned, left_out, no_left_out
from .group_codes import check_groups


def condition_on(
    self: Any,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    exposure: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    noise_variance: ArrayLike | None = None,
) -> Any:
    """Return the model given further rows, with hyperparameters, scaling and mixture weights as they are.

    It is what a fit with frozen hyperparameters to all rows would find, if priors of local scales and, for
    ``"vecchia"``, the units in which rows are near were frozen, too. Where no row repeats another one, exact
    models extend the factors that they have, and the cost grows with the square of the rows. This estimator
    stays as it is.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Further rows.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Their targets.
    sample_weight : array-like of shape (n_samples,), optional
        How often each row counts, as in :meth:`fit`.
    exposure : array-like of shape (n_samples,), optional
        As in :meth:`fit`; models of counts cannot be conditioned.
    groups : array-like of shape (n_samples,), optional
        As in :meth:`fit`: of known groups, and of new ones, which are known then.
    noise_variance : array-like of shape (n_samples,), optional
        As in :meth:`fit`; by default the mean of those that it was given, which predictions of y keep.

    Returns
    -------
    model : estimator
        A fitted estimator of the same class. Local scales follow the new rows, too: their prior
        stays, and each is estimated anew from near rows.

    Raises
    ------
    ValueError
        If a model does not hold its training rows: only those of ``"exact"``, ``"vecchia"`` and
        ``"collapsed"`` do. Or if rows or targets are not like those of the fit.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import DeepGPRegressor
    >>> X = np.linspace(0, 1, 12)[:, None]
    >>> y = np.sin(6 * X[:, 0])
    >>> model = DeepGPRegressor(n_layers=1, inference="exact", random_state=0).fit(X[:9], y[:9])
    >>> before = abs(model.predict(X[9:]) - y[9:]).max()
    >>> after = abs(model.condition_on(X[9:], y[9:]).predict(X[9:]) - y[9:]).max()
    >>> bool(after < before)
    True
    """
    check_is_fitted(self)
    new = copy.copy(self)
    with self._threads():
        check_groups(new, groups)
        given = {"noise_variance": noise_variance, "groups": groups, "extend": True}
        table, _, _ = new._rows(X, y, sample_weight, exposure, False, **given)
        self._check_likelihood(self.members_[0].likelihood, table.y)
        table = table.merged().scale_as(self._x_scaler, self._y_scaler)
        held = self._held
        fitted = conditioned(self._fitted(), held, table)
        new._take(fitted, self._pairs)
        new._held = None if held is None else held.with_rows(table)
    return new


def loo_predict(self: Any, return_std: bool = False) -> Any:
    """Predict each training row by all others, with the hyperparameters of the fit.

    Nothing is trained anew: leave-one-out moments follow from the factorization of all rows (Rasmussen and
    Williams, 2006, section 5.4.2). Copies of a row leave together, and so do the rows of a group if ``fit`` had
    groups. Hyperparameters have seen the row, and so have local scales of its neighbors, so that results are a
    little too good where rows are few.

    Parameters
    ----------
    return_std : bool, default=False
        Whether to return standard deviations, noise included.

    Returns
    -------
    mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        In the order of the training rows, without those of weight zero.
    std : ndarray of the shape of `mean`
        Only if `return_std` is True.

    Raises
    ------
    ValueError
        If a model does not hold its training rows: only those of ``"exact"``, ``"vecchia"`` and
        ``"collapsed"`` do.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import DeepGPRegressor
    >>> X = np.linspace(0, 1, 20)[:, None]
    >>> y = np.sin(6 * X[:, 0])
    >>> model = DeepGPRegressor(n_layers=1, inference="exact", random_state=0).fit(X, y)
    >>> mean, std = model.loo_predict(return_std=True)
    >>> bool(abs(mean - y).max() < 0.1)
    True
    """
    _, mean, std = left_out_rows(self)
    return (mean, std) if return_std else mean


def loo_log_density(self: Any) -> np.ndarray:
    """Log density of each training target given all other rows, in the target's units.

    Returns
    -------
    log_density : ndarray of shape (n_samples,)
        Of all outputs together, for rows as those of :meth:`loo_predict`.

    Raises
    ------
    ValueError
        As of :meth:`loo_predict`.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import DeepGPRegressor
    >>> X = np.linspace(0, 1, 20)[:, None]
    >>> y = np.sin(6 * X[:, 0])
    >>> model = DeepGPRegressor(n_layers=1, inference="exact", random_state=0).fit(X, y)
    >>> model.loo_log_density().shape
    (20,)
    """
    dist, y = _left_out(self)
    return np.asarray(dist.log_prob(y))[self._held.index]


def left_out_rows(estimator):
    """Targets of the training rows, and means and deviations given all other rows, in the user's order."""
    dist, y = _left_out(estimator)
    found = (np.asarray(part)[estimator._held.index] for part in (y, *dist.moments()))
    return tuple(part[:, 0] if estimator._y_ndim == 1 else part for part in found)


def _left_out(estimator):
    """Distribution of the distinct training rows, each given all others, and their targets."""
    check_is_fitted(estimator)
    held = estimator._held
    if estimator._atoms is not None:
        raise ValueError(
            "Values of the target have a probability of their own, which no leave-one-out prediction has; set "
            "likelihood='heteroscedastic'."
        )
    for member in estimator.members_:
        if not member.scheme.leaves_one_out:
            raise ValueError(no_left_out(member))
    if held is None:
        raise ValueError(
            "The training rows were too many to be kept; use skdgp.model_selection.cross_val_distribution."
        )
    if held.forward:
        raise ValueError(
            "The model was fitted with time, and its first rows are predicted by none before them; use "
            "skdgp.model_selection.cross_val_distribution with a TimeSeriesSplit."
        )
    with estimator._threads():
        found = left_out(estimator._fitted(), held)
    return estimator._predictor()._in_units(found), estimator._y_scaler.inverse(held.y)
