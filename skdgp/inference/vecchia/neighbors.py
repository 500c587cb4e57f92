"""Models of nearest-neighbor Gaussian processes."""

import copy
from functools import partial

import numpy as np
import torch

from ...exceptions import TrainingFailed
from ...gp.kernels.base import tensor_like
from ...gp.kernels.indicator import columns_of_levels
from ...gp.priors import negative_log_prior
from ...optim.gradient_steps import GradientSteps
from ...optim.lbfgs import STEPS
from ..exact import ExactGP
from ..rows.full_scale import FullScale, inducing_inputs
from ..rows.leave_one_out import log_density
from ..rows.level_neighbors import LevelNeighbors
from ..rows.local_scale import LocalScaleModel
from ..rows.near_rows import GaussianTargets, NearRows, size_of_row
from ..rows.unique_inputs import NeighborSearch, Remembered
from .choice import NEIGHBORS, choose_neighbors
from .posterior import NearLeaveOneOut, NeighborPosterior

_ROWS = 100  #: whose leave-one-out densities make one step: twice the steps are worth more than 300
_FEWEST_ROWS = 30  #: time: of a step, however large their matrices
_IN_A_STEP = 500_000  #: memory: elements of the covariance matrices of these
_SEARCHES = (0, 10, 25, 50, 100, 200, 400, 800)  #: steps before which the metric follows the kernel
#: standard deviation of logarithms of hyperparameters, and scale of deviations of columns: leave-one-out
#: densities are overfitted sooner than the marginal likelihood
_PRIORS = 1.0, 0.3
_SUBSET_SHARE = 0.5  #: max_time: of the time for them, if that is limited


def rows_of_step(size):
    """Rows that make one step, by the size of the covariance matrices of one."""
    return max(_FEWEST_ROWS, min(_ROWS, _IN_A_STEP // size))


class NeighborGP(LocalScaleModel):
    """The model of :class:`Vecchia`, with priors as of :class:`~skdgp.gp.priors.LogNormal`."""

    _spreads = _PRIORS
    roles = {
        "local_scale": "noise",
        **dict.fromkeys(("metric", "inducing", "mean", "root"), "rows"),
    }

    def __init__(self, architecture, likelihood, scheme):
        # the search for neighbors follows the hyperparameters of single steps
        super().__init__(GradientSteps(averages=False), architecture, likelihood)
        self.register_buffer("k", torch.tensor(scheme.n_neighbors or NEIGHBORS[0]))
        self._chooses_neighbors = scheme.n_neighbors is None
        self._full_scale = scheme.full_scale
        self._subset = None
        if scheme.start == "subset":
            self._subset = partial(ExactGP, architecture, likelihood, scheme)
            for one in self.rows.kernel.hyperparameters():
                one.parameter.requires_grad_(one.role == "variance")
        self._search = None  # the last one
        self.register_buffer("metric", torch.empty(0, dtype=torch.float64))  # its lengthscales
        # inducing inputs, posterior mean of the inducing variables, and root of their covariance
        shapes = {"inducing": (0, architecture.n_features), "mean": 0, "root": (0, 0)}
        for name, shape in shapes.items():
            self.register_buffer(name, torch.empty(shape, dtype=torch.float64))
        #: variance of a target that counts once, as inducing variables were conditioned
        self.register_buffer("given_noise", torch.ones(1, dtype=torch.float64))
        self._smooth = self._limits = None

    @property
    def n_neighbors(self):
        """Number of neighbors, which training may choose."""
        return int(self.k)

    def _keep(self, unique, training_rows):
        known = self.rows.Z, self.rows.y, self.rows.weight
        super()._keep(unique, training_rows)
        self._count_near()
        if len(self.metric):
            self._look_in(self.metric.numpy(force=True))
        if len(self.inducing) and not all(map(torch.equal, known, unique.values())):
            self.induce(min(len(self.inducing), len(self.rows.Z)))

    def _look_in(self, metric):
        """Look for neighbors among the rows at hand, in units of `metric`."""
        self.metric = torch.tensor(metric).to(self.rows.Z)
        levels, forward = columns_of_levels(self.rows.kernel.component), False
        if self._training_rows is not None:
            forward = self._training_rows.forward
        if levels and not forward:
            self._search = LevelNeighbors(self.rows.Z, metric, self.n_neighbors, levels)
        else:
            self._search = NeighborSearch(self.rows.Z, metric, self.n_neighbors)
        if self._training_rows is not None:
            self._of_rows = Remembered(self._search, len(self._training_rows.X))

    def _observed(self):
        """Return the observation model of the targets, for the present hyperparameters."""
        variance = tensor_like(self.likelihood().variance, self.rows.Z)
        return GaussianTargets(1.0 * variance.expand(self.rows.y.shape[1]))

    def near(self, kernel=None):
        """The process for the present hyperparameters, or for a kernel that stays as it is."""
        rows = self.rows
        kernel = rows.kernel() if kernel is None else kernel
        return NearRows(kernel, rows.Z, rows.y, rows.weight, self._observed())

    @torch.no_grad()
    def _inducing_variables(self):
        """The inducing variables given all rows, or None."""
        if self._smooth is None and len(self.inducing):
            kernel = copy.deepcopy(self.rows.kernel)()
            self._smooth = FullScale.of(kernel, self.inducing, self.rows.Z, self.mean, self.root)
        smooth = self._smooth
        if smooth is not None and smooth.observations is None and self._training_rows is not None:
            again = self._given(smooth, self.near(smooth.kernel))  # up to rounding
            self._smooth = smooth._replace(observations=again.observations)
        return self._smooth

    def _given(self, smooth, near):
        """The inducing variables given all unique inputs, with noise of the size of `given_noise`."""
        near = near._replace(observed=GaussianTargets(self.given_noise))
        metric, records = self.metric.numpy(force=True), self._training_rows.records
        return smooth.given(near, metric, self.n_neighbors, records)

    def expected_log_likelihood(self, batch, generator):
        """Estimate of the sum of log-densities of rows given their neighbors, with one prior."""
        self.hold(batch)
        if not len(self.metric):
            self._begin(batch)
        if self.steps.n_made in _SEARCHES and self._subset is None:
            self._look_in(self.rows.metric(self.rows.Z.shape[1:]))
        n, rows, smooth = len(batch.X), self._training_rows, self._inducing_variables()
        priors = self._priors
        size = size_of_row(self.rows.y.shape[1], self.n_neighbors)
        near = self.near(None if smooth is None else smooth.kernel)._replace(smooth=smooth)
        if smooth is not None:  # the kernel stays
            size += (self.n_neighbors + 1) * len(self.inducing)
            n_kernel = len(self.rows.kernel.hyperparameters())
            priors = priors[n_kernel:]
        few = rows_of_step(size)
        among = rows.predictable()
        chosen = torch.randperm(len(among), generator=generator, device=generator.device)[:few]
        chosen, log_density = among[chosen.numpy(force=True)], self._log_density()
        ell = sum(
            rows.count[part]
            @ log_density(self.local_scale, *near.without(rows, part, self._of_rows))
            for part in (chosen[group] for group in rows.alike(chosen, self.n_neighbors))
        )
        return n / len(chosen) * ell - negative_log_prior(priors)

    def limit(self, seconds, cubes):
        super().limit(seconds, cubes)
        self._limits = seconds, cubes

    def _begin(self, batch):
        """Before the first step: kernel and noise of the subset, neighbors and inducing points."""
        if self._subset is not None:
            self._start_from_subset(batch)
        self._look_in(self.rows.metric(self.rows.Z.shape[1:]))
        if self._chooses_neighbors:
            choose_neighbors(self, self._training_rows, self._full_scale, self._limits)
        elif self._full_scale:
            if self._training_rows.forward:
                raise ValueError(
                    "full_scale of Vecchia has no predictions from earlier rows alone; leave it at None with "
                    "time."
                )
            self.induce(min(self._full_scale, len(self.rows.Z)))

    def _start_from_subset(self, batch):
        """Take kernel and noise from an exact Gaussian process on some random rows."""
        chosen = np.random.default_rng(0).permutation(len(batch.X))[: ExactGP.marginal_rows]
        chosen = torch.as_tensor(np.sort(chosen), device=batch.X.device)
        X, y, weight = (part[chosen] for part in (batch.X, batch.y, batch.weight))
        group, noise = (
            None if one is None else one[chosen.to(one.device)]
            for one in (batch.group, batch.noise)
        )
        total = float(weight.sum())
        part = batch._replace(X=X, y=y, weight=weight, scale=1.0, total=total)
        part = part._replace(group=group, noise=noise)
        gp = self._subset().to(self.rows.Z.device)
        if self._limits is not None:
            gp.limit(*(_SUBSET_SHARE * limit for limit in self._limits))
        gp.hold(part)
        gp.choose_start(part)
        for _ in range(STEPS):
            gp.step(part, None)
            if gp.finished:
                break
        self.rows.kernel.load_state_dict(gp.rows.kernel.state_dict())
        self.likelihood.load_state_dict(gp.likelihood.state_dict())

    def take(self, n_neighbors):
        self.k.fill_(n_neighbors)
        self._count_near()
        self._look_in(self.metric.numpy(force=True))

    @torch.no_grad()
    def induce(self, n):
        """Begin with `n` inducing points for the present kernel and noise, or without."""
        rows, metric, self._smooth = self.rows, self.metric.numpy(force=True), None
        self.inducing, self.mean, self.root = rows.Z[:0], self.mean[:0], self.root[:0, :0]
        if n:
            near = self.near(copy.deepcopy(rows.kernel)())
            Z = inducing_inputs(rows.Z, rows.weight, metric, n)
            self.given_noise = near.observed.noise
            self._smooth = self._given(FullScale.of(near.kernel, Z, rows.Z), near)
            self.inducing, self.mean, self.root = Z, self._smooth.mean, self._smooth.root

    def _log_density(self):
        """A function of a local scale and what :meth:`NearRows.without` gives."""
        return log_density

    def _frozen(self, draws, as_trained):
        if self._search is None:  # it was set back to before its first step
            raise TrainingFailed(
                "Training of the nearest-neighbor model diverged in its first steps, and there are no "
                "neighbors to predict from; choose a smaller learning_rate, or look for extreme values."
            )
        kernel = copy.deepcopy(self.rows.kernel)()
        near = self.near(kernel)._replace(smooth=self._inducing_variables())
        loo = None
        if self._training_rows is not None:
            loo = NearLeaveOneOut(self._training_rows, self._search, near, self._log_density())
        return NeighborPosterior(self, draws, near, self._search, loo)

    def load_state(self, arrays):
        super().load_state(arrays)
        self._search = self._smooth = None
        if len(self.metric):  # none before the first step
            self._look_in(self.metric.numpy(force=True))
