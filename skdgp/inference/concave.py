"""Shallow sparse GPs with the best Gaussian posterior, for likelihoods that are log-concave."""

import math
from typing import NamedTuple

import torch

from ..linalg import cholesky, gram
from .full_batch import FullBatchGP, solve_posterior

_MOST = 100  #: natural-gradient steps for one trial of the numbers
_MEMORY = 6  #: of them that the next one takes into account
_GAIN = 1e-8  #: of the bound per row, that is none


class _Posterior(NamedTuple):
    """A Gaussian in natural parameters, and what the rows say of it."""

    P: torch.Tensor  #: (k, M, M), its precision
    h: torch.Tensor  #: (k, M, 1), precision times mean
    bound: float
    row_gradients: dict  #: for the first row of a chunk, derivatives of its ell in m and v, (k, n)
    P_next: torch.Tensor  #: where a natural-gradient step of size 1 leads
    h_next: torch.Tensor


def _extrapolate(history, gamma):
    """Where the next posterior is looked for, from the last ones (Walker and Ni, 2011).

    That combination of the posteriors is taken whose own steps, combined likewise, nearly cancel, as
    measured by the Fisher information of the last one.
    """
    if len(history) == 1:
        shares = torch.ones(1)
    else:
        L_P, mu, _ = solve_posterior(history[-1].P, history[-1].h)
        L_inv = torch.linalg.inv(L_P)
        steps = []
        for q in history:
            dP, dh = q.P_next - q.P, q.h_next - q.h
            parts = math.sqrt(0.5) * L_inv @ dP @ L_inv.mT, L_inv @ (dh - dP @ mu)
            steps.append(torch.cat([part.flatten() for part in parts]))
        changes = torch.stack(steps[:-1]) - steps[-1]
        inverse = torch.linalg.pinv(changes @ changes.T, rtol=1e-10, hermitian=True)
        shares = -inverse @ (changes @ steps[-1])
        shares = torch.cat([shares, 1.0 - shares.sum(0, keepdim=True)])
    P = sum(c * torch.lerp(q.P, q.P_next, gamma) for c, q in zip(shares, history))
    h = sum(c * torch.lerp(q.h, q.h_next, gamma) for c, q in zip(shares, history))
    return P, h


class ConcaveGP(FullBatchGP):
    """The model of :class:`VFE` for classes.

    For every trial of the kernel's numbers, ``sum_n E log p(y_n | f_n) - KL`` is maximized over all
    Gaussians. It is concave in their means and roots of covariances (Challis and Barber, 2013), so
    that there is one optimum, and natural-gradient steps of size 1, each of which is a regression
    (Khan and Lin, 2017), find it in a few rounds. There the bound does not change with the
    posterior to first order, and its gradients are those at the posterior held fixed.

    References
    ----------
    E. Challis and D. Barber (2013). Gaussian Kullback-Leibler approximate inference. Journal of
    Machine Learning Research 14.

    H. Walker and P. Ni (2011). Anderson acceleration for fixed-point iterations. SIAM Journal on
    Numerical Analysis 49.

    M. Khan and W. Lin (2017). Conjugate-computation variational inference. AISTATS 20.
    """

    _found = None  # natural parameters of the optimum for the numbers tried last
    _accepted = None  # and for those to which the search has come

    def bound(self, batch):
        layer, self._found = self.layers[0], None
        K_uu = layer.kernel()(layer.Z, layer.Z)
        L = cholesky(K_uu.detach(), layer.jitter)
        passes = self.passes(batch.X, L)
        best = self._optimum(passes, batch)
        self._found = best.P.contiguous(), best.h.contiguous()
        if torch.is_grad_enabled():
            L_P, mu, _ = solve_posterior(best.P, best.h)
            P_inv = torch.cholesky_inverse(L_P)
            eye = torch.eye(len(L), dtype=L.dtype, device=L.device)
            rest = eye - best.P_next  # 2 A diag(g_v) A^T
            T = (mu @ (best.h_next + rest @ mu).mT + (P_inv - eye) @ rest).sum(0)
            self.variational_gradients(
                passes, K_uu, L, mu, P_inv, lambda rows, A: best.row_gradients[rows.start], T
            )
        return best.bound

    def _prior(self):
        """Natural parameters of the prior."""
        M, k = self.layers[0].q.mean.shape
        like = self.layers[0].q.mean
        eye = torch.eye(M, dtype=like.dtype, device=like.device)
        return eye.expand(k, M, M), torch.zeros(k, M, 1, dtype=like.dtype, device=like.device)

    @torch.no_grad()
    def _optimum(self, passes, batch):
        """The best posterior: natural-gradient steps, accelerated after Anderson.

        Classes pull at each other, which steps for each of them alone do not see; what the last
        few steps left over shows it. What does not improve the bound is replaced by shorter and
        shorter steps without acceleration.
        """
        start, enough = self._accepted or self._prior(), _GAIN * float(batch.weight.sum())
        best, gamma, history = self._look(passes, batch, *start), 1.0, []
        for _ in range(_MOST):
            history = [*history, best][-_MEMORY:]
            try:
                now = self._look(passes, batch, *_extrapolate(history, gamma))
            except torch.linalg.LinAlgError:
                gain = -math.inf
            else:
                gain = now.bound - best.bound
            if gain > 0.0:
                best, gamma = now, min(1.0, 1.5 * gamma)
            else:  # also if it is NaN
                gamma, history = gamma if len(history) > 1 else 0.5 * gamma, []
            if abs(gain) < enough or gamma < 1e-3:
                break
        return best

    def _look(self, passes, batch, P, h):
        """One pass over the rows."""
        L_P, mu, log_det = solve_posterior(P, h)
        L_inv = torch.linalg.solve_triangular(L_P, self._prior()[0], upper=False)
        bound = -0.5 * float(L_inv.square().sum() + mu.square().sum() - mu.numel() + log_det)
        P_next, h_next = self._prior()
        row_gradients, likelihood = {}, self.likelihood()
        for rows, _, k_ff, A in passes():
            explained = torch.stack([(C @ A).square().sum(0) for C in L_inv])
            m = (mu[..., 0] @ A).T  # n, k
            v = (k_ff.detach() - A.square().sum(0) + explained).T.clamp_min(1e-12)
            with torch.enable_grad():
                m, v = m.requires_grad_(), v.requires_grad_()
                ell = likelihood.expected_log_prob(batch.y[rows], m, v)
                ell = (batch.weight[rows] * ell).sum()
            g_m, g_v = (g.T for g in torch.autograd.grad(ell, (m, v)))
            bound += float(ell.detach())
            P_next = P_next - 2.0 * gram(A, g_v)
            h_next = h_next + (A @ (g_m - 2.0 * g_v * m.detach().T).T).T[..., None]
            row_gradients[rows.start] = g_m, g_v
        return _Posterior(P, h, bound, row_gradients, P_next, h_next)

    def accept(self):
        self._accepted = self._found

    def posterior(self, batch):
        return self._accepted or self._prior()

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
