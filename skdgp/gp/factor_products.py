"""Products over columns of functions of one column each, and the way back through them."""

import math
from typing import NamedTuple

import torch
from torch.autograd.function import once_differentiable

from ..linalg import at_once

_SAFE = 40.0  #: whose exponentials, and products of these, are normal numbers in float32 as well
_FEW = 8  #: rows for which these do not pay
_AT_ONCE = 65_536  #: elements of the matrix that are worked on together, to stay in the cache


def _columns(X, scale):
    """Scaled columns, each in one piece of memory."""
    return (X * scale).T.contiguous()


class _Column(NamedTuple):
    """A scaled column, and exponentials of its values and of their negatives, where these pay and are safe."""

    values: torch.Tensor
    ends: torch.Tensor | None

    @classmethod
    def of(cls, X, scale, exponentials):
        """All columns of some rows."""
        columns = _columns(X, scale)
        if not exponentials:
            return [cls(x, None) for x in columns]
        ends = torch.stack([columns, -columns], 1).exp_()
        safe = (columns.abs().amax(1) < _SAFE).tolist()
        return [cls(x, both if ok else None) for x, both, ok in zip(columns, ends, safe)]

    def part(self, rows, upright=False):
        """Some rows of it, each a row of its own if they are `upright`."""
        index = (..., rows, None) if upright else (..., rows)
        return _Column(self.values[index], None if self.ends is None else self.ends[index])


class FactorProduct(torch.autograd.Function):
    """``variance * prod_d (1 + a_d k_d) / (1 + a_d)``, block by block.

    Between all rows of X and Z, or each of X and its own of Z if they are `paired`. Every factor
    ``1 + a_d k_d`` is at least 1, so that dividing the product by it leaves the others out.
    """

    @staticmethod
    def forward(ctx, X, Z, lengthscale, strength, variance, kernel, paired=False):
        ctx.kernel, ctx.paired, ctx.triangle = kernel, paired, X is Z and not paired
        ctx.scale = scale = math.sqrt(2.0 * kernel.nu) / lengthscale
        share = 1.0 / (1.0 + strength)  # a factor each: all together may underflow
        if not paired and len(X) * len(Z) * len(strength) <= _AT_ONCE:  # one call for all columns
            x, z = (_columns(rows, scale) for rows in (X, Z))
            s = (x[:, :, None] - z[:, None]).abs_()
            k = kernel.write_profile(s, s.neg().exp_(), torch.empty_like(s))
            factors = k.mul_(strength[:, None, None]).add_(1.0).mul_(share[:, None, None])
            K = factors.prod(0).mul_(variance)
            ctx.save_for_backward(X, Z, lengthscale, strength, variance, K)
            return K
        K = X.new_empty(len(X)) if paired else X.new_empty(len(X), len(Z))
        columns = FactorProduct._scaled(ctx, X, Z)
        for rows, of_Z, block, space in FactorProduct._blocks(ctx, K, 4):
            s, e, k, product = space
            product.copy_(variance.expand_as(block))
            for x, z, a, w in zip(*columns, strength.tolist(), share.tolist()):
                FactorProduct._distances(ctx, x.part(rows, not paired), z.part(of_Z), s, e, k)
                product.addcmul_(product, kernel.write_profile(s, e, out=k), value=a).mul_(w)
            block.copy_(product)
        if ctx.triangle:
            K = K.tril_().add_(K.tril(-1).T)
        ctx.save_for_backward(X, Z, lengthscale, strength, variance, K)
        return K

    @staticmethod
    def _scaled(ctx, X, Z):
        """The columns of both, one by one."""
        products = not ctx.paired and min(len(X), len(Z)) > _FEW
        return [_Column.of(rows, ctx.scale, products) for rows in (X, Z)]

    @staticmethod
    def _blocks(ctx, K, n_spaces):
        """Slices of X and of Z, the part of a tensor like K that is theirs, and room for others like it."""
        n, m = len(K), 1 if ctx.paired else K.shape[1]
        size = max(1, at_once(_AT_ONCE, K.device) // max(m, 1))
        flat = K.new_empty(n_spaces, min(n, size) * m)
        for i in range(0, n, size):
            rows = slice(i, min(i + size, n))
            columns = rows if ctx.paired else slice(rows.stop if ctx.triangle else m)
            block = K[rows] if ctx.paired else K[rows, columns]
            yield rows, columns, block, [one[: block.numel()].view(block.shape) for one in flat]

    @staticmethod
    def _distances(ctx, x, z, s, e, other):
        """Write ``s = |x - z|`` and ``e = exp(-s)``."""
        torch.sub(x.values, z.values, out=s).abs_()
        if x.ends is None or z.ends is None:
            torch.neg(s, out=e).exp_()
        else:  # the smaller one of exp(x - z) and exp(z - x): products are sooner
            torch.mul(x.ends[0], z.ends[1], out=e)
            torch.minimum(e, torch.mul(x.ends[1], z.ends[0], out=other), out=e)

    @staticmethod
    @once_differentiable
    def backward(ctx, G):
        X, Z, lengthscale, strength, variance, K = ctx.saved_tensors
        paired, kernel = ctx.paired, ctx.kernel
        d_X, d_Z = torch.zeros_like(X), torch.zeros_like(Z)
        d_log_l, d_strength = torch.zeros_like(strength), torch.zeros_like(strength)
        GK = G * K
        total = GK.sum()
        if ctx.triangle:
            GK = GK.tril() + GK.triu(1).T
        columns = FactorProduct._scaled(ctx, X, Z)
        for rows, of_Z, part, space in FactorProduct._blocks(ctx, GK, 5):
            s, e, k, W, P = space
            P.copy_(part)
            numbers = ctx.scale.tolist(), strength.tolist()
            for d, (x, z, c, a) in enumerate(zip(*columns, *numbers)):
                x, z = x.part(rows, not paired), z.part(of_Z)
                FactorProduct._distances(ctx, x, z, s, e, k)
                kernel.write_profile(s, e, out=k)
                torch.div(P, torch.mul(k, a, out=W).add_(1.0), out=W)
                d_strength[d] += torch.dot(W.flatten(), k.flatten())
                kernel.multiply_slope(W, s, e)
                d_log_l[d] += a * torch.dot(W.flatten(), s.flatten())
                if any(ctx.needs_input_grad[:2]):
                    W *= torch.sub(z.values, x.values, out=s).sign_().mul_(a * c)
                    d_X[rows, d] += W if paired else W.sum(1)
                    d_Z[of_Z, d] -= W if paired else W.sum(0)
        d_strength -= total / (1.0 + strength)
        return d_X, d_Z, d_log_l / lengthscale, d_strength, total / variance, None, None


def product_of_factors(X, Z, lengthscale, strength, variance, kernel):
    """As :class:`FactorProduct` for rows (..., n, d) and (..., P, d), by operations that make a program."""
    scale, K = lengthscale.new_tensor(2.0 * kernel.nu).sqrt() / lengthscale, variance
    for x, z, a in zip((X * scale).unbind(-1), (Z * scale).unbind(-1), strength.unbind()):
        s = (x[..., :, None] - z[..., None, :]).abs()
        e = torch.exp(-s)
        K = K * (1.0 + a * kernel.write_profile(s, e, torch.empty_like(s))) / (1.0 + a)
    return K


def product_of_roots(X, Z, scale, strength, variance):
    """As :class:`FactorProduct` for smoothness 3/2, in half the time and without a way back.

    With ``d = x - z``, a factor has the larger one of ``(1 + d) exp(-d)`` and ``(1 - d) exp(d)``. Both are sums
    of two products of a function of `x` and one of `z`, which products of matrices compute.
    """
    x, z = (_columns(rows, scale) for rows in (X, Z))
    share = 1.0 / (1.0 + strength)
    part = share * strength
    of_x, of_z = torch.stack([x, -x], 1), torch.stack([z, -z], 1)  # columns, signs, rows
    left, right = part[:, None, None] * torch.exp(-of_x), of_z.exp()
    left = torch.stack([share[:, None, None].expand_as(left), left * (1.0 + of_x), -left], -1)
    right = torch.stack([torch.ones_like(right), right, right * of_z], -2)
    safe = (torch.maximum(x.abs().amax(1), z.abs().amax(1)) < _SAFE).tolist()
    K = X.new_empty(len(X), len(Z))
    size = max(1, at_once(_AT_ONCE, K.device) // (2 * max(len(Z), 1)))  # three of them in the cache
    space = K.new_empty(2, min(size, len(X)), len(Z))
    right, numbers = right.unbind(), list(zip(safe, share.tolist(), part.tolist()))
    for i in range(0, len(X), size):
        product = K[i : i + size].copy_(variance.expand_as(K[i : i + size]))
        both = space[:, : len(product)]
        (one, other), of_rows = both, x[:, i : i + size, None]
        for q, of_x in enumerate(left[:, :, i : i + size].unbind()):
            is_safe, w, a = numbers[q]
            if is_safe:
                torch.bmm(of_x, right[q], out=both)
                product.mul_(torch.maximum(one, other, out=one))
            else:
                torch.sub(of_rows[q], z[q], out=one).abs_()
                torch.exp_(torch.neg(one, out=other))
                product.mul_(torch.addcmul(other, one, other, out=one).mul_(a).add_(w))
    return K
