"""Exact Gaussian processes with a local scale."""

import contextlib
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from ..gp.kernels import Anova, Kernel
from ..linalg import LogNormal, cholesky, inverse_triangular, rounding
from ..optim.lbfgs import LBFGS
from .quasi_newton import QuasiNewton, backward
from .vecchia.neighbors import (
    _LEAST_REST,
    _LEAST_VARIANCE,
    _LOG_2PI,
    _NUGGET,
    _START_COUNT,
    NeighborGP,
)
from .vecchia.vecchia import LocalScaleScheme

_MARGINAL_FACTORS = 25_000_000  #: of an ANOVA kernel for all pairs of them
_LEAST_MARGINAL_ROWS = 400  #: all the same
_FIRST_ROWS = 700  #: that are enough for the first steps, where there are half as many again
_FIRST_STEPS = 30
#: factors of the lengthscales that are given, and strengths of an ANOVA kernel in the place of those
_STARTS = ((1.0, None), (0.3, None), (0.1, None), (0.03, None), (1.0, 1.0))
_TRIAL_ROWS, _TRIAL_STEPS = 300, 3  #: for the choice among them
_SEARCH_STEPS = 20  #: with normal priors, and with Cauchy priors from there and from the start
_MANY_COLUMNS = 8  #: that need these
_SEARCH_FACTORS = 2_500_000  #: of a kernel for all pairs of rows, beyond which they take too long
_SPREAD = 2.0  #: of the logarithms of the hyperparameters of kernel and noise, a priori
_DEVIATION = 0.5  #: of those of one column from the level of all columns
_SCALE_ROWS = 3000  #: that the local scale is learned from
_SCALE_STEPS = 50
_TOL = 1e-6  #: of L-BFGS
_SCALE_SPREAD = 3.0  #: of the logarithms of its hyperparameters, a priori
_AT_ONCE = 1_000_000  #: elements of a matrix with rows that are worked on together


class Exact(LocalScaleScheme):
    r"""Exact Gaussian process on all rows, with a local scale.

    Kernel and noise maximize the marginal likelihood by L-BFGS, on at most 1,500 rows (fewer for an ANOVA
    kernel of more than eleven columns), from the best of some starts; of 1,050 rows and more, 700 are enough
    for the first 30 steps. All rows are then conditioned on. The hyperparameters of both have log-normal
    priors around those that are given, so wide (a standard deviation of 2) that they matter with some dozens
    of rows only. Of what a kernel has for each column, the level has such a prior, and the deviations of the
    logarithms from it have Cauchy distributions of scale 0.5, so that many columns do not overfit few rows.
    Time grows with the cube of the number of rows and memory with its square; up to 5,000 rows both are
    small. Rows with the same inputs are taken together.

    With the heteroscedastic likelihood, the default, variances around a row are scaled by an unknown
    factor :math:`\tau^2`, as for :class:`Vecchia`. What tells it is how well the training rows near by are
    predicted from all others: with their standardized leave-one-out errors :math:`z_1, \dots, z_k` (Rasmussen
    and Williams, 2006, equations 5.10 to 5.12), predictions follow a Student-t distribution with
    :math:`a + \rho k` degrees of freedom and the squared scale

    .. math:: \hat\tau^2 = c\, \frac{a + \rho z^\top z}{a + \rho k}

    times that of the GP; :math:`a`, :math:`\rho \in (0, 1)` and :math:`c`, one for each output, maximize the
    leave-one-out predictive density.

    Parameters
    ----------
    n_neighbors : int, default=8
        Number `k` of rows that tell the local scale.

    References
    ----------
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

    auto_kernel = "anova"
    early = 5  # its steps are the dearest

    def __init__(self, n_neighbors=8):
        self.n_neighbors = n_neighbors

    def max_iter(self, n_rows):
        return 50

    def _model_for(self, likelihood):
        return ExactGP if self._is_gaussian(likelihood) else None


class ConditionedGP(NamedTuple):
    """A Gaussian process given all unique inputs, for some hyperparameters of its kernel.

    Attributes
    ----------
    kernel : Kernel
    inputs : callable
        Maps rows to what the kernel sees of them.
    H : tensor of shape (P, n_inputs)
        What it sees of the unique inputs.
    root : tensor of shape (k, P, P)
        Cholesky factors of their covariances, for each output.
    a : tensor of shape (k, P)
        ``C^{-1} y``.
    """

    kernel: Kernel
    inputs: Callable
    H: torch.Tensor
    root: torch.Tensor
    a: torch.Tensor

    def moments(self, X, joint=False):
        """Mean (k, n) and variance (k, n) of the function, or its covariance (k, n, n)."""
        H = self.inputs(X)
        K = self.kernel(self.H, H)  # P, n
        A = torch.linalg.solve_triangular(
            self.root, K.expand(len(self.root), *K.shape), upper=False
        )
        if joint:
            return self.a @ K, self.kernel(H, H) - A.mT @ A
        return self.a @ K, (self.kernel.diag(H) - A.square().sum(1)).clamp_min(_LEAST_VARIANCE)

    def paths(self, prior, seen):
        """Rows to means (n_rows, k) of the function, and deviations (n, n_rows, k) of draws from them.

        Parameters
        ----------
        prior : callable
            Maps rows to draws from the prior, (n, n_rows, k).
        seen : tensor of shape (n, P, k)
            These at the unique inputs, with noise.
        """
        correction = torch.cholesky_solve(seen.permute(2, 1, 0), self.root).permute(2, 0, 1)

        def path(X):
            K = self.kernel(self.H, self.inputs(X))
            return (self.a @ K).T, prior(X) - (correction @ K).mT

        return path

    def loo_moments(self, y):
        """Mean and variance (k, P) of each of the targets `y` (k, P) given all others, noise included."""
        precision = inverse_triangular(self.root).square().sum(-2)
        return y - self.a / precision, 1.0 / precision


class ExactGP(QuasiNewton, NeighborGP):
    """The model that :class:`Exact` builds.

    Unique inputs, as of :class:`NeighborGP`, have the covariance ``C = K + diag(noise / weight)``.
    Predictions are a mixture, with equal weights, of J processes, one for each state of the
    hyperparameters: here J is one.
    """

    _deviation = _DEVIATION
    _n_states = 1
    _marginal_rows = 1500  #: of which the marginal likelihood is maximized
    _most_rows = 20_000  #: whose covariance matrix may be formed
    _of_too_many = "Exact forms the covariance matrix of all distinct rows", "vecchia"

    def __init__(self, architecture, likelihood, scheme):
        super().__init__(architecture, likelihood, scheme)
        self._lbfgs = LBFGS(tol=_TOL)
        n_outputs = self.rows.y.shape[1]
        # standardized leave-one-out errors of unique inputs: J, k, P
        self.register_buffer("z", torch.empty((self._n_states, n_outputs, 0), dtype=torch.float64))
        if self.has_local_scale:
            self.log_factor = nn.Parameter(self.log_count.new_zeros(n_outputs))
            for parameter in self._scale_hyperparameters():
                parameter.requires_grad_(False)  # the marginal likelihood does not know them
        self._medians = [p.detach().clone() for p in self._hyperparameters()]
        self._conditioned_gps = self._loo_moments = self._unsolved = None
        self._n_first = None  # steps on a part of the rows that are left; below zero they are over

    def _hyperparameters(self):
        """What the marginal likelihood is a function of."""
        return [*self.rows.kernel.parameters(), *self.likelihood.parameters()]

    def _scale_hyperparameters(self):
        return self.log_count, self.log_odds, self.log_factor

    def _hold(self, batch):
        if self._training_rows is not None:
            return
        super()._hold(batch)
        rows, n = self.rows, len(self.rows.Z)
        if n > self._most_rows:
            self._training_rows, (what, other) = None, self._of_too_many
            raise ValueError(
                f"{what}, of at most {self._most_rows}; got {n}. inference='{other}' is for more."
            )
        _, y, weight, index, _ = self._training_rows
        squares = weight[:, None] * (y - rows.y[index]).square()
        self._scatter = torch.zeros_like(rows.y).index_add(0, index, squares)
        most = self._marginal_rows
        if any(isinstance(part.component, Anova) for part in rows.kernel.modules()):
            fewer = math.isqrt(_MARGINAL_FACTORS // rows.Z.shape[1])
            most = min(most, max(_LEAST_MARGINAL_ROWS, fewer))
        chosen = np.random.default_rng(0).permutation(n)[:most]
        self._marginal_subset = torch.as_tensor(np.sort(chosen), device=rows.Z.device)

    @contextlib.contextmanager
    def _with_marginal_subset(self, most, seed):
        """With the marginal likelihood of so many of its rows."""
        rows = self._marginal_subset
        self._marginal_subset = rows[np.random.default_rng(seed).permutation(len(rows))[:most]]
        try:
            yield
        finally:
            self._marginal_subset = rows

    def _covariance(self, X, weight):
        """Of unique inputs, shape (k, P, P)."""
        kernel, H = self.rows.kernel(), self._inputs(X)
        noise = self._noise(weight[None])[0] + _NUGGET * kernel.diag(H)
        return kernel(H, H) + torch.diag_embed(noise)

    @property
    def finished(self):
        return super().finished and self._n_first < 0

    def step(self, batch, generator, rate=1.0):
        self._hold(batch)
        if self._n_first is None:
            self._choose_start(batch)
            many = 2 * len(self._marginal_subset) >= 3 * _FIRST_ROWS and self._free()
            self._n_first = _FIRST_STEPS if many else -1
        if self._n_first == 0:  # start anew on all rows, whose marginal likelihood curves alike
            self._lbfgs.x, self._lbfgs.converged, self._n_first = None, False, -1
        if self._n_first < 0:
            return super().step(batch, generator, rate)
        with self._with_marginal_subset(_FIRST_ROWS, 2):
            loss = super().step(batch, generator, rate)
        self._n_first = 0 if self._lbfgs.converged else self._n_first - 1
        return loss

    def training_state(self):
        arrays = super().training_state()
        return arrays if self._n_first is None else {**arrays, "n_first": np.array(self._n_first)}

    def load_training_state(self, arrays):
        super().load_training_state(arrays)
        self._n_first = int(arrays["n_first"]) if arrays else None

    def _choose_start(self, batch):
        """Begin with the best of some starts or, if that is better, where normal priors lead to.

        Cauchy priors may hold hyperparameters at their level that have to leave it together, as those of two
        columns of which only the product matters.
        """
        if not self._free():
            return
        rows, search, starts = self._marginal_subset, self._lbfgs, self._starts()
        n_columns, x = self.rows.Z.shape[1], starts[0]
        try:
            x = self._best_start(starts, batch)
            if n_columns >= _MANY_COLUMNS and len(rows) ** 2 * n_columns <= _SEARCH_FACTORS:
                self._deviation = None
                _, loose = self._searched(self._best_start(starts, batch), _SEARCH_STEPS, batch)
                self._deviation = _DEVIATION
                values = [self._searched(start, _SEARCH_STEPS, batch)[0] for start in (x, loose)]
                x = loose if values[1] < values[0] else x
        finally:
            self._deviation, self._marginal_subset, self._lbfgs = _DEVIATION, rows, search
            vector_to_parameters(x, self._free())

    def _free(self):
        """Hyperparameters that the marginal likelihood is maximized over."""
        return [p for p in self.parameters() if p.requires_grad]

    def _starts(self):
        """Vectors of these, to begin with.

        From long lengthscales wiggles may be taken for noise, from short ones noise for wiggles; from
        small strengths interactions are not seen.
        """
        named = [(name, p.detach()) for name, p in self.named_parameters() if p.requires_grad]
        has_strength = any(name.endswith("log_strength") for name, _ in named)
        starts = []
        for factor, strength in _STARTS:
            if strength and not has_strength:
                continue
            hyperparameters = []
            for name, number in named:
                if name.endswith("log_lengthscale"):
                    number = number + math.log(factor)
                elif name.endswith("log_strength") and strength:
                    number = torch.full_like(number, math.log(strength))
                hyperparameters.append(number)
            starts.append(parameters_to_vector(hyperparameters))
        return starts

    def _best_start(self, starts, batch):
        """The one from which some steps on some rows come to the lowest value."""
        with self._with_marginal_subset(_TRIAL_ROWS, 1):
            values = [self._searched(x, _TRIAL_STEPS, batch)[0] for x in starts]
        return starts[int(np.argmin(values))]

    def _searched(self, x, n_steps, batch):
        """The value, infinite if there is none, and the hyperparameters after some steps from `x`."""
        vector_to_parameters(x, self._free())
        self._lbfgs = LBFGS(tol=_TOL)
        for _ in range(n_steps):
            super().step(batch, None)
        value = self._lbfgs.f
        return value if math.isfinite(value) else math.inf, self._lbfgs.x

    def lower_bound(self, batch):
        """The log marginal likelihood and, up to a constant, the log prior density of kernel and noise."""
        self._hold(batch)
        value = self.log_marginal_likelihood() - self._negative_log_prior(_SPREAD)
        backward((value, torch.ones_like(value)))
        return float(value.detach())

    def log_marginal_likelihood(self):
        """Of all rows; that of a part of the unique inputs, times their number, if there are many."""
        rows, chosen = self.rows, self._marginal_subset
        X, y, weight = rows.Z[chosen], rows.y[chosen], rows.weight[chosen]
        value = LogNormal.apply(y.mT, self._covariance(X, weight))
        # of the rows of a unique input, all but their mean
        noise = self._noise(weight.new_ones(1))[:, 0]
        within = self._scatter[chosen] / noise + weight.log()[:, None]
        within = within + (weight - 1.0)[:, None] * (_LOG_2PI + noise.log())
        return (value - 0.5 * within.sum()) * (len(rows.Z) / len(chosen))

    @torch.no_grad()
    def _solve(self):
        """Condition on all rows, and learn the local scale from leave-one-out errors."""
        changed = self._unsolved is not None
        if changed:
            self._hold(self._unsolved)
            self._conditioned_gps = self._loo_moments = None
        if self._conditioned_gps is None:
            self._condition()
        if changed:
            self._compute_loo()
            self._search(self._metric_now())
            if self.has_local_scale:
                self._learn_scale()
            self._unsolved = None  # only now: an interrupt leaves it for the next call

    def _condition(self):
        self._conditioned_gps = [self._conditioned()]

    def _conditioned(self):
        """The process given all rows, for the present hyperparameters."""
        rows, inputs = self.rows, self._hand_on()
        K = self._covariance(rows.Z, rows.weight)
        root = cholesky(K, rounding(K))
        a = torch.cholesky_solve(rows.y.mT[..., None], root)[..., 0]
        return ConditionedGP(rows.kernel(), inputs, inputs(rows.Z), root, a)

    def _compute_loo(self):
        """Moments of each unique input given all others, their noise included, and the standardized errors."""
        y = self.rows.y.mT
        self._loo_moments = mean, var = self._of_states(
            gp.loo_moments(y) for gp in self._conditioned_gps
        )
        self.z = (y - mean) / var.sqrt()

    def _learn_scale(self):
        """Maximize the leave-one-out density, with weak priors of the hyperparameters."""
        hyperparameters = self._scale_hyperparameters()
        prior = parameters_to_vector(hyperparameters).detach().zero_()
        prior[0] = math.log(_START_COUNT)
        chosen = np.random.default_rng(0).permutation(len(self._training_rows.X))[:_SCALE_ROWS]
        without, weight = self._without(chosen), self._training_rows.weight[chosen]

        def evaluate(x):
            vector_to_parameters(x, hyperparameters)
            with torch.enable_grad():
                ell = weight @ self._log_density(*without)
                deviations = (parameters_to_vector(hyperparameters) - prior) / _SCALE_SPREAD
                loss = (0.5 * deviations.square().sum() - ell) / weight.sum()
                gradients = torch.autograd.grad(loss, hyperparameters)
            return float(loss), torch.cat([g.flatten() for g in gradients])

        search = LBFGS(tol=_TOL)
        for number in hyperparameters:
            number.requires_grad_()
        try:
            search.start(prior, evaluate)
            for _ in range(_SCALE_STEPS):
                search.step(evaluate)
            vector_to_parameters(search.x, hyperparameters)
        finally:
            for number in hyperparameters:
                number.requires_grad_(False)

    def _squared_scale(self, z):
        return self.log_factor.exp() * super()._squared_scale(z)

    def _without(self, chosen):
        rows = self.rows
        X, y, weight, index, alone = (part[chosen] for part in self._training_rows)
        mean, var = (moment[..., index].mT for moment in self._loo_moments)  # J, n, n_outputs
        noise = self._noise(weight.new_ones(1))[:, 0]
        var = (var - noise / rows.weight[index, None]).clamp_min(_LEAST_VARIANCE)  # of the function
        # a unique input that holds other targets stays, without one count of the row
        own = weight.clamp_max(1.0)
        rest = (rows.weight[index] - own).clamp_min(_LEAST_REST * rows.weight[index])
        rest = torch.where(alone, 0.0, rest)[:, None]
        others = rows.y[index] + (own[:, None] / rest) * (rows.y[index] - y)
        error = torch.where(alone[:, None], 0.0, others - mean)
        gain = rest * var / (noise + rest * var)
        nearest = self.neighbors(X, torch.where(alone, index, -1).numpy(force=True))
        own = torch.as_tensor(nearest, device=X.device) == index[:, None]
        z_own = error / (var + noise / rest).sqrt()
        z = torch.where(own[:, None], z_own[..., None], self._z_of(nearest))
        return y, mean + gain * error, (var * (1.0 - gain) + noise).sqrt(), z

    def _z_of(self, nearest):
        """Standardized errors of unique inputs (n, k), shape (J, n, n_outputs, k)."""
        return self.z[..., nearest].transpose(1, 2)

    def _log_density(self, y, mean, sd, z):
        of_states = super()._log_density(y, mean, sd, z)
        return torch.logsumexp(of_states, -2) - math.log(len(self.z))

    @torch.no_grad()
    def loo_log_density(self, batch, rows, dispersions=None):
        self._hold(batch)
        self._solve()
        if self._loo_moments is None:  # a state that was loaded
            self._compute_loo()
        return super().loo_log_density(batch, rows, dispersions)

    def predictive(self, X, draws):
        self._solve()
        return super().predictive(X, draws)

    def mixture_weights(self, draws):
        of_scales = super().mixture_weights(draws) if self.has_local_scale else self.z.new_ones(1)
        return of_scales.repeat_interleave(len(self.z)) / len(self.z)

    def _pieces(self, X):
        size = max(1, _AT_ONCE // len(self.rows.Z))
        for i in range(0, len(X), size):
            nearest = self.neighbors(X[i : i + size]) if self.has_local_scale else None
            yield slice(i, i + size), nearest

    def _moments(self, X, nearest, mixing):
        mean, var = (moment.mT for moment in self._function(X))
        if mixing is None:
            return mean, var
        of_states = self._squared_scale(self._z_of(nearest))  # J, n, n_outputs
        scale = mixing[:, None] * of_states  # n_draws, J, n, n_outputs
        mean = torch.cat([mean.expand_as(scale), scale.log()], -1)
        var = torch.cat([var * scale, torch.zeros_like(scale)], -1)
        return mean.flatten(0, 1), var.flatten(0, 1)

    def _function(self, X):
        """Mean and variance (J, k, n) of the function given all rows, for unit scale."""
        return self._of_states(gp.moments(X) for gp in self._conditioned_gps)

    @staticmethod
    def _of_states(moments):
        """One tensor for all states of the hyperparameters, which come first, of each moment."""
        return tuple(map(torch.stack, zip(*moments)))

    @torch.no_grad()
    def covariance(self, X):
        self._solve()
        roots, total = [1.0] * len(self._conditioned_gps), 0.0
        if self.has_local_scale:
            dof = self._dof()
            scales = [self._squared_scale(self._z_of(nearest)) for _, nearest in self._pieces(X)]
            roots = (torch.cat(scales, 1).mT * dof / (dof - 2.0)).sqrt()[..., None]  # J, k, n, 1
        for gp, root in zip(self._conditioned_gps, roots):
            _, cov = gp.moments(X, joint=True)
            total = total + (root * cov).mT * root
        return total / len(self._conditioned_gps)

    def functions(self, n, generator, n_features, dispersion=1.0):
        """Draws by pathwise conditioning (Wilson et al., 2020)."""
        self._solve()
        with torch.no_grad():
            path, states = self._paths(n, generator, n_features)
            mixing = self._mixing_of(n, generator)

        @torch.no_grad()
        def f(X, noise=None):
            values = []
            for piece, nearest in self._pieces(X):
                mean, deviation = path(X[piece])
                deviation = dispersion * deviation
                if mixing is None:
                    values.append(mean + deviation)
                    continue
                scale = self._squared_scale(self._z_of(nearest))[states] / mixing
                values.append(torch.cat([mean + scale.sqrt() * deviation, scale.log()], -1))
            return torch.cat(values, 1)

        return f

    def _paths(self, n, generator, n_features):
        """Rows to means of the function and deviations of draws from them, see :class:`ConditionedGP`.

        With them, the states that they are of.
        """
        return self._conditioned_gps[0].paths(
            *self._prior_and_seen(n, generator, n_features)
        ), slice(None)

    def _prior_and_seen(self, n, generator, n_features):
        prior = self._prior(n, generator, n_features)
        return prior, prior(self.rows.Z) + self._errors(n, generator)

    def state(self):
        if self._unsolved is not None:
            self._solve()
        return super().state()

    def load_state(self, arrays):
        self.z = self.z.new_empty(arrays["z"].shape)
        super().load_state(arrays)
        self._conditioned_gps = self._loo_moments = self._unsolved = None
        self._n_first = -1  # hyperparameters that were learned need no better start
