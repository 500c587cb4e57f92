"""The value function of the mountain car."""

from __future__ import annotations

from functools import lru_cache
from numbers import Integral

import numpy as np
from scipy.interpolate import NdBSpline, RegularGridInterpolator
from sklearn.utils import check_random_state, check_scalar

from ._checks import check_noise

_POSITION = (-1.2, 0.5)
_VELOCITY = (-0.07, 0.07)
_N_GRID = 200  #: grid points along each axis; 400 change values by a quarter of a step on average
_ACTIONS = (-1.0, 0.0, 1.0)


def make_mountain_car(
    n_samples: int = 500,
    *,
    noise: float = 0.0,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    r"""Generate the optimal values of the mountain car at random states.

    An underpowered car has to reach the top of a hill on its right, and may have to swing back and
    forth first ([1]_, example 10.1). In each step it chooses an acceleration :math:`a` out of -1, 0
    and 1, and moves by

    .. math:: v \leftarrow v + 0.001 a - 0.0025 \cos(3 x), \quad x \leftarrow x + v .

    The position stays between -1.2, where the car stops, and 0.5, the goal; the velocity between
    -0.07 and 0.07. The value is the negative number of steps to the goal. It falls off cliffs where
    one more swing is needed, and is smooth elsewhere.

    Values are found by value iteration on a grid of 200 positions and 200 velocities, bilinear in
    between, once in a process.

    Parameters
    ----------
    n_samples : int, default=500
        Number of rows.
    noise : float, default=0.0
        Standard deviation of Gaussian noise on the values.
    random_state : int, RandomState instance or None, default=None
        Determines states and noise.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        Positions and velocities, drawn uniformly.
    y : ndarray of shape (n_samples,)
        Values, between -112 and -1 without noise.

    References
    ----------
    .. [1] R. Sutton and A. Barto (2018). Reinforcement learning: an introduction. MIT Press.

    Examples
    --------
    >>> from skdgp.datasets import make_mountain_car
    >>> X, y = make_mountain_car(1000, random_state=0)
    >>> X.shape, bool(-112 < y.min() < -100), round(float(y.max()), 6)
    ((1000, 2), True, -1.0)
    """
    check_scalar(n_samples, "n_samples", Integral, min_val=1)
    check_noise(noise)
    rng = check_random_state(random_state)
    X = rng.uniform(*np.transpose([_POSITION, _VELOCITY]), size=(n_samples, 2))
    y = RegularGridInterpolator(_axes(_N_GRID), _values(_N_GRID))(X)
    return X, y + noise * rng.standard_normal(n_samples)


def _move(position, velocity, action):
    """One step of the car."""
    velocity = np.clip(velocity + 0.001 * action - 0.0025 * np.cos(3.0 * position), *_VELOCITY)
    position = np.clip(position + velocity, *_POSITION)
    return position, np.where(position <= _POSITION[0], 0.0, velocity)


def _axes(n):
    return np.linspace(*_POSITION, n), np.linspace(*_VELOCITY, n)


@lru_cache(maxsize=4)
def _values(n):
    """Fixed point of ``V = max over actions of (V(next state) - 1)``, with V = 0 at the goal.

    Read-only, by position and velocity (n, n). Values of the last position are the limits from the
    left, because there is a jump to the goal for a car that rolls back.
    """
    position, velocity = (axis.ravel() for axis in np.meshgrid(*_axes(n), indexing="ij"))
    moves = [_interpolation(*_move(position, velocity, action), n) for action in _ACTIONS]
    values, change = np.zeros(n * n), np.inf
    while change > 1e-9:
        new = np.max([move @ values for move in moves], axis=0) - 1.0
        values, change = new, np.abs(new - values).max()
    values = values.reshape(n, n)
    values.flags.writeable = False
    return values


def _interpolation(position, velocity, n):
    """Matrix from values on the grid to bilinear values at some states; zero at the goal."""
    knots = tuple(np.pad(axis, 1, mode="edge") for axis in _axes(n))
    matrix = NdBSpline.design_matrix(np.column_stack([position, velocity]), knots, 1)
    matrix.resize(len(position), n * n)  # columns at the end may be empty
    return matrix.multiply((position < _POSITION[1])[:, None]).tocsr()
