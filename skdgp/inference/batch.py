"""Training rows of a step."""

from typing import NamedTuple

import torch

from ..parallel import summed


def whole(make, shape, axis=-2):
    """As :meth:`Batch.draw` of a batch that is not divided."""
    return make(shape)


class Batch(NamedTuple):
    """Training rows for one step, or the part of them that a rank of a process group computes."""

    X: torch.Tensor  #: (B, n_features)
    y: torch.Tensor  #: (B, k)
    weight: torch.Tensor  #: (B,), how often each row counts
    scale: float  #: the factor that makes weighted sums over the batch unbiased for all rows
    total: float  #: sum of the weights of all rows
    share: float = 1.0  #: of terms without rows; below one if other ranks have the other rows
    first: int = 0  #: position of the first row in the batch of all ranks
    n_all: int = 0  #: rows of the batch of all ranks, where it is divided
    #: (B,), numbers of the groups that are left out together; of batches of all rows, or None
    group: torch.Tensor | None = None
    #: (B,), variances of the noise relative to that of the likelihood; of batches of all rows, or None
    noise: torch.Tensor | None = None
    forward: bool = False  #: whether later groups leave with each one

    def draw(self, make, shape, axis=-2):
        """Draws of this shape: the part of these rows, its `axis`, of ``make`` for all ranks."""
        if self.share == 1.0:
            return make(shape)
        whole = list(shape)
        whole[axis] = self.n_all
        return make(tuple(whole)).narrow(axis, self.first, shape[axis]).contiguous()

    def halves(self):
        """Two halves, whose gradients differ by their noise; one if it has all rows, or few."""
        n = self.n_all or len(self.X)
        if self.scale == 1.0 or n < 2:
            return [self]
        halves = [slice(self.first % 2, None, 2), slice(1 - self.first % 2, None, 2)]
        weights = torch.stack([self.weight.sum(), *(self.weight[half].sum() for half in halves)])
        if self.share < 1.0:
            weights, few = summed(weights, torch.tensor(float(len(self.X) < 2)))
            if few > 0.0:
                return [self]
        total, *of_halves = weights.tolist()
        return [
            self._replace(
                X=self.X[half],
                y=self.y[half],
                weight=self.weight[half],
                scale=self.scale * (total / weight),
                first=(self.first + 1 - i) // 2,
                n_all=(n + 1 - i) // 2,
            )
            for i, (half, weight) in enumerate(zip(halves, of_halves))
        ]
