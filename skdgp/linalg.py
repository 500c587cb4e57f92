"""Dense linear algebra, independent of Gaussian processes."""

import contextlib
import contextvars
import math
from types import SimpleNamespace

import numpy as np
import torch
from torch.autograd.function import once_differentiable

LOG_2PI = math.log(2.0 * math.pi)
_ESCALATION = (10.0, 100.0, 1000.0)
_FEWEST = 52, 64  #: rows of a block of a triangular matrix, and of a symmetric one
_ROUNDING = (1e-13, 1e-12, 1e-11)  #: jitter relative to the diagonal, when all that was too little
_HALVINGS = 3  #: of angles, after which ten terms of the series of arc sines are enough
#: factors of the odd powers of the series of arc sines, the last one first
_SERIES = [math.comb(2 * k, k) / 4.0**k / (2 * k + 1) for k in reversed(range(10))]
_GPU_ROOM = 16  #: times as much at once on a GPU, where each call costs and no small cache helps

#: whether operations are recorded for a program that is not to depend on numbers of rows and values
is_exporting = getattr(torch.compiler, "is_exporting", lambda: False)


def at_once(most, device):
    """Return how many numbers are processed together on a device; `most` on the CPU."""
    return most if torch.device(device).type == "cpu" else _GPU_ROOM * most


def pieces(X, size, dim=0):
    """Pieces of at most `size` rows; the whole for a program, which is for any number of rows."""
    return [X] if is_exporting() else X.split(size, dim)


def arccos(x):
    """Arc cosine; of programs by roots and a series, for ONNX runtimes have none in double precision."""
    if not is_exporting():
        return torch.arccos(x)
    sine, cosine = (0.5 - 0.5 * x).sqrt(), (0.5 + 0.5 * x).sqrt()  # of half the angle
    for _ in range(_HALVINGS):
        sine = sine / (2.0 + 2.0 * cosine).sqrt()
        cosine = (0.5 + 0.5 * cosine).sqrt()
    series = torch.zeros_like(x)
    # tensors, for runtimes take plain numbers in single precision
    for factor in x.new_tensor(_SERIES):
        series = series * sine * sine + factor
    return 2.0 ** (_HALVINGS + 1) * series * sine


def cholesky(K, jitter=0.0):
    """Lower Cholesky factor of ``K + jitter * I``.

    A matrix that is positive definite only up to rounding gets up to a thousand times the jitter.
    If that is too little, it gets the rounding error of its diagonal, and then there is a
    LinAlgError. Other matrices of a batch do not depend on it.
    """
    L, info = torch.linalg.cholesky_ex(add_diagonal(K, jitter))
    if not is_exporting() and info.any():
        L, info = torch.linalg.cholesky_ex(add_diagonal(K, _sufficient(K.detach(), jitter, info)))
        if info.any():
            raise torch.linalg.LinAlgError("The matrix is not positive definite.")
    return L


def _sufficient(K, jitter, info):
    """The least jitter of each matrix that will do, shape (..., 1), where `info` counts failures."""
    shape, K = info.shape, K.reshape(-1, *K.shape[-2:])
    size = torch.diagonal(K, dim1=-2, dim2=-1).abs().amax(-1, keepdim=True)
    more = [torch.full_like(size, factor * jitter) for factor in _ESCALATION]
    more += [(part * size).clamp_min(_ESCALATION[-1] * jitter) for part in _ROUNDING]
    chosen, left = torch.full_like(size, jitter), info.flatten().nonzero()[:, 0]
    for value in more if jitter else ():
        chosen[left] = value[left]
        left = left[torch.linalg.cholesky_ex(add_diagonal(K[left], value[left]))[1] > 0]
    return chosen.view(*shape, 1)


def plain_whitened(K, y):
    """Factors ``L`` (..., n, n) of small matrices and :func:`whitened` values, by elementary operations.

    Programs for other runtimes have no factorizations.
    """
    n, columns, z = K.shape[-1], [], []
    rows = torch.arange(n, device=K.device)
    for j in range(n):
        column = torch.where(rows >= j, K[..., j], 0.0) * K[..., j, j, None].rsqrt()
        K = K - column[..., :, None] * column[..., None, :]
        columns.append(column)
        if j + 1 < n:
            z.append(y[..., j] / column[..., j])
            y = y - column[..., :-1] * z[-1][..., None]
    return torch.stack(columns, -1), torch.stack(z, -1)


def plain_back_substituted(L, b):
    """``L^{-T} b`` for small factors (..., n, n), likewise."""
    x = []
    for j in reversed(range(L.shape[-1])):
        x.insert(0, b[..., j] / L[..., j, j])
        b = b - L[..., j, :] * x[0][..., None]
    return torch.stack(x, -1)


def whitened(L, y):
    """Values (..., n - 1) as standard normal ones, by a factor (..., n, n) that has one value more."""
    return torch.linalg.solve_triangular(L[..., :-1, :-1], y[..., None], upper=False)[..., 0]


class Whitened(torch.autograd.Function):
    """The factor of :func:`cholesky`, and :func:`whitened` values, with gradients of few products."""

    @staticmethod
    def forward(ctx, K, y, jitter):
        L = cholesky(K, jitter)
        z = whitened(L, y)
        ctx.save_for_backward(L, z)
        return L, z

    @staticmethod
    @once_differentiable
    def backward(ctx, dL, dz):
        L, z = ctx.saved_tensors
        R = inverse_triangular(L)
        dy = (R[..., :-1, :-1].mT @ dz[..., None])[..., 0]
        dL = dL.clone()
        dL[..., :-1, :-1] -= dy[..., None] * z[..., None, :]
        middle = (L.mT @ dL).tril_()
        middle.diagonal(dim1=-2, dim2=-1).mul_(0.5)
        dK = R.mT @ middle @ R
        return dK.add_(dK.mT.clone()).mul_(0.5), dy, None


def add_diagonal(K, value):
    """``K + value * I``, as a new tensor, for a number or tensor (..., 1) of one for each matrix."""
    K = K.clone()
    K.diagonal(dim1=-2, dim2=-1).add_(value)
    return K


def gram(A, weights):
    """``A diag(w) A^T`` for each row `w` of the weights; little more than half is computed."""
    return torch.stack([symmetric_products((A * w)[None], A)[0] for w in weights])


class Gram(torch.autograd.Function):
    """``P P^T``, whose way back is one product."""

    @staticmethod
    def forward(ctx, P):
        ctx.save_for_backward(P)
        return P @ P.mT

    @staticmethod
    @once_differentiable
    def backward(ctx, G):
        return (G + G.mT) @ ctx.saved_tensors[0]


def symmetric_products(B, A):
    """``B_k A^T`` (k, M, M), where that is symmetric; little more than one half is computed."""
    M, G = len(A), A.new_empty(len(B), len(A), len(A))
    size = max(_FEWEST[1], -(-M // 4))
    for G_k, B_k in zip(G.unbind(), B.unbind()):
        for i in range(0, M, size):
            torch.mm(B_k[i : i + size], A[: i + size].T, out=G_k[i : i + size, : i + size])
    return G.tril() + G.tril(-1).mT


def inverse_triangular(L):
    """Inverse of a lower triangular matrix."""
    eye = torch.eye(L.shape[-1], dtype=L.dtype, device=L.device)
    return torch.linalg.solve_triangular(L, eye.expand_as(L), upper=False)


def packed(L):
    """Lower triangular matrices (..., n, n) in half the room, (..., n + 1, m); see :func:`unpacked`."""
    n = L.shape[-1]
    m = n - n // 2
    P = np.zeros((*L.shape[:-2], n + 1, m))
    P[..., 1 : m + 1, :] = L[..., :m, :m]
    P[..., : n - m, : n - m] += L[..., m:, m:].swapaxes(-1, -2)  # above the other triangle
    P[..., m + 1 :, :] = L[..., m:, :m]
    return P


def unpacked(P):
    """The lower triangular matrices of :func:`packed`; memory above the diagonal is not touched."""
    n, m = P.shape[-2] - 1, P.shape[-1]
    L = np.zeros((*P.shape[:-2], n, n))
    for i in range(0, m, _FEWEST[0]):
        j, last = min(i + _FEWEST[0], m), min(i + _FEWEST[0], n - m)
        L[..., i:j, :j] = np.tril(P[..., i + 1 : j + 1, :j], i)
        part = np.triu(P[..., :last, i:last], -i)
        L[..., m + i : m + last, m : m + last] = part.swapaxes(-1, -2)
    L[..., m:, :m] = P[..., m + 1 :, :]
    return L


def triangular_product(L, B, out, transposed=False):
    """``L B``, or ``L^T B``, into `out`, for a lower triangular `L`, without most of its zeros."""
    M = len(L)
    size = max(_FEWEST[0], -(-M // 4))
    for i in range(0, M, size):
        if transposed:
            torch.mm(L[i:, i : i + size].T, B[i:], out=out[i : i + size])
        else:
            torch.mm(L[i : i + size, : i + size], B[: i + size], out=out[i : i + size])
    return out


def gradient_of_gram(L_inv, T):
    """Gradient of ``K = L L^T`` from that of ``A = L^{-1} B``, for a fixed `B`; `T` is ``dA A^T``."""
    lower = T.tril()
    lower.diagonal().mul_(0.5)
    return -0.5 * L_inv.T @ (lower + lower.T) @ L_inv


def root_of_inverse(P):
    """Lower triangular `C` with ``C C^T = P^{-1}``, for a symmetric positive definite `P`.

    The Cholesky factor of `P` with rows and columns reversed is an upper factor ``P = R R^T``,
    whose inverse transpose is lower triangular. Returns None if `P` is not positive definite.
    """
    R, info = torch.linalg.cholesky_ex(P.flip(-2, -1))
    if info.any():
        return None
    return inverse_triangular(R.flip(-2, -1).mT)


def sum_of_products(a, b, axis, space, out=None):
    """``(a * b).sum(axis)``, slice by slice of the first axis of `a`, to stay in the cache.

    For `axis` 1, `b` has one axis less, which all slices meet; other axes may have length one in
    `a` or in `b`.
    """
    if axis == 0:
        pairs = zip(a.unbind(), b.unbind())
        total = torch.mul(*next(pairs), out=out)
        for a_k, b_k in pairs:
            total.addcmul_(a_k, b_k)
        return total
    # sooner than torch.broadcast_shapes
    shape = tuple(map(max, a.shape[1:], b.shape[b.ndim - a.ndim + 1 :]))
    product, total = space.take(shape, a), a.new_empty(len(a), *shape[1:])
    for a_k, total_k in zip(a.unbind(), total.unbind()):
        torch.sum(torch.mul(a_k, b, out=product), 0, out=total_k)
    space.give(product)
    return total


class Workspace:
    """Large tensors that are used again: fresh memory is slow at first touch."""

    def __init__(self):
        self._free = {}

    def take(self, shape, like):
        """An uninitialized tensor."""
        free = self._free.setdefault((shape, like.dtype, like.device), [])
        return free.pop() if free else torch.empty(shape, dtype=like.dtype, device=like.device)

    def give(self, tensor):
        """Hand back a tensor that nobody will read any more; returns None in its place."""
        self._free[tuple(tensor.shape), tensor.dtype, tensor.device].append(tensor)


#: stands in for a workspace outside of training
_FRESH = SimpleNamespace(
    take=lambda shape, like: torch.empty(shape, dtype=like.dtype, device=like.device),
    give=lambda tensor: tensor,
)
_current = contextvars.ContextVar("workspace", default=_FRESH)


def current_workspace():
    """Return the source of large temporary tensors."""
    return _current.get()


@contextlib.contextmanager
def workspace():
    """Within this context of this thread, large temporary tensors are used again."""
    # The C library of Linux keeps memory for later, instead of handing it back at once, for blocks up to
    # the largest that was ever freed, at most 32 MiB. So one is freed that was never touched.
    torch.empty(31 << 20, dtype=torch.uint8)
    token = _current.set(Workspace())
    try:
        yield
    finally:
        _current.reset(token)


def rounding(P):
    """Return the amount by which rounding may lower the eigenvalues of `P`."""
    return 1e-14 * float(torch.diagonal(P.detach(), dim1=-2, dim2=-1).max())


class LogNormal(torch.autograd.Function):
    """Sum of ``log N(y_k; 0, K_k)`` over `k`, for y (k, n) and K (k, n, n), or one K (1, n, n) for all."""

    @staticmethod
    def forward(ctx, y, K):
        L = cholesky(K, rounding(K))
        a = torch.cholesky_solve(y[..., None], L)  # k, n, 1
        ctx.save_for_backward(L, a)
        log_det = 2.0 * torch.diagonal(L, dim1=-2, dim2=-1).log().sum() * (len(y) / len(L))
        return -0.5 * ((y * a[..., 0]).sum() + log_det + y.numel() * LOG_2PI)

    @staticmethod
    def backward(ctx, g):
        L, a = ctx.saved_tensors
        dy = -g * a[..., 0] if ctx.needs_input_grad[0] else None
        inverse = torch.cholesky_inverse(L)
        if len(a) > len(L):
            inverse, a = inverse * len(a), a[..., 0].T[None]
        return dy, 0.5 * g * (a @ a.mT - inverse)
