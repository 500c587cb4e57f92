"""Deep Gaussian processes by random features."""

from dataclasses import replace
from typing import Annotated

import numpy as np
import torch
from sklearn.utils._param_validation import StrOptions

from ...optim.gradient_steps import SLOW
from ...random import latin_normal, sobol_normal
from ..base import COUNT, FRACTION, OF_LAYERS, Scheme
from ..deep import DeepPosterior, DeepSparseGP
from .features import SAMPLINGS, FeatureLayer

_START_VARIANCE = 1e-4  #: of the weights of hidden layers, and of all that Adam moves
_DILIGENT = 50  #: steps in which everything moves
_EVERY = 5  #: of so many later steps, the last layer's posterior takes part in one, for the time it takes
_MOST_FULL = 4, 1024  #: latents and weights of each, up to which "auto" is a full covariance


class RandomFeatures(Scheme):
    r"""Random feature expansions of every layer (Cutajar et al., 2017).

    Each layer is a Bayesian linear model :math:`\Phi W` in random features of its inputs. The deep
    Gaussian process becomes a network with sines and cosines, or with rectified linear units for
    the arc-cosine kernel. Its weights have a Gaussian posterior. The time of a
    step does not depend on the number of rows; it is one to two times that of a neural network of the
    same shape. The kernel is approximated: see `n_features`.

    Parameters
    ----------
    n_features : int or None, default=None
        Frequencies of each layer; with sines and cosines, there are twice as many weights for each
        output. With too few of them, predictions are too sure of themselves far from the data. None
        stands for 128, or as many as there are rows.
    frequencies : {"fixed", "variational", "resampled"}, default="fixed"
        ``"fixed"`` draws the frequencies once; training moves them through the lengthscales alone,
        and the kernel is the one that was asked for. ``"variational"`` learns them, with their
        divergence from the prior as a penalty: better for many columns without lengthscales of their
        own, such as pixels, but the kernel is a new one. ``"resampled"`` learns a distribution of
        each frequency and draws from it in every step, which is an honest lower bound, and noisier.
    sampling : {"auto", "sobol", "orthogonal", "independent"}, default="auto"
        How the frequencies are drawn. ``"auto"`` takes Sobol points for few inputs and orthogonal
        blocks with stratified lengths for many; the error of the kernel is half that of independent
        draws, or less.
    covariance : {"auto", "full", "diagonal"}, default="auto"
        Posterior covariance of the last layer's weights. A full one takes natural-gradient steps,
        which for Gaussian noise lead to the posterior in closed form. ``"auto"`` is full for
        at most 4 latent functions of at most 1,024 weights each.
    natural_step : float, default=0.1
        Size of the natural-gradient steps, approached over the first five. A step of size 1 is exact
        for Gaussian noise and full batches.
    n_draws : int, default=1
        Draws for each row and step in training.

    Notes
    -----
    After the first 50 steps, weights with a full covariance move in every fifth step, as far as in five
    natural-gradient steps: the steps between need no factorization. Steps of arc-cosine kernels of order 0
    have no slope, so that only weights of the last layer learn from them.

    References
    ----------
    K. Cutajar, E. Bonilla, P. Michiardi and M. Filippone (2017). Random feature expansions for deep
    Gaussian processes. ICML 34.

    A. Rahimi and B. Recht (2008). Random features for large-scale kernel machines. Advances in
    Neural Information Processing Systems 20.

    Y. Gal and R. Turner (2015). Improving the Gaussian process sparse spectrum approximation by
    representing uncertainty in frequency inputs. ICML 32.

    F. Yu et al. (2016). Orthogonal random features. Advances in Neural Information Processing
    Systems 29.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import DeepGPRegressor
    >>> from skdgp.inference import RandomFeatures
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> y = np.sin(6 * X[:, 0])
    >>> scheme = RandomFeatures(n_features=50)
    >>> model = DeepGPRegressor(inference=scheme, max_iter=200, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.99)
    True
    """

    uses = OF_LAYERS | {"learning_rate", "batch_size", "dtype"}

    n_features: Annotated[int | None, COUNT, None] = None
    frequencies: Annotated[str, StrOptions({"fixed", "variational", "resampled"})] = "fixed"
    sampling: Annotated[str, StrOptions(set(SAMPLINGS))] = "auto"
    covariance: Annotated[str, StrOptions({"auto", "full", "diagonal"})] = "auto"
    natural_step: Annotated[float, FRACTION] = 0.1
    n_draws: Annotated[int, COUNT] = 1

    auto_noise = "heteroscedastic_student_t", "heteroscedastic_student_t"

    def n_inducing(self, n_rows, n_classes=None):
        return 128

    def beyond_hyperparameters(self, architecture, likelihood):
        return "frequencies of its kernels" if self.frequencies == "variational" else None

    def build(self, architecture, likelihood):
        return DeepRandomFeatures(architecture, likelihood, self)


class DeepRandomFeatures(DeepSparseGP):
    """The model that :class:`RandomFeatures` builds."""

    moves_inducing_inputs = False

    def __init__(self, architecture, likelihood, scheme):
        R = scheme.n_features or architecture.n_inducing
        last, n_latents = len(architecture.widths), architecture.n_latents
        full = scheme.covariance == "full" or (
            scheme.covariance == "auto" and n_latents <= _MOST_FULL[0] and 2 * R <= _MOST_FULL[1]
        )

        def settings(i):
            of_last = i == last and full
            return {
                "frequencies": scheme.frequencies,
                "full": of_last,
                "variance": 1.0 if of_last else _START_VARIANCE,
                "sampling": scheme.sampling,
            }

        layers = replace(architecture, n_inducing=R).stack(FeatureLayer, settings)
        super().__init__(architecture, likelihood, layers, scheme.n_draws, scheme.natural_step)
        self._step_size = scheme.natural_step
        frequencies = any(layer.q_omega is not None for layer in self.layers)
        learned = any(one.role not in SLOW for one in self.hyperparameters())
        self._only_weights = not (frequencies or learned)

    def load_fewer_inputs(self, arrays, rng):
        for layer in self.layers:
            layer.start(layer.Z, None, rng)
        super().load_fewer_inputs(arrays, rng)

    def blocks(self):
        of_frequencies = [layer.q_omega for layer in self.layers]
        return super().blocks() + [block for block in of_frequencies if block is not None]

    def moving(self):
        last = self.layers[-1].q
        return [block for block in self.blocks() if block is not last or not self._is_lazy()]

    def _every(self):
        """The number of steps of which the last layer's posterior takes part in one."""
        others = len(self.layers) > 1 or not self._only_weights
        late = self.steps.n_made >= _DILIGENT
        return _EVERY if late and others and self.layers[-1].q.natural else 1

    def _is_lazy(self):
        return self.steps.n_made % self._every() > 0

    def step(self, batch, generator, rate=1.0):
        self.steps.natural_step = 1.0 - (1.0 - self._step_size) ** self._every()
        return super().step(batch, generator, rate)

    def propagate(self, X, eps, xi, weights=None):
        """Moments of the last layer, given draws for hidden layers and frequencies."""

        def of_layer(i, layer, H):
            return layer.moments(H, xi[i], weights if i == len(self.layers) - 1 else None)

        return self.layers.moments(X, eps, of_layer)

    def expected_log_likelihood(self, batch, generator):
        eps = self.draw_eps(batch, generator)
        xi = [
            layer.draw_xi(self.n_draws, generator, batch.X) if layer.resampled else None
            for layer in self.layers
        ]
        weights = self.layers[-1].q.sample(1, generator)[0] if self._is_lazy() else None
        return self.of_moments(batch, *self.propagate(batch.X, eps, xi, weights))

    def draws(self, n, seed):
        """Draws for the units of hidden layers; then what frequencies are drawn from, if they are."""
        if not self.layers[0].resampled:
            return super().draws(n, seed)
        return np.column_stack([sobol_normal(n, sum(self.draw_widths()), seed), np.full(n, seed)])

    def _frozen(self, draws, as_trained):
        return FeaturePosterior(self, draws)


class FeaturePosterior(DeepPosterior):
    """Components are draws of the hidden layers and, by a seed, of the frequencies."""

    def __init__(self, model, draws):
        super().__init__(model, draws)
        self._xi = [None] * len(self.layers)
        if self.layers[0].resampled:
            sizes, seed = [layer.z.numel() for layer in self.layers], int(draws[0, -1])
            xi = torch.as_tensor(latin_normal(len(draws), sum(sizes), seed)).to(self._log_weights)
            parts = zip(self.layers, xi.split(sizes, 1))
            self._xi = [part.reshape(-1, *layer.z.shape) for layer, part in parts]

    def _of_layer(self, i, layer, H):
        return layer.moments(H, self._xi[i])

    def covariance(self, X):
        return None
