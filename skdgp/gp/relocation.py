"""Inducing inputs at other places, under the posterior process that the present ones define."""

import torch

from ..linalg import cholesky


def spread_out(K, n, n_kept=0):
    """Indices of `n` points, each where the prior varies most given those before (pivoted Cholesky).

    From the prior covariance of all points (Burt, Rasmussen and van der Wilk, 2020, JMLR 21). The
    first `n_kept` are chosen in any case.
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

    Given the whitened variables at Z (M, n_inputs), those at the new inputs have the mean ``B v``
    and the covariance ``I - B B^T``, B (n, M): the posterior process stays what it is wherever the
    new inputs have what `Z` had. If there are to be more, all of `Z` stay.
    """
    pool = torch.cat([Z, H])
    K = kernel(pool, pool)
    K.diagonal().add_(jitter)  # as if each point had a share of its own, which it keeps
    chosen = spread_out(K, n, len(Z) if n > len(Z) else 0)
    L, L_new = (cholesky(K[rows][:, rows]) for rows in (list(range(len(Z))), chosen))
    half = torch.linalg.solve_triangular(L, K[: len(Z), chosen], upper=False)
    return pool[chosen], torch.linalg.solve_triangular(L_new, half.mT, upper=False)
