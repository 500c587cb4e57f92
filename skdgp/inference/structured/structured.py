"""Structured variational inference: posteriors that couple units within and across layers."""

from typing import Annotated

from sklearn.utils._param_validation import StrOptions

from ...gp.layer import SparseLayer
from ..base import COUNT, COUNT_OR_ZERO, FRACTION, NOT_NEGATIVE, OF_LAYERS, POSITIVE, Scheme
from ..deep import DeepSparseGP, without_scales
from .coupled import CoupledGaussian, Marginal
from .inflation import VarianceInflation
from .pattern import COUPLINGS
from .posterior import StructuredPosterior
from .products import whiten
from .propagation import propagate

_FEW_ROWS = 4000  #: rows up to which a step is cheap, and fewer are enough


class StructuredVI(Scheme):
    """Structured variational inference (Lindinger et al., 2020).

    As in doubly stochastic variational inference, every layer is a sparse Gaussian process, and the
    bound is estimated from minibatches and from draws that are propagated through the layers. But
    the Gaussian posterior over the inducing variables couples units, also of different layers.
    These variables are integrated out in closed form. The draw of the function of one layer changes
    the distribution of the next ones.

    Parameters
    ----------
    coupling : {"stripes-and-arrow", "full", "mean-field"}, default="stripes-and-arrow"
        Which units are coupled: those with the same number in all hidden layers (stripes), and all
        of them with the outputs (arrow); or all; or none. Outputs are coupled to each other only
        through hidden units.
    n_draws : int, default=1
        Draws for each row and step in training.
    n_warmup : int, default=50
        Steps with each simpler coupling before the next one: the mean field first, then stripes and
        arrow. The richer posterior starts from the simpler one. In the first steps, as many, noise has the same
        size everywhere, lest varying noise explains variation that kernels do not explain yet.
    inner_noise : float, default=1e-5
        Start of the variance, learned, that is added to the outputs of hidden layers; 0 for none.
        In units of the standardized inputs.
    inner_scale : float, default=0.5
        Start of the posterior standard deviations of hidden layers, relative to the prior's. With
        very small ones the gradient of the coupling all but vanishes.
    inner_variance : float, default=0.05
        Start of the variances of the kernels of hidden layers with a linear mean, where kernels are given by
        name; objects come with their own. Small ones start near a shallow model, whose fit the layers improve.
    natural_gradient : bool, default=True
        Whether the posterior takes natural-gradient steps, in the group of factors of the pattern,
        instead of Adam's.
    natural_step : float, default=0.2
        Their step size, approached over the first five steps, and lowered where a unit would move
        by more than half a standard deviation.
    n_inflation_splits : int, default=0
        Random splits of the training rows at a hyperplane: shallow models predict one half from the
        other half before the training. The deficit of their error bars there is added to those of this model
        away from the data, see :ref:`the user guide <widening>`; 0 for none.

    References
    ----------
    J. Lindinger, D. Reeb, C. Lippert and B. Rakitsch (2020). Beyond the mean-field: structured deep
    Gaussian processes improve the predictive uncertainties. Advances in Neural Information
    Processing Systems 33.

    Examples
    --------
    >>> from skdgp import DeepGPRegressor
    >>> from skdgp.inference import StructuredVI
    >>> DeepGPRegressor(n_layers=3, inference=StructuredVI(coupling="full")).inference
    StructuredVI(coupling='full')
    """

    uses = OF_LAYERS | {"n_inducing", "init", "learning_rate", "batch_size", "dtype"}

    coupling: Annotated[str, StrOptions(set(COUPLINGS))] = "stripes-and-arrow"
    n_draws: Annotated[int, COUNT] = 1
    n_warmup: Annotated[int, COUNT_OR_ZERO] = 50
    inner_noise: Annotated[float, NOT_NEGATIVE] = 1e-5
    inner_scale: Annotated[float, POSITIVE] = 0.5
    inner_variance: Annotated[float, POSITIVE] = 0.05
    natural_gradient: Annotated[bool, "boolean"] = True
    natural_step: Annotated[float, FRACTION] = 0.2
    n_inflation_splits: Annotated[int, COUNT_OR_ZERO] = 0

    # in a shallow model, noise that may grow explains what slow lengthscales do not yet
    auto_noise = "gaussian", "heteroscedastic_student_t"

    def max_iter(self, n_rows):
        return 1000 if n_rows <= _FEW_ROWS else 1500

    def learning_rate(self, n_rows):
        return 0.01 if n_rows <= _FEW_ROWS else 0.03

    def build(self, architecture, likelihood):
        shape = architecture.n_inducing, architecture.widths, architecture.n_latents
        settings = self.coupling, self.inner_scale, bool(self.natural_gradient)
        q = CoupledGaussian(*shape, *settings)
        n_hidden = len(architecture.widths)
        layers = architecture.stack(
            SparseLayer,
            lambda i: {"q": Marginal(q, i), "noise": self.inner_noise if i < n_hidden else 0.0},
        )
        return StructuredGP(architecture, likelihood, layers, q, self)


class StructuredGP(DeepSparseGP):
    """The model that :class:`StructuredVI` builds."""

    def __init__(self, architecture, likelihood, layers, q, scheme):
        settings = scheme.n_draws, scheme.natural_step, scheme.n_warmup
        super().__init__(architecture, likelihood, layers, *settings)
        self.q = q
        self.variance_inflation = VarianceInflation() if scheme.n_inflation_splits else None

    def blocks(self):
        return [self.q]

    def step(self, batch, generator, rate=1.0):
        simpler, n_warmup = COUPLINGS[: COUPLINGS.index(self.q.coupling)], self.warmup.n_steps
        stage = self.warmup.n_made // n_warmup if n_warmup else len(simpler)
        self.q.activate(simpler[stage] if stage < len(simpler) else self.q.coupling)
        return super().step(batch, generator, rate)

    def load_state(self, arrays):
        super().load_state(arrays)
        self.q.activate(COUPLINGS[0])  # or the simplest one that holds the blocks

    @property
    def unfinished(self):
        q = self.q
        simpler = len(q.patterns[q.active].blocks()[0]) < len(q.final.blocks()[0])
        lacks = [f"the coupling is still {q.active!r}"] * simpler
        return self.warmup.unfinished(*lacks)

    def propagate(self, X, eps):
        """Moments of the last layer, see :func:`~skdgp.inference.structured.propagation.propagate`."""
        pattern, moments = self.q.patterns[self.q.active], self.q.moments(X.dtype)
        mean, var, _ = propagate(self.layers, _whitened, pattern, moments, X, eps)
        return without_scales(mean, var, self.n_means) if self.warmup.active else (mean, var)

    def carry(self, parts):
        self.q.carry(parts)

    def draw_widths(self):
        shares = self.q.final.shares
        return [layer.n_outputs for layer in (self.layers if shares else self.layers[:-1])]

    def _frozen(self, draws, as_trained):
        return StructuredPosterior(self, draws, as_trained)


def _whitened(layer, H):
    """``L^{-1} k(Z, H)`` and ``k(H, H)``, of shapes (M, s, n) and (s, n)."""
    kernel, Z, rows = layer.kernel(), layer.Z, H.reshape(-1, H.shape[-1])
    K_uf, k_ff = kernel(Z.to(H.dtype), rows), kernel.diag(rows)
    A = whiten(kernel(Z, Z), K_uf, layer.jitter)
    return A.view(-1, *H.shape[:2]), k_ff.view(H.shape[:2])
