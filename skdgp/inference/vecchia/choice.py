"""The choice of the number of neighbors, and of inducing points beside them."""

import numpy as np
import torch

NEIGHBORS = 16, 32, 64  #: option: to choose from
_WORTH = 0.03  #: option: nats a row that twice the neighbors must gain: predictions take three times as long
_ROWS = 300  #: option: that decide
#: option: inducing points of a full-scale approximation: 200 lose .05 nats on kin8nm
_INDUCING = 500
_FEWEST_INDUCING = 50  #: option: that are worth their time
#: option: for each of them: fewer unique inputs are as soon given to an exact process
_ROWS_OF_EACH = 10
_MOST_FEATURES = 15_000_000  #: memory: of all unique inputs, 120 MB
_SHARE = 0.25  #: max_time: of the time for them, if that is limited
_CUBES = 40.0  #: max_time: their cost over P m^2, measured for 7,000 and 30,000 rows: 34 and 41


@torch.no_grad()
def choose_neighbors(model, rows, full_scale, limits):
    """Take more neighbors while leave-one-out densities of some training rows rise by enough.

    Where they do, functions are smooth, and inducing points may do better: `full_scale` of them at most, or 500
    if that is None. The `limits` are seconds and cubes, or None.
    """
    best, before = -np.inf, model.n_neighbors
    chosen = np.random.default_rng(1).permutation(rows.predictable())[:_ROWS]

    def score():
        found = model.posterior(model.draws(1, 0)).loo_log_density(chosen)
        return float(np.average(found, weights=rows.count[chosen].numpy(force=True)))

    for k in NEIGHBORS:
        model.take(k)
        now = score()
        if now < best + _WORTH:
            break
        best, before = now, k
    model.take(before)
    smooth = before > NEIGHBORS[0] and full_scale != 0 and not rows.forward
    if smooth and model.rows.y.shape[1] == 1:
        n = _most_inducing(len(model.rows.Z), full_scale or _INDUCING, limits)
        if n >= _FEWEST_INDUCING:
            model.take(NEIGHBORS[0])
            model.induce(n)
            if score() < best + _WORTH:
                model.induce(0)
                model.take(before)


def _most_inducing(n_rows, most, limits):
    """The largest number of inducing points that rows, memory and time allow."""
    most = min(most, n_rows // _ROWS_OF_EACH, _MOST_FEATURES // n_rows)
    if limits is not None:
        most = min(most, int((_SHARE * limits[1] / (_CUBES * n_rows)) ** 0.5))
    return most
