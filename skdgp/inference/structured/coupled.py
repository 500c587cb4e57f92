"""The Gaussian over the whitened inducing variables of all layers together."""

import itertools
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from ...random import normal
from .pattern import COUPLINGS, Pattern


class Factor(NamedTuple):
    """The free blocks of a factor, or of its gradient, chain by chain."""

    roots: list  #: (w, n M, n M) for each chain
    arrows: list  #: (K, w, M, n M) for each chain; empty without an arrow
    outputs: torch.Tensor  #: (K, M, M)


class CoupledGaussian(nn.Module):
    r"""``q(v) = N(mean, C C^T)`` for the inducing variables of all layers, against ``N(0, I)``.

    `C` is lower triangular with a pattern of free blocks, one block for each pair of units. All
    three patterns are closed under product and inverse, and the covariance has the pattern of its
    factor, apart from pairs of outputs (Lindinger et al., 2020, section 3.2).

    Parameters
    ----------
    n_inducing : int
    widths : sequence of int
        Units of the hidden layers.
    n_outputs : int
    coupling : {"mean-field", "stripes-and-arrow", "full"}
    scale : float
        Start of the roots of hidden units, as a multiple of the identity; outputs start at 1.
    natural : bool
        Whether the block takes natural-gradient steps. If not, mean and root belong to the
        optimizer.

    Attributes
    ----------
    mean : tensor of shape (T, M)
        Hidden units layer by layer, then the outputs.
    root : tensor of shape (n_blocks, M, M)
        Blocks of `C`: the `T` lower triangular ones on the diagonal, then those below it.
    """

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

    def with_blocks_of(self, root, coupling):
        """What :attr:`root` is with the blocks of a simpler posterior, as an array.

        Parameters
        ----------
        root : ndarray of shape (n_blocks, M, M)
            Of a posterior of the same layers.
        coupling : str
            Its coupling. Blocks of a richer one than here are left out if they are zero.

        Returns
        -------
        root : ndarray
            As given if the shapes do not fit, or if blocks that are not zero would be left out.
        """
        final = self.patterns[self.coupling]
        rows, columns = Pattern(final.widths, final.n_outputs, coupling).blocks()
        T, slots = len(self.mean), self.slots[rows, columns]
        kept = slots >= 0
        if root.shape != (T + len(rows), *self.root.shape[1:]) or root[T:][~kept].any():
            return root
        new = np.zeros(self.root.shape, root.dtype)
        new[:T], new[slots[kept]] = root[:T], root[T:][kept]
        return new

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
        """What the layers need of the posterior, as leaves of the graph in training.

        Parameters
        ----------
        dtype : torch.dtype
            Of the covariances.

        Returns
        -------
        moments : Moments
        """
        grad = torch.is_grad_enabled()
        pattern = self.patterns[self.active]
        with torch.no_grad():
            factor = self._gather(self.root if self.natural else self.root.to(dtype), pattern)
            moments = _moments(factor, pattern, self.mean, dtype)
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

    @torch.no_grad()
    def collected_gradients(self, scale=1.0):
        """Gradients with respect to mean and root of what the leaves have collected.

        Returns
        -------
        g_mean, g_root : tensors
            Of the shapes of `mean` and `root`, times `scale`, in float64; zero outside of the
            active pattern.
        """
        leaves, pattern = self._leaves, self.patterns[self.active]
        g_mean = torch.cat([leaf.grad.mT for leaf in leaves.means]).mul_(scale)
        factor = _pull_back(leaves, self._factor, pattern)
        g_root = self._scatter(factor, pattern, torch.zeros_like(self.root)).mul_(scale)
        return g_mean, g_root

    @torch.no_grad()
    def set_gradients(self, scale):
        """Set the gradients of mean and root for the optimizer.

        They are those of the objective whose gradients the leaves have collected, plus `scale` times
        that of :meth:`kl`.
        """
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
        r"""The natural gradient, in the coordinates of the factor itself.

        With ``S = C (I + xi)(I + xi)^T C^T``, the Fisher metric at ``xi = 0`` is the sum of
        squares of `xi`, twice that of its diagonal; so the direction is the lower triangle of
        ``C^T g``, masked by the pattern, with its diagonal halved. For ``delta = C^{-1} d mean``
        the metric is the identity.

        Parameters
        ----------
        gradients : pair of tensors
            Of the objective to be maximized, with respect to mean and root.

        Returns
        -------
        xi : Factor
        delta : tensor of shape (T, M)
        """
        g_mean, g_root = gradients
        pattern = self.patterns[self.active]
        C, G = self._gather(self.root, pattern), self._gather(g_root, pattern)
        roots, arrows, M = [], [], g_mean.shape[1]
        delta = torch.empty_like(g_mean)
        d_outputs = g_mean[pattern.n_hidden :]  # K, M
        for c, chain in enumerate(pattern.chains):
            xi = _columns(C.roots[c].mT, G.roots[c], M)
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
        """One step of size `gamma` along the natural gradient, damped.

        Parameters
        ----------
        gradients : pair of tensors
            Gradients of the expected log-likelihood alone, with respect to mean and root.
        gamma : float in (0, 1]

        Returns
        -------
        accepted : bool
            False, and nothing has changed, if the result would not be finite.
        """
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
            roots.append(_columns(C.roots[c], step, M))
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

    # Draws

    @torch.no_grad()
    def sample(self, n, generator):
        """`n` joint draws of the inducing variables, shape (n, T, M)."""
        T, M = self.mean.shape
        pattern = self.patterns[self.coupling]
        C = self._gather(self.root, pattern)
        xi = normal((n, T, M), generator, self.mean)
        v = torch.empty_like(xi)
        outputs = (C.outputs @ xi[:, pattern.n_hidden :, :, None])[..., 0]
        for c, chain in enumerate(pattern.chains):
            x = xi[:, chain.gps].flatten(2)[..., None]  # F, w, n M, 1
            v[:, chain.gps] = (C.roots[c] @ x).view(n, *chain.gps.shape, M)
            if pattern.arrow:
                outputs += (C.arrows[c] @ x[:, None])[..., 0].sum(2)
        v[:, pattern.n_hidden :] = outputs
        return self.mean + v

    @torch.no_grad()
    def dense_root(self):
        """`C` as one matrix of shape (T M, T M)."""
        T, M = self.mean.shape
        C = self.root.new_zeros(T, M, T, M)
        rows, columns = np.nonzero(self.slots >= 0)
        C.permute(0, 2, 1, 3)[rows, columns] = self.root[self.slots[rows, columns]]
        return C.reshape(T * M, T * M)


class Moments(NamedTuple):
    """Means, and those blocks of the covariance that rows meet."""

    means: list  #: (M, D) for each layer
    #: (q, M, M) for each layer: its units, less the identity, then pairs of units; for several
    #: outputs with an arrow what each has by itself, then all that pairs share through hidden units
    squares: list
    crosses: dict  #: (u_j, u_i, w, M, M) by layer, chain and earlier layer

    def leaves(self):
        """All tensors."""
        return [*self.means, *self.squares, *self.crosses.values()]


def _moments(factor, pattern, mean, dtype):
    M = mean.shape[1]
    bounds = [*pattern.first, len(mean)]
    means = [mean[i:j].mT.clone() for i, j in itertools.pairwise(bounds)]
    covariances = [_lower_products(root, M) for root in factor.roots]  # (w, n, n, M, M) views
    squares, crosses = [], {}
    for layer in range(len(pattern.widths)):
        parts, diagonal = [], factor.outputs.new_empty(pattern.widths[layer], M, M)
        for c, units, at, pairs, _ in pattern.within(layer):
            S = covariances[c]
            p = np.arange(at.start, at.stop)
            diagonal[units] = S[:, p, p]
            tie = S[pairs].flatten(0, 1)
            parts.append(0.5 * (tie + tie.mT))  # both units meet the same rows
            chain = pattern.chains[c]
            for earlier in chain.layers[: chain.layers.index(layer)]:
                block = S[:, at, pattern.places(c, earlier)]  # w, u_i, u_j, M, M
                crosses[layer, c, earlier] = (
                    block.permute(2, 1, 0, 3, 4).to(dtype, copy=True).contiguous()
                )
        squares.append(_less_identity(diagonal, parts, dtype))
    last, outputs = len(pattern.widths), factor.outputs @ factor.outputs.mT
    a, b = np.tril_indices(pattern.n_outputs)
    shared = torch.zeros_like(outputs[a])
    for c, arrow in enumerate(factor.arrows):
        K, w, _, nM = arrow.shape
        shared += (arrow[a] @ arrow[b].mT).sum(1)
        S = (arrow @ factor.roots[c].mT).view(K, w, M, nM // M, M).permute(3, 0, 1, 2, 4)
        for earlier in pattern.chains[c].layers:
            block = S[pattern.places(c, earlier)]  # u_j, K, w, M, M
            crosses[last, c, earlier] = block.to(dtype, copy=True).contiguous()
    if pattern.shares:
        squares.append(_less_identity(outputs, [0.5 * (shared + shared.mT)], dtype))
    else:
        outputs = outputs + shared if pattern.arrow else outputs
        squares.append(_less_identity(outputs, [], dtype))
    return Moments(means, squares, crosses)


class Marginal:
    """The posterior of one layer by itself.

    Parameters
    ----------
    q : CoupledGaussian
    layer : int
    """

    def __init__(self, q, layer):
        pattern = q.patterns[q.coupling]
        bounds = [*pattern.first, len(q.mean)]
        self._q, self._layer = [q], layer  # in a list: it is no module of the layer's
        self._gps = slice(bounds[layer], bounds[layer + 1])

    @property
    def mean(self):
        """Means, shape (M, D)."""
        return self._q[0].mean[self._gps].mT

    @torch.no_grad()
    def moments(self):
        """Mean (M, D), and the difference of the covariance to the prior's (D, M, M)."""
        squares = self._q[0].moments().squares[self._layer]
        n, pattern = self._gps.stop - self._gps.start, self._q[0].patterns[self._q[0].active]
        own = squares[:n]
        if self._layer == len(pattern.widths) and pattern.shares:
            own = own + squares[n:][pattern.shared_forms().diagonal().copy()]
        return self.mean, own

    def sample(self, n, generator):
        """`n` draws of the variables, shape (n, M, D)."""
        return self._q[0].sample(n, generator)[:, self._gps].mT


def _less_identity(diagonal, parts, dtype):
    diagonal.diagonal(dim1=-2, dim2=-1).sub_(1.0)
    return torch.cat([diagonal, *parts]).to(dtype)


def _lower_products(root, M):
    """Blocks on and below the diagonal of ``R R^T``, as a view of shape (w, n, n, M, M)."""
    w, nM, _ = root.shape
    S = torch.empty_like(root)
    for i in range(0, nM, M):  # one column of blocks
        k = i + M
        S[:, i:, i:k] = root[:, i:, :k] @ root[:, i:k, :k].mT
    return S.view(w, nM // M, M, nM // M, M).permute(0, 1, 3, 2, 4)


def _columns(left, right, M):
    """Blocks on and below the diagonal of ``left @ right``, for a lower triangular `right`."""
    out = torch.zeros_like(right)
    for k in range(0, right.shape[-1], M):
        out[:, k:, k : k + M] = left[:, k:, k:] @ right[:, k:, k : k + M]
    return out


def _pull_back(leaves, factor, pattern):
    """Gradients with respect to the factor from those that the moments have collected.

    For ``S = C C^T`` they are ``H C``, where `H` holds the gradient of each block on both sides of
    the diagonal, and twice that of the blocks on it.
    """
    dtype, M = factor.outputs.dtype, factor.outputs.shape[-1]
    H = []
    for root in factor.roots:
        w, nM, _ = root.shape
        H.append(root.new_zeros(w, nM // M, M, nM // M, M))
    views = [h.permute(0, 1, 3, 2, 4) for h in H]
    for layer, squares in enumerate(leaves.squares[:-1]):
        g = squares.grad.to(dtype)
        for c, units, at, (w, a, b), which in pattern.within(layer):
            p = np.arange(at.start, at.stop)
            views[c][:, p, p] = 2.0 * g[units]
            pairs = g[which].view(*np.broadcast_shapes(w.shape, a.shape), M, M)
            views[c][w, a, b] = pairs
            views[c][w, b, a] = pairs.mT
    last, K, g = len(pattern.widths), pattern.n_outputs, leaves.squares[-1].grad.to(dtype)
    G_outputs, G_shared = 2.0 * g[:K], g.new_zeros(K, K, M, M)
    if pattern.shares:
        a, b = np.tril_indices(K)
        G_shared[a, b] += g[K:]
        G_shared[b, a] += g[K:].mT
    else:
        G_shared[range(K), range(K)] = G_outputs
    G_arrows = [torch.zeros_like(arrow) for arrow in factor.arrows]
    for (layer, c, earlier), cross in leaves.crosses.items():
        g, before = cross.grad.to(dtype), pattern.places(c, earlier)
        if layer < last:
            at, g = pattern.places(c, layer), g.permute(2, 1, 0, 3, 4)  # w, u_i, u_j
            views[c][:, at, before] = g
            views[c][:, before, at] = g.transpose(1, 2).mT
        else:
            K, w, _, nM = G_arrows[c].shape
            G_arrows[c].view(K, w, M, nM // M, M)[:, :, :, before] = g.permute(1, 2, 3, 0, 4)
    roots, arrows = [], []
    for c, root in enumerate(factor.roots):
        d = _columns(H[c].view(root.shape), root, M)
        if pattern.arrow:
            d += (G_arrows[c].mT @ factor.arrows[c]).sum(0)
            shared = torch.einsum("abmn,bwnk->awmk", G_shared, factor.arrows[c])
            arrows.append(G_arrows[c] @ root + shared)
        roots.append(d)
    return Factor(roots, arrows, G_outputs @ factor.outputs)


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
