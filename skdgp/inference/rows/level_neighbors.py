"""The search for near rows where levels have effects of their own."""

import numpy as np

from .unique_inputs import NeighborSearch

_NONE = np.empty(0, dtype=np.int64)


class LevelNeighbors:
    """Search for the neighbors of a row, some of which share its levels.

    Half of the neighbors are near. As many others, as far as there are some, are of the levels of the row, in
    the columns `levels`, and near those: they separate the effects of levels from the rest. Where most unique
    inputs share a level, those of other levels are no neighbors but of their own: their effects are noise.
    """

    def __init__(self, Z, metric, n_neighbors, levels):
        self.metric, self.n_neighbors, self.n_unique = metric, n_neighbors, len(Z)
        self._levels, self._Z, self._own = levels, Z, []
        common = np.ones(len(Z), dtype=bool)
        for columns in levels:
            values = Z[:, columns].numpy(force=True)
            values, which = np.unique(values, axis=0, return_inverse=True)
            parts = np.split(
                np.argsort(which.ravel(), kind="stable"), np.bincount(which.ravel()).cumsum()[:-1]
            )
            of_level = dict(zip(map(tuple, values.tolist()), parts))
            largest = max(of_level, key=lambda level: len(of_level[level]))
            if 2 * len(of_level[largest]) > len(Z):
                most = of_level.pop(largest)
                common &= np.isin(np.arange(len(Z)), most)
            self._own.append(of_level)
        enough = np.count_nonzero(common) > 2 * n_neighbors
        self._index = np.flatnonzero(common) if enough else np.arange(len(Z))
        self._search = NeighborSearch(Z[self._index], metric, n_neighbors)

    def of_rows(self, rows, chosen):
        """As of :class:`NeighborSearch`."""
        return self(rows.X[chosen], rows.left_out(chosen), rows.records)

    def _near(self, X, left_out, records):
        of_subset = None if records is None else records[self._index]
        return self._index[self._search(X, left_out, of_subset)]

    def __call__(self, X, left_out=None, records=None):
        """As of :class:`NeighborSearch`."""
        found = self._near(X, left_out, records)
        told = self._of_levels(X, left_out, records, found.shape[1] // 2)
        for i, own in told.items():
            rest = found[i][~np.isin(found[i], own)]
            found[i] = _joined(own, rest, found.shape[1])
        return found

    def _of_levels(self, X, left_out, records, most):
        """For rows whose levels have others, at most so many of these and of what is near them."""
        each, own = [X[:, columns].numpy(force=True).tolist() for columns in self._levels], {}
        points, Z = (part.numpy(force=True) / self.metric for part in (X, self._Z))
        for i in range(len(X) if most else 0):
            known = [of.get(tuple(level[i]), _NONE) for of, level in zip(self._own, each)]
            known = known[0] if len(known) == 1 else np.unique(np.concatenate(known))
            if left_out is not None:
                known = known[records[known] != left_out[i]]
            if len(known):
                off = np.square(Z[known] - points[i]).sum(1)
                own[i] = known[np.argsort(off, kind="stable")[:most]]
        if not own:
            return own
        counts = [len(known) for known in own.values()]
        beside = None if left_out is None else left_out[np.repeat(list(own), counts)]
        around = self._near(self._Z[np.concatenate(list(own.values()))], beside, records)[:, ::-1]
        parts = np.split(around, np.cumsum(counts)[:-1])
        return {
            i: _first([known, part.T.ravel()], most) for (i, known), part in zip(own.items(), parts)
        }


def _first(parts, n):
    """The first `n` different numbers."""
    numbers = np.concatenate(parts)
    return numbers[np.sort(np.unique(numbers, return_index=True)[1])[:n]]


def _joined(told, rest, k):
    """Neighbors of the levels, then the nearest others, `k` in all and the nearest last."""
    return np.concatenate([told, rest[len(rest) + len(told) - k :]])
