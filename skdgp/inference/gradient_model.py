"""Models that Adam and natural gradients train."""

import contextlib

import torch

from ..optim.adam import Adam
from .base import Model

#: Hyperparameters of kernels and likelihoods live on a log scale, are few, and have far to go: they take
#: larger steps of Adam than inducing inputs and posteriors.
_HYPERPARAMETER_RATE = 6.0
_AVERAGED = 0.1, 30  #: share of the steps made that averages reach back over, and the most steps


class GradientModel(Model):
    """A model that is trained by Adam, and by natural gradients for the blocks that it names.

    A subclass gives :meth:`expected_log_likelihood`, :meth:`blocks` and :meth:`_frozen`; the objective is their
    difference to the divergences of the blocks, and one backward pass serves both kinds of step.

    Draws and minibatches let the parameters scatter around where they are going. State, divergence and
    posterior are those of averages over the last steps (Polyak and Juditsky, 1992): exponential ones
    that reach back over fewer steps at the beginning, and over fewer again as the step size falls. Where the
    steps have come to is part of the training state.

    Parameters
    ----------
    natural_step : float
        Step size of the natural gradients, reached after five steps.

    References
    ----------
    B. Polyak and A. Juditsky (1992). Acceleration of stochastic approximation by averaging. SIAM Journal on
    Control and Optimization 30.
    """

    takes_averages = True  #: whether averages of the last steps are what others see

    def __init__(self, natural_step=0.1):
        super().__init__()
        self.learning_rate = 0.01
        self.natural_step = natural_step
        self._n_steps = 0
        self._optimizer = None
        self._averages, self._n_averaged = {}, 0

    def expected_log_likelihood(self, batch, generator):
        """Estimate, unbiased for all rows, of the expected log-likelihood."""
        raise NotImplementedError

    def blocks(self):
        """The Gaussian blocks of the posterior."""
        raise NotImplementedError

    def moving(self):
        """The blocks that this step changes."""
        return [block for block in self.blocks() if not block.held]

    def kl(self):
        """Divergence of the blocks from the prior."""
        return sum(block.kl() for block in self.blocks())

    def divergence(self):
        with self.averaged():
            return self.kl()

    def posterior(self, draws, as_trained=False):
        with self.averaged(), torch.no_grad():
            return self._frozen(draws, as_trained)

    def _frozen(self, draws, as_trained):
        """The posterior for the present parameters."""
        raise NotImplementedError

    def state(self):
        with self.averaged():
            return super().state()

    def load_state(self, arrays):
        self._averages, self._n_averaged = {}, 0
        super().load_state(arrays)

    def step(self, batch, generator, rate=1.0):
        optimizer = self._adam()
        for parameter in self._in_graph:
            parameter.grad = None
        ell = self.expected_log_likelihood(batch, generator)
        if ell.requires_grad:  # not if all hyperparameters are given
            (ell * (-1.0 / batch.total)).backward()
        value = float(self.kl() - ell.detach()) / batch.total
        if value - value != 0.0:  # not finite: leave everything as it is
            return value
        # log-linearly from a thousandth of the step size to all of it in five steps
        gamma = rate * self.natural_step * 10.0 ** min(0.0, 0.6 * self._n_steps - 3.0)
        for block in self.moving():
            if not block.natural:
                block.set_gradients(1.0 / batch.total)
                continue
            gradients = block.collected_gradients(-batch.total)
            size = gamma
            while not block.natural_step(gradients, size) and size > 1e-3 * gamma:
                size *= 0.5
        optimizer.step(rate * self.learning_rate)
        self._n_steps += 1
        if self.takes_averages:
            self._average(rate)
        return value

    @torch.no_grad()
    def _average(self, rate):
        if not self._averages:
            self._averages = {name: p.detach().clone() for name, p in self.named_parameters()}
        self._n_averaged += 1
        share, most = _AVERAGED
        weight = 1.0 / (1.0 + min(share * self._n_averaged, rate * most))
        torch._foreach_lerp_(list(self._averages.values()), list(self.parameters()), weight)

    @contextlib.contextmanager
    def averaged(self):
        """A context in which the parameters are the averages."""
        parameters = dict(self.named_parameters())
        values = {name: parameters[name].data for name in self._averages}
        self._become(self._averages)
        try:
            yield
        finally:
            self._become(values)

    def _become(self, values):
        parameters = dict(self.named_parameters())
        for name, value in values.items():
            parameters[name].data = value  # which keeps the precision of a block that comes back

    def prepare(self, learning_rate, dtype):
        self.learning_rate = learning_rate
        for block in self.blocks():
            if not block.natural:
                block.root.data = block.root.data.to(dtype)

    def _adam(self):
        if self._optimizer is None:
            trained = [p for p in self.parameters() if p.requires_grad]
            in_blocks = {id(p) for block in self.blocks() for p in block.parameters()}
            self._in_graph = [p for p in trained if id(p) not in in_blocks]
            hyperparameters = {id(p) for name, p in self.named_parameters() if "log_" in name}
            others = [p for p in trained if id(p) not in hyperparameters]
            hyperparameters = [p for p in trained if id(p) in hyperparameters]
            self._optimizer = Adam([(others, 1.0), (hyperparameters, _HYPERPARAMETER_RATE)])
        return self._optimizer

    def training_state(self):
        arrays = {"n_steps": torch.tensor(self._n_steps).numpy()}
        for i, slot in enumerate(self._adam().slots):
            arrays.update(
                {f"{i}.{name}": value.cpu().numpy().copy() for name, value in slot.items()}
            )
        for i, block in enumerate(self.blocks()):
            P = block.precision()  # which its root gives only up to rounding
            if P is not None:
                arrays[f"precision.{i}"] = P.cpu().numpy().copy()
        arrays["n_averaged"] = torch.tensor(self._n_averaged).numpy()
        for name, parameter in self.named_parameters():
            if name in self._averages:
                arrays[f"last.{name}"] = parameter.detach().cpu().numpy().copy()
        return arrays

    def load_training_state(self, arrays):
        self._n_steps, self._n_averaged = int(arrays["n_steps"]), int(arrays["n_averaged"])
        parameters = dict(self.named_parameters())
        blocks, optimizer = list(self.blocks()), self._adam()
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
        for i, block in enumerate(blocks):
            if f"precision.{i}" in arrays:
                P = torch.tensor(arrays[f"precision.{i}"])
                block.set_precision(P.to(block.root.device))
