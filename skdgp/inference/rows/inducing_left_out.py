"""Inducing variables given all unique inputs but some, for leave-one-out predictions."""

from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import coo_array

from ...linalg import cholesky, rounding


class PrecisionOfCopies:
    """Blocks of the residual's precision ``W^T W`` for unique inputs that leave together."""

    def __init__(self, records):
        self.records, self._counts = records, np.bincount(records)
        self._pieces = []

    def add(self, which, W):
        """Take a piece of the rows of `W`, by columns and values."""
        if (self._counts > 1).any():
            self._pieces.append((which.numpy(force=True), W.numpy(force=True)))

    def blocks(self):
        """The unique inputs (g,) of each record with several, and the block (g, g) of these."""
        groups = {
            int(record): np.flatnonzero(self.records == record)
            for record in np.flatnonzero(self._counts > 1)
        }
        if not groups:
            return {}
        columns, values = (np.concatenate(part) for part in zip(*self._pieces))
        rows = np.arange(len(columns)).repeat(columns.shape[1])
        shape = len(columns), len(self.records)
        W = coo_array((values.ravel(), (rows, columns.ravel())), shape=shape).tocsc()
        parts = ((record, group, W[:, group]) for record, group in groups.items())
        return {record: (group, (part.T @ part).toarray()) for record, group, part in parts}


class Observations(NamedTuple):
    r"""The observations of the unique inputs, by what inducing variables lose without them.

    Let :math:`\Sigma = R R^\top` be the covariance of the inducing variables `u` given all observations, and
    `P` the precision of these with `u` integrated out. Then

    .. math::

        \mathrm{E}[u \mid y_{-G}] = \mathrm{E}[u \mid y] - R\, r_G^\top P_{GG}^{-1} (P y)_G, \qquad
        \mathrm{Cov}[u \mid y_{-G}] = R\, (I + r_G^\top P_{GG}^{-1} r_G)\, R^\top

    with :math:`r = W^\top W F R` for features `F`, by the formula for inverses of partitioned matrices.
    """

    reach: torch.Tensor  #: (P, m), `r`
    precision: torch.Tensor  #: (P,), of an observation given all others
    solved: torch.Tensor  #: (P,), `P y`
    noise: torch.Tensor  #: (P,), variances of the noise of the observations
    records: np.ndarray  #: (P,)
    copies: dict  #: unique inputs (g,) of a record with several, and their precision (g, g)

    @classmethod
    def of(cls, mean, root, of_known, of_each, least, noise, copies):
        """From ``W^T W`` times features and targets, its diagonal and blocks, and the least precisions."""
        reach = of_known[:, :-1] @ root
        solved = of_known[:, -1] - of_known[:, :-1] @ mean
        precision = torch.maximum(of_each - reach.square().sum(1), least)
        blocks = {}
        for record, (group, block) in copies.blocks().items():
            group, block = (torch.as_tensor(part, device=reach.device) for part in (group, block))
            blocks[record] = group, block - reach[group] @ reach[group].T
        return cls(reach, precision, solved, noise, copies.records, blocks)

    def without(self, rest):
        r"""Changes ``R s`` of the mean and :math:`R U U^\top R^\top` of the covariance without some rows.

        The shapes of `s` and `U` are (n, m) and (n, m, g), for records of at most `g` unique inputs.
        """
        index = rest.unique
        r, precision, solved = self.reach[index], self.precision[index], self.solved[index]
        # what stays of an observation is another one, with more noise
        noisier = self.noise[index] * (rest.total / rest.weight - 1.0)
        gain = torch.where(rest.alone, 0.0, precision / (1.0 + noisier * precision))
        step = (rest.moved[:, 0] + solved / precision) * gain - solved
        shift = (step / precision)[:, None] * r
        more = ((precision - gain).sqrt() / precision)[:, None] * r
        return self._with_copies(rest, shift, more[..., None])

    def _with_copies(self, rest, shift, more):
        """Shifts and gains, with the records that leave whole."""
        index, alone = rest.unique.numpy(force=True), rest.alone.numpy(force=True)
        records = np.where(alone, self.records[index], -1)
        for record in self.copies.keys() & set(records.tolist()):
            group, block = self.copies[record]
            L, r = cholesky(block, rounding(block)), self.reach[group]
            which = torch.as_tensor(records == record, device=shift.device)
            more = torch.nn.functional.pad(more, (0, max(0, len(group) - more.shape[-1])))
            shift[which] = -torch.cholesky_solve(self.solved[group, None], L)[:, 0] @ r
            more[which] = 0.0
            more[which, :, : len(group)] = torch.linalg.solve_triangular(L, r, upper=False).T
        return shift, more
