"""Deep inverse Wishart processes."""

from typing import Annotated

from ..base import COUNT, FRACTION, POSITIVE, Scheme
from .model import GramModel

#: Steps of a fit. Larger ones get there sooner where they work: on energy, 600 of 0.01 and
#: of 0.02 reach a bound by row of -0.907 and -0.885, and 2,000 of 0.01 -0.868. But 0.02 failed on 80 rows
#: in chunks (a constant was fitted), and 0.03 on the table biomass.
_STEPS = 2000


class KernelScheme(Scheme):
    """Base class of the schemes of kernel processes."""

    uses = frozenset({"n_inducing", "learning_rate", "batch_size"})

    def max_iter(self, n_rows):
        return _STEPS


class DeepInverseWishart(KernelScheme):
    r"""Deep inverse Wishart process (Aitchison et al., 2021).

    A kernel is a function of inner products. Here these are random: layer by layer,

    .. math:: G_\ell \mid G_{\ell-1} \sim W^{-1}(\delta_\ell K(G_{\ell-1}), \delta_\ell + P + 1),

    whose mean is :math:`K(G_{\ell-1})`. There are no features and no widths; the first layer is a random
    metric of the inputs, and `n_layers` counts the applications of a kernel. Training finds
    :math:`\delta_\ell`. With a large one, a layer is a fixed function of the one below. With a small one, it
    has a representation of its own; see :class:`NNGP` for the limit. The estimator has them as ``delta_``.

    Parameters
    ----------
    n_draws : int, default=1
        Draws of all Gram matrices in a step.
    delta : float, default=10.0
        Where all :math:`\delta_\ell` start.
    natural_step : float, default=0.1
        Size of the natural-gradient steps of the output layer, reached after five steps.

    References
    ----------
    L. Aitchison, A. Yang and S. Ober (2021). Deep kernel processes. ICML 38.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import DeepGPRegressor
    >>> X = np.linspace(0, 1, 40)[:, None]
    >>> model = DeepGPRegressor(inference="diwp", n_inducing=10, max_iter=200, random_state=0)
    >>> model.fit(X, np.sin(6 * X[:, 0])).delta_.shape
    (2,)
    """

    n_draws: Annotated[int, COUNT] = 1
    delta: Annotated[float, POSITIVE] = 10.0
    natural_step: Annotated[float, FRACTION] = 0.1

    def beyond_hyperparameters(self, architecture, likelihood):
        return "how random its Gram matrices are"

    def build(self, architecture, likelihood):
        return GramModel(architecture, likelihood, self)
