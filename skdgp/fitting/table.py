"""Training rows, and how they are scaled."""

import numpy as np

from ..gp.likelihoods.counts import at_one_exposure
from ..preprocessing.encoding import ColumnEncoder
from ..preprocessing.outliers import pieces, weighted_moments
from ..preprocessing.scaling import InputScaler
from ..preprocessing.target_scaling import TargetScaler, moments
from ..preprocessing.warping import Warp
from ..training.greedy import as_numbers, stand_in
from .left_out import held_groups, last_groups

#: numbers that are scaled and kept at once; larger data are read batch by batch
PRELOAD = 20_000_000
_PILE, _PILED = 5.0, 0.1  #: rows with the same target, at least, and their share
_REACH = 5.0  #: standard deviations of targets from which levels get their positions: outliers count less
_WARP_ROWS = 10_000  #: whose ranges warped columns know
_MERGE = 20_000_000  #: numbers up to which repeated rows are merged


class Table:
    """Rows in the user's units, and how they are scaled.

    `X` (n, d) may be a memory map, `y` has shape (n, k), and `weights` (n,) say how often each row counts.
    `kinds` of the columns are those of :class:`~skdgp.preprocessing.frames.FrameReader`, and `log_exposure`
    (n, 1) is for counts. Rows of one of the `groups` (n,), of int, are left out together; None if each row is
    one. With `forward`, groups are blocks of time, and later ones leave, too; the first is never left out.
    The `time` is the position of its column of X, or None, and `group` that of the codes of groups.
    `inputs` (n, n_encoded) are complete rows of numbers, before they are scaled.
    """

    def __init__(
        self, X, y, weights, kinds=None, log_exposure=None, groups=None, forward=False, time=None
    ):
        self.X, self.y, self.weights, self.kinds = X, y, weights, kinds
        self.log_exposure, self.groups = log_exposure, groups
        self.forward, self.time, self.group = forward, time, None
        self.inputs, self.x_scaler, self.y_scaler = X, None, None
        #: numbers of these rows for each row of the table that they are merged from
        self.index = None
        #: (n,), known precisions of the noise, relative to that of the likelihood
        self.precision = None

    def __len__(self):
        return len(self.X)

    def part(self, rows):
        """Some of the rows, scaled alike if these are; very large tables are read where they are."""
        weights, n = self.weights, len(rows)
        equal = weights.strides == (0,)  # broadcast, which takes no memory
        part = self._with(rows, np.broadcast_to(weights[:1], n) if equal and n else weights[rows])
        part.x_scaler, part.y_scaler = self.x_scaler, self.y_scaler
        if self.inputs is not self.X:
            part.inputs = some_rows(self.inputs, rows)
        return part

    def _with(self, rows, weights):
        """Some rows, in the user's units, with these weights."""
        exposure, groups = (
            None if part is None else part[rows] for part in (self.log_exposure, self.groups)
        )
        columns = some_rows(self.X, rows), self.y[rows], weights, self.kinds
        part = Table(*columns, exposure, groups, self.forward, self.time)
        part.group = self.group
        part.precision = None if self.precision is None else self.precision[rows]
        return part

    def targets(self):
        """Targets in the user's units, (n_rows, k), with a column of log exposures if there are some."""
        return self.y if self.log_exposure is None else np.hstack([self.y, self.log_exposure])

    def scale(
        self,
        standardize,
        scale_target,
        rng,
        target_maps=None,
        likelihood=None,
        straight=False,
        has_effects=False,
    ):
        """Learn the scaling from these rows; `target_maps` is a function without arguments, or None.

        The likelihood and mapped targets decide on the positions of levels of categories. With `straight`,
        inputs are scaled linearly beyond these rows. With `has_effects`, some models have effects of levels.
        """
        of_inputs = likelihood, straight, has_effects
        known, state = self.y_scaler, rng.get_state()
        self.x_scaler = self._input_scaler(standardize, rng, *of_inputs)
        maps = target_maps and target_maps()
        self.y_scaler = TargetScaler(standardize and scale_target, maps).fit(self.y, self.weights)
        if known is None and self.x_scaler.encoder is not None and any(self.y_scaler.names):
            rng.set_state(state)  # all again, by targets as models see them
            self.x_scaler = self._input_scaler(standardize, rng, *of_inputs)
        return self

    def _input_scaler(self, standardize, rng, likelihood, straight, has_effects):
        """Encode the rows, if they need that, and learn to scale what comes out."""
        encoder = None
        has_gaps = any(np.isnan(self.X[rows]).any() for rows in pieces(len(self)))
        if self.kinds is not None or has_gaps:
            targets, _ = stand_in(likelihood, self._mapped(None), self.weights)
            targets = np.clip(targets, -_REACH, _REACH)
            kinds = list(self.kinds or ["number"] * self.X.shape[1])
            if self.time is not None and kinds[self.time] == "date":
                kinds[self.time] = "timeline"
            if self.group is not None:
                kinds[self.group] = "group"
            how = likelihood.is_class, has_effects, bool(likelihood._units)
            encoder = ColumnEncoder().fit(self.X, targets, self.weights, kinds, rng, *how)
            self._remember_targets(encoder, likelihood)
            # of deterministic runs, positions of levels are those of predictions, so that these interpolate
            self._encode(encoder, None if likelihood.is_noiseless else encoder.folds)
        scaler = InputScaler(standardize, encoder, straight, self.group, has_effects)
        return scaler.fit(self.inputs, self.weights, rng)

    def warp(self, likelihood):
        """Warp scaled columns where this raises the marginal likelihood enough, see :class:`Warp`."""
        X, y, weights = self.sample(_WARP_ROWS, np.random.RandomState(0))
        targets, _ = stand_in(likelihood, at_one_exposure(y, self.y.shape[1]), weights)
        self.x_scaler.warp = Warp.learn(X, targets, weights)

    def scale_as(self, x_scaler, y_scaler):
        """Take the scaling from elsewhere."""
        if y_scaler is not None:
            y_scaler.check(self.y)
        if x_scaler is not None and x_scaler.encoder is not None and x_scaler is not self.x_scaler:
            self._encode(x_scaler.encoder, None)
        self.x_scaler, self.y_scaler = x_scaler, y_scaler
        return self

    def _remember_targets(self, encoder, likelihood):
        """Keep what makes targets of later chunks comparable to these."""
        classes = np.unique(self.y) if likelihood.is_class else None
        exposure = None if self.log_exposure is None else self.log_exposure.mean()
        numbers = as_numbers(likelihood, self._mapped(exposure), classes)
        mean, std = weighted_moments(numbers, self.weights)
        encoder.of_targets = classes, exposure, mean, np.where(std > 0.0, std, 1.0)

    def learn_levels(self, x_scaler, y_scaler, likelihood):
        """A scaler that places the levels that are new in these rows, by targets that `y_scaler` maps."""
        if x_scaler.encoder is None:
            return x_scaler
        y_scaler.check(self.y)
        self.y_scaler = y_scaler
        classes, exposure, mean, std = x_scaler.encoder.of_targets
        targets = (as_numbers(likelihood, self._mapped(exposure), classes) - mean) / std
        targets = np.clip(targets, -_REACH, _REACH)
        return x_scaler.with_encoder(x_scaler.encoder.with_levels(self.X, targets, self.weights))

    def _mapped(self, log_exposure):
        """Mapped targets (n_rows, k) if a map is known; counts as if all rows had this exposure."""
        y = at_one_exposure(self.targets(), self.y.shape[1], log_exposure)
        y = y if self.y_scaler is None else self.y_scaler.mapped(y)
        if y.dtype.kind == "f" and np.isnan(y).any():  # of outputs that are missing
            y = np.where(np.isnan(y), moments(y, self.weights)[0], y)
        return y

    def _encode(self, encoder, folds):
        self.inputs = EncodedRows(self.X, encoder, folds)
        if self.X.size <= PRELOAD:
            self.inputs = self.inputs[:]

    def take(self, rows):
        """Scaled inputs, scaled targets (and log exposures, if there are some) and weights of rows.

        A row of twice the precision is two rows.
        """
        y = self.y_scaler.transform(self.y[rows])
        if self.log_exposure is not None:
            y = np.hstack([y, self.log_exposure[rows]])
        weights = self.weights[rows]
        precision = self.precisions(rows)
        if precision is not None:
            weights = weights * precision
        return self.x_scaler.scaled(self.inputs[rows]), y, weights

    def precisions(self, rows):
        """Precisions of the noise of rows relative to that of the likelihood, (n_rows,); None if all are one.

        They are the known ones, less by what gaps hide of the target.
        """
        known = None if self.precision is None else self.precision[rows]
        encoder = self.x_scaler.encoder
        of_gaps = None if encoder is None else encoder.precision(self.X[rows])
        if known is None or of_gaps is None:
            return of_gaps if known is None else known
        return known * of_gaps

    def noise(self):
        """Noise variances of all rows, as :meth:`~skdgp.preprocessing.encoding.ColumnEncoder.noise`."""
        encoder = self.x_scaler.encoder
        return None if encoder is None else encoder.noise(self.X)

    def sample(self, n, rng):
        """Return at most `n` random rows, see :meth:`take`."""
        if len(self) <= n:
            return self.take(slice(None))
        return self.take(np.sort(rng.choice(len(self), n, replace=False)))

    def mean_log_jacobian(self):
        """Return the term that converts a mean log density to the target's units."""
        return self.y_scaler.mean_log_jacobian(self.y, self.weights)

    def merged(self):
        """Distinct rows with summed weights, in an order that depends on their values alone.

        A weight of two and a repeated row are the same problem, to the last bit. Very large data stay.
        """
        if self.X.size + self.y.size > _MERGE:
            return self
        of_groups = () if self.groups is None else (self.groups,)
        parts = [self.X, self.targets()]
        # blocks of time in their order
        parts = [*of_groups, *parts] if self.forward else [*parts, *of_groups]
        table = np.column_stack(parts).astype(np.float64)
        table += 0.0  # which turns -0.0 into 0.0
        table[np.isnan(table)] = np.nan  # one of the many bit patterns
        keys = sortable(table).view(np.dtype((np.void, table.itemsize * table.shape[1])))[:, 0]
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        weights = np.bincount(inverse.ravel(), weights=self.weights)
        merged = self._with(first, weights)
        merged.index = inverse.ravel()
        if self.precision is not None:
            total = np.bincount(merged.index, weights=self.weights * self.precision)
            merged.precision = total / weights
        return merged

    def piles_up(self):
        """Whether many targets equal the smallest or largest one: heavy tails take others for outliers."""
        total = self.weights.sum()
        ends = (self.y == end for end in (self.y.min(0), self.y.max(0)))
        most = max(float((self.weights @ at_end).max()) for at_end in ends)
        return most >= max(_PILE, _PILED * total)

    def held_groups(self, n_held, labels, rng):
        """Positions of about `n_held` rows: of random groups, or of the last blocks of time."""
        if self.forward:
            return last_groups(self.groups, n_held, labels)
        return held_groups(self.groups, n_held, labels, rng)

    def split(self, fraction, rng, labels=None):
        """Two parts, the second with about this fraction of the rows, and of each class if there are `labels`.

        Rows that agree in everything stay together, as copies of one, but not where rows with the same inputs
        have other targets, or where they are so many that a part would lack them altogether. Groups do not
        divide; the second part has the last blocks of time.
        """
        if self.groups is not None:
            held = self.held_groups(max(1, round(fraction * len(self))), labels, rng)
            if not len(held):
                each = "the last block of time has" if self.forward else "each group has"
                raise ValueError(
                    f"early_stopping=True holds groups out, and {each} the last rows of a class; give "
                    "X_val and y_val instead."
                )
            return self.part(np.delete(np.arange(len(self)), held)), self.part(held)
        repeated = np.zeros(len(self), dtype=bool)
        if self.X.size + self.y.size <= _MERGE:  # and hence sorted
            same = (self.X[1:] == self.X[:-1]).all(1)
            repeated[1:] |= same
            repeated[:-1] |= same
        repeated |= self.weights * min(fraction, 1.0 - fraction) >= 1.0
        repeated &= (self.weights % 1.0 == 0.0) & (self.weights < _MERGE / len(self))
        counts = np.where(repeated, self.weights, 1.0).astype(np.int64)
        size = np.where(repeated, 1.0, self.weights)
        order = np.repeat(np.arange(len(self)), counts)
        n_held = min(max(1, round(fraction * len(order))), len(order) - 1)
        if labels is None:
            chosen = rng.permutation(order)[:n_held]
        else:
            of_rows = labels[order]
            chosen = stratified(len(order), n_held, of_rows, rng)
            chosen = order[without_last_of_class(chosen, of_rows)]
            if not len(chosen):
                raise ValueError(
                    "early_stopping=True holds rows out, and these are the last ones of their classes; give "
                    "X_val and y_val instead, or set early_stopping=False."
                )
        held = np.bincount(chosen, minlength=len(self))
        parts = ((np.flatnonzero(share), share * size) for share in (counts - held, held))
        return tuple(self._with(rows, weights[rows]) for rows, weights in parts)


def stratified(n, n_chosen, labels, rng):
    """Random rows, in which each class has its share up to one row; all alike without labels."""
    if labels is None:
        return rng.choice(n, n_chosen, replace=False)
    order = rng.permutation(n)
    order = order[np.argsort(labels[order], kind="stable")]
    places = (np.arange(n_chosen) + rng.random()) * (n / n_chosen)
    return rng.permutation(order[np.minimum(places.astype(np.int64), n - 1)])


def without_last_of_class(held, labels):
    """Held-out rows of which one of each class goes back that would be missing from the rest."""
    kept = np.ones(len(held), dtype=bool)
    for label in np.unique(labels[held]):
        own = np.flatnonzero(labels[held] == label)
        kept[own[0]] = len(own) < np.count_nonzero(labels == label)
    return held[kept]


def some_rows(X, rows):
    """Some rows of a table; very large ones are read where they are, when they are asked for."""
    if isinstance(rows, slice) and rows == slice(None):
        return X
    return Rows(X, rows) if X.size > PRELOAD else X[rows]


def sortable(table):
    """Bytes that compare as the float64 numbers of a table do."""
    bits = np.ascontiguousarray(table).view(np.uint64)
    sign = np.uint64(1) << np.uint64(63)
    return np.where(bits & sign, ~bits, bits | sign).astype(">u8")


def with_column(X, column):
    """A table with one more column behind the others; very large ones are read where they are."""
    column = column.astype(X.dtype)
    rows = Rows(X, np.arange(len(X)), column)
    return rows if X.size > PRELOAD else rows[:]


class Rows:
    """Rows of a table, which may be a memory map, read when they are asked for.

    A `column` (n,) is behind those of the table.
    """

    def __init__(self, table, index, column=None):
        self._table, self._index, self._column = table, index, column
        self.shape, self.dtype = (len(index), table.shape[1] + (column is not None)), table.dtype
        self.size = len(index) * self.shape[1]

    def __len__(self):
        return len(self._index)

    def __getitem__(self, rows):
        found = self._table[self._index[rows]]
        return found if self._column is None else np.column_stack([found, self._column[rows]])


class EncodedRows:
    """Rows of a table, encoded when they are asked for; training rows have `folds` (n,)."""

    dtype = np.dtype(np.float64)

    def __init__(self, table, encoder, folds):
        self._table, self._encoder, self._folds = table, encoder, folds
        self.shape = len(table), len(encoder.sources)
        self.size = self.shape[0] * self.shape[1]

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, rows):
        folds = None if self._folds is None else self._folds[rows]
        return self._encoder.transform(self._table[rows], folds)
