"""Some training rows, which stand for all of them."""

import numpy as np

N_ROWS = 200  #: training rows that are kept
_CHANGES = 800  #: changed rows that are predicted for all columns together
_FEWEST, _MOST = 8, 200  #: changed rows of one column
_FEW_VALUES = 10  #: values of a column up to which each of them is sure to occur
_OF_A_VALUE = 8  #: rows with a rare value
_LOOKED_AT = 2_000_000  #: numbers in the rows from which those are drawn, for the sake of time
_GOLDEN = 0.5 * (np.sqrt(5.0) - 1.0)  #: steps of this length cover an interval evenly


class TrainingSample:
    """Rows, and in each of their columns the values of other rows.

    `rows` (n, n_features), in the user's units, stand for shares `weights` (n,) of the data; 0 for rows that
    are there for a rare value of a column. In pair i of m, `column` i of the row number `row` i changes to
    `value` i, which stands for the `share` i of all pairs; pairs of equal values need none. Columns are
    the first `n_columns`.
    """

    def __init__(self, X, weights=None, n_rows=N_ROWS, n_changes=None, n_columns=None):
        index, most = slice(None), max(n_rows, _LOOKED_AT // X.shape[1])
        equal = weights is None or weights.strides == (0,)  # which saves memory
        p = np.ones(min(len(X), most)) if equal else np.asarray(weights, dtype=np.float64)
        if len(X) > most and equal:
            index = ((np.arange(most) + 0.5) * (len(X) / most)).astype(np.intp)
        elif len(X) > most:
            index, p = at_even_steps(p, most)
        X, p = np.asarray(X[index], dtype=np.float64)[:, :n_columns], p / p.sum()
        self._n_changes, self._complete = n_changes, len(X) <= n_rows
        kept = (np.arange(len(X)), p) if self._complete else at_even_steps(p, n_rows)
        self._choose(X, p, *kept)

    def _choose(self, X, p, kept, shares):
        rng, n_changes = np.random.RandomState(0), self._n_changes
        differs = (X != X[:1]) & ~(np.isnan(X) & np.isnan(X[:1]))
        varying = np.flatnonzero(differs.any(0))
        if n_changes is None:
            n_changes = int(np.clip(_CHANGES // max(1, len(varying)), _FEWEST, _MOST))
        numbers = dict(zip(kept.tolist(), range(len(kept))))  # of rows, in the order they come
        parts = [_of_column(X[:, j], p, kept, shares, n_changes, rng) for j in varying]
        rows = [numbers.setdefault(i, len(numbers)) for i, _, _ in parts for i in i.tolist()]
        self.rows, self.row = X[list(numbers)], np.array(rows, dtype=np.intp)
        self.weights = np.append(shares, np.zeros(len(numbers) - len(kept)))
        self.column = np.repeat(varying, [len(i) for i, _, _ in parts])
        self.value, self.share = (
            np.concatenate([np.empty(0), *(part[k] for part in parts)]) for k in (1, 2)
        )

    def __getstate__(self):  # rows tell the pairs, if they are all rows
        left_out = ("column", "row", "value", "share") if self._complete else ()
        return {name: value for name, value in vars(self).items() if name not in left_out}

    def __setstate__(self, state):
        self.__dict__.update(state)
        if self._complete:
            self._choose(self.rows, self.weights, np.arange(len(self.rows)), self.weights)

    def __len__(self):
        return len(self.rows) + len(self.row)

    def sample(self, n):
        """Some rows (n, n_features) that stand for equal shares of the data."""
        return self.rows[np.repeat(*at_even_steps(self.weights, n, counts=True))]


def at_even_steps(p, n, counts=False):
    """Systematic sample: positions of at most `n` distinct entries, and how much each of them stands for."""
    total = np.cumsum(p)
    points = (np.arange(n) + 0.5) * (total[-1] / n)
    chosen, times = np.unique(np.searchsorted(total, points, side="right"), return_counts=True)
    return chosen, times if counts else times / n


def _of_column(column, p, kept, shares_, n, rng):
    """Pairs of rows with different values of a column: rows, new values, and shares.

    Both ends cover the values evenly. Where values are few, rare ones have rows of their own, so that a flag
    counts by its share of the data, whatever rows are kept.
    """
    values, code = np.unique(column, return_inverse=True)
    of_value = np.bincount(code, p)
    own = code[kept]
    if len(values) <= _FEW_VALUES:
        found = np.bincount(own, minlength=len(values))
        for rare in np.flatnonzero(found < _OF_A_VALUE):
            those = np.flatnonzero(code == rare)
            size = min(_OF_A_VALUE, np.count_nonzero(p[those]))
            chosen = rng.choice(those, size, False, p[those] / of_value[rare])
            plain = own != rare
            kept, shares_ = np.append(kept[plain], chosen), np.append(shares_[plain], np.ones(size))
            own = code[kept]
        shares_ = shares_ * (of_value / np.bincount(own, shares_))[own]
    order = np.argsort(own, kind="stable")
    others = np.cumsum((shares_ * (1.0 - of_value[own]))[order])
    steps = np.arange(n)
    at = np.searchsorted(others, (steps + 0.5) * (others[-1] / n), side="right")
    chosen = order[np.minimum(at, len(order) - 1)]
    before, total = own[chosen], np.cumsum(of_value)
    point = (_GOLDEN * (steps + 1.0)) % 1.0 * (1.0 - of_value[before])
    point = np.where(point >= total[before] - of_value[before], point + of_value[before], point)
    after = np.minimum(np.searchsorted(total, point, side="right"), len(values) - 1)
    pairs, times = np.unique(np.stack([kept[chosen], after]), axis=1, return_counts=True)
    share = (1.0 - of_value @ of_value) * times / n
    return pairs[0], values[pairs[1]], share
