"""Exact Gaussian processes of outputs that belong together: coregionalization."""

import copy
from dataclasses import replace

import torch
from torch import nn

from ..gp.component import Trainable
from ..gp.kernels import Kernel
from ..gp.kernels.base import tensor_like
from ..gp.likelihoods import Gaussian
from ..gp.likelihoods.base import GaussianMixture
from ..gp.priors import with_priors
from ..linalg import (
    LOG_2PI,
    LogNormal,
    add_diagonal,
    at_once,
    cholesky,
    inverse_triangular,
    is_exporting,
)
from ..random import normal
from .posterior import Functions, Latent, Posterior
from .rows.conditioned import JOINT_ROWS, positions
from .rows.marginal_likelihood import MarginalLikelihoodGP

_NUGGET = 1e-6  #: of standardized targets, beside the noise: outputs may determine each other
_TOL = 1e-8  #: of L-BFGS: ridges of outputs that determine each other have short steps
_SHRINK = 1e-3  #: of correlations at the start
_AT_ONCE = 1_500_000  #: elements of a matrix with rows that are worked on together


class OfOutputs(Kernel):
    """Covariances of pairs of a row and an output, ``B[i, j] k(x, x')`` with ``B = root root^T``.

    The last two columns are the number of the output and that of the observed row.
    """

    _parts = ("kernel",)

    def __init__(self, kernel, root=None):
        self.kernel, self.root = kernel, root

    def _split(self, X):
        return X[..., :-2], tensor_like(self.root, X)[X[..., -2].long()]

    def __call__(self, X, Z):
        (X, a), (Z, b) = self._split(X), self._split(Z)
        return self.kernel(X, Z) * (a @ b.mT)

    def between(self, X, Z):
        (X, a), (Z, b) = self._split(X), self._split(Z)
        return self.kernel.between(X, Z) * (a @ b.mT)

    def within(self, X):
        X, a = self._split(X)
        return self.kernel.within(X) * (a @ a.mT)

    def diag(self, X):
        X, a = self._split(X)
        return self.kernel.diag(X) * a.square().sum(-1)

    def features(self, n, n_features, generator, like, importance=0.0):
        phi = self.kernel.features(n, n_features - 2, generator, like, importance)

        def of_outputs(X):
            X, a = self._split(X)
            return (phi(X)[..., None] * a[..., None, None, :]).flatten(-2)

        return of_outputs


class CorrelatedGaussian(GaussianMixture):
    """Gaussian noise of constant variances, with correlations between outputs.

    Rows of `root` (k, k) are directions, whose inner products are the correlations.
    """

    _positive, _least_fixed = Gaussian._positive, Gaussian._least_fixed
    _units, _defaults = Gaussian._units, Gaussian._defaults
    root = None

    __init__, components = Gaussian.__init__, Gaussian.components
    log_partition = Gaussian.log_partition

    def _directions(self, like):
        root = tensor_like(self.root, like)
        return root / root.norm(dim=1, keepdim=True)

    def covariance(self, like):
        """Covariances (k, k) of the noise of a row."""
        root = tensor_like(self.variance, like).sqrt()[:, None] * self._directions(like)
        return root @ root.mT

    def sample(self, f, generator):
        errors = normal(f.shape, generator, f) @ self._directions(f).mT
        return f + tensor_like(self.variance, f).sqrt() * errors


class _WithRoot(Trainable):
    """Hyperparameters of a component, and a root of covariances between outputs, with a log-diagonal."""

    def __init__(self, component, n_outputs):
        super().__init__(component)
        zeros = torch.zeros(n_outputs, n_outputs, dtype=torch.float64)
        self.raw_root = nn.Parameter(zeros, component.learns)
        self.roles["raw_root"] = "coregionalization"

    def forward(self):
        root = self.raw_root.tril(-1) + torch.diagonal(self.raw_root).exp().diag()
        return super().forward().with_values(root=root)

    @torch.no_grad()
    def start(self, root):
        """Take a lower triangular root, if it is to be trained."""
        if self.raw_root.requires_grad:
            self.raw_root.copy_(root.tril(-1) + torch.diagonal(root).log().diag())


class CoregionalizedGP(MarginalLikelihoodGP):
    """A Gaussian process of pairs of a row and an output that was observed there."""

    def __init__(self, architecture, likelihood, scheme):
        k, kernel = architecture.n_latents, OfOutputs(architecture.kernels[-1])
        pairs = replace(
            architecture, n_features=architecture.n_features + 2, n_latents=1, kernels=[kernel]
        )
        super().__init__(pairs, likelihood, scheme)
        self.steps.search.tol = _TOL
        likelihood = CorrelatedGaussian(likelihood.variance, likelihood.trainable)
        self.likelihood, self.rows.kernel = _WithRoot(likelihood, k), _WithRoot(kernel, k)
        self._priors = with_priors(self._learned())

    def hold(self, batch):
        if self._training_rows is None:
            X, y, weight = (part.to(self.rows.Z) for part in (batch.X, batch.y, batch.weight))
            row, output = torch.nonzero(~torch.isnan(y), as_tuple=True)
            pairs = torch.cat([X[row], output[:, None], row[:, None]], 1)
            # pairs of one row are one record: none is a copy of another
            batch = batch._replace(
                X=pairs, y=y[row, output][:, None], weight=weight[row], group=row
            )
            super().hold(batch._replace(forward=False, noise=None))

    def training_table(self):
        Z, y, weight = self.rows.Z, self.rows.y[:, 0], self.rows.weight
        output, (numbers, row) = Z[:, -2].long(), Z[:, -1].unique(return_inverse=True)
        table = y.new_full((len(numbers), len(self.likelihood.raw_root)), torch.nan)
        table[row, output] = y
        inputs, weights = Z.new_empty(len(numbers), Z.shape[1] - 2), weight.new_empty(len(numbers))
        inputs[row], weights[row] = Z[:, :-2], weight
        return inputs, table, weights

    @torch.no_grad()
    def _correlation_root(self):
        """Cholesky factor of the correlations of targets, from the rows where both were observed."""
        _, y, weight = self.training_table()
        there = ~torch.isnan(y)
        y, w = torch.where(there, y, 0.0), there * weight[:, None]
        y = (y - (w * y).sum(0) / w.sum(0)) * there
        squares = (w * y.square()).mT @ there.to(y)
        cov = (w * y).mT @ y / (squares * squares.mT).sqrt().clamp_min(1e-300)
        values, vectors = torch.linalg.eigh((1.0 - _SHRINK) * cov)
        cov = (vectors * values.clamp_min(0.0)) @ vectors.mT
        sd = torch.diagonal(cov).sqrt().clamp_min(1e-150)
        return cholesky(cov / sd[:, None] / sd + _SHRINK * torch.eye(len(sd)).to(y))

    def _starts(self):
        """Each with noise of outputs apart, and with the correlations of targets."""
        found = []
        for root in (torch.eye(len(self.likelihood.raw_root)), self._correlation_root()):
            self.likelihood.start(root)
            found += super()._starts()
        return found

    def step(self, batch, generator, rate=1.0):
        self.hold(batch)
        if self._n_first is None:
            self.rows.kernel.start(self._correlation_root())
            self.choose_start(batch)
            self._n_first = -1
        return super().step(batch, generator, rate)

    def _noise_of(self, H):
        """Covariances (P, P) of the noise of pairs whose rows count once."""
        output, row = H[:, -2].long(), H[:, -1]
        covariance = self.likelihood().covariance(H)
        covariance = add_diagonal(covariance, _NUGGET)
        return covariance[output[:, None], output] * (row[:, None] == row)

    def _covariance(self, kernel, H, weight):
        return (kernel(H, H) + self._noise_of(H) / weight)[None]

    def log_marginal_likelihood(self):
        rows, chosen = self.rows, self._marginal_subset
        Z, y, weight = rows.Z[chosen], rows.y[chosen], rows.weight[chosen]
        value = LogNormal.apply(y.mT, self._covariance(rows.kernel(), Z, weight))
        if (weight != 1.0).any():  # of the rows that a row stands for, all but their mean
            noise = 2.0 * torch.diagonal(cholesky(self._noise_of(Z))).log()
            value = value - 0.5 * (weight.log() + (weight - 1.0) * (LOG_2PI + noise)).sum()
        return value * (len(rows.Z) / len(chosen))

    def _given_rows(self, learn_scale=None):
        (self._gps, _) = self._condition()

    def _frozen(self, draws, as_trained):
        if self._gps is None:
            self._given_rows()
        noise = self._noise_of(self.rows.Z) / self.rows.weight
        return CoregionalizedPosterior(self, self._gps[0], cholesky(noise))


class CoregionalizedPosterior(Posterior):
    """The posterior of a :class:`CoregionalizedGP`, of all outputs at each row."""

    def __init__(self, model, gp, noise_root):
        self.gps, self._noise_root = [gp], noise_root
        self.n_outputs = len(model.likelihood.raw_root)
        inputs = model.training_table()[0].numpy(force=True)
        super().__init__(
            model.likelihood.fitted(),
            [model.rows.kernel.fitted().kernel],
            [inputs],
            noise_root.new_zeros(1),
        )

    def differentiable(self):
        new = copy.copy(self)
        new.gps = [self.gps[0]._replace(inverse=inverse_triangular(self.gps[0].root))]
        return new

    def _pairs(self, X):
        """Pairs (..., n k, n_features + 2) of rows (..., n, n_features) and outputs, of no observed row."""
        k = self.n_outputs
        output = torch.arange(k, dtype=X.dtype, device=X.device)[:, None]
        more = torch.cat([output, torch.full_like(output, -1.0)], 1)
        more = more.expand(*X.shape[:-1], k, 2)
        rows = X[..., None, :].expand(*X.shape[:-1], k, X.shape[-1])
        return torch.cat([rows, more], -1).flatten(-3, -2)

    def _pieces(self, X):
        size = max(1, at_once(_AT_ONCE, X.device) // (self.n_outputs * self.gps[0].root.shape[-1]))
        return [X] if is_exporting() or len(X) <= size else X.split(size)

    def latent(self, X):
        found = (self.gps[0].moments(self._pairs(rows)) for rows in self._pieces(X))
        k = self.n_outputs
        return Latent.of_pieces(
            self._log_weights, ((mean.view(1, -1, k), var.view(1, -1, k)) for mean, var in found)
        )

    def joint_of_outputs(self, X):
        """Mean (B, q, k) and covariances (B, q, k, q, k) of groups of rows (B, q, n_features)."""
        mean, cov = self.gps[0].joint(self._pairs(X))
        shape = X.shape[1], self.n_outputs
        return mean[0].unflatten(-1, shape), cov[0].unflatten(-1, shape).unflatten(1, shape)

    def joint(self, X):
        mean, cov = self.joint_of_outputs(X)
        of_each = torch.diagonal(cov, dim1=2, dim2=4)  # B, q, q, k
        return X.new_ones(1), mean[None], of_each.movedim(-1, 0)

    def covariance(self, X):
        return self.joint(X[None])[2][:, 0]

    @torch.no_grad()
    def functions(self, n, generator, X=None):
        """By pathwise conditioning or, for few given rows, by a joint draw."""
        k, given = self.n_outputs, None
        if X is not None and len(X) * k <= JOINT_ROWS:
            given = torch.unique(X, dim=0)
            draw = self.gps[0].draws(n, generator, self._pairs(given))
        else:
            draw = self.gps[0].paths(n, generator, self._noise_root, self.n_features)

        def evaluate(Y, noise=None):
            parts = []
            for rows in self._pieces(Y):
                where = self._pairs(rows)
                if given is not None:
                    first = k * positions(rows, given)[:, None]
                    where = (first + torch.arange(k, device=first.device)).flatten()
                mean, deviation = draw(where)
                parts.append((mean.view(-1, k).expand(n, -1, -1), deviation.view(n, -1, k)))
            return tuple(torch.cat(part, 1) for part in zip(*parts))

        return Functions(evaluate, self._noise_root.new_ones(n))
