"""Minibatches of training rows: where numpy ends and torch begins."""

import numpy as np
import torch

from ..inference.batch import Batch
from ..parallel import agreed, gather, own_part, own_rank, own_rows
from ..preprocessing.outliers import pieces
from .table import PRELOAD


class Minibatches:
    """Minibatches of scaled rows, as tensors: inputs of the `dtype`, targets and weights in float64.

    The batch of a step depends on the seed and the number of the step alone, so that training can be resumed
    anywhere. Each epoch has a new random order, and each of several ranks its part of every batch. `total` is
    the number of rows that the lower bound counts, if not the sum of their weights.
    """

    def __init__(self, table, batch_size, seed, dtype, device, total=None):
        self._table, self._seed, self._dtype, self._device = table, seed, dtype, device
        self.n_rows = len(table)
        self.batch_size = min(batch_size, self.n_rows)
        #: in one pass; an incomplete last one is left out
        self.n_batches = self.n_rows // self.batch_size
        weight = float(table.weights.sum())
        self.total = weight if total is None else float(total)
        self._scale = self.total / weight * self.n_rows / self.batch_size
        self._epoch = None
        self._tensors = self._all_to_torch() if table.X.size <= PRELOAD else None
        self._groups = None if table.groups is None else torch.as_tensor(table.groups)
        precision = None if self._tensors is None else table.precisions(slice(None))
        self._noise = None if precision is None else torch.as_tensor(1.0 / precision)

    def spread(self):
        """As many batches as it takes to leave out fewer rows than there are batches."""
        self.n_batches = -(-self.n_rows // self.batch_size)
        scale = self._scale * self.batch_size
        self.batch_size = self.n_rows // self.n_batches
        self._scale = scale / self.batch_size
        return self

    def _all_to_torch(self):
        """All rows, scaled piece by piece for the sake of memory."""
        tensors = None
        for rows in pieces(self.n_rows):
            parts = self._to_torch(rows)
            if tensors is None:
                tensors = [part.new_empty((self.n_rows, *part.shape[1:])) for part in parts]
            for tensor, part in zip(tensors, parts):
                tensor[rows] = part
        return tensors

    def _to_torch(self, rows):
        X, y, weights = self._table.take(rows)
        # copies, for the alignment of numpy's memory differs from run to run, and with it rounding
        return (
            torch.tensor(X, device=self._device, dtype=self._dtype),
            torch.tensor(y, device=self._device),
            torch.tensor(weights, device=self._device),
        )

    def _place(self):
        """The rows of a batch that are this rank's, and what :class:`Batch` has beside rows."""
        own, share = own_part(self.batch_size)
        return own, (self._scale, self.total, share, own.start, self.batch_size)

    def batch(self, step):
        """The rows of a step."""
        own, numbers = self._place()
        if self._tensors is not None and self.n_batches == 1 and self.batch_size == self.n_rows:
            whole = own.stop - own.start == self.n_rows
            parts = self._tensors if whole else [t[own] for t in self._tensors]
            left = (self._groups, self._noise) if whole else (None, None)
            return Batch(*parts, *numbers, *left, self._table.forward)
        epoch, position = divmod(step, self.n_batches)
        if epoch != self._epoch:
            rows = np.arange(self.n_rows, dtype=np.int32 if self.n_rows < 2**31 else np.int64)
            self._order = np.random.default_rng([self._seed, epoch]).permutation(rows)
            self._epoch = epoch
        rows = self._order[position * self.batch_size : (position + 1) * self.batch_size][own]
        if self._tensors is None:
            tensors = self._to_torch(np.sort(rows))
        else:
            index = torch.as_tensor(rows, device=self._device)
            tensors = (tensor[index] for tensor in self._tensors)
        return Batch(*tensors, *numbers)


# Rows that stay on their ranks


def of_shards(batches, read, table):
    """Minibatches like these of rows that this rank alone has, or the same ones.

    The `table` is a scaled sample of all rows. ``read(X, y, weights, exposure)`` makes such a table.
    """
    shard = own_rows()
    if shard is None:
        return batches

    def own():
        X, y, weights, exposure = shard
        if not len(X):
            return None
        return read(X, y, weights, exposure).scale_as(table.x_scaler, table.y_scaler)

    return ShardBatches(agreed(own), table, batches)


class ShardBatches(Minibatches):
    """Minibatches to which each rank adds rows that it alone has.

    Their number is in proportion to those that the rank has, `own`, but at least one; weights make up for the
    rest. A rank without any takes the first of the `spare` rows, with a weight of zero. Settings and the size
    of all ranks together are those of the batches `like`.
    """

    def __init__(self, own, spare, like):
        n, rank = np.array(gather(0 if own is None else len(own)), dtype=float), own_rank()
        sizes = np.clip(
            np.round(min(1.0, like.batch_size / n.sum()) * n), 1, np.maximum(n, 1)
        ).astype(int)
        own = spare.part(np.arange(1)) if own is None else own
        settings = like._seed + rank, like._dtype, like._device, like.total
        super().__init__(own, int(sizes[rank]), *settings)
        scale = n.sum() / sizes.sum()
        self._factor = float(n[rank] / sizes[rank] / scale)
        first = int(sizes[:rank].sum())
        self._numbers = float(scale), self.total, 1.0 / len(n), first, int(sizes.sum())

    def _place(self):
        return slice(0, self.batch_size), self._numbers

    def batch(self, step):
        """This rank's rows of a step."""
        batch = super().batch(step)
        return batch._replace(weight=self._factor * batch.weight)
