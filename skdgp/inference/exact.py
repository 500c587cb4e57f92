"""Gaussian processes on all rows: exact ones with a local scale, and variational ones for classes."""

from typing import Annotated

from sklearn.base import clone

from ..gp.kernels import Anova, Linear, Warped
from ..gp.likelihoods import ClassLikelihood, Gaussian
from .base import COUNT
from .exact_classes import MOST_INDUCING, SUBSET_ROWS, ExactClasses
from .exact_outputs import CoregionalizedGP
from .rows.local_scale import LocalScaleScheme
from .rows.marginal_likelihood import MarginalLikelihoodGP

_MANY_ROWS = 700  #: from which on half of them are enough for the first steps
_FIRST_STEPS = 20  #: on these; all rows are for the others
_OF_START = 5e8  #: max_time: cost of the choice of a start, over ten steps
_OF_STEP, _OF_POSTERIOR = 30.0, 12.0  #: max_time: costs of classes over cubes of their sizes
_LEAST_ROWS = 400  #: max_time: that steps look at, if time is short


def kernel_of_classes():
    """The kernel that is best for classes: steps and slopes of columns, and all that they do together."""
    # functions of classes have values of several units, and interactions are as likely as sums
    return Warped(Anova(strength=1.0, variance=4.0) + Linear(bias=0.0))


class Exact(LocalScaleScheme):
    r"""Gaussian process on all rows: exact, with a local scale, or variational for classes.

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

    For classes (probit, logit, softmax, ordinal) the posterior is the best Gaussian one. With several classes,
    their functions share a covariance, so that cost hardly grows with the classes. Each step follows the
    gradient of the lower bound of 300 random rows, whose posterior is found anew (Chen et al., 2020). The
    posterior of all rows is represented at training rows that explain .999 of the prior variance of the others,
    at most 500 (pivoted Cholesky factorization; Burt et al., 2020). Time grows with the number of rows. The
    kernel is by default an ANOVA kernel of warped inputs, see :class:`~skdgp.gp.kernels.Warped`.

    Parameters
    ----------
    n_neighbors : int, default=8
        Number `k` of rows from which the local scale is estimated; classes have none.
    coregionalized : bool, default=False
        Whether outputs have covariances, as with ``multi_output="coregionalized"`` of the estimator: of the
        functions, :math:`B_{ij} k(x, x')`, and of the noise of a row (intrinsic coregionalization; Alvarez et
        al., 2012). Both are learned. The covariance matrix has a row for each target that was observed. The
        noise has the same size everywhere.

    References
    ----------
    M. Alvarez, L. Rosasco and N. Lawrence (2012). Kernels for vector-valued functions: a review. Foundations
    and Trends in Machine Learning 4.

    D. Burt, C. Rasmussen and M. van der Wilk (2020). Convergence of sparse variational inference in Gaussian
    processes regression. Journal of Machine Learning Research 21.

    E. Challis and D. Barber (2013). Gaussian Kullback-Leibler approximate inference. Journal of Machine
    Learning Research 14.

    H. Chen, L. Zheng, R. Al Kontar and G. Raskutti (2020). Stochastic gradient descent in correlated settings:
    a study on Gaussian processes. Advances in Neural Information Processing Systems 33.

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

    _of_classes = _without_effects = False

    n_neighbors: Annotated[int, COUNT] = 8
    coregionalized: Annotated[bool, "boolean"] = False

    def auto_likelihood(self, n_classes=None, n_layers=2):
        if self.coregionalized and n_classes is None:
            return "gaussian"
        return super().auto_likelihood(n_classes, n_layers)

    @property
    def leaves_one_out(self):
        return not self.coregionalized

    def beyond_hyperparameters(self, architecture, likelihood):
        return "covariances between outputs" if self.coregionalized else None

    @property
    def auto_kernel(self):
        return kernel_of_classes() if self._of_classes else "anova"

    @property
    def leaves_groups_out(self):
        return not (self._of_classes or self.coregionalized)

    @property
    def has_effects(self):
        return self.leaves_groups_out and not self._without_effects

    def without_effects(self):
        """A copy whose models have effects of neither groups nor levels."""
        scheme = clone(self)
        scheme._without_effects = True
        return scheme

    def max_iter(self, n_rows):
        # ridges of the marginal likelihood of correlated outputs are narrow
        return 200 if self.coregionalized else 50

    def for_data(self, n_rows, n_classes=None, max_iter=None, likelihood=None):
        if n_classes is None:
            return self
        scheme = clone(self)
        scheme._of_classes = True
        return scheme

    def cubes(self, n_rows, n_inducing):
        if self._of_classes:
            rows, n_inducing = min(n_rows, SUBSET_ROWS), min(n_rows, MOST_INDUCING)
            return _OF_STEP * rows**3, _OF_POSTERIOR * n_rows * n_inducing**2
        return _OF_START + 8.0 * min(n_rows, _LEAST_ROWS) ** 3, 5.0 * n_rows**3

    @property
    def _serves(self):
        if self.coregionalized:
            return "Gaussian noise of constant size, if outputs are coregionalized"
        return super()._serves

    def _model_for(self, likelihood):
        if isinstance(likelihood, ClassLikelihood) and likelihood.log_concave:
            return None if self.coregionalized else ExactClasses
        if self.coregionalized:
            return CoregionalizedGP if isinstance(likelihood, Gaussian) else None
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
