"""Priors of hyperparameters."""

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

#: standard deviation of the logarithm of a hyperparameter where no prior is given
SPREAD = 2.0
#: scale of the deviations of columns from their mean, likewise
DEVIATION = 0.5
#: roles of hyperparameters that a kernel may have for each column
OF_COLUMNS = frozenset({"lengthscale", "variance", "strength", "shape"})


def _positive(number, name, owner):
    """A number or an array that is positive and finite; ValueError if it is not."""
    try:
        value = np.asarray(number, dtype=np.float64)
    except (TypeError, ValueError):
        value = np.asarray(np.nan)
    if not ((value > 0.0) & np.isfinite(value)).all():
        raise ValueError(f"{name} of {type(owner).__name__} must be positive; got {number!r}.")
    return number


class Prior(BaseEstimator):
    """Base class of what stands for a hyperparameter in a kernel or a likelihood."""

    @property
    def start(self):
        """Value at which training starts."""
        raise NotImplementedError


class Fixed(Prior):
    """A hyperparameter that training leaves as it is, in the place of a number.

    Parameters
    ----------
    value : float or array
        As the kernel or the likelihood takes it.

    Examples
    --------
    >>> from skdgp.gp.kernels import Matern
    >>> from skdgp.gp.priors import Fixed
    >>> Matern(variance=Fixed(1.0)).trained()
    ('lengthscale',)
    """

    def __init__(self, value: ArrayLike):
        self.value = value

    @property
    def start(self):
        return _positive(self.value, "value", self)


class LogNormal(Prior):
    r"""Prior of a positive hyperparameter whose logarithm is normal.

    Training maximizes the objective of the scheme plus the log density of the logarithm, and starts at the
    median. With a `deviation`, columns share a level: of values :math:`\theta_q` with medians :math:`m_q`, the
    mean of :math:`\log(\theta_q / m_q)` is normal, and the deviations from it follow a Cauchy distribution. So
    many columns do not overfit few rows, and yet a few may matter much more than all others. These are the
    priors that schemes for all rows have where none is given.

    Parameters
    ----------
    median : float or array of shape (n_features,)
        In the units of the hyperparameter.
    spread : float, default=1.0
        Standard deviation of the logarithm; 1 means within a factor of 7 with probability .95.
    deviation : float or None, default=None
        Scale of the deviations of columns from their mean. None makes columns independent, each with `spread`.

    Examples
    --------
    >>> from skdgp.gp.kernels import Matern
    >>> from skdgp.gp.priors import LogNormal
    >>> Matern(lengthscale=LogNormal(0.5, spread=0.3))
    Matern(lengthscale=LogNormal(median=0.5, spread=0.3))
    """

    def __init__(
        self, median: ArrayLike, spread: float = 1.0, deviation: float | None = None
    ) -> None:
        self.median = median
        self.spread = spread
        self.deviation = deviation

    @property
    def start(self):
        _positive(self.spread, "spread", self)
        if self.deviation is not None:
            _positive(self.deviation, "deviation", self)
        return _positive(self.median, "median", self)

    def around(self, logarithms):
        """This prior with a median whose logarithms are in a tensor."""
        new = LogNormal(logarithms.exp().numpy(force=True), self.spread, self.deviation)
        new._exactly = new.median, logarithms
        return new

    @property
    def of_each(self):
        """The spread, where columns have to be independent; ValueError if they are not."""
        if self.deviation is not None:
            raise ValueError(
                f"This scheme has independent columns; set deviation=None in {self!r}."
            )
        return self.spread

    def center(self):
        """The logarithm of the median, without rounding if it is where training starts."""
        median, logarithms = getattr(self, "_exactly", (None, None))
        if median is self.median:
            return logarithms
        return torch.log(torch.as_tensor(np.array(self.median, dtype=np.float64)))


def with_priors(hyperparameters, spread=SPREAD, deviation=DEVIATION):
    """Hyperparameters with log-normal priors around their present values, unless they have others."""
    found = []
    for one in hyperparameters:
        prior = LogNormal(1.0, spread, deviation if one.role in OF_COLUMNS else None)
        center = one.parameter.detach().clone()
        found.append(one if one.prior else one._replace(prior=prior.around(center)))
    return found


def of_deviations(logarithms, scale):
    """Minus the log-density of Cauchy deviations of logarithms from their mean."""
    return torch.log1p(((logarithms - logarithms.mean()) / scale).square()).sum()


def negative_log_prior(hyperparameters, by_columns=True):
    """Minus the log-density of logarithms with priors, up to a constant, or 0 for none.

    Without `by_columns`, those of columns are all independent.
    """
    off, total = [], 0.0
    for one in hyperparameters:
        prior = one.prior
        differences = (one.parameter - prior.center().to(one.parameter)).flatten()
        if by_columns and prior.deviation:
            total = total + of_deviations(differences, prior.deviation)
            differences = differences.mean(0, keepdim=True)
        off.append(differences / prior.spread)
    return total + 0.5 * torch.cat(off).square().sum() if off else total
