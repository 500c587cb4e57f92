"""Seconds of a fit: how members share them, and how many rows they are enough for."""

import heapq
import time

import numpy as np
import torch

from ..parallel import from_first

#: Seconds of a Cholesky factorization over the cube of its rows, by which costs are predicted.
_SECONDS_OF_CUBE = {"cpu": 2e-11, "cuda": 1e-12}
_LEAST = 0.5  #: share of the time that training has, however long scaling took
_STEPS = 10  #: that training should have time for: L-BFGS hardly gets anywhere in fewer
_FEWEST_ROWS = 50  #: that are kept, however short the time
_FEWEST_INDUCING = 30  #: likewise


class Budget:
    """The seconds of a fit, by the clock on the wall; that of the first rank, if several divide it.

    There is no limit if `max_time` is None. The fit began when the monotonic clock stood at
    `started`; `n_jobs` members train at the same time, and share by `costs`, their predicted
    seconds.
    """

    def __init__(self, max_time, started, costs=(1.0,), n_jobs=1):
        self.max_time, self.started = max_time, started
        ends = planned_ends(costs, n_jobs)
        self._shares, self._now = ends / ends.max(), time.monotonic()

    def left(self, i=-1):
        """Seconds until a member is to end, or the last one; None without a limit.

        It has the time that members before it have saved.
        """
        if self.max_time is None:
            return None
        start = self._now - self.started
        end = start + self._shares[i] * max(self.max_time - start, _LEAST * self.max_time)
        end = self.started + (self.max_time if i == -1 else end)
        return from_first(lambda: float(end - time.monotonic()))


def planned_ends(costs, n_jobs):
    """When members end that begin in their order, each as soon as one of `n_jobs` workers is free."""
    free, ends = [0.0] * max(1, min(n_jobs, len(costs))), []
    for cost in costs:
        ends.append(heapq.heappop(free) + max(cost, 1e-9))
        heapq.heappush(free, ends[-1])
    return np.array(ends)


def seconds_of(scheme, n_rows, n_inducing, device, n_steps=1):
    """Predicted seconds of some steps and of what follows the last one, where they grow fast with the rows."""
    step, end = scheme.cubes(n_rows, min(n_inducing, n_rows))
    return (n_steps * step + end) * _SECONDS_OF_CUBE[torch.device(device).type]


def affordable(scheme, seconds, n_rows, n_inducing, is_free, device="cpu"):
    """Rows and inducing points for which `seconds` are enough, as predicted from :meth:`Scheme.cubes`.

    Fewer inducing points come first, if their number `is_free`; only then fewer rows.
    """

    def fits(rows, inducing):
        return seconds_of(scheme, rows, inducing, device, _STEPS) <= seconds

    n_inducing = min(n_inducing, n_rows)
    if fits(n_rows, n_inducing):
        return n_rows, n_inducing
    if is_free:
        most, n_inducing = n_inducing, min(n_inducing, _FEWEST_INDUCING)
        if fits(n_rows, n_inducing):
            return n_rows, _largest(lambda m: fits(n_rows, m), n_inducing, most)
    return _largest(lambda n: fits(n, n_inducing), min(_FEWEST_ROWS, n_rows), n_rows), n_inducing


def _largest(fits, low, high):
    """The largest number for which something fits, or the smallest of all, by bisection."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
