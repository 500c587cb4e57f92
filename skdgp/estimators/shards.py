"""Minibatches of rows that stay on their ranks."""

import numpy as np

from ..distributed.ranks import agreed, gather, own_rank, own_rows
from .data import Minibatches


def of_shards(batches, estimator, data):
    """Minibatches like these of the rows that this rank alone has; the same ones if there are none.

    The estimator has begun its `fit` with a sample of all rows, `data`, which is scaled.
    """
    shard = own_rows()
    if shard is None:
        return batches

    def own():
        X, y, weights, exposure = shard
        if not len(X):
            return None
        rows = estimator._validate(X, y, weights, reset=False)
        rows = estimator._counting(*rows, reset=False, exposure=exposure)
        return rows.scale_as(data.x_scaler, data.y_scaler)

    return ShardBatches(agreed(own), data, batches)


class ShardBatches(Minibatches):
    """Minibatches to which each rank adds rows that it alone has.

    Their number is in proportion to those that the rank has, `own`, but at least one; weights make
    up for the rest. A rank without any takes the first of the `spare` rows, with a weight of zero.
    The batches `like` have the size of all ranks together, and all other settings.
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
