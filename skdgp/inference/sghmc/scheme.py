"""Parameters of stochastic gradient Hamiltonian Monte Carlo."""

import math
from typing import Annotated

from sklearn.utils._param_validation import StrOptions

from ..base import COUNT, COUNT_OR_ZERO, INNER_FRACTION, OF_LAYERS, POSITIVE
from ..chains import ChainScheme
from .dynamics import autocorrelation_time
from .model import SampledDeepGP

_BURN_IN, _SPACING = 30.0, 1.0  #: in autocorrelation times; notes of the docs page on sampling
_LEARN = 1500  #: steps until hyperparameters rest
_SHARES = 0.4, 0.1  #: of a given number of steps, for hyperparameters and for burn-in


class SGHMC(ChainScheme):
    r"""Stochastic gradient Hamiltonian Monte Carlo (Havasi et al., 2018), preconditioned.

    Chains sample the whitened inducing outputs of all layers, all chains in one batched computation.
    Three phases follow each other: hyperparameters and inducing inputs are trained by Monte Carlo EM from
    the chains' present states; they are frozen, and chains burn in; then states are kept, a few
    autocorrelation times apart. The kept states are the components of the predictive mixture.

    With Gaussian noise and all rows in each batch, the last layer is integrated out of the target and drawn
    exactly whenever a state is kept. A model of one layer is then exact given its hyperparameters.

    Parameters
    ----------
    target : {"marginal", "variational"}, default="marginal"
        How a row's variance given the inducing outputs of the last layer counts: inside the likelihood, as in
        the published scheme (for one layer the posterior of FITC), or as its expectation (for one
        layer the optimal posterior of Titsias, 2009). Noise of hidden layers has one draw for each
        row and step. Hyperparameters and inducing inputs are trained under the second one, except in
        the published procedure: under FITC, inducing inputs leave the rows and their variance passes for noise.
    preconditioner : {"fisher", "adaptive"}, default="fisher"
        Coordinates in which steps are made: those that whiten the Fisher information of each layer's units,
        or those of the inducing outputs, with the published adaptive masses and hyperparameters learned from
        a window of 100 past states. The latter mix slowly where the prior decides.
    n_chains : int, default=4
    n_samples : int, default=800
        States that are kept, of all chains together.
    step_size : float, default=0.05
        The squared step of the preconditioned sampler. Variances are too large by a quarter of
        it, about. The step of the adaptive one.
    friction : float, default=0.45
        Share of the momentum that is lost in each step.
    n_learn : int or None, default=None
        Steps in which hyperparameters and inducing inputs are trained; with 0 they stay at their
        starts. None for 1,500, or 40 % of `max_iter`.
    n_burn_in : int or None, default=None
        Steps after that before states are kept. None for 30 autocorrelation times
        :math:`2 \alpha / \kappa`, or 10 % of `max_iter`.
    spacing : int or None, default=None
        Steps between states that are kept. None for one autocorrelation time, or as many as `max_iter` leaves.
    last_layer : {"exact", "sampled"}, default="exact"
        Whether to integrate out the last layer where that is possible.
    n_hidden_draws : int, default=1
        Draws of the hidden layers' noise for each row and step. Several come closer to
        the likelihood without that noise; the last layer is then sampled.
    inner_variance : float, default=0.01
        Start of the variances of hidden layers' kernels that are given by name, around a linear mean.

    Raises
    ------
    ValueError
        By :meth:`validate`, if a parameter makes no sense; by :meth:`build`, if the likelihood is
        :class:`~skdgp.gp.likelihoods.RobustMax`, which has no gradients that chains could follow.

    References
    ----------
    M. Havasi, J. M. Hernandez-Lobato and J. J. Murillo-Fuentes (2018). Inference in deep Gaussian processes
    using stochastic gradient Hamiltonian Monte Carlo. Advances in Neural Information Processing Systems 31.

    Examples
    --------
    >>> from skdgp.inference import SGHMC
    >>> SGHMC(n_samples=200).max_iter(1000)
    2932
    """

    uses = OF_LAYERS | {"n_inducing", "init", "learning_rate", "batch_size", "dtype"}
    target: Annotated[str, StrOptions({"marginal", "variational"})] = "marginal"
    preconditioner: Annotated[str, StrOptions({"fisher", "adaptive"})] = "fisher"
    n_chains: Annotated[int, COUNT] = 4
    n_samples: Annotated[int, COUNT] = 800
    step_size: Annotated[float, INNER_FRACTION] = 0.05
    friction: Annotated[float, INNER_FRACTION] = 0.45
    n_learn: Annotated[int | None, COUNT_OR_ZERO, None] = None
    n_burn_in: Annotated[int | None, COUNT_OR_ZERO, None] = None
    spacing: Annotated[int | None, COUNT, None] = None
    last_layer: Annotated[str, StrOptions({"exact", "sampled"})] = "exact"
    n_hidden_draws: Annotated[int, COUNT] = 1
    inner_variance: Annotated[float, POSITIVE] = 0.01

    @classmethod
    def published(cls):
        """The procedure of Havasi et al. (2018), with the constants of their code.

        One chain, 10,000 steps of each kind, and 100 states 50 steps apart: too few for directions that
        the prior decides, of which these are four independent draws.
        """
        return cls(
            preconditioner="adaptive",
            n_chains=1,
            n_samples=100,
            step_size=0.01,
            friction=0.05,
            n_learn=10_000,
            n_burn_in=0,
            spacing=50,
            last_layer="sampled",
        )

    def for_data(self, n_rows, n_classes=None, max_iter=None, likelihood=None):
        if max_iter is None:
            time = autocorrelation_time(self.step_size, self.friction)
            learn, burn_in, spacing = _LEARN, math.ceil(_BURN_IN * time), math.ceil(_SPACING * time)
        else:
            learn, burn_in = (int(share * max_iter) for share in _SHARES)
            learn = learn if self.n_learn is None else self.n_learn
            burn_in = burn_in if self.n_burn_in is None else self.n_burn_in
            spacing = max(1, (max_iter - learn - burn_in) // self._states_of_each())
        return self._with_defaults(n_learn=learn, n_burn_in=burn_in, spacing=spacing)

    def max_iter(self, n_rows):
        scheme = self.for_data(n_rows)
        return scheme.n_learn + scheme.n_burn_in + scheme.spacing * self._states_of_each()

    def batch_size(self, n_rows):
        return 10_000

    def build(self, architecture, likelihood):
        if not likelihood.has_gradients:
            raise ValueError(
                f"SGHMC follows gradients of the likelihood, and {type(likelihood).__name__} has none; "
                "use likelihood='softmax', or inference='ess' or 'dsvi'."
            )
        return SampledDeepGP(architecture, likelihood, self.for_data(math.inf))
