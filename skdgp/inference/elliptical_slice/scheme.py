"""Parameters of elliptical slice sampling."""

import math
from typing import Annotated

from sklearn.utils._param_validation import StrOptions

from ..base import COUNT, COUNT_OR_ZERO, INNER_FRACTION, OF_LAYERS
from ..chains import ChainScheme
from .model import MOST_ROWS, SlicedDeepGP

_BURN_IN = 0.25  #: share of the steps
_CUBES = 1200.0  #: cost of a step of all chains, in factorizations of as many rows


class EllipticalSlice(ChainScheme):
    r"""Elliptical slice sampling of all rows' hidden values, with parallel tempering: a gold standard.

    Without inducing points: hidden layers hold values at all rows, and their exact posterior is sampled
    (Cutajar et al., 2017, appendix C). With Gaussian noise the last layer is integrated out; other likelihoods
    have it sampled, too. Deeper models mix steps of all whitened layers at once with steps of one layer given
    the next. Several chains, each with several powers of the likelihood that exchange their
    states, find foldings of the hidden layers that a single chain cannot reach.

    A step factors matrices of all rows some ten times for each chain and power: this is for up to
    500 rows, where it takes minutes to hours. With `n_neighbors` it takes more rows, and is approximate.

    Parameters
    ----------
    n_tempering : int, default=8
        Levels of the powers of the likelihood, from 1 in a geometric sequence to `least_power`.
    hyperparameters : {"sample", "fixed"}, default="sample"
        Whether kernels and noise have posteriors. Their logarithms are then a priori normal around their
        starts, with standard deviations of 1 for kernels and of 2 for likelihoods. Variances of
        hidden layers stay, because lengthscales of the next layer mean the same.
    n_chains : int, default=4
    n_samples : int, default=800
        States that are kept, of all chains together.
    least_power : float, default=0.01
        The last of the powers.
    n_burn_in : int or None, default=None
        Steps before states are kept. None for a quarter of `max_iter`.
    spacing : int or None, default=None
        Steps between states that are kept. None spreads the states over the steps after burn-in.
    n_neighbors : int or None, default=None
        None for the exact model. An int makes it an approximation (Vecchia, 1988; Sauer et al., 2023) for up
        to 5,000 rows: in every layer, a row depends on so many rows alone, the nearest of those before it in
        an order that spreads out. They are the nearest in the inputs, for all layers, so that these sets never
        change, and chains have the exact posterior of an approximate model. Rows that a hidden layer
        maps close together from afar do not depend on each other. Predictions condition on the nearest
        rows likewise. 25 are usual. A state costs some 20 microseconds for each row and layer.

    Raises
    ------
    ValueError
        By :meth:`validate`, if a parameter makes no sense; by the first step, if there are more
        than 500 rows, 5,000 with neighbors, or not all rows in one batch.

    References
    ----------
    K. Cutajar, E. Bonilla, P. Michiardi and M. Filippone (2017). Random feature expansions for deep Gaussian
    processes. ICML 34, appendix C.

    I. Murray, R. Adams and D. MacKay (2010). Elliptical slice sampling. AISTATS 13.

    A. Sauer, A. Cooper and R. Gramacy (2023). Vecchia-approximated deep Gaussian processes for computer
    experiments. Journal of Computational and Graphical Statistics 32.

    Examples
    --------
    >>> from skdgp.inference import EllipticalSlice
    >>> EllipticalSlice(n_tempering=1, hyperparameters="fixed")
    EllipticalSlice(hyperparameters='fixed', n_tempering=1)
    """

    uses = OF_LAYERS
    n_tempering: Annotated[int, COUNT] = 8
    hyperparameters: Annotated[str, StrOptions({"sample", "fixed"})] = "sample"
    n_chains: Annotated[int, COUNT] = 4
    n_samples: Annotated[int, COUNT] = 800
    least_power: Annotated[float, INNER_FRACTION] = 0.01
    n_burn_in: Annotated[int | None, COUNT_OR_ZERO, None] = None
    spacing: Annotated[int | None, COUNT, None] = None
    n_neighbors: Annotated[int | None, COUNT, None] = None

    def cubes(self, n_rows, n_inducing):
        exact = self.n_neighbors is None and n_rows <= MOST_ROWS
        return (_CUBES * n_rows**3 if exact else 0.0), 0.0

    def for_data(self, n_rows, n_classes=None, max_iter=None, likelihood=None):
        n_steps = self.max_iter(n_rows) if max_iter is None else max_iter
        burn_in = int(_BURN_IN * n_steps) if self.n_burn_in is None else self.n_burn_in
        spacing = max(1, (n_steps - burn_in) // self._states_of_each())
        return self._with_defaults(n_burn_in=burn_in, spacing=spacing)

    def max_iter(self, n_rows):
        return 6000 if n_rows <= 100 else 3000

    def batch_size(self, n_rows):
        return n_rows

    def n_inducing(self, n_rows, n_classes=None):
        return 1  # there are none

    def beyond_hyperparameters(self, architecture, likelihood):
        learns = any(part.learns for part in (*architecture.kernels, likelihood))
        sampled = learns and self.hyperparameters == "sample"
        return "samples of its hyperparameters" if sampled else None

    def build(self, architecture, likelihood):
        return SlicedDeepGP(architecture, likelihood, self.for_data(math.inf))
