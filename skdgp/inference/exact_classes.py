"""Gaussian processes for classes on all rows, by variational Gaussian approximations."""

import math

import numpy as np
import torch

from ..gp.component import Trainable
from ..gp.frozen import FormLayer
from ..gp.priors import with_priors
from ..gp.stack import Layer
from ..linalg import at_once, cholesky, root_of_inverse
from ..optim.gradient_steps import GradientSteps
from .base import Model
from .deep import DeepPosterior
from .rows.best_gaussian import Rows, best_gaussian, own_variances

SUBSET_ROWS = 300  #: whose lower bound makes one step
MOST_INDUCING = 500  #: rows at which functions are represented
MOST_ROWS = 200_000  #: memory: of which covariances with these are formed
_EXPLAINED = 0.999  #: mean share of the prior variance of a row at which there are enough of them
_CANDIDATES = 20_000  #: time: rows among which they are chosen
_TOGETHER = 16  #: memory: whose covariances are formed at once
_LEARNING_RATE = 0.016  #: of logarithms of hyperparameters, a tenth in a step
_NUGGET = 1e-7  #: rounding: of the kernel's variance
_ROUGHLY = 1e-3  #: gain of the lower bound per row that is none, in a step
_AT_ONCE = 4_000_000  #: memory: elements of a matrix with rows that are worked on together


class InducingRows(Layer):
    """Gaussian processes with a common kernel and a posterior at inducing inputs that are training rows.

    All functions have one covariance of their whitened values there.
    """

    roles = {**Layer.roles, **dict.fromkeys(("Z", "q_mean", "q_root"), "rows")}

    def __init__(self, kernel, n_inputs, n_outputs, n_inducing=0, linear_mean=False):
        super().__init__(kernel, n_inputs, n_outputs, linear_mean)
        shapes = {"Z": (0, n_inputs), "q_mean": (0, n_outputs), "q_root": (0, 0)}
        for name, shape in shapes.items():
            self.register_buffer(name, torch.empty(shape, dtype=torch.float64))

    def take(self, Z, mean, root):
        """Take inducing inputs (M, n_inputs), means (M, n_outputs) and the root (M, M) of the covariance."""
        self.Z, self.q_mean, self.q_root = (part.contiguous() for part in (Z, mean, root))

    def forget(self):
        """Have no inducing inputs."""
        self.take(self.Z[:0], self.q_mean[:0], self.q_root[:0, :0])

    @torch.no_grad()
    def frozen(self):
        kernel = self.kernel.frozen()
        posterior = self.q_mean.clone(), self.q_root.clone()[None]
        return FormLayer(kernel, self.Z.clone(), *posterior, nugget(kernel, self.Z))


def nugget(kernel, X):
    """Number that is added to the diagonal of covariances of rows."""
    return _NUGGET * float(kernel.diag(X).mean())


def spread_rows(kernel, X, most):
    """Indices of rows where the prior varies most given those before (Burt et al., 2020), while any does.

    Like :func:`~skdgp.gp.inducing.spread_out`, by some rows of the covariance matrix at once: those where the
    prior varies most are chosen from while it varies at least half as much there.
    """
    rest, chosen, found = kernel.diag(X).clone(), [], X.new_zeros(most, len(X))
    share = 1.0 / rest.clamp_min(torch.finfo(rest.dtype).tiny)
    while len(chosen) < most:
        first = len(chosen)
        largest, among = rest.topk(min(_TOGETHER, most - first))
        K = kernel.between(X[among], X).addmm_(found[:first, among].mT, found[:first], alpha=-1.0)
        while len(chosen) < most:
            i = int(rest[among].argmax())
            j = int(among[i])
            if len(chosen) > first and rest[j] <= 0.5 * largest[0]:
                break
            own = found[first : len(chosen)]
            found[len(chosen)] = row = K[i].addmv(own.mT, own[:, j], alpha=-1.0) / rest[j].sqrt()
            rest = (rest - row.square()).clamp_min_(0.0)
            rest[j] = 0.0
            chosen.append(j)
            if float((share * rest).mean()) <= 1.0 - _EXPLAINED:
                return chosen
    return chosen


class ExactClasses(Model):
    """The model of :class:`Exact` for classes.

    Each step follows the gradient of the lower bound of some random rows, for the best posterior of these rows.
    After the last one, the posterior of all rows is the best one that functions have by their values at some of
    the rows, see :func:`spread_rows`.
    """

    is_full_batch = True

    def __init__(self, architecture, likelihood, scheme):
        super().__init__(GradientSteps(averages=False))
        self.likelihood = Trainable(likelihood)
        self.layers = architecture.stack(InducingRows)
        own = self.layers[0].kernel.hyperparameters() + self.likelihood.hyperparameters()
        self._priors = with_priors(own)
        self._rows = self._lower_bound = None

    def with_priors(self):
        return self._priors

    def prepare(self, learning_rate, dtype):
        super().prepare(_LEARNING_RATE, dtype)

    def hold(self, batch):
        if self._rows is None:
            X, y, weight = (part.double() for part in (batch.X, batch.y, batch.weight))
            if len(X) > MOST_ROWS:
                raise ValueError(
                    f"Exact forms covariances of all rows, of at most {MOST_ROWS} for classes; got {len(X)}. "
                    "inference='dsvi' is for more."
                )
            self._rows = batch._replace(X=X, y=y, weight=weight)
            if not len(self.layers[0].Z):
                self.unsolved = self._rows

    def known_bound(self):
        return self._lower_bound

    def step(self, batch, generator, rate=1.0):
        loss = super().step(batch, generator, rate)
        self.unsolved = self._rows
        return loss

    def expected_log_likelihood(self, batch, generator):
        """The lower bound of some rows, scaled up to all of them."""
        self.hold(batch)
        X, y, weight = self._some_rows(generator)
        likelihood, k = self.likelihood(), self.layers[0].n_outputs
        K = self.layers[0].kernel()(X, X)
        with torch.no_grad():
            K_now = K.detach()
            A = cholesky(K_now, _NUGGET * float(K_now.diagonal().mean())).mT.contiguous()
            fixed = self.likelihood.frozen()
            q = best_gaussian(Rows(A, torch.zeros_like(weight), y, weight), fixed, k, tol=_ROUGHLY)
            # the bound of this posterior changes with K by a a^T - D (K + W^{-1})^{-1}, over two, a = K^{-1} m;
            # so steps are right however roughly it is found
            root = q.precision.sqrt()
            inside = torch.linalg.solve_triangular(q.L, A * root, upper=False)
            a = torch.linalg.solve_triangular(A, q.mean.T, upper=True)
            rest = torch.eye(len(root)).to(K_now) - inside.mT @ inside
            G = 0.5 * (a @ a.mT - likelihood.n_directions(k) * (root[:, None] * rest * root))
        value = q.lower_bound + (G * (K - K_now)).sum()
        if likelihood.learns:
            ell = weight @ likelihood.expected_log_prob(y, q.m, q.v.expand_as(q.m))
            value = value + ell - ell.detach()
        return batch.total / weight.sum() * value

    def _some_rows(self, generator):
        rows = self._rows
        if len(rows.X) <= SUBSET_ROWS:
            return rows.X, rows.y, rows.weight
        chosen = torch.randperm(len(rows.X), generator=generator, device=generator.device)
        chosen = chosen[:SUBSET_ROWS].to(rows.X.device)
        return rows.X[chosen], rows.y[chosen], rows.weight[chosen]

    # The posterior of all rows

    @torch.no_grad()
    def _solve(self):
        if self.unsolved is None:
            return
        batch, layer, kernel = self.unsolved, self.layers[0], self.layers[0].kernel.frozen()
        candidates = np.random.default_rng(0).permutation(len(batch.X))[:_CANDIDATES]
        X = batch.X[torch.as_tensor(np.sort(candidates), device=batch.X.device)]
        Z = X[spread_rows(kernel, X, min(MOST_INDUCING, len(X)))]
        rows = self._seen_from(kernel, Z, cholesky(kernel(Z, Z), nugget(kernel, Z)), batch)
        likelihood = self.likelihood.frozen().finer(layer.n_outputs)
        q = best_gaussian(rows, likelihood, layer.n_outputs, is_late=self.is_late)
        layer.take(Z, q.mean.T, root_of_inverse(q.P))
        self._lower_bound = q.lower_bound
        self.unsolved = None  # only now: an interrupt leaves it for the next call

    @staticmethod
    def _seen_from(kernel, Z, L, batch):
        """Rows as functions of the whitened values at inducing inputs."""
        size = max(1, at_once(_AT_ONCE, Z.device) // len(Z))
        A = torch.cat(
            [
                torch.linalg.solve_triangular(L, kernel.between(Z, part), upper=False)
                for part in batch.X.split(size)
            ],
            1,
        )
        rest = (kernel.diag(batch.X) - A.square().sum(0)).clamp_min(0.0)
        return Rows(A, rest, batch.y, batch.weight)

    def _frozen(self, draws, as_trained):
        return ExactClassesPosterior(self, draws, self._rows)

    def state_in_training(self):
        unsolved, self.unsolved = self.unsolved, None
        if unsolved is not None:
            self.layers[0].forget()
        state, self.unsolved = self.state(), unsolved
        return state

    def load_state(self, arrays):
        super().load_state(arrays)
        self._rows = self._lower_bound = self.unsolved = None


class ExactClassesPosterior(DeepPosterior):
    """The frozen posterior of :class:`ExactClasses`, with all training rows if they are known."""

    def __init__(self, model, draws, batch):
        super().__init__(model, torch.zeros(1, 0))
        self._batch = batch

    @torch.no_grad()
    def loo_log_density(self, rows, dispersions=None):  # classes have no dispersion
        """By cavities (Opper and Winther, 2000): one count of a row leaves the posterior.

        The factors of other rows stay, which is right to first order in their changes. With the variance `s`
        that a row has by the inducing variables, and its curvature `w` and gradient `g`, the rest is ``s / (1 -
        w s)``, and the mean moves by minus this times `g`.
        """
        if self._batch is None:
            return None
        layer, densities = self.layers[0], []
        likelihood = self.likelihood.finer(layer.n_outputs)
        P = torch.cholesky_inverse(layer.q_root[0])
        L, size = cholesky(P), max(1, _AT_ONCE // len(layer.Z))
        for part in np.array_split(np.asarray(rows), math.ceil(len(rows) / size)):
            X, y = self._batch.X[part], self._batch.y[part]
            count = self._batch.weight[part].clamp_max(1.0)[:, None]
            A, k_ff = layer.whitened(X)
            own = own_variances(L, A)[:, None]
            m, rest = A.T @ layer.q_mean, (k_ff - A.square().sum(0)).clamp_min(0.0)[:, None]
            found = likelihood.expectations(y, m, rest + own)
            left = own / (1.0 - count * found.curvature[:, None] * own).clamp_min(1e-6)
            m, v = m - count * left * found.gradient, (rest + left).expand_as(m)
            densities.append(likelihood.for_prediction(1).log_partition(y, m, v))
        return torch.cat(densities).numpy(force=True)
