"""The Gaussian over the whitened inducing variables of all layers together."""

from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from ...linalg import cholesky, rounding
from ...random import normal
from .moments import Factor, blocks_of, columns, moments_of, pull_back
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
        self.coupling = self.active = coupling
        self.patterns = {name: Pattern(widths, n_outputs, name) for name in COUPLINGS}
        self.final = final = self.patterns[coupling]
        T = final.n_hidden + n_outputs
        rows, columns = final.blocks()
        self.slots = np.full((T, T), -1)  # of blocks, in the root
        self.slots[range(T), range(T)] = np.arange(T)
        self.slots[rows, columns] = T + np.arange(len(rows))
        root = torch.eye(n_inducing, dtype=torch.float64).repeat(T + len(rows), 1, 1)
        root[: final.n_hidden] *= scale
        root[T:] = 0.0
        mean = torch.zeros(T, n_inducing, dtype=torch.float64)
        self.mean = nn.Parameter(mean, not natural)
        self.root = nn.Parameter(root, not natural)

    def to_dtype(self, dtype):
        """Stay in double precision."""

    def activate(self, coupling):
        """Train within a pattern from now on, or within a richer one if other blocks are in use."""
        for richer in COUPLINGS[COUPLINGS.index(coupling) :]:
            self.active = richer
            if richer == self.coupling:
                return
            outside = np.ones(len(self.root), dtype=bool)
            outside[: len(self.mean)] = False
            outside[self.slots[tuple(self.patterns[richer].blocks())]] = False
            if not self.root[outside].any():
                return

    def root_from(self, root):
        """Blocks of this coupling from another one; what does not fit is returned as given."""
        T = len(self.mean)
        for pattern in self.patterns.values():
            rows, columns = pattern.blocks()
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
        M, outputs = blocks.shape[-1], pattern.outputs
        roots, arrows = [], []
        for gps, _ in pattern.chains:
            w, n = gps.shape
            a, b = np.tril_indices(n)
            root = blocks.new_zeros(w, n * M, n * M)
            blocks_of(root, M)[:, a, b] = blocks[self.slots[gps[:, a], gps[:, b]]]
            roots.append(root)
            if pattern.arrow:
                arrow = blocks[self.slots[outputs[:, None, None], gps]]  # K, w, n, M, M
                arrows.append(arrow.transpose(2, 3).reshape(len(outputs), w, M, n * M))
        return Factor(pattern, roots, arrows, blocks[self.slots[outputs, outputs]])

    def _scatter(self, factor, into):
        """Write the blocks of a factor into `into`; the inverse of :meth:`_gather`."""
        M, outputs = into.shape[-1], factor.pattern.outputs
        for c, (gps, _) in enumerate(factor.pattern.chains):
            a, b = np.tril_indices(gps.shape[1])
            root = blocks_of(factor.roots[c], M)[:, a, b]
            into[self.slots[gps[:, a], gps[:, b]]] = root.to(into.dtype)
            if factor.pattern.arrow:
                arrow = blocks_of(factor.arrows[c], M)[:, :, 0]
                into[self.slots[outputs[:, None, None], gps]] = arrow.to(into.dtype)
        into[self.slots[outputs, outputs]] = factor.outputs.to(into.dtype)
        into[: len(self.mean)].tril_()
        return into

    def _factor(self):
        return self._gather(self.root, self.patterns[self.active])

    # Moments

    def moments(self, dtype=torch.float64):
        """Return the :class:`Moments` of the posterior, as leaves of the graph in training."""
        with torch.no_grad():
            root = self.root if self.natural else self.root.to(dtype)
            factor = self._gather(root, self.patterns[self.active])
            moments = moments_of(factor, self.mean, dtype)
        if torch.is_grad_enabled():
            for leaf in moments.leaves():
                leaf.requires_grad_()
            self._leaves, self._of_leaves = moments, factor
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
        g_mean = torch.cat([leaf.grad.mT for leaf in self._leaves.means]).mul_(scale)
        factor = pull_back(self._leaves, self._of_leaves)
        return g_mean, self._scatter(factor, torch.zeros_like(self.root)).mul_(scale)

    @torch.no_grad()
    def set_gradients(self, scale):
        """Set the collected gradients for the optimizer, plus `scale` times that of :meth:`kl`."""
        g_mean, g_root = self.collected_gradients()
        self.mean.grad = g_mean.add_(self.mean, alpha=scale)
        self.root.grad = g_root.add_(self.root, alpha=scale)
        diagonals = torch.diagonal(g_root[: len(self.mean)], dim1=-2, dim2=-1)
        diagonals.sub_(scale / self._diagonals())

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
        C, M, delta = self._factor(), g_mean.shape[1], torch.empty_like(g_mean)
        G, (roots, arrows) = self._gather(g_root, C.pattern), ([], [])
        g_outputs = g_mean[C.pattern.outputs][..., None]  # K, M, 1
        for c, (gps, _) in enumerate(C.pattern.chains):
            xi = columns(C.roots[c].mT, G.roots[c], M)
            d = C.roots[c].mT @ g_mean[gps].flatten(1)[..., None]  # w, n M, 1
            if C.pattern.arrow:
                xi = xi + (C.arrows[c].mT @ G.arrows[c]).sum(0)
                d = d + (C.arrows[c].mT @ g_outputs[:, None]).sum(0)
                arrows.append(C.outputs.mT[:, None] @ G.arrows[c])
            roots.append(_halved(xi))
            delta[gps] = d.view(*gps.shape, M)
        delta[C.pattern.outputs] = (C.outputs.mT @ g_outputs)[..., 0]
        return Factor(C.pattern, roots, arrows, _halved(C.outputs.mT @ G.outputs)), delta

    @torch.no_grad()
    def natural_step(self, gradients, gamma):
        """One damped step along the natural gradient; False if the result is not finite."""
        T, M = self.mean.shape
        g_root = gradients[1] - self.root
        torch.diagonal(g_root[:T], dim1=-2, dim2=-1).add_(1.0 / self._diagonals())
        xi, delta = self.natural_direction((gradients[0] - self.mean, g_root))
        gamma = gamma * self._damping(xi, delta, gamma)
        C, roots, arrows = self._factor(), [], []
        for c, root in enumerate(C.roots):
            step = _exponential(xi.roots[c], gamma)
            roots.append(columns(root, step, M))
            if C.pattern.arrow:
                arrows.append(C.arrows[c] @ step + gamma * C.outputs[:, None] @ xi.arrows[c])
        outputs = C.outputs @ _exponential(xi.outputs, gamma)
        root = self._scatter(Factor(C.pattern, roots, arrows, outputs), self.root.clone())
        d_mean = torch.zeros_like(delta)
        d_mean[C.pattern.outputs] = (C.outputs @ delta[C.pattern.outputs, :, None])[..., 0]
        C.add_hidden(delta, d_mean)
        mean = self.mean + gamma * d_mean
        if not (torch.isfinite(root).all() and torch.isfinite(mean).all()):
            return False
        self.mean.copy_(mean)
        self.root.copy_(root)
        return True

    def _damping(self, xi, delta, gamma):
        """The factor that keeps the step of every unit within the radius."""
        squares, (_, M) = 0.5 * delta.square().sum(1), delta.shape
        squares[xi.pattern.outputs] += xi.outputs.square().sum((1, 2))
        for c, (gps, _) in enumerate(xi.pattern.chains):
            rows = xi.roots[c].unflatten(1, (-1, M))  # w, n, M, n M
            squares[gps] += rows.square().sum((2, 3))
            if xi.pattern.arrow:
                squares[xi.pattern.outputs] += xi.arrows[c].square().flatten(1).sum(1)
        length = gamma * float(squares.max().sqrt())
        return min(1.0, self.radius / length) if length > 0.0 else 1.0

    @torch.no_grad()
    def carry(self, parts):
        """Become the posterior of other variables, as far as the pattern has blocks."""
        (T, M), widths = self.mean.shape, (*self.final.widths, self.final.n_outputs)
        B = torch.cat([part.expand(width, -1, -1) for part, width in zip(parts, widths)])
        n, units = B.shape[1], torch.arange(T)
        root = (B @ self.dense_root().view(T, M, T * M)).reshape(T * n, T * M)
        cov = (root @ root.mT).view(T, n, T, n)
        cov[units, :, units] += torch.eye(n).to(B) - B @ B.mT
        cov = cov.view(T * n, T * n)
        blocks, (i, j) = blocks_of(cholesky(cov, rounding(cov)), n), (self.slots >= 0).nonzero()
        root = self.root.new_zeros(len(self.root), n, n)
        root[self.slots[i, j]] = blocks[i, j]
        self.mean = nn.Parameter((B @ self.mean[..., None])[..., 0], self.mean.requires_grad)
        self.root = nn.Parameter(root, self.root.requires_grad)

    # Draws

    @torch.no_grad()
    def frozen(self):
        """The present Gaussian, for draws."""
        return FrozenGaussian(self.mean.clone(), self._gather(self.root, self.final))

    @torch.no_grad()
    def dense_root(self):
        """`C` as one matrix of shape (T M, T M)."""
        T, M = self.mean.shape
        C, (i, j) = self.root.new_zeros(T * M, T * M), (self.slots >= 0).nonzero()
        blocks_of(C, M)[i, j] = self.root[self.slots[i, j]]
        return C


class FrozenGaussian(NamedTuple):
    """A coupled Gaussian that nothing changes."""

    mean: torch.Tensor  #: (T, M)
    factor: Factor

    def sample(self, n, generator):
        """Joint draws (n, T, M), and their means: of outputs given the hidden units."""
        xi = normal((n, *self.mean.shape), generator, self.mean)
        v, center = self.mean.repeat(n, 1, 1), self.mean.repeat(n, 1, 1)
        self.factor.add_hidden(xi, v)
        outputs = self.factor.pattern.outputs
        center[:, outputs] = v[:, outputs]
        v[:, outputs] += (self.factor.outputs @ xi[:, outputs, :, None])[..., 0]
        return v, center


class Marginal:
    """The posterior of one layer by itself."""

    root = None  #: there is none of a layer by itself

    def __init__(self, q, layer):
        first = *q.final.first, len(q.mean)
        self._q, self._layer = [q], layer  # in a list: it is no module of the layer's
        self._gps = slice(first[layer], first[layer + 1])

    @property
    def mean(self):
        """Means, shape (M, D)."""
        return self._q[0].mean[self._gps].mT

    def excess(self, moments):
        """The part of its own in the moments of all layers: the covariance (D, M, M), less the prior's."""
        squares, pattern = moments.squares[self._layer], self._q[0].patterns[self._q[0].active]
        n = self._gps.stop - self._gps.start
        if self._layer == len(pattern.widths) and pattern.shares:
            return squares[:n] + squares[n:][pattern.shared_forms().diagonal().copy()]
        return squares[:n]

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
