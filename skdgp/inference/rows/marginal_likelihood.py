"""Gaussian processes on all rows whose hyperparameters maximize a marginal likelihood."""

import contextlib
import copy
import math

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from ...gp.kernels import Anova
from ...gp.kernels.base import stacked, tensor_like
from ...gp.priors import negative_log_prior
from ...gp.rows import log_marginal_likelihood
from ...linalg import cholesky, rounding, unpacked
from ...optim.lbfgs import LBFGS
from ...optim.quasi_newton import QuasiNewtonSteps, backward
from .conditioned import ConditionedGP, ConditionedLeaveOneOut, ConditionedPosterior
from .local_scale import LocalScaleModel
from .unique_inputs import NeighborSearch

_NUGGET = 1e-10  #: rounding: of the kernel's variance, beside the noise
MARGINAL_FACTORS = 6_000_000  #: of an ANOVA kernel for all pairs of them
#: max_time: for some dozens of steps, 7 ns for each factor in each evaluation
_FACTORS_A_SECOND = 2_500_000
#: rows that the marginal likelihood is of: of an ANOVA kernel of many columns, and at most
MARGINAL_ROWS = 400, 1000
#: factors of the lengthscales that are given, and strengths of an ANOVA kernel in the place of those
_STARTS = ((1.0, None), (0.3, None), (0.1, None), (0.03, None), (1.0, 1.0))
#: share of the noise in the target's variance at one more start: without it, lengthscales of a hundredth
#: explain targets of which a tenth is signal
_NOISY = 0.8
#: nats a row by which it may be worse on few rows: 1.5 standard errors of 150 such differences
_NEARLY = 0.1
_CLEARLY = 0.005  #: nats a row by which it must be better: most often both lead to one optimum
_TRIAL_ROWS, _TRIAL_STEPS = 150, 3  #: for the choice among starts; 300 change nothing on the suite
#: on these rows, too: with normal priors, and with Cauchy priors from there and from the start; and on all
#: rows, from where these lead and from the start: .1 nats on a table of 32 columns. Of a part of more rows,
#: half will do
_SEARCH_STEPS = 10
_MANY_COLUMNS = 8  #: that need these
_OF_START = 0.5  #: max_time: share of the time, if that is limited, after which no start is tried
_FEWEST_ROWS = 100  #: max_time: for steps, however short the time
_SCALE_ROWS = 3000  #: time: that the local scale is learned from
TOL = 1e-5  #: rounding: of L-BFGS: .003 nats of 300 rows


class MarginalLikelihoodGP(LocalScaleModel):
    """A Gaussian process on all rows, perhaps behind hidden layers that are known functions.

    Unique inputs have the covariance ``C = K + diag(noise / weight)``. Predictions are a mixture, with equal
    weights, of J processes, one for each state of the hyperparameters that :meth:`states` gives.

    Hyperparameters have log-normal priors around their starts, see :class:`~skdgp.gp.priors.LogNormal`.
    """

    roles = {"z": "rows", "metric": "rows"}
    _n_states = 1
    marginal_rows = MARGINAL_ROWS[1]  #: of which the marginal likelihood is maximized
    _cubes_of_steps = 100.0  #: that 30 steps take, in factorizations of as many rows
    _most_rows = 20_000  #: whose covariance matrix may be formed
    _of_too_many = "Exact forms the covariance matrix of all distinct rows", "vecchia"

    _before = None  #: processes of the first rows, which are given the others, too
    _n_first = None  #: steps, on a part of what there is, that are left; below zero they are over
    is_full_batch = True

    def __init__(self, architecture, likelihood, scheme, hidden=()):
        steps = QuasiNewtonSteps(TOL)
        super().__init__(steps, architecture, likelihood, hidden, of_outputs=True)
        self.n_neighbors = scheme.n_neighbors
        n_outputs = self.rows.n_outputs
        # standardized leave-one-out errors of unique inputs: J, k, P
        self.register_buffer("z", torch.empty((self._n_states, n_outputs, 0), dtype=torch.float64))
        # scales of the distances between rows
        self.register_buffer("metric", torch.ones(1, dtype=torch.float64))
        self._by_columns = True  # False leaves normal priors to all
        self._gps = self._together = self._loo = self.unsolved = None

    def _negative_log_prior(self):
        return negative_log_prior(self._priors, self._by_columns)

    def inputs(self, *states):
        """A function that maps rows to inputs of the last layer, (J, n, n_inputs) for J states."""
        return lambda X: X

    def states(self):
        """The layers for each state of the hyperparameters that predictions mix."""
        return [self.layers]

    def limit(self, seconds, cubes):
        """Steps on so few rows that there is time for some dozens of them."""
        super().limit(seconds, cubes)
        n = int((cubes / self._cubes_of_steps) ** (1.0 / 3.0))
        self.marginal_rows = min(self.marginal_rows, max(_FEWEST_ROWS, n))

    def _keep(self, unique, training_rows):
        n = len(unique["Z"])
        if n > self._most_rows:
            what, other = self._of_too_many
            raise ValueError(
                f"{what}, of at most {self._most_rows}; got {n}. inference='{other}' is for more."
            )
        super()._keep(unique, training_rows)
        X, y, weight, _, index = training_rows[:5]
        squares = weight[:, None] * (y - self.rows.y[index]).square()
        self._scatter = torch.zeros_like(self.rows.y).index_add(0, index, squares)
        most = self.marginal_rows
        if any(isinstance(part.component, Anova) for part in self.rows.kernel.modules()):
            fewer = max(MARGINAL_ROWS[0], math.isqrt(MARGINAL_FACTORS // X.shape[1]))
            if self._seconds is not None:
                factors = int(_FACTORS_A_SECOND * self._seconds) // X.shape[1]
                fewer = min(fewer, max(_FEWEST_ROWS, math.isqrt(factors)))
            most = min(most, fewer)
        chosen = np.random.default_rng(0).permutation(n)[:most]
        self._marginal_subset = torch.as_tensor(np.sort(chosen), device=X.device)

    @contextlib.contextmanager
    def with_marginal_subset(self, most, seed):
        """With the marginal likelihood of so many of its rows."""
        rows = self._marginal_subset
        self._marginal_subset = rows[np.random.default_rng(seed).permutation(len(rows))[:most]]
        try:
            yield
        finally:
            self._marginal_subset = rows

    def _noise(self, weight):
        """Variances, shape (n_outputs, P), of the means of rows that count `weight` times."""
        variance = tensor_like(self.likelihood().variance, weight).expand(self.rows.y.shape[1])
        return variance[:, None] / weight

    def _covariance(self, kernel, H, weight):
        """Return the covariances of unique inputs, noise included, shape (k, P, P)."""
        noise = self._noise(weight) + _NUGGET * kernel.diag(H)
        return kernel(H, H) + torch.diag_embed(noise)

    # Training

    def choose_start(self, batch):
        """Begin with the best of some starts, where most is noise or, if that is better, normal priors lead.

        Cauchy priors may hold hyperparameters at their level that have to leave it together, as those of two
        columns of which only the product matters. If half of the time has passed, the best so far is taken.
        """
        if not self.free():
            return
        search, starts, x = self.steps.search, self._starts(), parameters_to_vector(self.free())
        many = self.rows.Z.shape[1] >= _MANY_COLUMNS
        try:
            with self.with_marginal_subset(_TRIAL_ROWS, 1):
                x, quiet = self._best_start(starts, batch)
                plain = x
                if many:
                    self._by_columns = False
                    loose, _ = self._best_start(starts, batch)
                    loose = self._searched(loose, _SEARCH_STEPS, batch).x
                    self._by_columns = True
                    searches = [self._searched(start, _SEARCH_STEPS, batch) for start in (x, loose)]
                    x = min(searches, key=_lowest).x
                    quiet = _lowest(self._searched(x, _TRIAL_STEPS, batch))
                noisy = self._searched(self._noisy_start(), _SEARCH_STEPS, batch)
            if _lowest(noisy) < quiet + _NEARLY:
                with self.with_marginal_subset(MARGINAL_ROWS[0], 1):
                    rivals = [
                        _lowest(self._searched(start, _SEARCH_STEPS, batch))
                        for start in (x, noisy.x)
                    ]
                x = noisy.x if rivals[1] < rivals[0] - _CLEARLY else x
            if many and len(self._marginal_subset) > _TRIAL_ROWS:
                # steps on few rows may lead where those on more rows do not come back from
                n = len(self._marginal_subset)
                if n < len(self.rows.Z):
                    n = max(MARGINAL_ROWS[0], n // 2)
                with self.with_marginal_subset(n, 2):
                    searches = [self._searched(start, _SEARCH_STEPS, batch) for start in (x, plain)]
                x = min(searches, key=_lowest).x
        except TimeoutError:
            pass
        finally:
            self._by_columns, self.steps.search = True, search
            vector_to_parameters(x, self.free())

    def free(self):
        """Hyperparameters that the marginal likelihood is maximized over."""
        return [p for p in self.parameters() if p.requires_grad]

    def _moved(self, move):
        """The vector of free hyperparameters, each moved by ``move(role, logarithms)``."""
        free = [
            (h.role, h.parameter.detach())
            for h in self.hyperparameters()
            if h.parameter.requires_grad
        ]
        return parameters_to_vector([move(role, p) for role, p in free])

    def _starts(self):
        """Vectors of these, to begin with.

        From long lengthscales wiggles may be taken for noise, from short ones noise for wiggles; from
        small strengths interactions are not seen.
        """

        def start(factor, strength):
            def move(role, p):
                if role == "strength" and strength:
                    return torch.full_like(p, math.log(strength))
                return p + math.log(factor) if role == "lengthscale" else p

            return self._moved(move)

        roles = [h.role for h in self.hyperparameters() if h.parameter.requires_grad]
        return [start(*given) for given in _STARTS if not given[1] or "strength" in roles]

    def _noisy_start(self):
        """The vector that takes most of the target for noise, and all functions for longer ones."""
        shares = {"noise": _NOISY, "variance": 1.0 - _NOISY}

        def move(role, p):
            if role in shares:
                return torch.full_like(p, math.log(shares[role]))
            return p + (role == "lengthscale")

        return self._moved(move)

    def _best_start(self, starts, batch):
        """The start from which some steps come to the lowest value, and that value."""
        values = [_lowest(self._searched(x, _TRIAL_STEPS, batch)) for x in starts]
        best = int(np.argmin(values))
        return starts[best], values[best]

    def _searched(self, x, n_steps, batch):
        """The search after some steps from `x`."""
        vector_to_parameters(x, self.free())
        self.steps.search = LBFGS(tol=TOL)
        for _ in range(n_steps):
            if self.is_late(_OF_START):
                raise TimeoutError
            self.steps.step(self, batch, None, 1.0)
        return self.steps.search

    def objective(self, batch):
        """Return the lower bound of all rows, which training maximizes."""
        return self.lower_bound(batch)

    def lower_bound(self, batch):
        """The log marginal likelihood and, up to a constant, the log prior density of kernel and noise."""
        self.hold(batch)
        value = self.log_marginal_likelihood() - self._negative_log_prior()
        backward((value, torch.ones_like(value)))
        return float(value.detach())

    def log_marginal_likelihood(self):
        """Log marginal likelihood of all rows, or of a part of them, scaled up to their number."""
        rows, chosen = self.rows, self._marginal_subset
        X, y, weight = rows.Z[chosen], rows.y[chosen], rows.weight[chosen]
        H, kernel = self.inputs(self.layers)(X), rows.kernel()
        noise = self._noise(weight.new_ones(1))
        white = _NUGGET * kernel.diag(H)
        value = log_marginal_likelihood(y.mT, kernel(H, H), noise, weight, white)
        within = (self._scatter[chosen] / noise[:, 0]).sum()
        return (value - 0.5 * within) * (len(rows.Z) / len(chosen))

    # What follows from hyperparameters

    @torch.no_grad()
    def _solve(self):
        """After steps: condition on all rows, and learn the local scale from leave-one-out errors."""
        if self.unsolved is None:
            return
        self.hold(self.unsolved)
        self._given_rows(self._learn_scale)
        self.unsolved = None  # only now: an interrupt leaves it for the next call

    @torch.no_grad()
    def condition(self, batch, posterior=None):
        old = self.rows.Z, self.rows.y, self.rows.weight
        super().condition(batch)
        self.solution, n = {}, len(old[0])
        new = self.rows.Z[:n], self.rows.y[:n], self.rows.weight[:n]
        more = len(self.rows.Z) - n
        same = 0 < more < n and all(torch.equal(*pair) for pair in zip(old, new))
        self._before = posterior.gps if same and posterior is not None else None
        self._given_rows()
        self._before = None

    def _given_rows(self, learn_scale=lambda loo: None):
        """Condition on the rows at hand, and look how each is predicted by the others."""
        self._gps = self._together = self._loo = None
        gps, together = self._condition()
        if not self._training_rows.forward:
            gps = [gp.with_precision() for gp in gps]
        self.metric = torch.as_tensor(self._metric()).to(self.z)
        loo = self._leave_one_out(gps)
        self.z = loo.z
        if self.local_scale is not None:
            learn_scale(loo)
        self._gps, self._together, self._loo = gps, together, loo

    @torch.no_grad()
    def _condition(self):
        """The processes given all rows, for fixed hyperparameters: a list, and all of them together."""
        states, gps, root = self.states(), [], None
        if self.solution:
            root, a = unpacked(self.solution["root"]), np.array(self.solution["a"])
            root, a = (torch.as_tensor(part).to(self.rows.Z) for part in (root, a))
        for j, layers in enumerate(states):
            if self._before is None:
                gp = self._conditioned(layers, (root[j], a[j]) if self.solution else None)
            else:
                gp = self._extended(self._before[j])
            if not self.solution and len(states) > 1:  # in one tensor
                root = gp.root.new_empty(len(states), *gp.root.shape) if root is None else root
                gp = gp._replace(root=root[j].copy_(gp.root))
            gps.append(gp)
        if len(states) == 1:
            return gps, gps[0]
        H, a = (torch.stack([getattr(gp, name) for gp in gps]) for name in ("H", "a"))
        kernel = stacked([gp.kernel for gp in gps])
        return gps, ConditionedGP(kernel, self.inputs(*states), H, root, a)

    def _extended(self, gp):
        """A process of fewer rows, the first ones, given all of them."""
        rows, n = self.rows, len(gp.H)
        H = gp.inputs(rows.Z[n:])
        covariance = self._covariance(gp.kernel, H, rows.weight[n:])
        return gp.extended(H, rows.y[n:].mT, covariance)

    def _conditioned(self, layers, solution=None):
        """The process for some layers; root and ``C^{-1} y`` are computed unless they are known."""
        rows, kernel, inputs = self.rows, layers[-1].kernel.frozen(), self.inputs(layers)
        H = inputs(rows.Z)
        if solution is None:
            K = self._covariance(kernel, H, rows.weight)
            root = cholesky(K, rounding(K))
            solution = root, torch.cholesky_solve(rows.y.mT[..., None], root)[..., 0]
        return ConditionedGP(kernel, inputs, H, *solution)

    def _leave_one_out(self, gps):
        rows, noise = self.rows, self._noise(self.rows.weight.new_ones(1))[:, 0]
        white = torch.stack([_NUGGET * gp.kernel.diag(gp.H)[None] for gp in gps])
        return ConditionedLeaveOneOut(gps, self._training_rows, rows, noise, self._nearest(), white)

    def _nearest(self):
        layers = copy.deepcopy(self.layers) if len(self.layers) > 1 else self.layers
        return NeighborSearch(
            self.rows.Z, self.metric.numpy(force=True), self.n_neighbors, self.inputs(layers)
        )

    def _metric(self):
        return self.rows.metric(self.inputs(self.layers)(self.rows.Z[:1]).shape[1:])

    def _learn_scale(self, loo):
        """Maximize the leave-one-out density."""
        rows = self._training_rows
        chosen = np.random.default_rng(0).permutation(rows.predictable())[:_SCALE_ROWS]
        (parts, order), weight = loo.parts(chosen), rows.count[chosen]
        parts = list(parts)
        self._count_near()
        self.local_scale.learn(
            lambda: weight @ loo.log_density(self.local_scale, parts, order), weight.sum()
        )

    def _frozen(self, draws, as_trained):
        gps, together, loo = self._gps, self._together, self._loo
        if gps is None:  # of a state that was loaded
            gps, together = self._condition()
            loo = None if self._training_rows is None else self._leave_one_out(gps)
        noise, nearest = self._noise(self.rows.weight), loo.search if loo else self._nearest()
        return ConditionedPosterior(self, draws, gps, together, noise, nearest, loo)

    @property
    def finished(self):
        return super().finished and self._n_first < 0

    def training_state(self):
        arrays = super().training_state()
        return arrays if self._n_first is None else {**arrays, "n_first": np.array(self._n_first)}

    def load_training_state(self, arrays):
        super().load_training_state(arrays)
        self._n_first = int(arrays["n_first"]) if arrays else None

    def load_state(self, arrays):
        super().load_state(arrays)
        self.solution = {}
        self._gps = self._together = self._loo = self.unsolved = None


def _lowest(search):
    """The value that a search has come to, infinite if there is none."""
    return search.f if math.isfinite(search.f) else math.inf
