"""Deep Gaussian processes by random features."""

from numbers import Integral, Real

import numpy as np
import torch
from torch import nn

from ...gp.component import Trainable
from ...gp.gaussian import DiagonalBlock
from ...gp.means import linear_map
from ...random import normal, sobol_normal
from ..base import OF_LAYERS, Scheme
from ..gradient_model import GradientModel
from .features import SAMPLINGS, FeatureLayer
from .posterior import FeaturePosterior
from .propagation import propagate

_FREQUENCIES = ("fixed", "variational", "resampled")
_COVARIANCES = ("auto", "full", "diagonal")
_START_VARIANCE = 1e-4  #: of the weights of hidden layers, and of all that Adam moves
_SPREAD = 0.1  #: where resampled frequencies start, in units of their prior
_DILIGENT = 50  #: steps in which everything moves
_EVERY = 5  #: of so many later steps, the last layer's posterior takes part in one, for the time it takes
_MOST_FULL = 4, 1024  #: latents and weights of each, up to which "auto" is a full covariance


class RandomFeatures(Scheme):
    r"""Random feature expansions of every layer (Cutajar et al., 2017).

    Each layer is a Bayesian linear model :math:`\Phi W` in random features of its inputs, so that
    the deep Gaussian process is a network with sines and cosines (or rectified linear units, for
    the arc-cosine kernel) and a Gaussian posterior over its weights. The time of a
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

    def __init__(
        self,
        n_features=None,
        frequencies="fixed",
        sampling="auto",
        covariance="auto",
        natural_step=0.1,
        n_draws=1,
    ):
        self.n_features = n_features
        self.frequencies = frequencies
        self.sampling = sampling
        self.covariance = covariance
        self.natural_step = natural_step
        self.n_draws = n_draws

    def auto_likelihood(self, n_classes=None, n_layers=2):
        return (
            "heteroscedastic_student_t"
            if n_classes is None
            else super().auto_likelihood(n_classes, n_layers)
        )

    def n_inducing(self, n_rows, n_classes=None):
        return 128

    def beyond_hyperparameters(self, architecture, likelihood):
        return "frequencies of its kernels" if self.frequencies == "variational" else None

    def validate(self):
        if self.n_features is not None:
            self.check("n_features", Integral, lambda n: n >= 1, "an int of at least 1, or None")
        self.check("n_draws", Integral, lambda n: n >= 1, "an int of at least 1")
        self.check("natural_step", Real, lambda x: 0.0 < x <= 1.0, "a number in (0, 1]")
        for name, known in (
            ("frequencies", _FREQUENCIES),
            ("sampling", SAMPLINGS),
            ("covariance", _COVARIANCES),
        ):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} of RandomFeatures must be one of {', '.join(map(repr, known))}; got "
                    f"{getattr(self, name)!r}."
                )

    def build(self, architecture, likelihood):
        return DeepRandomFeatures(architecture, likelihood, self)


class DeepRandomFeatures(GradientModel):
    """The model that :class:`RandomFeatures` builds."""

    def __init__(self, architecture, likelihood, scheme):
        super().__init__(natural_step=scheme.natural_step)
        self._step_size = scheme.natural_step
        self.n_draws, self.sampling = scheme.n_draws, scheme.sampling
        self.input_connected = architecture.input_connected
        self.likelihood = Trainable(likelihood)
        R = scheme.n_features or architecture.n_inducing
        outputs = (*architecture.widths, architecture.n_latents)
        full = scheme.covariance == "full" or (
            scheme.covariance == "auto" and outputs[-1] <= _MOST_FULL[0] and 2 * R <= _MOST_FULL[1]
        )
        self.layers = nn.ModuleList()
        for i, n_inputs in enumerate(architecture.layer_inputs()):
            last = i == len(outputs) - 1
            layer = FeatureLayer(
                architecture.kernels[i],
                n_inputs,
                outputs[i],
                R,
                frequencies=scheme.frequencies,
                full=last and full,
                linear_mean=architecture.linear_mean and not last,
                variance=1.0 if last and full else _START_VARIANCE,
            )
            self.layers.append(layer)
        trained = [*self._hyperparameters(), *(layer.q_omega for layer in self.layers)]
        self._only_weights = all(part is None for part in trained)

    def start(self, X, weights, rng):
        """Draw frequencies, set the mean functions, and break symmetries where there are none.

        With zero means of all weights, the expected gradient of hidden layers is zero unless a mean
        function tells their units apart; then they start at draws from the prior.

        Parameters
        ----------
        X : ndarray of shape (n_rows, n_features)
            Training rows as the model sees them, or a sample of them.
        weights : ndarray of shape (n_rows,)
        rng : numpy.random.RandomState
        """
        A = X
        for layer in self.layers:
            layer.start(rng, self.sampling, _SPREAD)
            if layer is self.layers[-1]:
                break
            if layer.W is None:
                with torch.no_grad():
                    layer.q.mean.copy_(torch.as_tensor(rng.standard_normal(layer.q.mean.shape)))
                continue
            W = linear_map(A, layer.n_outputs, weights)
            layer.W[: A.shape[1]].copy_(torch.as_tensor(W))
            A = A @ W

    def prepare(self, learning_rate, dtype):
        self.learning_rate = learning_rate
        for block in self.blocks():
            if isinstance(block, DiagonalBlock):
                block.to_dtype(dtype)

    def blocks(self):
        blocks = [layer.q for layer in self.layers]
        return blocks + [layer.q_omega for layer in self.layers if layer.q_omega is not None]

    def moving(self):
        last = self.layers[-1].q
        return [block for block in self.blocks() if block is not last or not self._is_lazy()]

    def _every(self):
        """The number of steps of which the last layer's posterior takes part in one."""
        others = len(self.layers) > 1 or not self._only_weights
        late = self._n_steps >= _DILIGENT
        return _EVERY if late and others and self.layers[-1].q.natural else 1

    def _is_lazy(self):
        return self._n_steps % self._every() > 0

    def step(self, batch, generator, rate=1.0):
        self.natural_step = 1.0 - (1.0 - self._step_size) ** self._every()
        return super().step(batch, generator, rate)

    def propagate(self, X, eps, xi, weights=None):
        """Moments of the last layer, see :func:`propagate`."""
        return propagate(self.layers, X, eps, xi, self.input_connected, weights)

    def expected_log_likelihood(self, batch, generator):
        eps = [
            normal((self.n_draws, len(batch.X), layer.n_outputs), generator, batch.X)
            for layer in self.layers[:-1]
        ]
        xi = [
            layer.draw_xi(self.n_draws, generator, batch.X) if layer.resampled else None
            for layer in self.layers
        ]
        weights = self.layers[-1].q.sample(1, generator)[0] if self._is_lazy() else None
        mean, var = self.propagate(batch.X, eps, xi, weights)
        ell = self.likelihood().expected_log_prob(batch.y, mean, var)  # S, n
        return batch.scale * (batch.weight * ell.mean(0)).sum()

    def _hyperparameters(self):
        kernels = [p for layer in self.layers for p in layer.kernel.parameters()]
        return kernels + list(self.likelihood.parameters())

    def draws(self, n, seed):
        """Draws for the units of hidden layers; then what frequencies are drawn from, if they are."""
        width = sum(layer.n_outputs for layer in self.layers[:-1])
        if not self.layers[0].resampled:
            return sobol_normal(n, width, seed) if width else np.zeros((1, 0))
        return np.column_stack([sobol_normal(n, width, seed), np.full(n, seed)])

    def _frozen(self, draws, as_trained):
        return FeaturePosterior(self, draws)
