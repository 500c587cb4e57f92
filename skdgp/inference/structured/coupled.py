"""The Gaussian over the whitened inducing variables of all layers together."""

from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from ...linalg import cholesky, rounding
from ...random import normal
from .moments import Factor, columns, moments_of, pull_back
from .pattern import COUPLINGS, Pattern


class CoupledGaussian(nn.Module):
    """``q(v) = N(mean, C C^T)`` for the inducing variables of all layers, against ``N(0, I)``.

    `C` is lower triangular with a pattern of free blocks, one block for each pair of units. All
    three patterns are closed under product and inverse, and the covariance has the pattern of its
    factor, apart from pairs of outputs (Lindinger et al., 2020, section 3.2).

    The mean (T, M) has hidden units layer by layer, then the outputs. The root (n_blocks, M, M) has
    blocks of `C`: the `T` lower triangular ones on the diagonal, where those of hidden units start
    at `scale` times the identity, then those below it. If steps are not `natural`, both belong to
    the optimizer.
    """

    roles = {"root": "posterior_root"}
    #: largest length of a natural step of one unit, in standard deviations
    radius = 0.5

    def __init__(self, n_inducing, widths, n_outputs, coupling, scale=1.0, natural=False):
        super().__init__()
        self.natural = natural
        self.held = False  #: whether steps leave it as it is
        self.patterns = {coupling: Pattern(widths, n_outputs, coupling)}
        self.coupling = self.active = coupling
        final = self.patterns[coupling]
        T = final.n_hidden + n_outputs
        rows, columns = final.blocks()
        self.slots = np.full((T, T), -1)
        self.slots[np.arange(T), np.arange(T)] = np.arange(T)
        self.slots[rows, columns] = T + np.arange(len(rows))
        root = torch.zeros(T + len(rows), n_inducing, n_inducing, dtype=torch.float64)
        root[:T] = torch.eye(n_inducing, dtype=torch.float64)
        root[: final.n_hidden] *= scale
        mean = torch.zeros(T, n_inducing, dtype=torch.float64)
        self.mean = nn.Parameter(mean, not natural)
        self.root = nn.Parameter(root, not natural)

    def to_dtype(self, dtype):
        """Stay in double precision."""

    def activate(self, coupling):
        """Train within a pattern from now on, or within a richer one if other blocks are in use."""
        final, T = self.patterns[self.coupling], len(self.mean)
        for richer in COUPLINGS[COUPLINGS.index(coupling) :]:
            if richer not in self.patterns:
                self.patterns[richer] = Pattern(final.widths, final.n_outputs, richer)
            self.active = richer
            if richer == self.coupling:
                return
            outside = np.ones(len(self.root), dtype=bool)
            outside[:T] = False
            outside[self.slots[tuple(self.patterns[richer].blocks())]] = False
            if not self.root[outside].any():
                return

    def root_from(self, root):
        """Blocks of this coupling from another one; what does not fit is returned as given."""
        final, T = self.patterns[self.coupling], len(self.mean)
        for coupling in COUPLINGS:
            rows, columns = Pattern(final.widths, final.n_outputs, coupling).blocks()
            if root.shape == (T + len(rows), *self.root.shape[1:]):
                slots = self.slots[rows, columns]
                if not root[T:][slots < 0].any():
                    new = np.zeros(self.root.shape, root.dtype)
                    new[:T], new[slots[slots >= 0]] = root[:T], root[T:][slots >= 0]
                    return new
        return root

    def _load_from_state_dict(self, state, prefix, *args):
        root = state.get(f"{prefix}root")
        if root is not None:
            state[f"{prefix}root"] = torch.as_tensor(self.root_from(root.numpy()))
        super()._load_from_state_dict(state, prefix, *args)

    # Blocks and matrices

    def _gather(self, blocks, pattern):
        """The factor whose blocks are `blocks`."""
        M = blocks.shape[-1]
        roots, arrows = [], []
        outputs = pattern.n_hidden + np.arange(pattern.n_outputs)
        for chain in pattern.chains:
            w, n = chain.gps.shape
            a, b = np.tril_indices(n)
            slots = self.slots[chain.gps[:, a], chain.gps[:, b]]
            root = blocks.new_zeros(w, n, M, n, M)
            root.permute(0, 1, 3, 2, 4)[:, a, b] = blocks[slots]
            roots.append(root.view(w, n * M, n * M))
            if pattern.arrow:
                arrow = blocks[self.slots[outputs[:, None, None], chain.gps]]  # K, w, n, M, M
                arrows.append(arrow.transpose(2, 3).reshape(len(outputs), w, M, n * M))
        return Factor(roots, arrows, blocks[self.slots[outputs, outputs]])

    def _scatter(self, factor, pattern, into):
        """Write the blocks of a factor into `into`; the inverse of :meth:`_gather`."""
        M = into.shape[-1]
        outputs = pattern.n_hidden + np.arange(pattern.n_outputs)
        for c, chain in enumerate(pattern.chains):
            w, n = chain.gps.shape
            a, b = np.tril_indices(n)
            slots = self.slots[chain.gps[:, a], chain.gps[:, b]]
            root = factor.roots[c].view(w, n, M, n, M).permute(0, 1, 3, 2, 4)
            into[slots] = root[:, a, b].to(into.dtype)
            if pattern.arrow:
                arrow = factor.arrows[c].view(len(outputs), w, M, n, M).transpose(2, 3)
                into[self.slots[outputs[:, None, None], chain.gps]] = arrow.to(into.dtype)
        into[self.slots[outputs, outputs]] = factor.outputs.to(into.dtype)
        into[: len(self.mean)].tril_()
        return into

    # Moments

    def moments(self, dtype=torch.float64):
        """Return the :class:`Moments` of the posterior, as leaves of the graph in training."""
        grad = torch.is_grad_enabled()
        pattern = self.patterns[self.active]
        with torch.no_grad():
            factor = self._gather(self.root if self.natural else self.root.to(dtype), pattern)
            moments = moments_of(factor, pattern, self.mean, dtype)
        if grad:
            for leaf in moments.leaves():
                leaf.requires_grad_()
            self._leaves, self._factor = moments, factor
        return moments

    @torch.no_grad()
    def kl(self):
        """Kullback-Leibler divergence from the prior."""
        squares = self.mean.square().sum() + torch.linalg.vector_norm(self.root).square()
        return 0.5 * (squares - self.mean.numel()) - self._diagonals().abs().log().sum()

    def _diagonals(self):
        return torch.diagonal(self.root[: len(self.mean)], dim1=-2, dim2=-1)

    # Steps

    def collected(self):
        """As :meth:`GaussianBlock.collected <skdgp.gp.gaussian.GaussianBlock.collected>`."""
        return [leaf.grad for leaf in self._leaves.leaves()]

    @torch.no_grad()
    def collected_gradients(self, scale=1.0):
        """Gradients in mean and root, times `scale`, of what leaves have collected, in float64."""
        leaves, pattern = self._leaves, self.patterns[self.active]
        g_mean = torch.cat([leaf.grad.mT for leaf in leaves.means]).mul_(scale)
        factor = pull_back(leaves, self._factor, pattern)
        g_root = self._scatter(factor, pattern, torch.zeros_like(self.root)).mul_(scale)
        return g_mean, g_root

    @torch.no_grad()
    def set_gradients(self, scale):
        """Set the collected gradients for the optimizer, plus `scale` times that of :meth:`kl`."""
        g_mean, g_root = self.collected_gradients()
        self.mean.grad = g_mean.add_(self.mean, alpha=scale)
        self.root.grad = g_root.add_(self.root, alpha=scale)
        T = len(self.mean)
        torch.diagonal(g_root[:T], dim1=-2, dim2=-1).sub_(scale / self._diagonals())

    def precision(self):
        """There is none to remember: roots are what is stepped."""
        return None

    @torch.no_grad()
    def natural_direction(self, gradients):
        """The natural gradient, in the coordinates of the factor itself.

        With ``S = C (I + xi)(I + xi)^T C^T``, the Fisher metric at ``xi = 0`` is the sum of squares
        of `xi`, twice that of its diagonal; so the direction is the lower triangle of ``C^T g``,
        masked by the pattern, with its diagonal halved. For ``delta = C^{-1} d mean``, (T, M), the
        metric is the identity. The gradients are with respect to mean and root.
        """
        g_mean, g_root = gradients
        pattern = self.patterns[self.active]
        C, G = self._gather(self.root, pattern), self._gather(g_root, pattern)
        roots, arrows, M = [], [], g_mean.shape[1]
        delta = torch.empty_like(g_mean)
        d_outputs = g_mean[pattern.n_hidden :]  # K, M
        for c, chain in enumerate(pattern.chains):
            xi = columns(C.roots[c].mT, G.roots[c], M)
            d = C.roots[c].mT @ g_mean[chain.gps].flatten(1)[..., None]  # w, n M, 1
            if pattern.arrow:
                xi = xi + (C.arrows[c].mT @ G.arrows[c]).sum(0)
                d = d + (C.arrows[c].mT @ d_outputs[:, None, :, None]).sum(0)
                arrows.append(C.outputs.mT[:, None] @ G.arrows[c])
            roots.append(_halved(xi))
            delta[chain.gps] = d.view(*chain.gps.shape, -1)
        delta[pattern.n_hidden :] = (C.outputs.mT @ d_outputs[..., None])[..., 0]
        return Factor(roots, arrows, _halved(C.outputs.mT @ G.outputs)), delta

    @torch.no_grad()
    def natural_step(self, gradients, gamma):
        """One damped step along the natural gradient; False if the result is not finite."""
        pattern, T = self.patterns[self.active], len(self.mean)
        g_root = gradients[1] - self.root
        torch.diagonal(g_root[:T], dim1=-2, dim2=-1).add_(1.0 / self._diagonals())
        xi, delta = self.natural_direction((gradients[0] - self.mean, g_root))
        gamma = gamma * self._damping(xi, delta, pattern, gamma)
        C = self._gather(self.root, pattern)
        mean, roots, arrows = self.mean.clone(), [], []
        M = mean.shape[1]
        d_outputs = (C.outputs @ delta[pattern.n_hidden :, :, None])[..., 0]
        step_outputs = _exponential(xi.outputs, gamma)
        for c, chain in enumerate(pattern.chains):
            d = delta[chain.gps].flatten(1)[..., None]  # w, n M, 1
            mean[chain.gps] += gamma * (C.roots[c] @ d).view(*chain.gps.shape, -1)
            step = _exponential(xi.roots[c], gamma)
            roots.append(columns(C.roots[c], step, M))
            if pattern.arrow:
                d_outputs += (C.arrows[c] @ d)[..., 0].sum(1)
                arrows.append(C.arrows[c] @ step + gamma * C.outputs[:, None] @ xi.arrows[c])
        mean[pattern.n_hidden :] += gamma * d_outputs
        factor = Factor(roots, arrows, C.outputs @ step_outputs)
        root = self._scatter(factor, pattern, self.root.clone())
        if not (torch.isfinite(root).all() and torch.isfinite(mean).all()):
            return False
        self.mean.copy_(mean)
        self.root.copy_(root)
        return True

    def _damping(self, xi, delta, pattern, gamma):
        """The factor that keeps the step of every unit within the radius."""
        squares = 0.5 * delta.square().sum(1)
        M, K = self.mean.shape[1], pattern.n_outputs
        squares[pattern.n_hidden :] += xi.outputs.square().sum((1, 2))
        for c, chain in enumerate(pattern.chains):
            w, n = chain.gps.shape
            squares[chain.gps] += xi.roots[c].view(w, n, M, n * M).square().sum((2, 3))
            if pattern.arrow:
                squares[pattern.n_hidden :] += xi.arrows[c].square().view(K, -1).sum(1)
        length = gamma * float(squares.max().sqrt())
        return min(1.0, self.radius / length) if length > 0.0 else 1.0

    @torch.no_grad()
    def carry(self, parts):
        """Become the posterior of other variables, as far as the pattern has blocks."""
        T, M = self.mean.shape
        final = self.patterns[self.coupling]
        widths = *final.widths, final.n_outputs
        B = torch.cat([part.expand(width, -1, -1) for part, width in zip(parts, widths)])
        n, (i, j) = B.shape[1], (torch.as_tensor(index) for index in (self.slots >= 0).nonzero())
        slots = torch.as_tensor(self.slots)[i, j]
        root = self.root.new_zeros(T, T, M, M)
        root[i, j] = self.root[slots]
        root = (B @ root.transpose(1, 2).reshape(T, M, T * M)).reshape(T * n, T * M)
        cov = (root @ root.mT).view(T, n, T, n)
        units = torch.arange(T)
        cov[units, :, units] += torch.eye(n).to(B) - B @ B.mT
        cov = cov.view(T * n, T * n)
        root = cholesky(cov, rounding(cov)).view(T, n, T, n).transpose(1, 2)
        blocks = self.root.new_zeros(len(self.root), n, n)
        blocks[slots] = root[i, j]
        self.mean = nn.Parameter((B @ self.mean[..., None])[..., 0], self.mean.requires_grad)
        self.root = nn.Parameter(blocks, self.root.requires_grad)

    # Draws

    @torch.no_grad()
    def frozen(self):
        """The present Gaussian, for draws."""
        pattern = self.patterns[self.coupling]
        return FrozenGaussian(self.mean.clone(), self._gather(self.root, pattern), pattern)

    @torch.no_grad()
    def dense_root(self):
        """`C` as one matrix of shape (T M, T M)."""
        T, M = self.mean.shape
        C = self.root.new_zeros(T, M, T, M)
        rows, columns = np.nonzero(self.slots >= 0)
        C.permute(0, 2, 1, 3)[rows, columns] = self.root[self.slots[rows, columns]]
        return C.reshape(T * M, T * M)


class FrozenGaussian(NamedTuple):
    """A coupled Gaussian that nothing changes."""

    mean: torch.Tensor  #: (T, M)
    factor: Factor
    pattern: Pattern

    def sample(self, n, generator):
        """Joint draws (n, T, M), and their means: of outputs given the hidden units."""
        (T, M), pattern, C = self.mean.shape, self.pattern, self.factor
        xi = normal((n, T, M), generator, self.mean)
        v, center = torch.empty_like(xi), self.mean.expand(n, T, M).clone()
        first = pattern.n_hidden
        for c, chain in enumerate(pattern.chains):
            x = xi[:, chain.gps].flatten(2)[..., None]  # n, w, n_units M, 1
            v[:, chain.gps] = (C.roots[c] @ x).view(n, *chain.gps.shape, M)
            if pattern.arrow:
                center[:, first:] += (C.arrows[c] @ x[:, None])[..., 0].sum(2)
        v[:, :first] += self.mean[:first]
        v[:, first:] = center[:, first:] + (C.outputs @ xi[:, first:, :, None])[..., 0]
        return v, center


class Marginal:
    """The posterior of one layer by itself."""

    root = None  #: there is none of a layer by itself

    def __init__(self, q, layer):
        pattern = q.patterns[q.coupling]
        bounds = [*pattern.first, len(q.mean)]
        self._q, self._layer = [q], layer  # in a list: it is no module of the layer's
        self._gps = slice(bounds[layer], bounds[layer + 1])

    @property
    def mean(self):
        """Means, shape (M, D)."""
        return self._q[0].mean[self._gps].mT

    def excess(self, moments):
        """The part of its own in the moments of all layers: the covariance (D, M, M), less the prior's."""
        squares = moments.squares[self._layer]
        n, pattern = self._gps.stop - self._gps.start, self._q[0].patterns[self._q[0].active]
        own = squares[:n]
        if self._layer == len(pattern.widths) and pattern.shares:
            own = own + squares[n:][pattern.shared_forms().diagonal().copy()]
        return own

    @torch.no_grad()
    def moments(self, dtype=torch.float64):
        """Mean (M, D), and the difference of the covariance to the prior's (D, M, M)."""
        return self.mean.to(dtype), self.excess(self._q[0].moments()).to(dtype)


def _halved(matrix):
    """The lower triangle with its diagonal halved."""
    lower = matrix.tril()
    lower.diagonal(dim1=-2, dim2=-1).mul_(0.5)
    return lower


def _exponential(xi, gamma):
    """``gamma xi`` below the diagonal, and ``exp(gamma xi)`` on it."""
    step = gamma * xi.tril(-1)
    step.diagonal(dim1=-2, dim2=-1).copy_((gamma * torch.diagonal(xi, dim1=-2, dim2=-1)).exp())
    return step
