"""Exact Gaussian processes with a local scale."""

from typing import Annotated

from .base import COUNT
from .rows.local_scale import LocalScaleScheme
from .rows.marginal_likelihood import MarginalLikelihoodGP

_MANY_ROWS = 700  #: from which on half of them are enough for the first steps
_FIRST_STEPS = 20
_OF_START = 5e8  #: cost of the choice of a start, over ten steps
_LEAST_ROWS = 400  #: that steps look at, if time is short


class Exact(LocalScaleScheme):
    r"""Exact Gaussian process on all rows, with a local scale.

    Kernel and noise maximize the marginal likelihood by L-BFGS, on at most 1,000 rows (fewer for an ANOVA
    kernel of more than six columns), from the best of some starts; of 700 rows and more, half are enough
    for the first 20 steps. All rows are then conditioned on. The hyperparameters of both have log-normal
    priors around those that are given, so wide (a standard deviation of 2) that they matter with some dozens
    of rows only. A kernel may have a hyperparameter for each column. The mean of its logarithms has such a
    prior then, and the deviations from the mean have Cauchy distributions of scale 0.5. Many columns therefore
    do not overfit few rows. Time grows with the cube of the number of rows and memory with its square; up to
    5,000 rows both are small. Rows with the same inputs are taken together.

    With the heteroscedastic likelihood, the default, variances around a row are scaled by an unknown
    factor :math:`\tau^2`, as for :class:`Vecchia`. It is estimated from the predictions of near training
    rows from all others. With their standardized leave-one-out errors :math:`z_1, \dots, z_k` (Rasmussen
    and Williams, 2006, equations 5.10 to 5.12), predictions follow a Student-t distribution with
    :math:`a + \rho k` degrees of freedom and the squared scale

    .. math:: \hat\tau^2 = c\, \frac{a + \rho z^\top z}{a + \rho k}

    times that of the GP; :math:`a`, :math:`\rho \in (0, 1)` and :math:`c`, one for each output, maximize the
    leave-one-out predictive density.

    Parameters
    ----------
    n_neighbors : int, default=8
        Number `k` of rows from which the local scale is estimated.

    References
    ----------
    C. Rasmussen and C. Williams (2006). Gaussian processes for machine learning. MIT Press.

    R. Gramacy and D. Apley (2015). Local Gaussian process approximation for large computer
    experiments. Journal of Computational and Graphical Statistics 24.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import DeepGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(100, 5))
    >>> y = np.sin(6 * X[:, 0]) + np.abs(X[:, 1] - 0.5) + X[:, 2] * X[:, 3]
    >>> model = DeepGPRegressor(n_layers=1, inference="exact", random_state=0)
    >>> bool(model.fit(X[:80], y[:80]).score(X[80:], y[80:]) > 0.95)
    True
    """

    auto_kernel = "anova"

    n_neighbors: Annotated[int, COUNT] = 8

    def max_iter(self, n_rows):
        return 50

    def cubes(self, n_rows, n_inducing):
        return _OF_START + 8.0 * min(n_rows, _LEAST_ROWS) ** 3, 5.0 * n_rows**3

    def _model_for(self, likelihood):
        return ExactGP if self._is_gaussian(likelihood) else None


class ExactGP(MarginalLikelihoodGP):
    """The model that :class:`Exact` builds."""

    def step(self, batch, generator, rate=1.0):
        self.hold(batch)
        if self._n_first is None:
            self.choose_start(batch)
            many = len(self._marginal_subset) >= _MANY_ROWS and self.free()
            self._n_first = _FIRST_STEPS if many else -1
        if self._n_first == 0:  # start anew on all rows, whose marginal likelihood curves alike
            self.steps.search.x, self.steps.search.converged, self._n_first = None, False, -1
        if self._n_first < 0:
            return super().step(batch, generator, rate)
        with self.with_marginal_subset(len(self._marginal_subset) // 2, 2):
            loss = super().step(batch, generator, rate)
        self._n_first = 0 if self.steps.search.converged else self._n_first - 1
        return loss

    def load_state(self, arrays):
        super().load_state(arrays)
        self._n_first = -1  # hyperparameters that were learned need no better start
