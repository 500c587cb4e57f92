"""The best Gaussian posterior with one covariance for all latent functions, for log-concave likelihoods."""

import math
from typing import NamedTuple

import torch

from ...linalg import at_once, cholesky, gram, rounding

_MOST = 100  #: rounds
_AT_ONCE = 4_000_000  #: elements of a matrix with rows that are worked on together
_LEAST_VARIANCE = 1e-10
_MOST_CONJUGATE = 50  #: steps of conjugate gradients for a step of the means
_CLOSE = 0.1  #: length of the residual at which these end, relative to that at the start
_AT_FIRST = 1.0  #: largest variance of the latent functions with which the first round is made


class Rows(NamedTuple):
    """Rows as the posterior sees them: functions are ``A^T v`` for whitened variables `v`, and a rest."""

    A: torch.Tensor  #: (M, n)
    rest: torch.Tensor  #: (n,), variances that `v` does not explain
    y: torch.Tensor  #: (n, k)
    weight: torch.Tensor  #: (n,)


class Gaussian(NamedTuple):
    """A posterior of whitened variables, with its lower bound and the next step."""

    mean: torch.Tensor  #: (k, M)
    #: (n,), what rows add to the precision ``P = I + A diag(precision) A^T``
    precision: torch.Tensor
    P: torch.Tensor  #: (M, M), which all functions share
    L: torch.Tensor  #: (M, M), its Cholesky factor
    m: torch.Tensor  #: (n, k), means of the functions at the rows
    v: torch.Tensor  #: (n, 1), and their variance
    found: NamedTuple  #: expectations of the rows, see :class:`~skdgp.gp.likelihoods.base.Expectations`
    lower_bound: float


def own_variances(L, A):
    """``diag(A^T P^{-1} A)``, (n,), from the factor of `P`."""
    size = max(1, at_once(_AT_ONCE, A.device) // len(A))
    parts = A.split(size, 1)
    return torch.cat(
        [torch.linalg.solve_triangular(L, part, upper=False).square_().sum(0) for part in parts]
    )


def best_gaussian(rows, likelihood, n_functions, tol=1e-6, is_late=lambda: False):
    r"""Maximize the lower bound over Gaussians ``N(mean_c, S)`` with one covariance for all functions.

    :math:`\sum_n w_n E \log p(y_n \mid f_n) - \sum_c KL` is concave in means and roots of covariances (Challis
    and Barber, 2013, JMLR 14). With :math:`D` directions in which functions matter, C - 1 of them for C
    classes, the best precision that they share is :math:`I + A\,\mathrm{diag}(\lambda) A^\top`, with the mean
    :math:`\lambda_n` of the curvatures of the expected log-likelihood. Precisions take natural steps (Khan and
    Lin, 2017, AISTATS 20), and means Newton steps: one factorization for all functions.

    Parameters
    ----------
    rows : Rows
    likelihood : Likelihood
    n_functions : int
    tol : float
        Gain of the lower bound per row that is none.
    is_late : callable
        Whether the present round is to be the last one.

    Returns
    -------
    posterior : Gaussian
    """
    enough, size, ahead = tol * float(rows.weight.sum()), 1.0, None
    best = _look(rows, likelihood, *_first(rows, likelihood, n_functions))
    for _ in range(_MOST):
        if ahead is None:
            ahead = _Step.of(rows, best)
        try:
            now = _look(rows, likelihood, *ahead.made(best, size))
        except torch.linalg.LinAlgError:
            gain = -math.inf
        else:
            gain = now.lower_bound - best.lower_bound
        if gain > 0.0:
            best, ahead, size = now, None, min(1.0, 2.0 * size)
        else:  # also if it is NaN
            size *= 0.5
        if abs(gain) <= enough or size < 1e-3 or is_late():
            break
    return best


def _first(rows, likelihood, n_functions):
    """Means of zero, and precisions for them and moderate variances."""
    m = rows.y.new_zeros(len(rows.y), n_functions)
    v = (rows.rest + rows.A.square().sum(0)).clamp_max(_AT_FIRST)[:, None]
    precision = rows.weight * likelihood.expectations(rows.y, m, v).curvature
    return m.new_zeros(n_functions, len(rows.A)), precision, *_factorized(rows.A, precision)


def _factorized(A, precision):
    """``P = I + A diag(precision) A^T``, and its Cholesky factor."""
    P = gram(A, precision[None])[0]
    P.diagonal().add_(1.0)
    return P, cholesky(P, rounding(P))


def _look(rows, likelihood, mean, precision, P, L):
    """The posterior with this mean and precision."""
    A, rest, y, weight = rows
    own = own_variances(L, A)
    m, v = (mean @ A).T, (rest + own).clamp_min(_LEAST_VARIANCE)[:, None]
    found = likelihood.expectations(y, m, v)
    # the trace of P^{-1} is M less what rows have told
    of_covariance = 2.0 * L.diagonal().log().sum() - precision @ own
    D = likelihood.n_directions(len(mean))
    lower_bound = weight @ found.value - 0.5 * (mean.square().sum() + D * of_covariance)
    return Gaussian(mean, precision, P, L, m, v, found, float(lower_bound))


class _Step(NamedTuple):
    """A natural step of the precision, and a Newton step of the means."""

    of_means: torch.Tensor
    precision: torch.Tensor
    P: torch.Tensor
    L: torch.Tensor

    @classmethod
    def of(cls, rows, q):
        A, weight, p = rows.A, rows.weight[:, None], q.found.shares
        precision = rows.weight * q.found.curvature
        P, L = _factorized(A, precision)
        ascent = (A @ (weight * q.found.gradient)).T - q.mean
        if p is None:
            return cls(torch.cholesky_solve(ascent.T, L).T, precision, P, L)

        def multiply(x):  # functions of classes are coupled
            f = (x @ A).T
            return x + (A @ (weight * p * (f - (p * f).sum(1, keepdim=True)))).T

        of_means = _conjugate_gradients(
            multiply, ascent, lambda r: torch.cholesky_solve(r.T, q.L).T
        )
        return cls(of_means, precision, P, L)

    def made(self, q, size):
        """Means, precisions and the rest of a posterior after a part of the step."""
        mean, precision = (
            q.mean + size * self.of_means,
            torch.lerp(q.precision, self.precision, size),
        )
        if size == 1.0:
            return mean, precision, self.P, self.L
        P = torch.lerp(q.P, self.P, size)
        return mean, precision, P, cholesky(P, rounding(P))


def _conjugate_gradients(multiply, b, precondition):
    """An approximate solution of ``multiply(x) = b``."""
    x, r, z = torch.zeros_like(b), b.clone(), precondition(b)
    p, now = z, (b * z).sum()
    enough = _CLOSE**2 * float(now)
    for _ in range(_MOST_CONJUGATE):
        if float(now) <= enough:
            break
        Ap = multiply(p)
        alpha = now / (p * Ap).sum()
        x, r = x + alpha * p, r - alpha * Ap
        z, before = precondition(r), now
        now = (r * z).sum()
        p = z + (now / before) * p
    return x
