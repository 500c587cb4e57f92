"""Deep Gaussian processes whose last layer is integrated out over all rows."""

import copy
import math
from typing import Annotated, NamedTuple

import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from ..gp.component import hyperparameters
from ..gp.kernels.base import Kernel, stacked
from ..gp.priors import SPREAD
from ..gp.stack import Layer
from ..linalg import cholesky
from ..optim.lbfgs import LBFGS, STEPS
from ..random import sobol_normal
from .base import COUNT, OF_LAYERS, Scheme
from .rows.local_scale import LocalScaleScheme
from .rows.marginal_likelihood import TOL, MarginalLikelihoodGP

_DRAWS_TIMES_ROWS = 4000  #: option: of a step
_FEWEST_DRAWS, _MOST_DRAWS = 4, 32  #: option: of a step, whatever the rows
_LEAST_ROWS = 250  #: max_time: that steps look at, if time is short
_STATES = 16  #: draws that predictions are made from
_NARROW = 0.1, 5.0  #: standard deviations to begin with: the most, and times the number of rows
_KNOWN = 1e-6  #: rounding: standard deviation of what is not uncertain yet
_AMPLITUDE = 0.1  #: variance of hidden functions around their linear means, a priori
_SPREAD_OF_HIDDEN = 0.5  #: of the logarithms of other hyperparameters of hidden kernels, a priori
_JITTER = 1e-6  #: rounding: of the variance of hidden functions, beside it


class CollapsedVI(LocalScaleScheme):
    r"""Variational inference for all but the last layer, which is integrated out over all rows.

    The functions of the hidden layers are those of their inducing variables, :math:`f_l(h) = W_l^T h + k_l(h,
    Z_l) L_l^{-T} v_l` with standard normal :math:`v_l`. Given them, and the hyperparameters of all kernels,
    the last layer is an exact Gaussian process, whose marginal likelihood is known. Their posterior is a
    Gaussian with independent components, :math:`\theta_i \sim N(m_i, s_i^2)`, and the lower bound

    .. math:: \frac{1}{S} \sum_{j=1}^S \log p(y \mid m + s \circ \epsilon_j) - KL(q(\theta) \,\|\, p(\theta))

    has the same draws :math:`\epsilon_j` throughout. It is therefore a smooth function of means, deviations and
    noise, and L-BFGS maximizes it (Giordano et al., 2024). Few rows determine neither the hyperparameters
    of kernels (Lalchand and Rasmussen, 2020) nor the hidden functions. This uncertainty widens the error bars.

    A priori, lengthscales and variances are log-normal around their starts, with a standard deviation of 2,
    of 0.5 for hidden lengthscales; hidden functions around a linear map start with a tenth of the kernel's
    variance, and lengthscales of the last layer differ from their level as in :class:`Exact`.

    The first 30 steps find hyperparameters for the last layer alone, with hidden layers that are linear. A
    step takes about as long as S of ``"exact"``, and grows with the cube of the number of rows, of which at
    most 1,000 are used for the lower bound. All rows, at most 2,000, are then conditioned on for 16 draws of
    the posterior, whose mixture predicts.

    Parameters
    ----------
    n_draws : int or None, default=None
        Number of draws S in training. None stands for 4,000 over the number of rows, but at least 4 and
        at most 32.
    n_neighbors : int, default=8
        With the heteroscedastic likelihood, number of rows from which the local scale is estimated, see
        :class:`Exact`. Each draw has errors, and so scales, of its own; the hyperparameters of the local scale
        are common.

    References
    ----------
    R. Giordano, M. Ingram and T. Broderick (2024). Black box variational inference with a deterministic
    objective: faster, more accurate, and even more black box. Journal of Machine Learning Research 25.

    V. Lalchand and C. Rasmussen (2020). Approximate inference for fully Bayesian Gaussian process
    regression. Symposium on Advances in Approximate Bayesian Inference.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import DeepGPRegressor
    >>> from skdgp.inference import CollapsedVI
    >>> X = np.linspace(0, 1, 20)[:, None]
    >>> y = (X[:, 0] > 0.5).astype(float)
    >>> scheme = CollapsedVI(n_draws=4)
    >>> model = DeepGPRegressor(inference=scheme, max_iter=50, random_state=0).fit(X, y)
    >>> model.predict([[0.2], [0.8]]).round(1) + 0.0
    array([0., 1.])
    """

    uses = OF_LAYERS | {"n_inducing"}

    n_draws: Annotated[int | None, COUNT, None] = None
    n_neighbors: Annotated[int, COUNT] = 8

    auto_noise = Scheme.auto_noise  # the local scale is an option

    def max_iter(self, n_rows):
        return 150

    def n_inducing(self, n_rows, n_classes=None):
        return 30

    def cubes(self, n_rows, n_inducing):
        return 15.0 * _FEWEST_DRAWS * min(n_rows, _LEAST_ROWS) ** 3, 4.0 * _STATES * n_rows**3

    def beyond_hyperparameters(self, architecture, likelihood):
        learns = any(kernel.learns for kernel in architecture.kernels)
        return "a posterior of its hyperparameters" if learns else None

    _shallow = False

    def _model_for(self, likelihood):
        return CollapsedGP if self._is_gaussian(likelihood) else None


class _Hidden(Layer):
    """Functions of inducing variables: ``h W + k(h, Z) L^{-T} v``."""

    roles = {**Layer.roles, "v": "posterior", "Z": "inducing_input"}

    def __init__(self, kernel, n_inputs, n_outputs, n_inducing, linear_mean):
        super().__init__(kernel, n_inputs, n_outputs, linear_mean)
        self.v = nn.Parameter(torch.zeros(n_inducing, n_outputs, dtype=torch.float64))
        self.register_buffer("Z", torch.zeros(n_inducing, n_inputs, dtype=torch.float64))

    @property
    def n_inducing(self):
        return len(self.Z)

    def start(self, Z, W, rng):
        """Take inducing inputs, and begin as a linear map."""
        super().start(Z, W, rng)
        if self.W is None:
            given = torch.linalg.solve_triangular(self.root(), Z[:, : len(W)] @ W, upper=False)
            self.v.copy_(given)

    def root(self):
        return cholesky(self.kernel()(self.Z, self.Z), _JITTER)

    def function(self):
        """The function for the present hyperparameters."""
        if self.W is not None and not self.v.requires_grad and not self.v.any():  # as at first
            return lambda H: H @ self.W
        weights = torch.linalg.solve_triangular(self.root().T, self.v, upper=True)
        return _Function(self.kernel(), self.Z, weights, self.W)


class _Function(NamedTuple):
    """A function of a hidden layer, or one for each of some states."""

    kernel: Kernel
    Z: torch.Tensor
    weights: torch.Tensor  #: (M, n_outputs), or those of J states
    W: torch.Tensor | None

    @classmethod
    def of_states(cls, layers):
        """The functions of J states of a layer, which map (J, n, n_inputs) to (J, n, n_outputs)."""
        functions = [layer.function() for layer in layers]
        if not isinstance(functions[0], cls):
            return functions[0]  # the same linear map
        kernels, _, weights, _ = zip(*functions)
        return functions[0]._replace(kernel=stacked(kernels), weights=torch.stack(weights))

    def __call__(self, H):
        F = self.kernel.between(H, self.Z) @ self.weights
        return F if self.W is None else F + H @ self.W


class CollapsedGP(MarginalLikelihoodGP):
    """The model of :class:`CollapsedVI`; at rest, layers hold the mean of what is uncertain."""

    _n_states = _STATES
    _cubes_of_steps = 3000.0
    _most_rows = 2000
    _of_too_many = "CollapsedVI conditions on all distinct rows again and again", "dsvi"

    def __init__(self, architecture, likelihood, scheme):
        linear, n_inducing = architecture.linear_mean, architecture.n_inducing
        shapes = zip(architecture.kernels, architecture.layer_inputs(), architecture.widths)
        hidden = [_Hidden(*shape, n_inducing, linear) for shape in shapes]
        for layer in hidden if linear else ():
            layer.kernel.multiply("variance", _AMPLITUDE, parts=False)
        super().__init__(architecture, likelihood, scheme, hidden)
        self.n_draws = scheme.n_draws
        named = [(name, p) for name, p in self.layers.named_parameters() if p.requires_grad]
        self._names, self._uncertain = [name for name, _ in named], [p for _, p in named]
        self._hidden_center, self._hidden_width = self._hidden_priors()
        start = torch.cat([p.detach().flatten() for p in (*self._uncertain, torch.zeros(0))])
        self.mean = nn.Parameter(start)
        self.log_sd = nn.Parameter(torch.full_like(start, math.log(_KNOWN)))
        self.register_buffer("eps", self._draws(_STATES, 1))  # of predictions
        self._be_uncertain(False)
        self._eps = None

    @property
    def hidden(self):
        """The layers before the last one."""
        return self.layers[:-1]

    def _hidden_priors(self):
        """Centers and deviations of the normal priors; of what is not hidden, infinite ones."""
        by_role = {"variance": SPREAD, "posterior": 1.0}
        found = [one for one in hyperparameters(self.hidden) if one.parameter.requires_grad]
        spreads = [
            one.prior.of_each if one.prior else by_role.get(one.role, _SPREAD_OF_HIDDEN)
            for one in found
        ]
        last = [p for p in self.rows.parameters() if p.requires_grad]
        priors = [*zip(spreads, (one.parameter for one in found)), *((math.inf, p) for p in last)]
        priors = [(width, p.detach().flatten()) for width, p in priors]
        centers = [center for _, center in priors]
        widths = [torch.full_like(center, width) for width, center in priors]
        return torch.cat([*centers, torch.zeros(0)]), torch.cat([*widths, torch.ones(0)])

    def _be_uncertain(self, uncertain):
        """Whether the search is for the posterior, or for hyperparameters of the last layer."""
        for p in self._uncertain:
            p.requires_grad_(False)
        for p in self.rows.kernel.parameters():
            p.requires_grad_(not uncertain)
        for p in (self.mean, self.log_sd):
            p.requires_grad_(uncertain and bool(self._uncertain))

    def inputs(self, *states):
        hidden = [state[:-1] for state in states]
        if len(states) == 1:
            functions = [layer.function() for layer in hidden[0]]
        else:
            functions = [_Function.of_states(layers) for layers in zip(*hidden)]

        def visit(i, layer, H):
            return functions[i](H) if i < len(functions) else H

        return lambda X: states[0].walk(
            X if len(states) == 1 else X.expand(len(states), *X.shape), visit
        )

    def states(self):
        states = (self.mean + self.log_sd.exp() * self.eps).detach()
        return [self._with(hyperparameters) for hyperparameters in states]

    def _with(self, hyperparameters):
        """A copy of the layers with these of what is uncertain."""
        layers = copy.deepcopy(self.layers).requires_grad_(False)
        named = dict(layers.named_parameters())
        vector_to_parameters(hyperparameters.clone(), [named[name] for name in self._names])
        return layers

    # Training

    def step(self, batch, generator, rate=1.0):
        self.hold(batch)
        if self._n_first is None:
            self.choose_start(batch)
            self._n_first = STEPS
        if self._n_first > 0:
            loss = super().step(batch, generator, rate)
            self._n_first = 0 if self.steps.search.converged else self._n_first - 1
            return loss
        if self._n_first == 0:
            self._n_first = -1
            if self._uncertain:
                self._open()
        return super().step(batch, generator, rate)

    def choose_start(self, batch):
        try:
            super().choose_start(batch)
        finally:
            self.accept()

    def _open(self):
        """Go on with the search for the posterior."""
        most, times = _NARROW
        narrow = min(most, times / float(self.rows.weight.sum()))
        with torch.no_grad():
            self.log_sd.fill_(math.log(narrow))
        self._be_uncertain(True)
        self.steps.search = LBFGS(tol=TOL)

    def objective(self, batch):
        """The lower bound for some rows; at first, the marginal likelihood with priors."""
        if self._n_first != -1 or not self._uncertain:
            return super().objective(batch)
        self.hold(batch)
        noise = [p for p in self.likelihood.parameters() if p.requires_grad]
        mean, sd = self.mean.detach(), self.log_sd.detach().exp()
        center, width = self._hidden_center.to(mean), self._hidden_width.to(mean)
        eps, share = self._draws_of_training(), len(self._marginal_subset) / len(self.rows.Z)
        off, narrow = (mean - center) / width, sd / width
        total = -0.5 * float(off.square().sum() + narrow.square().sum())
        self.mean.grad -= off / width
        self.log_sd.grad -= narrow.square()
        try:
            for p in self._uncertain:
                p.requires_grad_(True)
            for e in eps:
                self._put(mean + sd * e)
                value = (share * self.log_marginal_likelihood() - self._negative_log_prior()) / len(
                    eps
                )
                gradients = torch.autograd.grad(value, [*self._uncertain, *noise])
                slope = torch.cat([g.flatten() for g in gradients[: len(self._uncertain)]])
                self.mean.grad += slope
                self.log_sd.grad += slope * sd * e
                for p, g in zip(noise, gradients[len(self._uncertain) :]):
                    p.grad += g
                total += float(value.detach())
        finally:
            for p in self._uncertain:
                p.requires_grad_(False)
            self._put(mean)
        self.log_sd.grad += 1.0  # of the entropy
        return total + float(self.log_sd.detach().sum())

    def _draws_of_training(self):
        n = self.n_draws
        if n is None:
            n = _DRAWS_TIMES_ROWS // len(self._marginal_subset)
            n = min(_MOST_DRAWS, max(_FEWEST_DRAWS, n))
        if self._eps is None or len(self._eps) != n:
            self._eps = self._draws(n, 0)
        return self._eps

    def _draws(self, n, seed):
        return torch.as_tensor(sobol_normal(n, len(self.mean), seed)).to(self.mean)

    @torch.no_grad()
    def _put(self, hyperparameters):
        vector_to_parameters(hyperparameters.clone(), self._uncertain)

    @torch.no_grad()
    def accept(self):
        if self._n_first == -1:
            self._put(self.mean)
        elif self._uncertain:
            self.mean.copy_(parameters_to_vector(self._uncertain))

    def load_training_state(self, arrays):
        super().load_training_state(arrays)
        self._be_uncertain(self._n_first is not None and self._n_first < 0)

    def load_state(self, arrays):
        super().load_state(arrays)
        not_begun = self.log_sd.numel() and float(self.log_sd.detach().max()) <= math.log(_KNOWN)
        self._n_first = 0 if not_begun else -1
        self._be_uncertain(self._n_first < 0)
