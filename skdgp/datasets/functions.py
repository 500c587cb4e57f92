"""Functions of one variable that a stationary Gaussian process cannot follow."""

from numbers import Integral

import numpy as np
from sklearn.utils import check_random_state, check_scalar

from ._checks import check_noise


def make_step(
    n_samples: int = 50,
    *,
    noise: float = 0.025,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    r"""Generate the step function.

    :math:`y = 1 + \epsilon` if :math:`x > 0` and :math:`y = -1 + \epsilon` otherwise, at equally
    spaced inputs between -1 and 1 ([1]_, section 3.1). A Gaussian process with a squared
    exponential kernel has to choose between a smooth transition and a short lengthscale everywhere.

    Parameters
    ----------
    n_samples : int, default=50
        Number of rows.
    noise : float, default=0.025
        Standard deviation of the Gaussian noise.
    random_state : int, RandomState instance or None, default=None
        Determines the noise.

    Returns
    -------
    X : ndarray of shape (n_samples, 1)
    y : ndarray of shape (n_samples,)

    References
    ----------
    .. [1] S. Pascual Diaz (2017). Pathologies of deep sparse Gaussian process regression. MPhil
       dissertation, University of Cambridge.

    Examples
    --------
    >>> from skdgp.datasets import make_step
    >>> X, y = make_step(4, noise=0.0)
    >>> X[:, 0], y
    (array([-1. , -0.333..., 0.333..., 1. ]), array([-1., -1.,  1.,  1.]))
    """
    return _noisy(lambda x: np.where(x > 0.0, 1.0, -1.0), -1.0, 1.0, n_samples, noise, random_state)


def make_piecewise_linear(
    n_samples: int = 100,
    *,
    noise: float = 0.025,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    r"""Generate the piecewise linear function with three jumps inside.

    .. math::
        y = \epsilon + \begin{cases}
            -x & \text{if } x \le -1.75 \\
            x + 2.5 & \text{if } -1.75 < x \le -1 \\
            -0.25 x & \text{if } -1 < x \le 0.5 \\
            0.25 x + 2 & \text{if } x > 0.5
        \end{cases}

    at equally spaced inputs between -3 and 2 ([1]_, section 3.2, which does not tell the range).

    Parameters
    ----------
    n_samples : int, default=100
        Number of rows.
    noise, random_state
        As for :func:`make_step`.

    Returns
    -------
    X : ndarray of shape (n_samples, 1)
    y : ndarray of shape (n_samples,)

    References
    ----------
    .. [1] S. Pascual Diaz (2017). Pathologies of deep sparse Gaussian process regression. MPhil
       dissertation, University of Cambridge.

    Examples
    --------
    >>> from skdgp.datasets import make_piecewise_linear
    >>> X, y = make_piecewise_linear(6, noise=0.0)
    >>> X[:, 0], y
    (array([-3., -2., -1.,  0.,  1.,  2.]), array([3.  , 2.  , 1.5 , 0.  , 2.25, 2.5 ]))
    """

    def function(x):
        pieces = [-x, x + 2.5, -0.25 * x, 0.25 * x + 2.0]
        return np.select([x <= -1.75, x <= -1.0, x <= 0.5, x > 0.5], pieces)

    return _noisy(function, -3.0, 2.0, n_samples, noise, random_state)


def _noisy(function, low, high, n_samples, noise, random_state):
    check_scalar(n_samples, "n_samples", Integral, min_val=1)
    check_noise(noise)
    rng = check_random_state(random_state)
    x = np.linspace(low, high, n_samples)
    return x[:, None], function(x) + 0.0 + noise * rng.standard_normal(n_samples)
