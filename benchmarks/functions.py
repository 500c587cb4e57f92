"""Functions of the literature, most with few rows, many of them smooth, where shallow GPs are at home.

Each draw has training and test rows of its own.
"""

import numpy as np
from sklearn.datasets import make_friedman1, make_friedman2, make_friedman3

from benchmarks import data

_N_TEST = 1000


def borehole(n, rng):
    """Flow of water through a borehole (Morris et al., 1993), without noise."""
    low = np.array([0.05, 100.0, 63070.0, 990.0, 63.1, 700.0, 1120.0, 9855.0])
    high = np.array([0.15, 50000.0, 115600.0, 1110.0, 116.0, 820.0, 1680.0, 12045.0])
    X = rng.uniform(low, high, (n, 8))
    r_w, r, T_u, H_u, T_l, H_l, L, K_w = X.T
    log_ratio = np.log(r / r_w)
    resistance = 1.0 + 2.0 * L * T_u / (log_ratio * r_w**2 * K_w) + T_u / T_l
    return X, 2.0 * np.pi * T_u * (H_u - H_l) / (log_ratio * resistance)


def linear(n, rng):
    """Twenty columns that matter more and more."""
    X = rng.standard_normal((n, 20))
    return X, X @ np.linspace(0.0, 1.0, 20) + rng.standard_normal(n)


def wedge(n, rng):
    """A step along a slanted line."""
    X = rng.uniform(-1.0, 1.0, (n, 2))
    return X, np.sign(X[:, 0] + 0.5 * X[:, 1]) + 0.05 * rng.standard_normal(n)


def growing(n, rng):
    """A product of lognormal factors: noise that grows with the target."""
    X = rng.uniform(-2.0, 2.0, (n, 4))
    return X, np.exp(X[:, 0] + 0.5 * np.sin(3.0 * X[:, 1]) + 0.3 * rng.standard_normal(n))


def arm(n, rng):
    """Distance of the end of an arm with eight joints from a point, with little noise."""
    X = rng.uniform(-1.0, 1.0, (n, 8))
    end, frame = np.zeros((n, 3)), np.tile(np.eye(3), (n, 1, 1))
    for joint, angle in enumerate(np.pi / 3.0 * X.T):
        turn = np.zeros((n, 3, 3))
        a, b, axis = [(0, 1, 2), (1, 2, 0), (0, 2, 1)][joint % 3]
        turn[:, a, a] = turn[:, b, b] = np.cos(angle)
        turn[:, b, a], turn[:, axis, axis] = np.sin(angle), 1.0
        turn[:, a, b] = -turn[:, b, a]
        frame = frame @ turn
        end += 0.5 * frame[:, :, 0]
    distance = np.linalg.norm(end - [1.0, 0.3, 0.2], axis=1)
    return X, distance + 0.01 * rng.standard_normal(n)


def _friedman(make, noise):
    return lambda n, rng: make(n, noise=noise, random_state=int(rng.integers(2**31)))


#: what is drawn, and how many training rows
FUNCTIONS = {
    "borehole": (borehole, 100),
    "friedman1": (_friedman(make_friedman1, 1.0), 200),
    "friedman2": (_friedman(make_friedman2, 100.0), 200),
    "friedman3": (_friedman(make_friedman3, 0.1), 200),
    "linear": (linear, 60),
    "wedge": (wedge, 200),
    "growing": (growing, 300),
    "arm": (arm, 10_000),
}


def draw(name, number):
    """Training and test rows of one draw; `n_held_out` is 0, for draws share no rows."""
    make, n_train = FUNCTIONS[name]
    rng = np.random.default_rng([number, n_train])
    (X, y), (X_test, y_test) = (make(n, rng) for n in (n_train, _N_TEST))
    return data.Split(X, y, X_test, y_test)
