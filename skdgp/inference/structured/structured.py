"""Structured variational inference: posteriors that couple units within and across layers."""

import contextlib
import math
from numbers import Integral, Real

import torch

from ...gp.layer import SparseLayer
from ...linalg import inverse_triangular
from ..base import Scheme
from ..dsvi import DSVI
from ..sparse_model import DeepSparseGP
from .coupled import CoupledGaussian, Marginal
from .inflation import VarianceInflation
from .pattern import COUPLINGS
from .products import bilinear, forms, small_cholesky, substitute, whiten

_FLOOR = 1e-12  #: least variance
_FEW_ROWS = 4000  #: rows up to which a step is cheap, and fewer are enough
_DRAWS = 64  #: by which functions know where the predictions are centered, and how wide they are


class StructuredVI(Scheme):
    """Structured variational inference (Lindinger et al., 2020).

    As in doubly stochastic variational inference, every layer is a sparse Gaussian process, and the
    bound is estimated from minibatches and from draws that are propagated through the layers. But
    the Gaussian posterior over the inducing variables couples units, also of different layers.
    These variables are integrated out in closed form; what a draw learns about the function of one
    layer bears on the next ones.

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
        size everywhere, lest noise that may vary explains what kernels have not found yet.
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
        other half before the training. What their error bars lack there is added to those of this model
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

    uses = frozenset({"n_inducing", "init", "mean", "learning_rate", "batch_size", "dtype"})

    def __init__(
        self,
        coupling="stripes-and-arrow",
        n_draws=1,
        n_warmup=50,
        inner_noise=1e-5,
        inner_scale=0.5,
        inner_variance=0.05,
        natural_gradient=True,
        natural_step=0.2,
        n_inflation_splits=0,
    ):
        self.coupling = coupling
        self.n_draws = n_draws
        self.n_warmup = n_warmup
        self.inner_noise = inner_noise
        self.inner_scale = inner_scale
        self.inner_variance = inner_variance
        self.natural_gradient = natural_gradient
        self.natural_step = natural_step
        self.n_inflation_splits = n_inflation_splits

    def auto_likelihood(self, n_classes=None, n_layers=2):
        return DSVI().auto_likelihood(n_classes, n_layers)  # for the same reasons

    def max_iter(self, n_rows):
        return 1000 if n_rows <= _FEW_ROWS else 1500

    def learning_rate(self, n_rows):
        return 0.01 if n_rows <= _FEW_ROWS else 0.03

    def validate(self):
        if not isinstance(self.coupling, str) or self.coupling not in COUPLINGS:
            raise ValueError(
                f"coupling of StructuredVI must be one of {', '.join(map(repr, COUPLINGS))}; got "
                f"{self.coupling!r}."
            )
        self.check("n_draws", Integral, lambda n: n >= 1, "an int of at least 1")
        self.check("n_warmup", Integral, lambda n: n >= 0, "an int of at least 0")
        self.check("n_inflation_splits", Integral, lambda n: n >= 0, "an int of at least 0")
        self.check("inner_noise", Real, lambda x: 0.0 <= x < math.inf, "a number of at least 0")
        self.check("inner_scale", Real, lambda x: 0.0 < x < math.inf, "a positive number")
        self.check("inner_variance", Real, lambda x: 0.0 < x < math.inf, "a positive number")
        self.check("natural_step", Real, lambda x: 0.0 < x <= 1.0, "a number in (0, 1]")
        self.check_boolean("natural_gradient")

    def build(self, architecture, likelihood):
        return StructuredGP(architecture, likelihood, self)


class StructuredGP(DeepSparseGP):
    """The model that :class:`StructuredVI` builds."""

    _posterior_type = CoupledGaussian

    def __init__(self, architecture, likelihood, scheme):
        super().__init__(architecture, likelihood, scheme)
        self.n_warmup = scheme.n_warmup
        self._kept = None
        self.variance_inflation = VarianceInflation() if scheme.n_inflation_splits else None
        self._as_trained = False

    def _layers(self, architecture, scheme):
        self.q = self._posterior_type(
            architecture.n_inducing,
            architecture.widths,
            architecture.n_latents,
            scheme.coupling,
            scheme.inner_scale,
            bool(scheme.natural_gradient),
        )
        outputs = (*architecture.widths, architecture.n_latents)
        for i, n_inputs in enumerate(architecture.layer_inputs()):
            last = i == len(outputs) - 1
            yield SparseLayer(
                architecture.kernels[i],
                n_inputs,
                outputs[i],
                architecture.n_inducing,
                linear_mean=architecture.linear_mean and not last,
                noise=0.0 if last else scheme.inner_noise,
                q=Marginal(self.q, i),
            )

    def blocks(self):
        return [self.q]

    def prepare(self, learning_rate, dtype):
        self.learning_rate = learning_rate  # the posterior stays in double precision

    def step(self, batch, generator, rate=1.0):
        simpler = COUPLINGS[: COUPLINGS.index(self.q.coupling)]
        stage = self._n_made // self.n_warmup if self.n_warmup else len(simpler)
        self.q.activate(simpler[stage] if stage < len(simpler) else self.q.coupling)
        return super().step(batch, generator, rate)

    def _lacks(self):
        q = self.q
        simpler = len(q.patterns[q.active].blocks()[0]) < len(q.patterns[q.coupling].blocks()[0])
        return [f"the coupling is still {q.active!r}"] * simpler + super()._lacks()

    def load_state(self, arrays):
        self._kept = None
        super().load_state(arrays)

    def translated(self, arrays, scheme):
        if "q.root" not in arrays or not isinstance(scheme, StructuredVI):
            return arrays
        root = self.q.with_blocks_of(arrays["q.root"], scheme.coupling)
        return {**arrays, "q.root": root}

    def propagate(self, X, eps):
        r"""Moments of the last layer given the draws of the hidden ones (theorem 1).

        Units condition on the earlier ones of their chain. With the growing Cholesky factor
        :math:`\Lambda` of these, and draws :math:`f = \hat\mu + R \epsilon` throughout,
        :math:`\Lambda^{-1} (f - \tilde\mu) = \epsilon`; so equations 10 and 11 are
        :math:`\hat\mu = \tilde\mu + Y^T \epsilon` and :math:`\hat\Sigma = \tilde S - Y^T Y`
        with :math:`Y = \Lambda^{-1} \tilde S_{<\ell, \ell}`.

        Parameters
        ----------
        X : tensor of shape (n, n_features)
        eps : list of tensors of shape (S, n, width) or (S, 1, width)
            Standard normal draws for the hidden layers and, if there are several outputs that are
            coupled to these, for what outputs share beyond them. They are independent given all
            draws. Without those for the outputs, moments are of each output by itself.

        Returns
        -------
        mean, var : tensors of shape (S, n, n_latents); S is 1 without hidden layers
        """
        mean, var, _ = self._with_prior(X, eps)
        return self._homoscedastic(mean, var)

    def _with_prior(self, X, eps):
        """What :meth:`propagate` gives, and the prior's variance of the last layer, (S, n)."""
        moments, L_inv = self._solved(X.dtype)
        pattern, last = self.q.patterns[self.q.active], len(self.layers) - 1
        past = [_Past() for _ in pattern.chains]
        rows, H = [], X[None]
        for i, layer in enumerate(self.layers):
            if i and self.input_connected:
                H = torch.cat([H, X.expand(len(H), *X.shape)], -1)
            A, k_ff = self._whitened(layer, H, L_inv[i])  # M, s, n
            rows.append(A)
            mean, squares = forms(A, moments.means[i].to(A.dtype), moments.squares[i])  # D, s, n
            if layer.W is not None:
                mean = mean + layer.mean_function(H).permute(2, 0, 1)
            own = k_ff + layer.noise()  # with the identity that squares leave out
            tied = pattern.tied(i)
            crosses = {
                c: [
                    bilinear(A, rows[j], moments.crosses[i, c, j])
                    for j in pattern.chains[c].layers
                    if j < i
                ]
                for c in tied
            }
            if i == last:
                K, told = layer.n_outputs, [past[c].tell(crosses[c]) for c in tied]
                mean = mean + sum(shift for shift, _ in told)
                var = squares[:K] + own
                if pattern.shares:
                    E = squares[K:][pattern.shared_forms()]
                    E = E - sum((Y[:, :, None] * Y[:, None]).sum(0) for _, Y in told)
                    if len(eps) > i:
                        R = small_cholesky(E, _rounding(E))  # K, K, S, n
                        mean = mean + (R * eps[i].permute(2, 0, 1)).sum(1)
                    else:
                        var = var + torch.diagonal(E).permute(2, 0, 1)
                else:
                    var = var - sum(Y.square().sum(0) for _, Y in told)
                mean, var = torch.broadcast_tensors(mean, var.clamp_min(_FLOOR))
                return mean.permute(1, 2, 0), var.permute(1, 2, 0), k_ff
            e, floor = eps[i].permute(2, 0, 1), _floor(layer)
            parts = []
            for c in tied:
                units, places = pattern.forms(i, c)
                f = past[c].draw(mean[units], squares[places], own, crosses[c], e[units], floor)
                parts.append(f.flatten(0, 1))  # u w, S, n
            H = torch.cat(parts)[pattern.order(i)].permute(1, 2, 0)

    def predictive(self, X, draws):
        if not self._inflates():
            return super().predictive(X, draws)
        with torch.no_grad():
            return self.variance_inflation.mixture(
                *self._with_prior(X, self._split(draws)), self._n_means()
            )

    def mixture_weights(self, draws):
        mixture_weights = super().mixture_weights(draws)
        return (
            self.variance_inflation.mixture_weights(mixture_weights)
            if self._inflates()
            else mixture_weights
        )

    def inflation(self, draws):
        if not self._inflates():
            return super().inflation(draws)
        return self.variance_inflation.factors().repeat_interleave(
            len(super().mixture_weights(draws))
        )

    def covariance(self, X):
        covariance = super().covariance(X)
        if covariance is None or not self._inflates():
            return covariance
        with torch.no_grad():
            return self.variance_inflation.covariance(
                covariance, self.layers[0].kernel().diag(X), self._n_means()
            )

    def functions(self, n, generator, n_features, dispersion=1.0):
        function = super().functions(n, generator, n_features, dispersion)
        if not self._inflates():
            return function
        chosen = self.variance_inflation.choice(n, generator)
        draws = torch.as_tensor(self.draws(_DRAWS, 0), device=self.layers[0].Z.device)

        def f(X, noise=None):
            with torch.no_grad():
                moments = self._with_prior(X, self._split(draws))
                center, a = self.variance_inflation.centers_and_factors(*moments, self._n_means())
                return center + a[chosen] * (function(X, noise) - center)

        f.inflation = self.variance_inflation.factors()[chosen]
        return f

    def _inflates(self):
        return (
            self.variance_inflation is not None
            and self.variance_inflation.known()
            and not self._as_trained
        )

    @contextlib.contextmanager
    def as_trained(self):
        before, self._as_trained = self._as_trained, True
        try:
            yield
        finally:
            self._as_trained = before

    def _draw_widths(self):
        """Dimensions of the draws for each layer."""
        shares = self.q.patterns[self.q.coupling].shares
        return [layer.n_outputs for layer in (self.layers if shares else self.layers[:-1])]

    def _solved(self, dtype):
        """What rows need of the posterior, and the inverse factors of the kernel matrices.

        In training there are no such factors, because gradients go through them; in evaluation mode
        both are kept.
        """
        if torch.is_grad_enabled():
            return self.q.moments(dtype), [None] * len(self.layers)
        if self._kept is not None and self._kept[1][0].dtype == dtype:
            return self._kept
        L_inv = [inverse_triangular(layer.inducing_root()).to(dtype) for layer in self.layers]
        solved = self.q.moments(dtype), L_inv
        if not self.training:
            self._kept = solved
        return solved

    def train(self, mode=True):
        self._kept = None
        return super().train(mode)

    @staticmethod
    def _whitened(layer, H, L_inv):
        """``L^{-1} k(Z, H)`` and ``k(H, H)``, of shapes (M, s, n) and (s, n)."""
        kernel, Z, rows = layer.kernel(), layer.Z, H.reshape(-1, H.shape[-1])
        K_uf, k_ff = kernel(Z.to(H.dtype), rows), kernel.diag(rows)
        A = whiten(kernel(Z, Z), K_uf, layer.jitter) if L_inv is None else L_inv @ K_uf
        return A.view(-1, *H.shape[:2]), k_ff.view(H.shape[:2])

    def _layer_functions(self, n, generator, n_features):
        v = self.q.sample(n, generator).mT  # n, M, T: all layers together
        parts = v.split([layer.n_outputs for layer in self.layers], -1)
        return [
            layer.function(n, n_features, generator, part)
            for layer, part in zip(self.layers, parts)
        ]


class _Past:
    """The earlier units of the chains, as each row has met them.

    Attributes
    ----------
    factor : tensor of shape (p, p, w, S, n)
        Cholesky factor of their covariance.
    eps : tensor of shape (p, w, S, n)
        The standard normal draws behind them.
    """

    factor = eps = None

    def tell(self, crosses):
        """What the past says of outputs, from their covariances (p, K, w, S, n) with it.

        Returns
        -------
        shift : tensor of shape (K, S, n)
            To be added to the means.
        Y : tensor of shape (p w, K, S, n)
            Their squares are to be taken from the covariance.
        """
        Y = substitute(self.factor, torch.cat(crosses))
        return (Y * self.eps[:, None]).sum((0, 2)), Y.transpose(1, 2).flatten(0, 1)

    def draw(self, mean, E, own, crosses, eps, floor):
        """Draws of units given the past, of which they become a part.

        Parameters
        ----------
        mean : tensor of shape (u, w, s, n)
        E : tensor of shape (u, u, w, s, n)
            Covariance, less `own` (s, n) on its diagonal.
        crosses : list of tensors of shape (p, u, w, S, n)
            Covariances with the past, one earlier layer after the other.
        eps : tensor of shape (u, w, S, n) or (u, w, S, 1)
        floor : tensor of shape ()
            A variance below which no conditional one can fall.

        Returns
        -------
        f : tensor of shape (u, w, S, n)
        """
        u = len(E)
        E = E + torch.eye(u, dtype=E.dtype, device=E.device)[..., None, None, None] * own
        if self.factor is not None:
            Y = substitute(self.factor, torch.cat(crosses))
            mean = mean + (Y * self.eps[:, None]).sum(0)
            E = E - (Y[:, :, None] * Y[:, None]).sum(0)
        R = small_cholesky(E, floor)
        f = mean + (R * eps).sum(1)
        R, eps = R.expand(u, u, *f.shape[1:]), eps.expand(f.shape)
        if self.factor is None:
            self.factor, self.eps = R, eps
            return f
        p = len(self.factor)
        above = torch.cat([self.factor, self.factor.new_zeros(p, u, *f.shape[1:])], 1)
        self.factor = torch.cat([above, torch.cat([Y.transpose(0, 1), R], 1)])
        self.eps = torch.cat([self.eps, eps])
        return f


def _rounding(E):
    """A variance that rounding can bring about."""
    return torch.tensor(max(1e-10, 10.0 * torch.finfo(E.dtype).eps), device=E.device)


def _floor(layer):
    """What the noise of a layer leaves of every conditional variance."""
    return torch.as_tensor(layer.noise(), device=layer.Z.device).detach().clamp_min(_FLOOR)
