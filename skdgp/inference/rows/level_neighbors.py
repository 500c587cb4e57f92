"""The search for near rows where levels have effects of their own."""

import numpy as np

from .unique_inputs import NeighborSearch

_NONE = np.empty(0, dtype=np.int64)


class LevelNeighbors:
    """Looks for unique inputs that tell of a row, among which are those of its levels.

    Half of the neighbors are near. As many others, as far as there are some, are of the levels of the row, in
    the columns `levels`, and near those: they tell the effects of levels apart from all else. Where most unique
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
        n, k = found.shape
        each = [X[:, columns].numpy(force=True).tolist() for columns in self._levels]
        for i in range(n if k else 0):
            gone = -1 if left_out is None else left_out[i]
            own = [of.get(tuple(level[i]), _NONE) for of, level in zip(self._own, each)]
            own = np.unique(np.concatenate(own))
            if gone >= 0:
                own = own[records[own] != gone]
            if not len(own):
                continue
            off = (self._Z[own] - X[i]).numpy(force=True) / self.metric
            own = own[np.argsort(np.square(off).sum(1), kind="stable")[: k // 2]]
            beside = None if gone < 0 else np.full(len(own), gone)
            around = self._near(self._Z[own], beside, records)[:, ::-1].T.ravel()
            others = around[~np.isin(around, own)]
            _, first = np.unique(others, return_index=True)
            others = others[np.sort(first)][: k // 2 - len(own)]
            told = np.concatenate([own, others])
            rest = found[i][~np.isin(found[i], told)]
            found[i] = _joined(told, rest, k)
        return found


def _joined(told, rest, k):
    """Those that tell of levels, and the nearest others, `k` in all and the nearest last."""
    return np.concatenate([told, rest[len(rest) + len(told) - k :]])
