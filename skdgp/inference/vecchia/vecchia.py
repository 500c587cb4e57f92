"""Nearest-neighbor Gaussian processes: every row is predicted from the rows around it."""

from typing import Annotated

from sklearn.utils._param_validation import StrOptions

from ...gp.likelihoods import ClassLikelihood, HeteroscedasticGaussian, Ordinal
from ..base import COUNT, COUNT_OR_ZERO
from ..rows.local_scale import LocalScaleScheme
from .neighbor_classes import NeighborClasses
from .neighbors import NeighborGP

_FEW_ROWS = 4000  #: beyond which more steps pay


class Vecchia(LocalScaleScheme):
    r"""Nearest-neighbor approximation of a shallow Gaussian process, with a local scale.

    A row is predicted from its nearest training rows alone (Vecchia, 1988; Datta et al., 2016), near in units
    of the inputs in which functions with the kernel are equally steep. Kernel and noise maximize the
    predictive density of training rows that are left out in turn (leave-one-out). Rows with the same inputs
    are one neighbor, with their mean target and less noise. The cost of a step does not depend on the number
    of rows, and no inducing points smooth over what is local: on large sets with short lengthscales this is
    far ahead of sparse approximations.

    With the heteroscedastic likelihood, the default, kernel and noise around a row are scaled by an
    unknown factor :math:`\tau^2` with an inverse-gamma prior, as in local approximate GPs (Gramacy
    and Apley, 2015). The marginal likelihood of the whitened neighbors :math:`z = L^{-1} y` counts with a power
    :math:`\rho \in (0, 1)`, because the factor changes on the way to them. Predictions follow a
    Student-t distribution with :math:`a + \rho k` degrees of freedom and the squared scale

    .. math:: \hat\tau^2 = \frac{a + \rho z^\top z}{a + \rho k}

    times that of the GP; :math:`a` and :math:`\rho` are learned. All hyperparameters have log-normal priors
    around their start, with a standard deviation of 1, which matter for some dozens of rows only. A kernel
    may have a hyperparameter for each column. The mean of its logarithms has such a prior then, and the
    deviations from the mean have Cauchy distributions of scale 0.3. Many columns therefore do not overfit
    few rows, and a few may matter much more than all others.

    Classes are modeled by the concentrations of Dirichlet distributions (Milios et al., 2018). Given the rows
    of a unique input, the logarithm of the probability of each class is nearly normal. So the latent functions
    are those of regressions. Their mean, scale, spread and concentration are trained with the kernel, also by
    leave-one-out log-probabilities. They have such priors, too, and the mean has a normal one around the
    logarithms of the shares of the classes. More neighbors pay here: the default classifier takes 24.

    Parameters
    ----------
    n_neighbors : int or None, default=16
        Number `k` of neighbors. None chooses 16, 32 or 64 before the first step: twice as many where the
        leave-one-out log density of 300 rows rises by .03, since predictions take about three times as long.
    start : {"given", "subset"}, default="given"
        Where training begins. With "subset", for numbers, the kernel maximizes the marginal likelihood of an
        exact Gaussian process on at most 1,000 random rows, and steps change noise, variance and local scale
        alone: the mean of smooth functions of several columns is better, in 20 to 50 steps. With "given", steps
        begin at the kernel that is given and change all of it: better where rows repeat, or what is local
        decides. With ``noise="none"`` it is "subset" always.
    full_scale : int or None, default=0
        Number of inducing points of a full-scale approximation, for one target: they explain long distances,
        and neighbors the rest (Sang and Huang, 2012; Gyger et al., 2025). Predictions of smooth functions are
        nearly those of an exact process. It needs ``start="subset"``, and steps change noise and local scale
        alone. With ``n_neighbors=None``, None tries at most 500 of them where more neighbors pay, and takes
        them if they raise the leave-one-out log density of 300 rows by another .03.

    References
    ----------
    T. Gyger, R. Furrer and F. Sigrist (2025). Vecchia-inducing-points full-scale approximations for
    Gaussian processes. arXiv:2507.05064.

    H. Sang and J. Huang (2012). A full scale approximation of covariance functions for large spatial data
    sets. Journal of the Royal Statistical Society B 74.

    A. Vecchia (1988). Estimation and model identification for continuous spatial processes. Journal
    of the Royal Statistical Society B 50.

    A. Datta, S. Banerjee, A. Finley and A. Gelfand (2016). Hierarchical nearest-neighbor Gaussian
    process models for large geostatistical datasets. Journal of the American Statistical
    Association 111.

    R. Gramacy and D. Apley (2015). Local Gaussian process approximation for large computer
    experiments. Journal of Computational and Graphical Statistics 24.

    D. Milios, R. Camoriano, P. Michiardi, L. Rosasco and M. Filippone (2018). Dirichlet-based Gaussian
    processes for large-scale calibrated classification. Advances in Neural Information Processing
    Systems 31.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import DeepGPRegressor
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> y = np.where(X[:, 0] > 0.5, np.sin(60 * X[:, 0]), 0.0)
    >>> model = DeepGPRegressor(n_layers=1, inference="vecchia", random_state=0)
    >>> bool(model.fit(X, y).score(X, y) > 0.99)
    True
    """

    uses = frozenset({"learning_rate"})
    auto_kernel = "rational_quadratic"
    has_effects = True

    n_neighbors: Annotated[int | None, COUNT, None] = 16
    start: Annotated[str, StrOptions({"given", "subset"})] = "given"
    full_scale: Annotated[int | None, COUNT_OR_ZERO, None] = 0

    def max_iter(self, n_rows):
        return 200 if n_rows <= _FEW_ROWS else 400

    _serves = f"{LocalScaleScheme._serves}, and for classes"

    def build(self, architecture, likelihood):
        if self.start == "subset" and not self._is_gaussian(likelihood):
            raise ValueError("start='subset' of Vecchia is for numbers; use 'given' for classes.")
        n_outputs = architecture.n_latents // (1 + isinstance(likelihood, HeteroscedasticGaussian))
        if self.full_scale and (n_outputs > 1 or not self._is_gaussian(likelihood)):
            raise ValueError(
                "full_scale of Vecchia is for one target of numbers; use 0 for others."
            )
        if self.full_scale and self.start != "subset":
            raise ValueError("full_scale of Vecchia needs start='subset'.")
        return super().build(architecture, likelihood)

    def _model_for(self, likelihood):
        if self._is_gaussian(likelihood):
            return NeighborGP
        classes = isinstance(likelihood, ClassLikelihood) and not isinstance(likelihood, Ordinal)
        return NeighborClasses if classes else None
