"""Criteria for the next run, over a list of candidates.

All are about the function without noise, and larger values are better. Batches, constraints and gradients are
BoTorch's, see :mod:`skdgp.integrations.botorch`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import is_regressor
from sklearn.utils import check_random_state, check_scalar

from ._scoring import check_fitted, is_own, take_apart
from .estimators.exposures import exposed_rows
from .predictive.gradients import check_gaussian, check_numeric
from .predictive.joint import JointMoments

__all__ = ["alc", "alm", "contour_entropy", "log_expected_improvement"]

_FAR = -100.0  #: standard deviations below which the series of the tail has all digits
_AT_ONCE = 400  #: candidates whose covariances with the references are made together
_N_REFERENCES = 200


def log_expected_improvement(
    estimator: Any, X: ArrayLike, best_f: float, *, maximize: bool = True
) -> np.ndarray:
    r"""Logarithm of the expected improvement over a value, in closed form.

    With weights :math:`w_c`, means and deviations of the components of the function,
    :math:`\sum_c w_c s_c h((m_c - f^*) / s_c)` with :math:`h(z) = \varphi(z) + z \Phi(z)`. Its logarithm has
    all digits even where the improvement itself is rounded to zero (Ament et al., 2023).

    Parameters
    ----------
    estimator : fitted regressor of skdgp, pipeline or search
        Of one output, with ``target_transform=None``.
    X : array-like of shape (n_candidates, n_features)
    best_f : float
        The best value so far, in the units of the target.
    maximize : bool, default=True
        Whether larger values are better, as in BoTorch.

    Returns
    -------
    log_ei : ndarray of shape (n_candidates,)

    Raises
    ------
    ValueError
        If there are several outputs, or the target was transformed.

    References
    ----------
    S. Ament, S. Daulton, D. Eriksson, M. Balandat and E. Bakshy (2023). Unexpected improvements to expected
    improvement for Bayesian optimization. Advances in Neural Information Processing Systems 36.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import DeepGPRegressor
    >>> from skdgp.acquisition import log_expected_improvement
    >>> X = np.linspace(0, 1, 8)[:, None]
    >>> y = np.sin(6 * X[:, 0])
    >>> model = DeepGPRegressor(n_layers=1, inference="exact", target_transform=None, random_state=0)
    >>> candidates = np.linspace(0, 1, 101)[:, None]
    >>> values = log_expected_improvement(model.fit(X, y), candidates, y.max())
    >>> bool(0.15 < candidates[values.argmax(), 0] < 0.4)
    True
    """
    best = _number(best_f, "best_f")
    model, predictor, X = _candidates(estimator, X, "log_expected_improvement")
    check_gaussian(predictor, latent=True)
    if predictor.n_outputs > 1:
        raise ValueError("log_expected_improvement is for one output; fit one model for it.")
    sign = 1.0 if maximize else -1.0

    def of_mixture(distribution):
        weights, means, variances = distribution.gaussians().components()
        sd = variances.sqrt()
        each = weights.log() + sd.log() + _log_h(sign * (means - best) / sd)
        return torch.logsumexp(each, 0)

    with model._threads():
        return predictor.over(X, of_mixture, at=predictor.latent_at)[:, 0]


def _log_h(z):
    """Logarithm of ``phi(z) + z Phi(z)``, without cancellation."""
    log_phi = -0.5 * z.square() - 0.5 * math.log(2.0 * math.pi)
    near, low = z.clamp_min(-1.0), z.clamp(_FAR, -1.0)
    above = (log_phi.clamp_min(-700.0).exp() + near * torch.special.ndtr(near)).clamp_min(1e-300)
    mills = math.sqrt(0.5 * math.pi) * torch.special.erfcx(-low / math.sqrt(2.0))
    below = log_phi + torch.log1p((low * mills).clamp_min(-1.0 + 1e-15))
    r = z.clamp_max(_FAR).square().reciprocal()
    far = log_phi + r.log() + torch.log1p(-3.0 * r + 15.0 * r.square())
    return torch.where(z > -1.0, above.log(), torch.where(z > _FAR, below, far))


def alm(estimator: Any, X: ArrayLike) -> np.ndarray:
    """Variance of the function at candidates (active learning by MacKay, 1992).

    Parameters
    ----------
    estimator : fitted regressor of skdgp, pipeline or search
    X : array-like of shape (n_candidates, n_features)

    Returns
    -------
    variance : ndarray of shape (n_candidates,) or (n_candidates, n_outputs)
        In squared units of the target.

    See Also
    --------
    alc : Variances elsewhere, too.

    References
    ----------
    D. MacKay (1992). Information-based objective functions for active data selection. Neural Computation 4.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import SparseGPRegressor
    >>> from skdgp.acquisition import alm
    >>> X = np.array([0, 0.1, 0.2, 0.3, 0.7, 0.8, 0.9, 1])[:, None]
    >>> model = SparseGPRegressor(random_state=0).fit(X, np.sin(6 * X[:, 0]))
    >>> candidates = np.linspace(0, 1, 101)[:, None]
    >>> bool(abs(candidates[alm(model, candidates).argmax(), 0] - 0.5) < 0.2)
    True
    """
    model, predictor, X = _candidates(estimator, X, "alm")
    with model._threads():
        std = predictor.over(X, lambda d: d.moments()[1], at=predictor.latent_at)
    return _shaped(model, np.square(std))


def alc(
    estimator: Any,
    X: ArrayLike,
    references: ArrayLike | None = None,
    *,
    random_state: int | np.random.RandomState | None = 0,
) -> np.ndarray:
    r"""Mean fall of the variance of the function at references by a run at each candidate (Cohn, 1996).

    It is :math:`\frac{1}{m} \sum_r \mathrm{Cov}(f(r), f(x))^2 / (\mathrm{Var} f(x) + \sigma^2(x))` for the
    Gaussian with the moments of the mixture. Covariances are in closed form where
    :func:`~skdgp.integrations.botorch.as_model` says so.

    Parameters
    ----------
    estimator : fitted regressor of skdgp, pipeline or search
        Of numeric columns, with ``target_transform=None``.
    X : array-like of shape (n_candidates, n_features)
    references : array-like of shape (n_references, n_features), optional
        Rows whose predictions matter; by default 200 of the candidates.
    random_state : int, RandomState instance or None, default=0
        Chooses these.

    Returns
    -------
    fall : ndarray of shape (n_candidates,) or (n_candidates, n_outputs)
        In squared units of the target.

    Raises
    ------
    ValueError
        If the target was transformed, or columns hold categories, dates or gaps.

    References
    ----------
    D. Cohn (1996). Neural network exploration using optimal experiment design. Neural Networks 9.

    A. Sauer, R. Gramacy and D. Higdon (2023). Active learning for deep Gaussian process surrogates.
    Technometrics 65.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import DeepGPRegressor
    >>> from skdgp.acquisition import alc
    >>> X = np.array([0, 0.1, 0.2, 0.3, 0.7, 0.8, 0.9, 1])[:, None]
    >>> model = DeepGPRegressor(n_layers=1, inference="exact", target_transform=None, random_state=0)
    >>> candidates = np.linspace(0, 1, 101)[:, None]
    >>> values = alc(model.fit(X, np.sin(6 * X[:, 0])), candidates)
    >>> bool(abs(candidates[values.argmax(), 0] - 0.5) < 0.2)
    True
    """
    model, predictor, X = _candidates(estimator, X, "alc")
    check_gaussian(predictor, latent=True)
    check_numeric(predictor)
    if references is None:
        rng = check_random_state(random_state)
        R = X[np.sort(rng.permutation(len(X))[:_N_REFERENCES])]
    else:
        _, _, R = _candidates(estimator, references, "alc")
    moments, found, m = JointMoments(predictor), [], len(R)
    with predictor.computing():
        for first in range(0, len(X), _AT_ONCE):
            some = X[first : first + _AT_ONCE]
            rows = torch.as_tensor(np.concatenate([R, some]))[None]
            _, cov = moments(rows)
            between, own = cov[0, :, :m, m:], torch.diagonal(cov[0, :, m:, m:], dim1=-2, dim2=-1)
            total = own + moments.noise(rows[:, m:])[0].T
            found.append((between.square().mean(1) / total).T.numpy(force=True))
    return _shaped(model, np.concatenate(found))


def contour_entropy(estimator: Any, X: ArrayLike, threshold: float) -> np.ndarray:
    """Entropy of whether the function is above a threshold, in nats: largest on its contour.

    Parameters
    ----------
    estimator : fitted regressor of skdgp, pipeline or search
    X : array-like of shape (n_candidates, n_features)
    threshold : float
        In the units of the target.

    Returns
    -------
    entropy : ndarray of shape (n_candidates,) or (n_candidates, n_outputs)
        From 0 to log 2.

    References
    ----------
    D. Cole, R. Gramacy, J. Warner, G. Bomarito, P. Leser and W. Leser (2023). Entropy-based adaptive design for
    contour finding and estimating reliability. Journal of Quality Technology 55.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import SparseGPRegressor
    >>> from skdgp.acquisition import contour_entropy
    >>> X = np.linspace(0, 1, 30)[:, None]
    >>> model = SparseGPRegressor(random_state=0).fit(X, 2 * X[:, 0])
    >>> candidates = np.linspace(0, 1, 101)[:, None]
    >>> bool(abs(candidates[contour_entropy(model, candidates, 1.0).argmax(), 0] - 0.5) < 0.05)
    True
    """
    threshold = _number(threshold, "threshold")
    model, predictor, X = _candidates(estimator, X, "contour_entropy")
    y = np.full((len(X), predictor.n_outputs), threshold)
    with model._threads():
        tails = predictor.over(
            X, lambda d, y: (d.tail(y, False), d.tail(y, True)), y, at=predictor.latent_at
        )
    return _shaped(model, sum(torch.special.entr(torch.as_tensor(p)).numpy() for p in tails))


def _candidates(estimator, X, caller):
    """The regressor inside of a pipeline or search, what it predicts with, and the rows that it sees."""
    check_fitted(estimator)
    model, X = take_apart(estimator, X)
    if not (is_own(model) and is_regressor(model)):
        raise ValueError(
            f"{caller} is for regressors of skdgp, DeepGPRegressor and SparseGPRegressor; got "
            f"{type(model).__name__}."
        )
    rows, _ = exposed_rows(model, X, None, "ignore")
    return model, model._predictor(), rows


def _number(value, name):
    value = float(check_scalar(value, name, (int, float, np.number)))
    if not np.isfinite(value):
        raise ValueError(f"{name} must be finite; got {value}.")
    return value


def _shaped(model, values):
    return values[:, 0] if model._y_ndim == 1 else values
