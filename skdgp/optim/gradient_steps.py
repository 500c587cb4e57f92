"""Steps of Adam and of natural gradients, and averages over them."""

import contextlib

import torch

from ..parallel import add_up
from .adam import Adam

#: Hyperparameters of kernels and likelihoods live on a log scale, are few, and have far to go: they take
#: larger steps of Adam than what has these roles.
_HYPERPARAMETER_RATE, SLOW = 6.0, ("inducing_input", "mean", "posterior", "posterior_root")
_AVERAGED = 0.1, 30  #: share of the steps made that averages reach back over, and the most steps


class GradientSteps:
    """Trains a model by Adam, and by natural gradients those blocks of its posterior that take them.

    The model gives an expected log-likelihood and the blocks of its posterior. The objective is
    their difference to the divergences of the blocks, and one backward pass serves both kinds of
    step.

    Draws and minibatches let the parameters scatter around where they are going. State, divergence
    and posterior are those of averages over the last steps (Polyak and Juditsky, 1992, SIAM Journal
    on Control and Optimization 30): exponential ones that reach back over fewer steps at the
    beginning, and over fewer again as the step size falls. Where the steps have come to is part of
    the training state; `n_made` counts those of earlier fits, too. Natural steps reach their size
    after five steps.
    """

    finished = False  #: further steps change something, always
    exchange = None  #: with the other ranks of an asynchronous fit

    def __init__(self, natural_step=0.1, averages=True):
        self.natural_step, self.averages = natural_step, averages
        self.n_made, self._optimizer = 0, None
        self.forget()

    def forget(self):
        """Drop the averages: parameters have been set."""
        self._averages, self._n_averaged = {}, 0

    def restart(self, model, parameters):
        """Forget what earlier steps have told of some parameters, which have been set."""
        parameters = {id(parameter) for parameter in parameters}
        self._adam(model).forget(parameters)
        for name, parameter in model.named_parameters():
            if name in self._averages and id(parameter) in parameters:
                self._averages[name].copy_(parameter.detach())

    def step(self, model, batch, generator, rate):
        """As :meth:`Model.step <skdgp.inference.base.Model.step>`."""
        if self.exchange is not None:
            return self.exchange.step(self, model, batch, generator, rate)
        ell = self.collect(model, batch, generator)
        if batch.share < 1.0:
            add_up([part for part in (ell, *self.sums(model)) if part is not None])
        return self.apply(model, ell, batch.total, rate)

    def collect(self, model, batch, generator):
        """Compute the expected log-likelihood of a batch, and collect its gradients."""
        self._adam(model)
        for parameter in self._in_graph:
            parameter.grad = None
        ell = model.expected_log_likelihood(batch, generator)
        if self._given:
            ell = ell + batch.share * model.prior_log_density()
        if ell.requires_grad:  # not if all hyperparameters are given
            (ell * (-1.0 / batch.total)).backward()
        return ell.detach().clone()

    def sums(self, model):
        """Return the collected sums over rows: tensors, or None for a gradient that is zero."""
        of_blocks = [part for block in model.moving() for part in block.collected()]
        return [parameter.grad for parameter in self._in_graph] + of_blocks

    def take(self, model, sums):
        """Take what another process has collected in this step."""
        self._adam(model)
        sums = iter(sums)
        for parameter, gradient in zip(self._in_graph, sums):
            parameter.grad = gradient if gradient is None else gradient.to(parameter)
        for block in model.moving():
            block.collect(sums)

    def apply(self, model, ell, total, rate):
        """Make a step with what has been collected, and the expected log-likelihood of all rows."""
        value = float(model.kl() - ell) / total
        if value - value != 0.0:  # not finite: leave everything as it is
            return value
        # log-linearly from a thousandth of the step size to all of it in five steps
        gamma = rate * self.natural_step * 10.0 ** min(0.0, 0.6 * self.n_made - 3.0)
        for block in model.moving():
            if not block.natural:
                block.set_gradients(1.0 / total)
                continue
            gradients = block.collected_gradients(-total)
            size = gamma
            while not block.natural_step(gradients, size) and size > 1e-3 * gamma:
                size *= 0.5
        self._adam(model).step(rate * model.learning_rate)
        self.n_made += 1
        if self.averages:
            self._average(model, rate)
        return value

    @torch.no_grad()
    def _average(self, model, rate):
        if not self._averages:
            self._averages = {name: p.detach().clone() for name, p in model.named_parameters()}
        self._n_averaged += 1
        share, most = _AVERAGED
        weight = 1.0 / (1.0 + min(share * self._n_averaged, rate * most))
        torch._foreach_lerp_(list(self._averages.values()), list(model.parameters()), weight)

    @contextlib.contextmanager
    def averaged(self, model):
        """A context in which the parameters are the averages."""
        parameters = dict(model.named_parameters())
        values = {name: parameters[name].data for name in self._averages}
        _become(model, self._averages)
        try:
            yield
        finally:
            _become(model, values)

    def _adam(self, model):
        if self._optimizer is None:
            trained = [p for p in model.parameters() if p.requires_grad]
            self._given = bool(model.given_priors())
            in_blocks = {id(p) for block in model.blocks() for p in block.parameters()}
            self._in_graph = [p for p in trained if id(p) not in in_blocks]
            slow = {id(one.parameter) for one in model.hyperparameters() if one.role in SLOW}
            others = [p for p in trained if id(p) in slow]
            hyperparameters = [p for p in trained if id(p) not in slow]
            self._optimizer = Adam([(others, 1.0), (hyperparameters, _HYPERPARAMETER_RATE)])
        return self._optimizer

    def state(self, model):
        """As :meth:`Model.training_state <skdgp.inference.base.Model.training_state>`."""
        counts = {"n_steps": self.n_made, "n_averaged": self._n_averaged}
        tensors = {name: torch.tensor(count) for name, count in counts.items()}
        for i, slot in enumerate(self._adam(model).slots):
            tensors.update({f"{i}.{name}": value for name, value in slot.items()})
        for i, block in enumerate(model.blocks()):
            P = block.precision()  # which its root gives only up to rounding
            if P is not None:
                tensors[f"precision.{i}"] = P
        for name, parameter in model.named_parameters():
            if name in self._averages:
                tensors[f"last.{name}"] = parameter
        return {name: t.detach().cpu().numpy().copy() for name, t in tensors.items()}

    def load(self, model, arrays):
        """The inverse of :meth:`state`."""
        self.n_made, self._n_averaged = int(arrays["n_steps"]), int(arrays["n_averaged"])
        parameters = dict(model.named_parameters())
        blocks, optimizer = list(model.blocks()), self._adam(model)
        for slot in optimizer.slots:
            slot.clear()
        self._averages = {}
        for key, value in arrays.items():
            first, _, name = key.partition(".")
            value = torch.tensor(value)  # a copy: Adam writes into it
            if first == "last":
                parameter = parameters[name]
                self._averages[name] = parameter.detach().clone()  # which the state has
                parameter.data = value.to(parameter)
            elif name and first != "precision":
                optimizer.remember(int(first), name, value)
        for i, block in enumerate(blocks):  # whose roots are in place only now
            if f"precision.{i}" in arrays:
                P = torch.tensor(arrays[f"precision.{i}"])
                block.set_precision(P.to(block.root.device))


def _become(model, values):
    """Set parameters, and keep the versions of those that come back, on which precisions depend."""
    parameters = dict(model.named_parameters())
    for name, value in values.items():
        parameters[name].data = value
