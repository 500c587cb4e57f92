"""Inducing inputs at other places, under the posterior process that the present ones define."""

import torch

from ..linalg import cholesky


def spread_out(K, n, n_kept=0):
    """Indices of `n` points, each where the prior varies most given those before (pivoted Cholesky).

    Parameters
    ----------
    K : tensor of shape (P, P)
        Prior covariance of all points.
    n : int
        At most `P`.
    n_kept : int
        First points that are chosen in any case.

    References
    ----------
    D. Burt, C. Rasmussen and M. van der Wilk (2020). Convergence of sparse variational inference in
    Gaussian processes regression. Journal of Machine Learning Research 21.
    """
    rest, rows, chosen = torch.diagonal(K).clone(), K.new_zeros(n, len(K)), []
    for i in range(n):
        j = i if i < n_kept else int(rest.argmax())
        if rest[j] > 1e-12 * K[j, j]:
            rows[i] = (K[j] - rows[:i, j] @ rows[:i]) / rest[j].sqrt()
        rest -= rows[i].square()
        rest[j] = -torch.inf  # not twice
        chosen.append(j)
    return chosen


def relocated(kernel, Z, H, n, jitter):
    """Inducing inputs among the present ones and some rows, and their regression on the present ones.

    Parameters
    ----------
    kernel : Kernel
    Z : tensor of shape (M, n_inputs)
        If there are to be more, all of them stay.
    H : tensor of shape (P, n_inputs)
    n : int
        Number of inducing inputs, at most ``M + P``.
    jitter : float

    Returns
    -------
    Z_new : tensor of shape (n, n_inputs)
    B : tensor of shape (n, M)
        The whitened variables at `Z_new` given those at `Z` have the mean ``B v`` and the covariance
        ``I - B B^T``: the posterior process stays what it is wherever `Z_new` has what `Z` had.
    """
    pool = torch.cat([Z, H])
    K = kernel(pool, pool)
    K.diagonal().add_(jitter)  # as if each point had a share of its own, which it keeps
    chosen = spread_out(K, n, len(Z) if n > len(Z) else 0)
    L, L_new = (cholesky(K[rows][:, rows]) for rows in (list(range(len(Z))), chosen))
    half = torch.linalg.solve_triangular(L, K[: len(Z), chosen], upper=False)
    return pool[chosen], torch.linalg.solve_triangular(L_new, half.mT, upper=False)
