"""Shallow sparse GPs with the best Gaussian posterior, for likelihoods that are log-concave."""

import math
from typing import NamedTuple

import numpy as np
import torch

from ...linalg import cholesky, gram, inverse_triangular, rounding
from .full_batch import AT_ONCE, FullBatchGP, ShallowPosterior, solve_posterior

_MOST = 100  #: rounds for one trial of the hyperparameters
_MEMORY = 6  #: of them that the next one takes into account
_MOST_LAST = 30  #: rounds for the posterior that predicts
_LEFT = 1e-10  #: length of a step, in standard deviations of the posterior, that is rounding
_GAIN = 1e-8  #: of the lower bound per row, that is none
_MOST_COUPLED = 1500  #: classes times inducing points, up to which Newton steps couple all classes


class _Posterior(NamedTuple):
    """A Gaussian in natural parameters, with its lower bound, gradients and next step."""

    P: torch.Tensor  #: (k, M, M), its precision
    h: torch.Tensor  #: (k, M, 1), precision times mean
    lower_bound: float
    row_gradients: dict  #: for the first row of a chunk, derivatives of its ell in m and v, (k, n)
    ascent: torch.Tensor  #: (k, M, 1), derivatives of the sum of ell in the means
    P_next: torch.Tensor  #: where a step of size 1 leads
    h_next: torch.Tensor


class _Metric:
    """Lengths of steps as the Fisher information of a posterior has them."""

    def __init__(self, P, h):
        L_P, self.mu, _ = solve_posterior(P, h)
        self.root = inverse_triangular(L_P)

    def __call__(self, q):
        """The step from `q`, as a vector of that length."""
        dP, dh = q.P_next - q.P, q.h_next - q.h
        parts = math.sqrt(0.5) * self.root @ dP @ self.root.mT, self.root @ (dh - dP @ self.mu)
        return torch.cat([part.flatten() for part in parts])


def _extrapolate(history, steps, gamma):
    """Combine posteriors into the next one, so that steps nearly cancel (Walker and Ni, 2011)."""
    changes = [step - steps[-1] for step in steps[:-1]]
    coefficients = torch.ones(1)
    if changes:
        changes = torch.stack(changes)
        inverse = torch.linalg.pinv(changes @ changes.T, rtol=1e-10, hermitian=True)
        coefficients = -inverse @ (changes @ steps[-1])
        coefficients = torch.cat([coefficients, 1.0 - coefficients.sum(0, keepdim=True)])
    P = sum(c * torch.lerp(q.P, q.P_next, gamma) for c, q in zip(coefficients, history))
    h = sum(c * torch.lerp(q.h, q.h_next, gamma) for c, q in zip(coefficients, history))
    return P, h


def _coupled(A, curvature):
    """``sum_n curvature_n (x) a_n a_n^T``, shape (k, k, M, M), for curvatures of shape (n, k, k)."""
    k, M = curvature.shape[-1], len(A)
    i, j = torch.triu_indices(k, k)
    G = A.new_empty(k, k, M, M)
    G[i, j] = G[j, i] = gram(A, curvature[:, i, j].T)
    return G


def _solve_coupled(H, b):
    """Solution of shape (k, M, 1) for a matrix of shape (k, k, M, M)."""
    k, _, M, _ = H.shape
    L = cholesky(H.transpose(1, 2).reshape(k * M, k * M), rounding(H))
    return torch.cholesky_solve(b.reshape(k * M, 1), L).view(k, M, 1)


def _moments(A, k_ff, mu, roots):
    """Means, variances and their parts from the posterior, with covariances ``C^T C``."""
    own = torch.stack([(C @ A).square().sum(0) for C in roots])
    v = (k_ff.detach() - A.square().sum(0) + own).clamp_min(1e-12)
    return mu[..., 0] @ A, v, own


def _gradients(likelihood, y, weight, m, v):
    """Expected log-likelihood of rows, and its derivatives in `m` and `v`."""
    with torch.enable_grad():
        m, v = (moment.T.contiguous().requires_grad_() for moment in (m, v))
        ell = (weight * likelihood.finer(m.shape[-1]).expected_log_prob(y, m, v)).sum()
    g_m, g_v = torch.autograd.grad(ell, (m, v))
    return float(ell.detach()), g_m.T, g_v.T


class ConcavePosterior(ShallowPosterior):
    """The frozen posterior of :class:`ConcaveGP`, with all training rows if they are known."""

    def __init__(self, model, batch):
        super().__init__(model)
        self._batch = batch

    @torch.no_grad()
    def loo_log_density(self, rows, dispersions=None):  # classes have no dispersion
        """By cavities (Opper and Winther, 2000): the contribution of one count of a row is removed.

        The other contributions stay, which is right to first order in their changes. At the
        optimum, row `n` adds to the precision of its class's latent function ``-2 g_v a a^T``, and
        ``(g_m - 2 g_v m) a`` to precision times mean.
        """
        if self._batch is None:
            return None
        layer, batch, densities = self.layers[0], self._batch, []
        mu, roots = layer.q_mean.T[..., None], layer.q_root.mT
        for part in np.array_split(rows, -(-len(rows) * len(layer.Z) // AT_ONCE)):
            y, weight = batch.y[part], batch.weight[part].clamp_max(1.0)
            A, k_ff = layer.whitened(batch.X[part].double())
            m, v, own = _moments(A, k_ff, mu, roots)
            _, g_m, g_v = _gradients(self.likelihood, y, weight, m, v)
            rest = (1.0 + 2.0 * g_v * own).clamp_min(1e-6)
            v = v + own / rest - own
            m = (m - (g_m - 2.0 * g_v * m) * own) / rest
            densities.append(self.likelihood.for_prediction(1).log_partition(y, m.T, v.T))
        return torch.cat(densities).numpy(force=True)


class ConcaveGP(FullBatchGP):
    """The model of :class:`VFE` for classes.

    For every trial of the kernel's hyperparameters, ``sum_n E log p(y_n | f_n) - KL`` is maximized
    over all Gaussians. It is concave in their means and roots of covariances (Challis and Barber,
    2013, JMLR 14), so that there is one optimum. Precisions take natural-gradient steps of size 1,
    which make each round a regression (Khan and Lin, 2017, AISTATS 20); means take Newton steps,
    the same for one latent function, and for several with the second derivatives between classes.
    At the optimum the lower bound does not change with the posterior to first order, and its
    gradients are those at the posterior held fixed.
    """

    _found = None  # natural parameters of the optimum for the hyperparameters tried last
    _accepted = None  # and for those to which the search has come

    def lower_bound(self, batch):
        layer, self._found = self.layers[0], None
        K_uu = layer.kernel()(layer.Z, layer.Z)
        L = cholesky(K_uu.detach(), layer.jitter)
        passes = self.passes(batch.X, L)
        best = self._optimum(passes, batch)
        self._found = best.P.contiguous(), best.h.contiguous()
        if torch.is_grad_enabled():
            L_P, mu, _ = solve_posterior(best.P, best.h)
            P_inv = torch.cholesky_inverse(L_P)
            eye = torch.eye(len(L)).to(L)
            rest = eye - best.P_next  # 2 A diag(g_v) A^T
            T = (mu @ best.ascent.mT + (P_inv - eye) @ rest).sum(0)
            self.variational_gradients(
                passes, K_uu, L, mu, P_inv, lambda rows, A: best.row_gradients[rows.start], T
            )
        return best.lower_bound

    def _prior(self):
        """Natural parameters of the prior."""
        mean = self.layers[0].q.mean.detach()
        M, k = mean.shape
        return torch.eye(M).to(mean).expand(k, M, M), mean.new_zeros(k, M, 1)

    @torch.no_grad()
    def _optimum(self, passes, batch):
        """The best posterior: rounds of steps, accelerated after Anderson.

        The residuals of the last few steps contain the interaction of means and covariances, which the
        steps ignore. A trial that does not improve the lower bound is replaced by shorter and shorter
        steps without acceleration.
        """
        start, enough = self._accepted or self._prior(), _GAIN * float(batch.weight.sum())
        metric, best, gamma = _Metric(*start), self._look(passes, batch, *start), 1.0
        history, steps = [best], [metric(best)]
        for _ in range(_MOST):
            try:
                now = self._look(passes, batch, *_extrapolate(history, steps, gamma))
            except torch.linalg.LinAlgError:
                gain = -math.inf
            else:
                gain = now.lower_bound - best.lower_bound
            if gain > 0.0:
                best, gamma = now, min(1.0, 1.5 * gamma)
                history, steps = [*history, best][-_MEMORY:], [*steps, metric(best)][-_MEMORY:]
            else:  # also if it is NaN
                gamma = gamma if len(history) > 1 else 0.5 * gamma
                history, steps = [best], steps[-1:]
            if abs(gain) < enough or gamma < 1e-3 or self.is_late():
                break
        return best

    def _look(self, passes, batch, P, h):
        """One pass over the rows."""
        L_P, mu, log_det = solve_posterior(P, h)
        L_inv = inverse_triangular(L_P)
        lower_bound = -0.5 * float(L_inv.square().sum() + mu.square().sum() - mu.numel() + log_det)
        P_next, ascent = self._prior()
        newton, row_gradients = self._newton(mu), {}
        for rows, _, k_ff, A in passes():
            m, v, _ = _moments(A, k_ff, mu, L_inv)
            y, weight = batch.y[rows], batch.weight[rows]
            ell, g_m, g_v = _gradients(self.likelihood(), y, weight, m, v)
            lower_bound += ell
            P_next = P_next - 2.0 * gram(A, g_v)
            ascent = ascent + (A @ g_m.T).T[..., None]
            row_gradients[rows.start] = g_m, g_v
            if newton is not None:
                curvature = self.likelihood().curvature(m.T, v.T)
                newton += _coupled(A, batch.weight[rows, None, None] * curvature)
        if newton is None:  # no coupling of the latent functions
            h_next = ascent + P_next @ mu - mu
        else:
            h_next = P_next @ (mu + _solve_coupled(newton, ascent - mu))
        return _Posterior(P, h, lower_bound, row_gradients, ascent, P_next, h_next)

    def _newton(self, mu):
        """The prior's part of the second derivatives in all means, if Newton steps couple the classes."""
        k, M, _ = mu.shape
        if k == 1 or k * M > _MOST_COUPLED:
            return None
        return torch.eye(k * M).to(mu).view(k, M, k, M).transpose(1, 2)

    def _frozen(self, draws, as_trained):
        return ConcavePosterior(self, self._rows)

    def accept(self):
        self._accepted = self._found

    @torch.no_grad()
    def natural_parameters(self, batch):
        """The optimum, where steps vanish, for the same predictions from whatever start."""
        layer = self.layers[0]
        passes = self.passes(batch.X, cholesky(layer.kernel()(layer.Z, layer.Z), layer.jitter))
        best = self._look(passes, batch, *(self._accepted or self._prior()))
        metric, history, steps = _Metric(best.P, best.h), [], []
        for _ in range(1 if self.is_late() else _MOST_LAST):
            history, steps = [*history, best][-_MEMORY:], [*steps, metric(best)][-_MEMORY:]
            try:
                best = self._look(passes, batch, *_extrapolate(history, steps, 1.0))
            except torch.linalg.LinAlgError:
                break
            if not _LEFT < float(metric(best).norm()) < float(steps[-1].norm()):
                break
        left = [float(metric(q).norm()) for q in (*history[-1:], best)]
        best = best if left[1] < left[0] else history[-1]
        return best.P.contiguous(), best.h.contiguous()

    def load_state(self, arrays):
        super().load_state(arrays)
        self._accepted = None

    def training_state(self):
        arrays = super().training_state()
        if self._accepted is not None:
            P, h = (part.cpu().numpy().copy() for part in self._accepted)
            arrays.update(precision=P, shift=h)
        return arrays

    def load_training_state(self, arrays):
        super().load_training_state(arrays)
        self._accepted = None
        if "precision" in arrays:
            device = self.layers[0].Z.device
            self._accepted = tuple(
                torch.tensor(arrays[name]).to(device) for name in ("precision", "shift")
            )
