"""One member, from its plan to the fitted model."""

import time
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch

from ..inference import DSVI, RandomFeatures
from ..inference.base import Architecture
from ..parallel import bound_of_staleness, divides
from ..predictive.components import Rows, components
from ..predictive.mixture import Mixture, rows_at_once
from ..training import init as initialization
from ..training.interrupts import note_interrupt
from ..training.trainer import Trainer
from .inflation import learn_inflation
from .member import Member, Record
from .minibatches import Minibatches, of_shards
from .settings import DTYPES, Settings, Start, Task

_SAMPLE_ROWS = 10_000  #: rows from which starting values are found


@dataclass(frozen=True)
class MemberFit:
    """Builds, starts and trains members."""

    settings: Settings
    task: Task
    device: str
    start: Start = field(default_factory=Start)
    is_mixture: bool = False  #: members of mixtures are less verbose
    read: object = None  #: reads rows that this rank alone has

    def member(self, plan, table, rng, source=None):
        """A member of the shape that the settings ask for, which must be that of `source` if there is one."""
        settings, scheme, likelihood = self.settings, plan.scheme, plan.likelihood
        _, y, weights = table.sample(_SAMPLE_ROWS, rng)
        self.task.check(likelihood, table.y)
        bound = likelihood.bind(y, weights, table.y_scaler.scale)
        n_features, n_classes = len(table.x_scaler.sources), self.task.n_classes
        n_inducing = plan.n_inducing or scheme.n_inducing(len(table), n_classes)
        architecture = Architecture(
            n_features,
            plan.widths(n_features),
            likelihood.n_latents(n_classes or table.y.shape[1]),
            min(int(n_inducing), len(table)),
            [],
            settings.mean == "linear",
            bool(settings.input_connected),
        )
        if source is None:
            scaler = table.x_scaler
            names = self.task.names or tuple(f"x{j}" for j in range(self.task.n_columns))
            names = names[: self.task.n_columns]  # kernels have no distances of groups behind them
            columns = scaler.sources, names, scaler.scale, scaler.codes
            architecture.kernels = plan.kernels(architecture, *columns)
            return Member(scheme, architecture, bound)
        for name in ("widths", "n_latents", "linear_mean", "input_connected"):
            if getattr(architecture, name) != getattr(source.architecture, name):
                raise ValueError(
                    "warm_start=True goes on with the model of the last fit, so n_layers, width, mean, "
                    "input_connected, likelihood and the classes must stay as they were."
                )
        return Member(scheme, source.architecture, source.likelihood)

    def begin(self, plan, table, rng, pretraining, source=None):
        """A member and its model before training."""
        settings, member = self.settings, self.member(plan, table, rng, source)
        model = member.build()
        init = settings.init if "init" in plan.scheme.uses else "kmeans"
        if source is not None:
            _go_on(model, source, plan)
        elif not isinstance(init, str):
            initialization.hand_over(self.start.given.members, member, model)
        else:
            X, y, weights = table.sample(_SAMPLE_ROWS, rng)
            if init == "greedy":  # which takes as many random numbers as it needs
                seed = int(rng.randint(2**31 - 1))
                rng = np.random.RandomState(seed)
                pretraining.trainer = partial(self.trainer, model, plan, table, seed)
                pretraining.most = settings.max_iter or pretraining.most
            with pretraining:
                initialization.start(model, X, weights, init, rng, y, pretraining.train)
            if init == "greedy":  # no traces of the pre-training
                state, model = model.state(), member.build()
                state.pop("progress", None)
                model.load_state(state)
        if source is None and getattr(model, "variance_inflation", None) is not None:
            learn_inflation(self, model, plan, table, rng, pretraining)
        return member, model

    def trainer(self, model, plan, table, seed, total=None):
        """The trainer of a model, with the budget of its plan."""
        settings, scheme, n = self.settings, plan.scheme, len(table)
        rate, batch_size = settings.learning_rate, scheme.batch_size(n)
        rate = plan.learning_rate or scheme.learning_rate(n) if rate is None else rate
        if "batch_size" in scheme.uses and settings.batch_size is not None:
            batch_size = settings.batch_size
        if divides() and ("batch_size" not in scheme.uses or model.is_full_batch):
            raise ValueError(
                f"{scheme!r} does not learn from minibatches, and ranks have nothing to divide; choose a "
                "scheme with batch_size, or inference='auto', whose members are trained by one rank each."
            )
        if bound_of_staleness() is not None and not isinstance(scheme, (DSVI, RandomFeatures)):
            raise ValueError("staleness is for inference='dsvi' and 'rff'; set it to None.")
        dtype = DTYPES[settings.dtype] if "dtype" in scheme.uses else torch.float64
        model.to(self.device).prepare(rate, dtype)
        return Trainer(
            model,
            Minibatches(table, batch_size, seed, dtype, self.device, total),
            torch.Generator().manual_seed(seed),
            max_iter=settings.max_iter or plan.max_iter or scheme.max_iter(n),
            tol=settings.tol,
            patience=settings.n_iter_no_change,
            verbose=max(0, settings.verbose - self.is_mixture),
            advice=self._advice(scheme),
        )

    def _advice(self, scheme):
        """A sentence on what to do where numbers overflow in training."""
        settings, names = self.settings, self.settings.params.keys() & scheme.uses
        others = {
            "choose a smaller learning_rate": "learning_rate" in names,
            "set standardize=True": not settings.standardize,
            "set dtype='float64'": "dtype" in names and settings.dtype == "float32",
        }
        chosen = [text for text, helps in others.items() if helps]
        return f"{', or '.join(['Look for extreme values in X and y', *chosen])}."

    def train(self, plan, table, held_out, seed, rng, pretraining, source=None, prepare=None):
        """Train a member; returns it and its trainer.

        Rows `held_out` stop the training by their log density. The `seed` is for minibatches and draws, `rng`
        for starting values, and `source` a member of an earlier fit to go on with. ``prepare(trainer,
        present)`` is called before the trainer runs, and ``present()`` makes the member as it is.
        """
        began = time.process_time()
        member, model = self.begin(plan, table, rng, pretraining, source)
        member.draws = model.draws(self.settings.n_predict_draws, seed)
        trainer = self.trainer(model, plan, table, seed)
        trainer.interrupted = pretraining.interrupted
        trainer.rows = of_shards(trainer.rows, self.read, table)
        member.record = replace(member.record, seconds=time.process_time() - began)
        return self.run(member, trainer, held_out, prepare)

    def run(self, member, trainer, held_out, prepare=None):
        """Run a trainer of the model of a member; parameters and results as of :meth:`train`."""
        began, before = time.process_time(), member.record

        def present():
            record = Record(
                before.n_iter + trainer.n_iter,
                before.loss_curve + trainer.loss_curve,
                before.validation_scores + trainer.validation_scores,
                before.seconds + time.process_time() - began,
                before.log_density,
            )
            return member.fitted(trainer.model, member.draws, record)

        if held_out is not None:
            trainer.validate = lambda: mean_log_density([present()], held_out, self.device)
        if prepare is not None:
            prepare(trainer, present)
        trainer.train()
        trainer.on_block = trainer.validate = None  # which refer to the trainer
        try:
            return present(), trainer
        except KeyboardInterrupt:
            note_interrupt()
            trainer.interrupted = True
            trainer._warn("Training was interrupted after the last step; the model is trained.")
            return present(), trainer


def _go_on(model, source, plan):
    """Give a model the state of the last fit, which may have had other settings of the scheme."""
    try:
        model.load_state(source.arrays)
    except RuntimeError:  # torch's, of names and shapes
        raise ValueError(
            "warm_start=True goes on with the model of the last fit, which was trained by "
            f"{source.scheme!r} and does not fit {plan.scheme!r}; set warm_start=False to start anew."
        ) from None


@torch.no_grad()
def _over_rows(members, table, device, function):
    """Values of a function of the mixture of members, and of targets, for all rows."""
    pieces = _pieces(table, rows_at_once(members, device))
    found = [function(Mixture(members, rows, device), y) for rows, y in pieces]
    return torch.cat(found).numpy(force=True)


def _pieces(table, size):
    """Pieces of the rows, as predictions see them, and their targets."""
    (X, y, _), noise = table.take(slice(None)), table.noise()
    for i in range(0, len(X), size):
        part = slice(i, i + size)
        yield Rows(X[part], noise=None if noise is None else noise[part]), y[part]


def log_densities(members, table, device):
    """Log density of each row, in units of the standardized target."""
    return _over_rows(members, table, device, lambda mixture, y: mixture.log_prob(y))


@torch.no_grad()
def log_densities_of_draws(member, table, device):
    """Log densities (n_draws, n_rows) of rows under each draw of a member, times the weight of the draw."""
    parts = []
    for rows, y in _pieces(table, rows_at_once([member], device)):
        weights, likelihood, mean, var = components(member, rows, 1.0, device)
        targets = torch.as_tensor(y, device=device)
        parts.append(weights[:, :, 0].log() + likelihood.log_partition(targets, mean, var))
    return torch.cat(parts, 1).numpy(force=True)


def mean_log_density(members, table, device):
    """Weighted mean of the log density over some rows."""
    return float(table.weights @ log_densities(members, table, device) / table.weights.sum())
