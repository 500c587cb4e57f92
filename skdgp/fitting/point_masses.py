"""Values that many targets equal, such as zero, with a probability of their own."""

import numpy as np

from ..estimators._sklearn import no_progress
from ..estimators.classifier import DeepGPClassifier
from ..gp.kernels import RationalQuadratic
from ..inference import Vecchia
from ..parallel import divides
from ..predictive.point_masses import PointMasses
from .mixture_fit import fit_estimator
from .table import Data

_LEAST = 0.1  #: share of the rows in each part: of fewer neither is learned
_FEWEST = 20  #: rows in each part
_TIMES = 2.0  #: as frequent as any other target: values of a scale have about equal shares
#: of the distance from an atom to the nearest other target: log densities spread the atom over such a width.
#: No data decide it; a tenth keeps the atom apart from all other targets
_WIDTH = 0.1
_NEIGHBORS, _STEPS = 24, 100  #: of the classifier: as members of classes have
_ROWS = 50_000  #: that it learns from at most: 4 seconds, of a budget of 60
_SHARE = 0.2  #: of the time that a user gives


def learn(estimator, data, held_out, seed, started):
    """Find atoms at the ends of the targets; returns them or None, and the rows that are none.

    At least a tenth of the targets equal an atom, not all others do, and no other value is more than half as
    frequent. The rows are not scaled yet, and `held_out` may be None.
    """
    nothing = None, data, held_out
    given = estimator.likelihood, estimator.inference
    automatic = all(isinstance(part, str) and part == "auto" for part in given)
    automatic &= isinstance(estimator.init, str) and data.log_exposure is None
    if not automatic or data.y.shape[1] > 1 or divides():
        return nothing
    y, weights = data.y[:, 0], data.weights
    distinct, index = np.unique(y, return_inverse=True)
    counts, least = np.bincount(index, weights), max(_FEWEST, _LEAST * weights.sum())
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
    classifier = _classifier(estimator, data, labels, seed, started)
    atoms = PointMasses(values.astype(np.float64), _WIDTH * gaps, classifier)
    return atoms, data.part(np.flatnonzero(rest)), held_out


def _classifier(estimator, data, labels, seed, started):
    steps, seconds = estimator.max_iter, estimator.max_time
    model = DeepGPClassifier(
        n_layers=1,
        inference=Vecchia(_NEIGHBORS),
        kernel=RationalQuadratic(),
        max_iter=_STEPS if steps is None else min(steps, _STEPS),
        max_time=None if seconds is None else _SHARE * seconds,
        device=estimator.device,
        dtype=estimator.dtype,
        n_threads=estimator.n_threads,
        random_state=seed,
    )
    for name in ("_reader", "n_features_in_", "feature_names_in_"):
        if name in vars(estimator):
            setattr(model, name, getattr(estimator, name))
    encoded = model._encode(labels, reset=True)
    rows = Data(data.X, encoded, data.weights, data.kinds)
    if len(rows) > _ROWS:
        chosen = np.random.default_rng(seed).choice(len(rows), _ROWS, replace=False)
        rows = rows.part(np.sort(chosen))
    fit_estimator(model, rows, None, no_progress, started)
    return model
