"""Values that many targets equal, such as zero, with a probability of their own."""

import numpy as np

from ..gp.likelihoods import CLASSIFICATION, as_likelihood
from ..parallel import divides
from ..predictive.point_masses import LEAST_SHARE, PointMasses
from ..preprocessing.few_rows import FEWEST
from .plan import neighbors_of_classes
from .settings import Settings, Task
from .table import Table

_TIMES = 2.0  #: frequency over that of any other target; values of a scale are about as frequent
#: Width of a point mass in log densities, relative to the distance to the nearest other target. A convention: a
#: tenth keeps the value apart from all other targets.
_WIDTH = 0.1
_ROWS = 50_000  #: time: largest number of rows that the classifier learns from
_SHARE = 0.2  #: max_time: fraction of it that the classifier has


def learn(table, held_out, settings, seed, started):
    """Find point masses at the ends of the targets; returns them or None, and the rows of all other targets.

    At least a tenth of the targets equal the value, not all others do, and no other value is more than half as
    frequent. The rows are not scaled yet, and `held_out` may be None.
    """
    nothing = None, table, held_out
    if table.y.shape[1] > 1 or table.log_exposure is not None or divides():
        return nothing
    y, weights = table.y[:, 0], table.weights
    distinct, index = np.unique(y, return_inverse=True)
    counts, least = np.bincount(index, weights), max(FEWEST, LEAST_SHARE * weights.sum())
    most = max(least, _TIMES * counts[1:-1].max(initial=0.0))
    values = distinct[[end for end in (0, -1) if counts[end] >= most]]
    rest, others = ~np.isin(y, values), np.setdiff1d(distinct, values)
    if not len(values) or weights[rest].sum() < least or len(others) < 2:
        return nothing
    if held_out is not None:
        held_out = held_out.part(np.flatnonzero(~np.isin(held_out.y[:, 0], values)))
        if not len(held_out):
            return nothing
    labels = np.where(rest, len(values), np.searchsorted(values, y)).astype(np.float64)
    gaps = np.abs(values[:, None].astype(np.float64) - others).min(1)
    classes = _classes(table, labels, settings, seed, started)
    masses = PointMasses(values.astype(np.float64), _WIDTH * gaps, classes)
    return masses, table.part(np.flatnonzero(rest)), held_out


def _classes(table, labels, settings, seed, started):
    """A classifier of the rows: one class for each value, and a last one for all other targets."""
    from .mixture import fit_mixture
    from .problem import Problem

    most, seconds, n_classes = settings.max_iter, settings.max_time, int(labels.max()) + 1
    settings = Settings(
        max_time=None if seconds is None else _SHARE * seconds,
        device=settings.device,
        dtype=settings.dtype,
        n_threads=settings.n_threads,
        random_state=seed,
    )
    left_out = {"groups": table.groups, "forward": table.forward}
    rows = Table(table.X, labels[:, None], table.weights, table.kinds, **left_out)
    rows.group = table.group
    if len(rows) > _ROWS:
        chosen = np.random.default_rng(seed).choice(len(rows), _ROWS, replace=False)
        rows = rows.part(np.sort(chosen))
    name = "probit" if n_classes == 2 else "softmax"
    likelihood = as_likelihood(name, CLASSIFICATION)

    def plans(table):
        near = neighbors_of_classes(likelihood)
        near.max_iter = min(near.max_iter, most or near.max_iter)
        return [near]

    task = Task(table.X.shape[1], n_classes)
    problem = Problem(rows, plans, settings, task, started=started)
    return fit_mixture(problem).fitted
