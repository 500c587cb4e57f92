"""Matrices of covariances, and the way back through them; what :mod:`~skdgp.gp.kernels` is made of."""

import torch
from torch.autograd.function import once_differentiable

from ..linalg import current_workspace, is_exporting

_LARGEST_NORM = 1e6  #: squared, of scaled rows; rounding takes 1e-10 from their distances
LEAST_DISTANCE = 1e-20  #: squared, where roots of it are differentiated
_SMALL_NORM = 100.0  #: squared, of scaled rows; sums of products lose two digits to differences


def squared_distances(X, Z, of_X, of_Z, out=None, rough=False, least=0.0):
    """Squared distances of rows, (n, P) or (J, n, P), from their squared norms; `least` or more.

    They are `rough` where the root of a rounding error counts: then differences are squared.
    """
    if is_exporting():
        return _plain_squared_distances(X, Z, of_X, of_Z, rough).clamp_min(least)
    if rough or _differ_too_little(of_X, of_Z):
        exact = torch.cdist(X, Z, compute_mode="donot_use_mm_for_euclid_dist")
        squares = torch.square(exact, out=out)
        return squares.clamp_min_(least) if least else squares
    norms = torch.add(of_X[..., None], of_Z[..., None, :], out=out)
    multiply = norms.addmm_ if norms.ndim == 2 else norms.baddbmm_
    return multiply(X, Z.mT, alpha=-2.0).clamp_min_(least)


def _plain_squared_distances(X, Z, of_X, of_Z, rough):
    """Squared distances by operations that do not depend on values, for exported programs."""
    if rough:
        return sum((x[..., :, None] - z[..., None, :]).square() for x, z in zip(X.T, Z.T))
    return of_X[..., None] + of_Z[..., None, :] - 2.0 * (X @ Z.mT)


def _differ_too_little(of_X, of_Z):
    """Whether lengthscales are so short that differences of norms would not be distances."""
    if is_exporting():
        return False
    if of_X.dtype != torch.float64:
        return False
    return (
        max(float(norms.detach().max()) for norms in {of_X, of_Z} if norms.numel()) > _LARGEST_NORM
    )


def _sum_of_squares(G, X, Z):
    """Sums over all pairs of `G` times squared differences, one for each column."""
    pairs = zip(X.T, Z.T)
    return torch.stack([G.flatten() @ (x[:, None] - z).square().flatten() for x, z in pairs])


def centered(X, Z, lengthscale, center=None):
    """Rows of both less a center, over lengthscales; their squared norms; and whether these are too large.

    Rounding errors grow with the norms, so make them small. A few values that are far from all others move the
    mean, from which the others then differ by too few digits, but not the median.
    """
    center = Z.mean(-2, keepdim=True) if center is None else center
    for _ in range(2):
        rows = tuple((part - center) / lengthscale for part in (X, Z))
        norms = tuple(part.square().sum(-1) for part in rows)
        far = _differ_too_little(*norms)
        if not far:
            break
        center = Z.detach().median(-2, keepdim=True).values
    return rows, norms, far


class _Scaled:
    """Rows divided by lengthscales, their squared distances, and the way back through both."""

    def __init__(self, X, Z, lengthscale, rough=False):
        self.rough, self.lengthscale = rough, lengthscale
        (self.X, self.Z), self._norms, self.far = centered(X, Z, lengthscale)

    def squared_distances(self, out=None, least=0.0):
        return squared_distances(self.X, self.Z, *self._norms, out, self.rough, least)

    def backward(self, G, needed, slope=1.0):
        """Gradients of X, Z and lengthscale, from that of the squared distances over `slope`."""
        X, Z, lengthscale = self.X, self.Z, self.lengthscale
        # flat products take a third of the time of tall ones
        dX = torch.addmm(X.T * G.sum(1), Z.T, G.T, alpha=-1.0).T
        dZ = torch.addmm(Z.T * G.sum(0), X.T, G, alpha=-1.0).T
        d_lengthscale = None
        if needed[2]:
            if self.far:  # products would lose what squares of differences have
                d_log = _sum_of_squares(G, X, Z)
            else:
                d_log = (X * dX).sum(0).add_((Z * dZ).sum(0))
            d_log.mul_(-2.0 * slope)
            d_lengthscale = d_log.div_(lengthscale).sum_to_size(lengthscale.shape)
        factor = 2.0 * slope / lengthscale
        dX, dZ = (d.mul_(factor) if needs else None for d, needs in zip((dX, dZ), needed))
        return dX, dZ, d_lengthscale


class SquaredDistance(torch.autograd.Function):
    """Squared distances of scaled rows, by products of matrices in both directions."""

    @staticmethod
    def forward(ctx, X, Z, lengthscale, rough):
        ctx.scaled = _Scaled(X, Z, lengthscale, rough)
        return ctx.scaled.squared_distances(least=LEAST_DISTANCE)

    @staticmethod
    @once_differentiable
    def backward(ctx, G):
        return *ctx.scaled.backward(G, ctx.needs_input_grad), None


class DistanceWithin(torch.autograd.Function):
    """Squared distances within groups (..., n, d) of scaled rows, by products where these are exact."""

    @staticmethod
    def forward(ctx, X, lengthscale, rough):
        X = X / lengthscale
        centered = X - X[..., -1:, :]
        norms = centered.square().sum(-1)
        largest = float(norms.max()) if norms.numel() else 0.0
        ctx.far = largest > _LARGEST_NORM
        ctx.save_for_backward(X if ctx.far else centered, lengthscale)
        if rough or X.ndim > 3 or largest > _SMALL_NORM:
            return squared_distances(X, X, norms, norms, rough=True)
        return squared_distances(centered, centered, norms, norms)

    @staticmethod
    @once_differentiable
    def backward(ctx, G):
        X, lengthscale = ctx.saved_tensors
        G = G + G.mT
        dX = X * G.sum(-1, keepdim=True) - G @ X
        if ctx.far:
            differences = (x[..., :, None] - x[..., None, :] for x in X.unbind(-1))
            d_log = torch.stack([(G * d.square_()).sum() for d in differences])
        else:
            d_log = 2.0 * (X * dX).flatten(0, -2).sum(0)
        dX = dX.mul_(2.0 / lengthscale) if ctx.needs_input_grad[0] else None
        return dX, (d_log / -lengthscale).sum_to_size(lengthscale.shape), None


def _profile(kernel, r2, space):
    """The profile at squared distances, in their place if these count no more."""
    out = space.take(tuple(r2.shape), r2) if kernel.distances_count else r2
    return kernel.write_profile(r2, out)


def _give(space, K, r2):
    """Hand back what may be one and the same."""
    K_given = space.give(K)
    return K_given, K_given if K is r2 else space.give(r2)


class Radial(torch.autograd.Function):
    """``variance * profile(squared distance)`` without other hyperparameters, one pass each way."""

    @staticmethod
    def forward(ctx, X, Z, lengthscale, variance, kernel):
        ctx.scaled = _Scaled(X, Z, lengthscale, kernel.is_rough)
        ctx.kernel, ctx.space = kernel, current_workspace()
        r2 = ctx.scaled.squared_distances(ctx.space.take((len(X), len(Z)), X))
        K = _profile(kernel, r2, ctx.space).mul_(variance)
        ctx.save_for_backward(variance)
        ctx.large = K, r2
        return K.detach()  # another name for the same memory, which the graph may have

    @staticmethod
    @once_differentiable
    def backward(ctx, G):
        (variance,), (K, r2), space = ctx.saved_tensors, ctx.large, ctx.space
        G = torch.mul(G, K, out=space.take(tuple(K.shape), K))
        d_variance = G.sum() / variance
        G = ctx.kernel.scale_by_slope(G, r2)
        gradients = ctx.scaled.backward(G, ctx.needs_input_grad, ctx.kernel.slope_factor)
        space.give(G)
        ctx.large = _give(space, K, r2)
        return *gradients, d_variance, None


class GramRadial(torch.autograd.Function):
    """``variance * profile(squared distance / lengthscale^2)`` from inner products, one pass each way."""

    @staticmethod
    def forward(ctx, G, left, right, lengthscale, variance, kernel):
        # squared distances from inner products (Aitchison et al., 2021, eq. 17)
        r2 = (left[..., :, None] + right[..., None, :]).sub_(G, alpha=2.0).clamp_min_(0.0)
        r2.mul_(lengthscale**-2.0)
        K = kernel.write_profile(r2, torch.empty_like(r2) if kernel.distances_count else r2)
        K = K.mul_(variance)
        ctx.kernel = kernel
        ctx.save_for_backward(G, left, right, lengthscale, variance, K, r2)
        return K

    @staticmethod
    @once_differentiable
    def backward(ctx, dK):
        G, left, right, lengthscale, variance, K, r2 = ctx.saved_tensors
        T = dK * K
        d_variance = T.sum() / variance
        T = ctx.kernel.scale_by_slope(T, r2)
        slope = ctx.kernel.slope_factor * lengthscale**-2.0
        of_left, of_right = T.sum(-1), T.sum(-2)
        total = (of_left * left).sum() + (of_right * right).sum() - 2.0 * torch.sum(T * G)
        d_lengthscale = -2.0 * slope / lengthscale * total
        dG = T.mul_(-2.0 * slope)
        return dG, slope * of_left, slope * of_right, d_lengthscale, d_variance, None


class RadialCovariances:
    """:class:`Radial` among inducing inputs and from these to rows, and one way back through both."""

    def __init__(self, kernel, Z, H, lengthscale, variance):
        self.kernel, self.lengthscale, self.variance = kernel, lengthscale, variance
        self.space = space = current_workspace()
        center = Z.mean(0)
        for _ in range(2):
            self.Z, self.H = (
                (rows - center.to(rows.dtype)).div_(lengthscale.to(rows.dtype)) for rows in (Z, H)
            )
            of_Z, self.norms = self.Z.square().sum(1), self.H.square().sum(1)
            self.far = _differ_too_little(of_Z, self.norms.to(of_Z.dtype))
            if not self.far:
                break
            center = Z.detach().median(0).values  # see :func:`centered`
        out = space.take((len(Z), len(Z)), Z)
        self.r2_uu = squared_distances(self.Z, self.Z, of_Z, of_Z, out, kernel.is_rough)
        self.K_uu = _profile(kernel, self.r2_uu, space).mul_(variance)
        out = space.take((len(Z), len(H)), H)
        self.Z_low, of_Z = self.Z.to(H.dtype), of_Z.to(H.dtype)  # in the precision of rows
        self.r2_uf = squared_distances(self.Z_low, self.H, of_Z, self.norms, out, kernel.is_rough)
        self.K_uf = _profile(kernel, self.r2_uf, space).mul_(variance)

    def _near_center(self):
        norms = self.norms
        return norms.device.type == "cpu" and len(norms) > 0 and float(norms.max()) < _SMALL_NORM

    def backward(self, G_uu, G_uf, of_rows=True):
        """Gradients of Z, H if wanted, lengthscale and variance; those given are overwritten."""
        Z, H, kernel, lengthscale = self.Z.T, self.H.T, self.kernel, self.lengthscale
        G_uu.mul_(self.K_uu), G_uf.mul_(self.K_uf)
        d_variance = (G_uu.sum() + G_uf.sum()) / self.variance
        # of the squared distances, and from there by flat products as above:
        # dz_m = 2 sum_n (2 G_mn (z_m - z_n) + G'_mn (z_m - h_n))
        G_uu = kernel.scale_by_slope(G_uu, self.r2_uu)
        G_uf = kernel.scale_by_slope(G_uf, self.r2_uf)
        of_Z, of_H = torch.add(G_uf.sum(1), G_uu.sum(1), alpha=2.0), G_uf.sum(0)
        GH = (H @ G_uf.T).to(Z.dtype)
        dZ = torch.addmm(GH, Z, G_uu, beta=-1.0, alpha=-2.0).addcmul_(Z, of_Z)
        factor = 2.0 * kernel.slope_factor / lengthscale
        if not of_rows and self._near_center():
            # sum_n h_n dh_n needs no other product of the size of the rows
            dH, d_log = None, torch.mv(H.square(), of_H) - (Z * GH).sum(1)
        else:
            dH = torch.addmm(H * of_H, self.Z_low.T, G_uf, alpha=-1.0)
            d_log = (H * dH).sum(1)
        if self.far:  # as above
            total = _sum_of_squares(G_uf.to(Z.dtype), Z.T, H.T.to(Z.dtype))
            total += _sum_of_squares(G_uu, Z.T, Z.T)
        else:
            total = (Z * dZ).sum(1).add_(d_log)
        d_lengthscale = total.mul_(-factor).sum_to_size(lengthscale.shape)
        dZ = torch.mul(dZ.T, factor, out=torch.empty_like(self.Z))
        dH = dH.T.mul_(factor) if of_rows else None
        self.K_uu, self.r2_uu = _give(self.space, self.K_uu, self.r2_uu)
        self.K_uf, self.r2_uf = _give(self.space, self.K_uf, self.r2_uf)
        return dZ, dH, d_lengthscale, d_variance
