"""The model that :class:`~skdgp.inference.elliptical_slice.EllipticalSlice` builds."""

import numpy as np
import torch

from ...gp.component import Trainable
from ...gp.kernels import Stationary
from ...gp.likelihoods import Gaussian
from ...gp.rows import RowsLayer
from ...linalg import LOG_2PI
from ...random import normal, uniform
from ..chains import ChainModel
from .factors import ConditioningSets, Dense, maximin_order
from .hyperparameters import Hyperparameters
from .moves import MOST_AHEAD, elliptical_slice, slice_step, swaps
from .posterior import JITTER, SlicedPosterior

MOST_ROWS, _MOST_NEAR_ROWS = 500, 5000  #: exactly, and with neighbors
_FEW_ROWS = 64  #: whose likelihoods take less together than one by one
_IMPOSSIBLE = -1e300  #: log-likelihood of a state without one, which checkpoints can hold


class SlicedDeepGP(ChainModel):
    """Chains of whitened values of the hidden layers at all rows, and of hyperparameters.

    With T powers of the likelihood, `chains` holds ``v`` (n_chains, T, N, units of all sampled layers), ``phi``
    (n_chains, T, P), the logarithms of hyperparameters, and ``log_lik`` (n_chains, T). States with the
    power one are kept; ``log_lik`` at all powers, and of draws from the prior.
    """

    def __init__(self, architecture, likelihood, scheme):
        super().__init__(scheme.n_chains, scheme.n_samples)
        self.scheme = scheme
        self.likelihood = Trainable(likelihood)
        self.layers = architecture.stack(RowsLayer)
        self.requires_grad_(False)
        self.integrates = isinstance(likelihood, Gaussian)
        widths = architecture.widths
        self.widths = widths if self.integrates else (*widths, architecture.n_latents)
        powers = scheme.least_power ** np.linspace(0.0, 1.0, scheme.n_tempering)
        self.register_buffer("powers", torch.as_tensor(powers), persistent=False)
        sampled = scheme.hyperparameters == "sample"
        self.logarithms = Hyperparameters(self.kernels, self.likelihood, sampled, len(self.widths))
        self._look_at_rows()

    is_full_batch = True

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        self._look_at_rows()
        self.logarithms.refresh(fn)
        return self

    @property
    def kernels(self):
        return [layer.kernel for layer in self.layers]

    # Densities of states with indices i: v (S, N, H), phi (S, P)

    def beside(self, F, i):
        """Inputs of layer `i` from the outputs of the one before."""
        return self.layers.inputs(F, self.rows[0]) if i else F

    def mean_function(self, H, i):
        return self.layers[i].mean_function(H)

    def root(self, kernel, H):
        """Factors of the covariance of a sampled layer; NaN where there is none."""
        jitter = H.new_full((1, 1, H.shape[-2]), JITTER)
        return self._factors(kernel, H, jitter)[:, 0]

    def observed_root(self, F, kernel, likelihood):
        """Factors (S, k, ...) of the covariances of Gaussian targets given the values of hidden units."""
        H = self.rows[0][None] if F is None else self.beside(F, len(self.widths))
        return self.root_of_targets(H, kernel, likelihood)

    def root_of_targets(self, H, kernel, likelihood):
        """Factors of the covariances of Gaussian targets given the inputs `H` of the last layer."""
        _, y, weight = self.rows
        noise = likelihood.variance.view(-1, y.shape[1])[..., None] / weight  # S or 1, k, N
        return self._factors(kernel, H, noise)

    def propagate(self, v, kernels, first=None):
        """Values of the sampled layers from whitened ones, by the `first` factor if known."""
        parts, values = v.split(self.widths, -1) if self.widths else (), []

        def visit(i, layer, H):
            if i < len(parts):
                L = first if i == 0 and first is not None else self.root(kernels[i], H)
                values.append(L.product(parts[i]) + layer.mean_function(H))
                return values[-1]

        self.layers.walk(self.rows[0][None], visit)
        return values

    def log_likelihood(self, F, kernel, likelihood):
        """Log-likelihoods (S,) given the last sampled layer (Cutajar et al., 2017, app. C)."""
        _, y, weight = self.rows
        if not self.integrates:
            ell = (weight * likelihood.log_prob(y.expand(len(F), *y.shape), F)).sum(-1)
            return torch.where(torch.isfinite(ell), ell, _IMPOSSIBLE)
        root = self.observed_root(F, kernel, likelihood)
        a = root.whiten(y.T[..., None])
        value = -0.5 * a.square().sum((1, 2, 3)) - root.log_det().sum(1)
        value = value - 0.5 * LOG_2PI * y.numel()
        if self._counts is not None:  # rows that count as so many with one target
            more, log_weights = self._counts
            log_noise = likelihood.variance.view(-1, y.shape[1]).log()
            value = value - 0.5 * (more * (LOG_2PI + log_noise) + log_weights).sum(1)
        return torch.where(torch.isfinite(value), value, _IMPOSSIBLE)

    def evaluate(self, v, phi, first=None):
        """Log-likelihoods (S,) of whitened states."""
        kernels, likelihood = self.logarithms.components(phi)
        values = self.propagate(v, kernels, first)
        value = self.log_likelihood(values[-1] if values else None, kernels[-1], likelihood)
        return value.expand(len(v))

    # Steps

    @torch.no_grad()
    def step(self, batch, generator, rate=1.0):
        if self.n_steps == 0:
            self._begin(batch, generator)

        def draw(n):
            return uniform((n,), generator, self.powers)

        C, T = self.n_chains, len(self.powers)
        v, phi, log_lik = (self.chains[k].flatten(0, 1) for k in ("v", "phi", "log_lik"))
        power, first = self.powers.repeat(C), None
        if self.widths:
            first = self.root(self.logarithms.components(phi)[0][0], self.rows[0][None])
            v, log_lik = elliptical_slice(
                v, log_lik, lambda p, i: self.evaluate(p, phi[i], _of(first, i)),
                normal(v.shape, generator, v), draw, power, self._most_ahead, self.is_late,
            )  # fmt: skip
            if len(self.widths) > 1:
                v, log_lik = self._centered(v, phi, log_lik, first, power, generator, draw)
            v = self._flip(v, generator)
        if self.logarithms.sampled:
            phi, log_lik = self._move_hyperparameters(v, phi, log_lik, power, draw)
        states = {"v": v, "phi": phi, "log_lik": log_lik}
        self.chains = {name: x.unflatten(0, (C, T)) for name, x in states.items()}
        for odd in (0, 1):  # which takes no likelihoods
            order = swaps(self.chains["log_lik"], self.powers, draw, odd)
            each = torch.arange(C, device=order.device)[:, None]
            self.chains = {name: x[each, order] for name, x in self.chains.items()}
        self.n_steps += 1
        past = self.n_steps - self.scheme.n_burn_in
        if past > 0 and past % self.scheme.spacing == 0 and not self.finished:
            self._keep(generator)
        return -float(self.chains["log_lik"][:, 0].mean()) / float(self.rows[2].sum())

    def hold(self, batch):
        n = len(batch.X)
        if batch.scale != 1.0:
            raise ValueError(
                "EllipticalSlice needs all rows in each batch; leave batch_size alone."
            )
        near = self.scheme.n_neighbors is not None
        most = _MOST_NEAR_ROWS if near else MOST_ROWS
        if n > most:
            way = (
                "" if near else f", or n_neighbors=25, an approximation for up to {_MOST_NEAR_ROWS}"
            )
            raise ValueError(
                f"EllipticalSlice works on all rows in every step, of at most {most}; got {n}. Take a part of "
                f"the rows, or inference='sghmc'{way}."
            )
        rows = [t.double() for t in (batch.X, batch.y, batch.weight)]
        if near:
            order = maximin_order(rows[0].numpy(force=True) / self.metric())
            rows = [t[order] for t in rows]
        self._set_rows(rows)

    def metric(self):
        """Units of the inputs in which rows are near: those of the first kernel's start."""
        return torch.as_tensor(self.kernels[0]().metric).double().numpy(force=True)

    def _set_rows(self, rows):
        Z, y, weight = rows
        self.layers[-1].hold(Z=Z, y=y, weight=weight)
        self._look_at_rows()

    def _look_at_rows(self):
        rows = self.layers[-1]
        #: X, y and weights of all rows
        self.rows = (rows.Z, rows.y, rows.weight) if len(rows.Z) else None
        weight = self.rows[2] if self.rows else torch.ones(1)
        counted = bool((weight != 1.0).any())
        self._counts = (float((weight - 1.0).sum()), float(weight.log().sum())) if counted else None
        few = self.rows and len(weight) <= _FEW_ROWS and self.scheme.n_neighbors is None
        self._factors, self._most_ahead = Dense.of, MOST_AHEAD if few else 1
        if self.rows and self.scheme.n_neighbors is not None:
            X, n = self.rows[0], self.scheme.n_neighbors
            self._factors = ConditioningSets(X.numpy(force=True) / self.metric(), n, X).of

    def _prior(self, n, generator):
        """Draws from the prior: whitened values and hyperparameters."""
        like, center = self.rows[0], self.logarithms.center
        v = normal((n, len(like), sum(self.widths)), generator, like)
        phi = center + self.logarithms.spread * normal((n, len(center)), generator, like)
        return v, phi

    def _begin(self, batch, generator):
        """Draws of the prior, or where an earlier fit of as many rows has ended."""
        self.hold(batch)
        C, T, shape = self.n_chains, len(self.powers), (len(batch.X), sum(self.widths))
        v, phi = self._prior(C * T, generator)
        if "v" in self.chains and self.chains["v"].shape == (C, T, *shape):
            v, phi = (self.chains[name].flatten(0, 1) for name in ("v", "phi"))
        self.kept = {}
        states = {"v": v, "phi": phi, "log_lik": self.evaluate(v, phi)}
        self.chains = {name: x.unflatten(0, (C, T)) for name, x in states.items()}

    def _keep(self, generator):
        first = {name: self.chains[name][:, 0] for name in ("v", "phi")}
        prior = self.evaluate(*self._prior(self.n_chains, generator))
        self.keep(**first, log_lik=self.chains["log_lik"], prior_log_lik=prior)

    def states(self):
        states = super().states()
        return states if self.kept else {name: states[name][:, 0] for name in ("v", "phi")}

    def _centered(self, v, phi, log_lik, first, power, generator, draw):
        """Steps of one layer given the values of the next one, which whitened steps change."""
        kernels, _ = self.logarithms.components(phi)
        values, n = self.propagate(v, kernels, first), len(self.widths)
        parts = list(v.split(self.widths, -1))
        for j in range(n):
            H = self.beside(values[j - 1] if j else self.rows[0][None], j)
            root = first if j == 0 else self.root(kernels[j], H)
            mean = self.mean_function(H, j)
            mean = mean.expand(len(v), *mean.shape[-2:]) if torch.is_tensor(mean) else None

            def outputs(p, i, root=root, mean=mean):
                return _of(root, i).product(p) + (0.0 if mean is None else mean[i])

            def value(p, i, j=j, outputs=outputs):
                kernels_i, likelihood_i = self.logarithms.components(phi[i])
                F = outputs(p, i)
                if j == n - 1:
                    return self.log_likelihood(F, kernels_i[-1], likelihood_i)
                return self._log_density(F, values[j + 1][i], kernels_i, j + 1)

            everyone = torch.arange(len(v), device=v.device)
            now = log_lik if j == n - 1 else value(parts[j], everyone)
            powers = power if j == n - 1 else torch.ones_like(power)
            nu = normal(parts[j].shape, generator, v)
            parts[j], now = elliptical_slice(
                parts[j], now, value, nu, draw, powers, self._most_ahead, self.is_late
            )
            values[j] = outputs(parts[j], everyone)
            if j == n - 1:
                log_lik = now
            else:  # the next layer has kept its values
                H = self.beside(values[j], j + 1)
                off = values[j + 1] - self.mean_function(H, j + 1)
                parts[j + 1] = self.root(kernels[j + 1], H).whiten(off)
        return torch.cat(parts, -1), log_lik

    def _log_density(self, F, following, kernels, j):
        """Log-density (S,) of the values of layer `j` given those of the one before."""
        H = self.beside(F, j)
        L = self.root(kernels[j], H)
        off = following - self.mean_function(H, j)
        value = -0.5 * L.whiten(off).square().sum((1, 2)) - off.shape[-1] * L.log_det()
        return torch.where(torch.isfinite(value), value, _IMPOSSIBLE)

    def _flip(self, v, generator):
        """Change the sign of a random hidden unit where the next layer does not see it."""
        # the last sampled layer is seen by the likelihood
        n = len(self.widths) - (not self.integrates)
        if n == 0 or any(layer.W is not None for layer in self.layers):
            return v
        if not all(isinstance(k.component, Stationary) for k in list(self.kernels)[1:]):
            return v
        unit = torch.randint(sum(self.widths[:n]), (len(v),), generator=generator)
        sign = torch.ones(len(v), v.shape[-1]).to(v)
        sign[torch.arange(len(v)), unit] = -1.0
        return v * sign[:, None]

    def _move_hyperparameters(self, v, phi, log_lik, power, draw):
        """Slice steps of one hyperparameter, in turns; those of sampled layers given whitened values."""
        hyper, p, F = self.logarithms, self.n_steps % phi.shape[1], None
        before, log_lik = log_lik, log_lik.clone()
        if p >= hyper.n_of_values and self.widths:  # sampled values stay
            F = self.propagate(v, hyper.components(phi)[0])[-1]

        def with_value(x, i):
            changed = phi[i].clone()
            changed[:, p] = x
            return changed

        def evaluate(x, i):
            changed = with_value(x, i)
            if p < hyper.n_of_values:
                value = self.evaluate(v[i], changed)
            else:
                kernels, likelihood = hyper.components(changed)
                value = self.log_likelihood(None if F is None else F[i], kernels[-1], likelihood)
            log_lik[i] = value  # what is evaluated last is accepted
            return power[i] * value + hyper.log_prior(changed)

        start = power * log_lik + hyper.log_prior(phi)
        x = slice_step(phi[:, p], evaluate, draw, start, is_late=self.is_late)
        log_lik = torch.where(x == phi[:, p], before, log_lik)
        return with_value(x, torch.arange(len(v), device=v.device)), log_lik

    # What is kept, and prediction

    def posterior(self, draws, as_trained=False):
        """The mixture of the states that were kept."""
        return SlicedPosterior(self, self.states(), draws)

    def load_state(self, arrays):
        super().load_state(arrays)
        self._look_at_rows()
        self.logarithms.refresh()


def _of(factors, i):
    """Factors of the states with indices `i`; one that all share stays."""
    return factors if len(factors) == 1 else factors[i]
