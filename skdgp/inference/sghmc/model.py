"""The model that :class:`~skdgp.inference.sghmc.SGHMC` builds."""

import math
from typing import NamedTuple

import numpy as np
import torch

from ...gp.component import Trainable
from ...gp.layer import SparseLayer
from ...gp.likelihoods import Gaussian
from ...gp.priors import negative_log_prior
from ...linalg import LOG_2PI, Gram, add_diagonal, cholesky, root_of_inverse
from ...optim.adam import Adam
from ...parallel import gathered, summed
from ...random import normal
from ..chains import ChainModel
from .dynamics import (
    adaptive_step,
    draw_targets,
    fisher_information,
    fresh,
    preconditioned_step,
    to_z,
)
from .posterior import SampledPosterior

_INFORM_EVERY = 20  #: steps between looks at the Fisher information
#: Hyperparameters live on a log scale, are few, and have far to go: their steps of Adam are larger.
_HYPERPARAMETER_RATE = 6.0
_MEMORY = 10  #: of these looks that its average reaches back over
_WINDOW = 100  #: past states that the published procedure learns from, one at a time


class _NoPosterior(NamedTuple):
    """In the place of a Gaussian posterior: each state has inducing outputs of its own."""

    mean: torch.Tensor
    root: None = None


class SampledDeepGP(ChainModel):
    """Chains of whitened inducing outputs, and hyperparameters that are trained and then fixed."""

    def __init__(self, architecture, likelihood, scheme):
        super().__init__(scheme.n_chains, scheme.n_samples)
        self.scheme = scheme
        self.likelihood = Trainable(likelihood)
        outputs, M = (*architecture.widths, architecture.n_latents), architecture.n_inducing
        self.layers = architecture.stack(
            SparseLayer, lambda i: {"q": _NoPosterior(torch.zeros(M, outputs[i]).double())}
        )
        self._memory = {}  # of the sampler: tensors, by layer and by what they are
        self._n_looks, self._whitenings, self._optimizer = 0, None, None
        self._as_published = scheme.preconditioner == "adaptive"
        self.integrates = False  #: whether the last layer is integrated out
        self._learning = False  #: whether hyperparameters are

    def _apply(self, fn, recurse=True):
        self._memory = {name: fn(value) for name, value in self._memory.items()}
        self._whitenings = None
        return super()._apply(fn, recurse)

    # The target

    def propagate(self, X, v, eps, whitenings):
        """Projections and outputs of layers that `v` is given of, and those of the last one.

        Projections (C, M, B), and outputs (C, B, D_l), which are means in the last layer; then
        projections (C, M, B) and remaining variances (C, B) of the last layer.
        """
        passed = []

        def visit(i, layer, H):
            A, variance = layer.project(H, whitenings[i])
            if i < len(v):
                mean = (v[i].to(A.dtype).mT @ A).mT + layer.mean_function(H)
                H = mean + variance.sqrt()[..., None] * eps[i] if i < len(eps) else mean
                passed.append((A, H))
            return H if i < len(self.layers) - 1 else (A, variance)

        return passed, *self.layers.walk(X[None], visit)

    def log_target(self, batch, v, eps, whitenings):
        """Unbiased estimate of the log posterior density of each chain, up to a constant, shape (C,)."""
        prior = -0.5 * sum(x.square().sum((1, 2)) for x in v) if v else 0.0
        S = self.scheme.n_hidden_draws
        v = [x.repeat_interleave(S, 0) for x in v] if S > 1 else v
        passed, A, variance = self.propagate(batch.X, v, eps, whitenings)
        if self.integrates:
            return batch.share * (prior + self.integrated(A, variance, batch)[0])
        ell = self._of_rows(batch.y, passed[-1][1], variance)
        if S > 1:
            ell = torch.logsumexp(ell.unflatten(0, (-1, S)), 1) - math.log(S)
        return batch.share * prior + batch.scale * (batch.weight * ell).sum(-1).double()

    @property
    def _marginal(self):
        """Whether a row's variance given the inducing outputs is inside the likelihood.

        It is outside while inducing inputs are trained, except in the published procedure. Inside it would pass
        for noise, and inducing inputs would leave the rows (Bauer, van der Wilk and Rasmussen, 2016).
        """
        return self.scheme.target == "marginal" and (self._as_published or not self._learning)

    def _of_rows(self, y, mean, variance):
        """Log-likelihood (C, B) given the moments of the last layer."""
        likelihood, variance = self.likelihood(), variance[..., None].expand_as(mean)
        shape, y = mean.shape[:-1], y.expand(*mean.shape[:-1], y.shape[-1])
        rows = (t.reshape(-1, t.shape[-1]) for t in (y, mean, variance))
        if self._marginal:
            return likelihood.log_partition(*rows).view(shape)
        return likelihood.expected_log_prob(*rows).view(shape)

    def integrated(self, A, variance, batch):
        """Log-density (C,) with the last layer integrated out, and factor and shift of it."""
        noise, y, weight = self.likelihood().variance[:, None], batch.y.T, batch.weight
        marginal = self._marginal
        D = noise + variance[:, None] if marginal else noise.expand(len(A), -1, variance.shape[1])
        root = (weight / D).to(A.dtype).sqrt()
        part = A[:, None] * root[:, :, None]
        b = (part @ (root * y.to(A.dtype))[..., None]).double()
        rows = (weight * (LOG_2PI + D.log() + y.square() / D)).sum((1, 2))
        if not marginal:
            rows = rows + (weight * variance[:, None] / noise).sum((1, 2))
        G = Gram.apply(part).double()
        if batch.share < 1.0:
            G, b, rows = summed(G, b, rows)
        L = cholesky(add_diagonal(G, 1.0), 1e-10)
        a = torch.linalg.solve_triangular(L, b, upper=False)
        log_det = L.diagonal(dim1=-2, dim2=-1).log().sum((1, 2))
        return -0.5 * rows - log_det + 0.5 * a.square().sum((1, 2, 3)), L, b

    def _draw_eps(self, batch, generator):
        n = self.n_chains * self.scheme.n_hidden_draws
        shapes = [(n, len(batch.X), layer.n_outputs) for layer in self.layers[:-1]]
        return [batch.draw(lambda s: normal(s, generator, batch.X), shape) for shape in shapes]

    # Steps

    def step(self, batch, generator, rate=1.0):
        scheme, n = self.scheme, self.n_steps
        if n == 0:
            self._begin(batch, generator)
        learning, warm = n < scheme.n_learn, scheme.n_learn + scheme.n_burn_in
        self._let_learn(learning)
        adapting = n < max(warm - scheme.n_burn_in // 2, 1)
        if adapting and not self._as_published and n % _INFORM_EVERY == 0:
            self._inform(gathered(batch), generator)
        value = self._move(batch, generator, learning, adapting)
        if learning:
            self._learn(batch, generator, rate)
        elif n == scheme.n_learn:
            self._memory = {k: x for k, x in self._memory.items() if not k.startswith("window")}
        self.n_steps += 1
        past = self.n_steps - warm
        if past > 0 and past % scheme.spacing == 0 and not self.finished:
            self._complete(batch, generator)
            self.keep(**self.chains)
        return value

    def _begin(self, batch, generator):
        """Draws of the prior, or the published start at zero; or where an earlier fit has ended."""
        self.kept = {}
        (weight,) = summed(batch.weight.sum()) if batch.share < 1.0 else (batch.weight.sum(),)
        all_rows = float(batch.scale * weight) <= batch.total * (1.0 + 1e-9)
        self.integrates = (
            self.scheme.last_layer == "exact"
            and self.scheme.n_hidden_draws == 1
            and isinstance(self.likelihood.component, Gaussian)
            and batch.scale == 1.0 and all_rows
        )  # fmt: skip
        start = float(not self._as_published)
        for i, layer in enumerate(self.layers):
            shape = self.n_chains, len(layer.Z), layer.n_outputs
            if self.chains.get(f"v{i}", layer.Z).shape != shape:
                self.chains[f"v{i}"] = start * normal(shape, generator, layer.Z)
        for i, x in enumerate(self._sampled()):
            if not start:
                state = fresh(x)
            else:
                eye = torch.eye(x.shape[1]).to(x).repeat(x.shape[2], 1, 1)
                state = {"p": torch.zeros_like(x), "noise": torch.zeros_like(x[0]), "root": eye}
                state["fisher"] = torch.zeros_like(eye)
            self._remember(i, state)

    def _remember(self, i, state):
        self._memory.update({f"{i}.{name}": value for name, value in state.items()})

    def _of_layer(self, i):
        """Return the tensors of the sampler that belong to layer `i`."""
        keys = [key for key in self._memory if key.startswith(f"{i}.")]
        return {key.partition(".")[2]: self._memory[key] for key in keys}

    def _sampled(self):
        """The inducing outputs that steps move."""
        v = [self.chains[f"v{i}"] for i in range(len(self.layers))]
        return v[:-1] if self.integrates else v

    def _let_learn(self, learning):
        self._learning = learning
        if learning or self._whitenings is None:
            for p in self.parameters():
                p.requires_grad_(learning)
            self._whitenings = [layer.whitening() for layer in self.layers]

    def _move(self, batch, generator, learning, adapting):
        """One step of all chains, whose gradients of hyperparameters are kept, but as published."""
        scheme = self.scheme
        v = [x.detach().requires_grad_() for x in self._sampled()]
        own = list(self.parameters()) if learning and not self._as_published else []
        for p in own:
            p.grad = None
        parts, gradients, value = batch.halves(), [], 0.0
        for part in parts if v or own else []:
            if learning and gradients:  # the graph of the first half is gone
                self._whitenings = [layer.whitening() for layer in self.layers]
            loss = -self.log_target(part, v, self._draw_eps(part, generator), self._whitenings)
            found = torch.autograd.grad(loss.sum() / len(parts), v + own, allow_unused=True)
            loss = loss.detach().mean()
            if batch.share < 1.0:
                loss, *found = summed(loss, *found)
            value += float(loss) / len(parts) / batch.total
            gradients.append(found[: len(v)])
            for p, g in zip(own, found[len(v) :]):
                if g is not None:
                    g = (g / (self.n_chains * batch.total)).contiguous()  # the layout of Adam
                    p.grad = g if p.grad is None else p.grad + g
        if not math.isfinite(value):  # leave everything as it is
            return value
        with torch.no_grad():
            for i, x in enumerate(v):
                g = sum(found[i] for found in gradients)
                xi, m = normal(x.shape, generator, x), self._of_layer(i)
                size, friction = scheme.step_size, scheme.friction
                if self._as_published:
                    adapt = self.n_steps < scheme.n_learn + scheme.n_burn_in
                    new, m = adaptive_step(
                        x, m, g / batch.total, xi, batch.total, size, friction, adapt
                    )
                else:
                    if len(parts) > 1 and adapting:
                        difference = to_z(gradients[0][i] - gradients[1][i], m["root"])
                        m["noise"] = torch.lerp(m["noise"], difference.square().mean(0), 0.02)
                    new, m["p"] = preconditioned_step(
                        x.detach(), m["p"], g, m["root"], xi, size, friction, m["noise"]
                    )
                self._remember(i, m)
                self.chains[f"v{i}"] = new.detach()
        return value

    def _learn(self, batch, generator, rate):
        """A step of Adam on hyperparameters and inducing inputs (Havasi et al., 2018, algorithm 1)."""
        scheme, parameters = self.scheme, list(self.parameters())
        if self._as_published:
            v, place = self._sampled(), self.n_steps % _WINDOW
            for i, x in enumerate(v):
                self._memory[f"window.{place}.{i}"] = x
            n = min(self.n_steps + 1, _WINDOW)
            pick = int(torch.randint(n, (), generator=generator, device=generator.device))
            v = [self._memory[f"window.{pick}.{i}"] for i in range(len(v))]
            eps = self._draw_eps(batch, generator)
            whitenings = [layer.whitening() for layer in self.layers]
            loss = -self.log_target(batch, v, eps, whitenings).mean() / batch.total
            found = torch.autograd.grad(loss, parameters, allow_unused=True)
            if batch.share < 1.0:
                found = summed(*found)
            for p, g in zip(parameters, found):
                p.grad = None if g is None else g.contiguous()
        given = [one for one in self.given_priors() if one.parameter.grad is not None]
        if given:
            own = [one.parameter for one in given]
            slopes = torch.autograd.grad(negative_log_prior(given) / batch.total, own)
            for p, slope in zip(own, slopes):
                p.grad = p.grad + slope
        progress = self.n_steps / scheme.n_learn
        decay = 1.0
        if not self._as_published:
            decay = 0.01 + 0.99 * 0.5 * (1.0 + math.cos(math.pi * progress))
        self._adam().step(rate * decay * self.learning_rate)
        self._whitenings = None

    def _adam(self):
        if self._optimizer is None:
            modules = [*(layer.kernel for layer in self.layers), self.likelihood]
            hyperparameters = [p for module in modules for p in module.parameters()]
            rate = 1.0 if self._as_published else _HYPERPARAMETER_RATE
            inducing_inputs = [layer.Z for layer in self.layers]
            self._optimizer = Adam([(inducing_inputs, 1.0), (hyperparameters, rate)])
        return self._optimizer

    @torch.no_grad()
    def _complete(self, batch, generator):
        """Draw the last layer given the others, if it is integrated out."""
        if self.integrates:
            eps = self._draw_eps(batch, generator)
            _, A, variance = self.propagate(batch.X, self._sampled(), eps, self._whitenings)
            _, L, b = self.integrated(A, variance, batch)
            xi = normal((self.n_chains, *b.shape[1:]), generator, b)
            v = torch.cholesky_solve(b, L) + torch.linalg.solve_triangular(L.mT, xi, upper=True)
            self.chains[f"v{len(self.layers) - 1}"] = v[..., 0].mT

    def _inform(self, batch, generator):
        """Update the coordinates of steps by targets that are drawn given the present states."""
        self._complete(batch, generator)
        v = [self.chains[f"v{i}"].detach() for i in range(len(self.layers))]
        shapes = [(self.n_chains, len(batch.X), layer.n_outputs) for layer in self.layers]
        *eps, last = [normal(shape, generator, batch.X) for shape in shapes]
        whitenings = [w.detach() for w in self._whitenings]
        passed, _, variance = self.propagate(
            batch.X, [x.requires_grad_() for x in v], eps, whitenings
        )
        mean = passed[-1][1]
        with torch.no_grad():
            f = mean + variance.sqrt()[..., None] * last
            y = draw_targets(self.likelihood(), f, batch.y, generator)
        loss = self._of_rows(y, mean, variance).sum()
        scores = torch.autograd.grad(loss, [values for _, values in passed])
        self._n_looks += 1
        share = 1.0 / min(self._n_looks, _MEMORY)
        for i, (A, _), score in zip(range(len(self._sampled())), passed, scores):
            F = fisher_information(A.detach(), score, batch.scale * batch.weight)
            F = torch.lerp(self._memory[f"{i}.fisher"], F, share)
            self._remember(i, {"fisher": F, "root": root_of_inverse(add_diagonal(F, 1.0))})

    # What is kept, and prediction

    def posterior(self, draws, as_trained=False):
        """The mixture of the states that were kept."""
        states = self.states()
        return SampledPosterior(self, [states[f"v{i}"] for i in range(len(self.layers))], draws)

    def training_state(self):
        arrays = {name: x.cpu().numpy().copy() for name, x in self._memory.items()}
        for i, slot in enumerate(self._adam().slots):
            arrays.update({f"adam.{i}.{k}": x.cpu().numpy().copy() for k, x in slot.items()})
        arrays |= {"n_looks": np.array(self._n_looks), "integrates": np.array(self.integrates)}
        return {**super().training_state(), **arrays}

    def load_training_state(self, arrays):
        super().load_training_state(arrays)
        self._whitenings, self._optimizer, self._memory = None, None, {}
        for key, value in arrays.items():
            first, _, name = key.partition(".")
            if first == "adam":
                i, _, name = name.partition(".")
                self._adam().remember(int(i), name, torch.tensor(value))
            elif name:
                self._memory[key] = torch.tensor(value, device=self._device())
        self._n_looks = int(arrays.get("n_looks", 0))
        self.integrates = bool(arrays.get("integrates", False))

    def load_state(self, arrays):
        super().load_state(arrays)
        self._whitenings = None
