"""Starts of lengthscales, where those of the kernel are so long that a function looks like noise."""

import copy

import numpy as np
import torch

from ..gp.rows import FEW_ROWS
from .greedy import stand_in
from .reference import MOST_GAIN, LeaveOneOut, constant_log_density

_FACTORS = (0.3, 0.1, 0.03, 0.01)  #: of all lengthscales, or of one column's
_ELSEWHERE = 10.0  #: factor of the other columns' lengthscales
_MOST_COLUMNS = 10  #: beyond which rows are too few for short lengthscales
_GAIN = 0.3  #: nats per row by which a start must be better; of noise, the best of all gains .03
_BLIND = 0.1  #: nats per row that a constant gives as well: columns are then tried one by one


@torch.no_grad()
def shorten_lengthscales(layer, likelihood, H, y, weights):
    """Multiply the lengthscales of a layer by the factor that predicts rows best from all others.

    Searches that begin with long lengthscales take a function with many periods for noise: no
    gradient leads away from there. Nothing changes unless another start is better by far. The layer
    is the last one, whose outputs explain the target; `H` (n_rows, n_inputs) are its inputs, and
    `y` (n_rows, k) targets as the model sees them.
    """
    rows = np.random.default_rng(0).permutation(len(H))[:FEW_ROWS]
    targets, _ = stand_in(likelihood, likelihood.at_one_exposure(y[rows]), weights[rows])
    H, (d, varies) = torch.as_tensor(H[rows]), (H.shape[1], np.ptp(targets, axis=0) > 0.0)
    if not varies.any() or d > _MOST_COLUMNS:
        return
    targets, kernel = targets[:, varies], layer.kernel
    state = copy.deepcopy(kernel.state_dict())

    def gain(factors):
        kernel.load_state_dict(state)
        if not kernel.multiply("lengthscale", factors):
            return -np.inf
        K = kernel()(H, H).numpy()
        loo = LeaveOneOut.best(K * (len(K) / np.trace(K)), targets)
        return (loo.log_density - constant).mean() / targets.shape[1]

    constant = constant_log_density(targets)
    start = best = gain(1.0), 1.0
    if -np.inf < start[0] < MOST_GAIN - _GAIN:
        trials = [np.full(d, factor) for factor in _FACTORS]
        if start[0] < _BLIND and d > 1:
            alone = np.where(np.eye(d, dtype=bool), 1.0, _ELSEWHERE)
            trials += [np.where(one == 1.0, factor, one) for one in alone for factor in _FACTORS]
        best = max(((gain(factors), factors) for factors in trials), key=lambda trial: trial[0])
    kernel.load_state_dict(state)
    if best[0] > start[0] + _GAIN:
        kernel.multiply("lengthscale", best[1])
