"""The kernel of random walks."""

from ...random import uniform
from .base import Kernel, tensor_like

_REACH = 8.0  #: standard deviations of an input within which functions of random features walk


class RandomWalk(Kernel):
    r"""Random walk, :math:`\sum_q \sigma_q^2 (|x_q| + |x'_q| - |x_q - x'_q|) / 2`.

    Functions are Brownian motions in each input, that are zero at zero: they go on from the last row as they
    are, and their variance grows in proportion to the distance. Local levels of time series are such functions.

    Parameters
    ----------
    variance : float, array of shape (n_features,) or None, default=None
        Variance of the step of one unit. None stands for one over the number of inputs.
    ard, trainable, on
        As for :class:`SquaredExponential`.

    Examples
    --------
    >>> import torch
    >>> from skdgp.gp.kernels import RandomWalk
    >>> kernel = RandomWalk(variance=2.0)
    >>> X = torch.tensor([[-1.0], [1.0], [3.0]])
    >>> kernel(X, X).numpy()
    array([[2., 0., 0.],
           [0., 2., 2.],
           [0., 2., 6.]], dtype=float32)
    """

    _positive = {"variance": 0.0}
    _roles = {"variance": "variance"}
    _of_inputs = {"variance": lambda n: 1.0 / n}
    _of_length = {"variance": 1.0}
    extrapolates = True

    def __init__(self, variance=None, ard=True, trainable=True, on=None):
        self.variance = variance
        self.ard = ard
        self.trainable = trainable
        self.on = on

    def __call__(self, X, Z):
        variance = tensor_like(self.variance, X).expand(X.shape[-1:])
        total = 0.0
        for q in range(X.shape[-1]):
            x, z = X[..., :, q, None], Z[..., None, :, q]
            total = total + variance[q] * (0.5 * (x.abs() + z.abs() - (x - z).abs()))
        return total

    def between(self, X, Z):
        variance = tensor_like(self.variance, X)
        x, z = X[..., :, None, :], Z[..., None, :, :]
        steps = 0.5 * (x.abs() + z.abs() - (x - z).abs())
        return (steps * variance[..., None, :] if variance.ndim else steps * variance).sum(-1)

    @property
    def slopes(self):
        return self.variance

    def diag(self, X):
        return (X.abs() * tensor_like(self.variance, X)).sum(-1)

    def features(self, n, n_features, generator, like, importance=0.0):
        """Random steps, whose functions walk as far as all inputs are within eight standard deviations."""
        at = _REACH * (2.0 * uniform((*n[:-1], n_features, n[-1]), generator, like) - 1.0)
        root = (2.0 * _REACH * tensor_like(self.variance, like)).sqrt()

        def phi(X):
            x = X[..., None]  # ..., P, n_features, R
            u = at[..., None, :, :]
            steps = ((u > 0.0) & (u < x)).to(X) - ((u < 0.0) & (u > x)).to(X)
            return (steps * root.expand(n_features)[:, None]).mT

        return phi
