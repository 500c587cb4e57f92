"""Training rows gathered by equal inputs, copies among them, and the search for near ones."""

import copy
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree
from sklearn.neighbors import NearestNeighbors

from ...linalg import is_exporting

#: rounding: relative to the spread of a column; no lengthscale resolves it
_SAME_INPUT = 1e-8
#: of targets, relative to their spread: a few times the least noise of the likelihoods, 1e-3
_SAME_TARGET = 5e-3
_NEAR_COPY = 1e-2  #: of inputs, relative to the spreads of the columns: the farthest copy of a row
_GAP = 30.0  #: times the distance of a copy are other rows away; of a uniform row, one in thirty is
_MOST_COPIES = 8  #: of a row that differ in their inputs
_SPARE = 8  #: time: unique inputs beyond those that are needed, to find ties
#: time: points of a tree that are compared one by one: a search takes 3/4 of that with 16
_LEAF = 64
#: time: columns that hold _MOST of the variance: where there are more of them, trees look at nearly all points
_TREE_COLUMNS = 8
_MOST = 0.95  #: time: share of the variance of the points; columns of the rest cost a tree little
_TIE = 1e-9  #: rounding: relative difference of distances that is none
_LEAST_REST = 1e-12  #: rounding: of the weight of a unique input, without a row of it


class TrainingRows(NamedTuple):
    """Training rows with their unique inputs."""

    X: torch.Tensor  #: (n, n_features)
    y: torch.Tensor  #: (n, n_outputs)
    weight: torch.Tensor  #: (n,)
    noise: torch.Tensor  #: (n,), variances of the noise relative to that of the likelihood
    unique: torch.Tensor  #: (n,), unique inputs of the rows
    alone: torch.Tensor  #: (n,), whether these hold no other target
    #: (n_unique,), numbers of records, of which copies have no independent information; with groups, of these
    records: np.ndarray
    #: whether records are in the order of time, the unique inputs in that of records, and later ones leave, too
    forward: bool = False

    @property
    def count(self):
        """Counts of the rows, (n,), without their noise."""
        return self.weight * self.noise

    def predictable(self):
        """Training rows that may be left out: with an order of time, not those of the first record."""
        own = self.records[self.unique.numpy(force=True)]
        return np.flatnonzero(own > 0) if self.forward else np.arange(len(own))

    def gone(self, records):
        """Number of unique inputs that leave with records, none with -1."""
        counts = np.bincount(self.records)
        if self.forward:
            counts = counts[::-1].cumsum()[::-1]
        return np.where(records >= 0, counts[records], 0)

    def left_out(self, rows):
        """The records that leave with some rows, or -1 where their unique inputs hold other targets."""
        alone, index = (part[rows].numpy(force=True) for part in (self.alone, self.unique))
        return np.where(alone, self.records[index], -1)

    def alike(self, rows, n_neighbors):
        """Indices into `rows`, in groups with as many neighbors for each, where there are few unique inputs."""
        fewer = self.gone(self.left_out(rows))
        if len(self.records) - fewer.max(initial=0) >= n_neighbors:
            return [np.arange(len(rows))]
        return [np.flatnonzero(fewer == n) for n in np.unique(fewer)]


class Rest(NamedTuple):
    """Unique inputs without one row each."""

    unique: torch.Tensor  #: (n,), these inputs
    alone: torch.Tensor  #: (n,), whether they hold no other target, and leave with their copies
    weight: torch.Tensor  #: (n,), of what stays of the others
    total: torch.Tensor  #: (n,), their weights with the row
    noise: torch.Tensor  #: (n, 1), of the row, relative to that of the likelihood
    y: torch.Tensor  #: (n, n_outputs), their mean targets without the row
    moved: torch.Tensor  #: (n, n_outputs), these less the mean targets with the row

    @classmethod
    def of(cls, rows, chosen, y, weight):
        """Without the chosen training rows, each alone; unique inputs have mean targets and weights."""
        _, target, count, noise, index, alone = (part[chosen] for part in rows[:6])
        total, own = weight[index], torch.minimum(count, 1.0 / noise)  # one count of a row
        rest = (total - own).clamp_min(_LEAST_REST * total)
        moved = (own / rest)[:, None] * (y[index] - target)
        return cls(index, alone, rest, total, noise[:, None], y[index] + moved, moved)


def gather(X, y, weight, group=None, forward=False, noise=None):
    """Unique inputs with mean targets and summed weights, as a dict, and the rows that they are made of.

    Inputs are the same up to rounding, and targets up to the least noise that matters.
    Copies of a record agree in both, or their inputs are much closer than those of all other rows.
    With a `group` (n,) of each row, its rows are the record: they have unique inputs of their own, and leave
    together; with `forward`, all later ones with them, and unique inputs are in the order of groups.
    """
    index, first = _same_inputs(X, weight, group, forward)
    Z = X[first]
    total = weight.new_zeros(len(Z)).index_add(0, index, weight)
    sums = y.new_zeros(len(Z), y.shape[1]).index_add(0, index, weight[:, None] * y)
    mean = sums / total[:, None]
    tolerance = _SAME_TARGET * _spread(y, weight)
    rows = index[:, None].expand_as(y)
    low, high = (
        torch.zeros_like(sums).scatter_reduce(0, rows, y, how, include_self=False)
        for how in ("amin", "amax")
    )
    one_target = (high - low <= tolerance).all(1)
    if group is None:
        records = _records(Z / _spread(X, weight), mean, tolerance, one_target)
    else:
        records = np.unique(group[first].numpy(force=True), return_inverse=True)[1]
        one_target = torch.ones_like(one_target)  # all targets leave together
    noise = torch.ones_like(weight) if noise is None else noise.to(weight)
    own = weight, noise, index, one_target[index]
    training_rows = TrainingRows(X, y, *own, records, forward)
    return {"Z": Z, "y": mean, "weight": total}, training_rows


def _spread(A, weight):
    """Standard deviations of columns, without their tails if the middle varies, too."""
    share = (weight / weight.sum())[:, None]
    mean = (share * A).sum(0)
    sd = (share * (A - mean).square()).sum(0).sqrt()
    low, high = np.quantile(A.numpy(force=True), [0.1, 0.9], axis=0)
    middle = torch.as_tensor(high - low).to(A) / 2.56  # as of a normal distribution
    sd = torch.where(middle > 0.0, torch.minimum(sd, middle), sd)
    return torch.where(sd > 0.0, sd, 1.0)


def _same_inputs(X, weight, group=None, forward=False):
    """For each row its unique input, and for each of these its first row; in their order if none agree.

    With `forward` they are in the order of groups.
    """
    tolerance = _SAME_INPUT * _spread(X, weight)
    values, order = X.sort(0)
    steps = (values.diff(dim=0) > tolerance).cumsum(0)
    levels = torch.zeros_like(order).scatter(0, order[1:], steps)
    if group is not None:
        levels = torch.cat([group[:, None].to(levels), levels], 1)
    _, index = torch.unique(levels, dim=0, return_inverse=True)
    own = torch.arange(len(X), device=X.device)
    n_unique = int(index.max()) + 1
    if n_unique == len(X) and not forward:
        return own, own
    first = torch.full_like(own[:n_unique], len(X)).scatter_reduce(0, index, own, "amin")
    return index, first


def _records(points, y, tolerance, one_target):
    """Numbers of the records that unique inputs are copies of."""
    points, y = points.numpy(force=True), y.numpy(force=True)
    n, radius = len(points), _NEAR_COPY * points.shape[1] ** 0.5
    tree = cKDTree(points)
    near = tree.query(points, 2, distance_upper_bound=radius)[0][:, 1]
    near = np.flatnonzero(np.isfinite(near) & one_target.numpy(force=True))
    distances, found = tree.query(points[near], _MOST_COPIES + 2)  # infinite beyond the last one
    pairs = [np.zeros((0, 2), dtype=np.int64)]
    for i in range(1, _MOST_COPIES + 1):  # the first one is the row itself
        beyond = distances[:, i + 1]
        is_gap = (distances[:, i] <= radius) & (beyond >= _GAP * distances[:, i])
        copies = np.stack([near[is_gap].repeat(i), found[is_gap, 1 : i + 1].ravel()], 1)
        pairs.append(copies[one_target.numpy(force=True)[copies[:, 1]]])
    pairs = np.concatenate(pairs)
    same = (np.abs(y[pairs[:, 0]] - y[pairs[:, 1]]) <= tolerance.numpy(force=True)).all(1)
    edges = coo_array((np.ones(same.sum()), tuple(pairs[same].T)), shape=(n, n))
    return connected_components(edges, directed=False)[1]


class Remembered:
    """Cache of the neighbors of training rows, for repeated searches in training."""

    def __init__(self, search, n_rows):
        self._search = search
        self._known = np.zeros(n_rows, dtype=bool)
        self._found = np.empty((n_rows, search.n_neighbors), dtype=np.int64)

    def of_rows(self, rows, chosen):
        """As of the search, for rows that have as many neighbors each."""
        new = chosen[~self._known[chosen]]
        if len(new):
            found = self._search.of_rows(rows, new)
            if found.shape[1] < self._found.shape[1]:  # there are too few
                return self._search.of_rows(rows, chosen)
            self._found[new], self._known[new] = found, True
        return self._found[chosen]


def _farther(distances):
    """Whether unique inputs are farther than those before, beyond rounding."""
    farther = distances[:, 1:]
    return farther - distances[:, :-1] > _TIE * farther


def _ranked(points, rows, found):
    """Distances, and in their order indices, of points (n, k) found by products, which round more."""
    squared = np.zeros(found.shape)
    for of_points, of_rows in zip(points.T, rows.T):
        squared += np.square(of_points[found] - of_rows[:, None])
    order = np.argsort(squared, axis=1, kind="stable")
    return np.sqrt(np.take_along_axis(squared, order, 1)), np.take_along_axis(found, order, 1)


def _finder(points):
    """A function of rows and a number to the distances and indices of the nearest points, as many for each."""
    variance = points.var(0)
    order = np.argsort(-variance, kind="stable")  # those that count most first: sums end early
    if variance[order[:_TREE_COLUMNS]].sum() < _MOST * variance.sum():
        compare = NearestNeighbors(algorithm="brute").fit(points).kneighbors
        return lambda rows, n: _ranked(points, rows, compare(rows, n, return_distance=False))
    tree = cKDTree(points[:, order], leafsize=_LEAF)
    # of one point, the tree gives no second axis
    return lambda rows, n: [part.reshape(len(rows), n) for part in tree.query(rows[:, order], n)]


class NeighborSearch:
    """Looks for the nearest unique inputs, in units of what `inputs` gives; never changes."""

    def __init__(self, Z, metric, n_neighbors, inputs=None):
        self.metric, self.n_neighbors = metric, n_neighbors
        self._inputs = inputs if inputs is not None else lambda X: X
        self.n_unique = len(Z)
        points = self._points(Z)
        self._find, self._of_Z = _finder(points), torch.as_tensor(points)

    def _points(self, X):
        with torch.no_grad():
            return self._inputs(X).numpy(force=True) / self.metric

    def _by_distances(self, X, k):
        """Nearest unique inputs by the distances to all of them, as a tensor."""
        points, Z = self._inputs(X) / torch.as_tensor(self.metric).to(X), self._of_Z.to(X.device)
        squared = sum((x[:, None] - z).square() for x, z in zip(points.T, Z.T))
        return squared.topk(k, largest=False).indices.flip(1)

    def of_rows(self, rows, chosen):
        """Search for neighbors of the chosen training rows, without the records left out with them."""
        left_out = rows.left_out(chosen)
        if not rows.forward:
            return self(rows.X[chosen], left_out, rows.records)
        n_before = np.searchsorted(rows.records, left_out)
        k, X = min(self.n_neighbors, int(n_before.min(initial=self.n_unique))), rows.X[chosen]
        found = np.zeros((len(chosen), k), dtype=np.int64)
        for n in np.unique(n_before):
            own = np.flatnonzero(n_before == n)
            nearest = self._of_first(n)(X[own])
            found[own] = nearest[:, nearest.shape[1] - k :]
        return found

    def _of_first(self, n):
        """The search among the first `n` unique inputs."""
        first = copy.copy(self)
        first.n_unique, first._of_Z = int(n), self._of_Z[:n]
        if n:
            first._find = _finder(first._of_Z.numpy())
        return first

    def __call__(self, X, left_out=None, records=None):
        """Indices (n, k) of the nearest unique inputs, the nearest last, as many for each row."""
        fewer = 0
        if left_out is not None and (left_out >= 0).any():
            counts = np.bincount(records, minlength=int(left_out.max()) + 1)
            fewer = int(counts[left_out[left_out >= 0]].max())
        n_unique, k = self.n_unique, min(self.n_neighbors, self.n_unique - fewer)
        if is_exporting() and k > 0:
            return self._by_distances(X, k)
        if k <= 0 or len(X) == 0:
            return np.zeros((len(X), 0), dtype=np.int64)
        points = self._points(X)
        n_found = min(k + fewer + 1, n_unique)
        distances, found = self._find(points, n_found)
        tied = ~_farther(distances[:, k - 1 :]).all(1)
        if tied.any():  # of those at the same distance the first ones, independent of rounding
            distances, more = self._find(points[tied], min(n_found + _SPARE, n_unique))
            rank = np.pad(np.cumsum(_farther(distances), 1), ((0, 0), (1, 0)))
            order = np.lexsort((more, rank))[:, :n_found]
            found[tied] = np.take_along_axis(more, order, 1)
        if fewer:  # sorted to the end; without them, the farthest go
            order = np.argsort(records[found] == left_out[:, None], axis=1, kind="stable")
            found = np.take_along_axis(found, order, 1)
        return found[:, :k][:, ::-1].copy()
