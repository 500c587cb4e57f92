"""Asynchronous stochastic gradients: ranks compute them without waiting for each other."""

import contextlib
import math
import queue
import threading

import torch

from ..parallel import (
    apart,
    bound_of_staleness,
    from_first,
    note_staleness,
    own_rank,
    receive,
    send,
    workers,
)


@contextlib.contextmanager
def asynchronous(trainer):
    """A context in which rank 0 makes the steps of a trainer, with gradients that other ranks compute.

    Nothing changes if the fit is not asynchronous. At the end all ranks have the model of rank 0.
    """
    bound = bound_of_staleness()
    if bound is None:
        yield
        return
    model, is_server = trainer.model, own_rank() == 0
    with apart():
        exchange = ParameterServer(trainer, bound) if is_server else Worker(trainer)
        model.steps.exchange = exchange
        try:
            yield
        finally:
            model.steps.exchange = None
        if is_server:
            exchange.end()
    state, training_state, *numbers = from_first(
        lambda: (
            model.state(),
            model.training_state(),
            trainer.loss_curve,
            trainer.n_iter,
            trainer.n_learned,
        )
    )
    if not is_server:
        model.load_state(state)
        model.load_training_state(training_state)
        trainer.loss_curve, trainer.n_iter, trainer.n_learned = numbers


class ParameterServer:
    """Takes gradients from whoever has them, makes a step with each, and hands out the parameters.

    A worker waits for parameters as long as another one's gradient could become older than `bound`:
    the steps made between the parameters of a gradient and its own step.
    """

    def __init__(self, trainer, bound):
        self._trainer, self._bound = trainer, bound
        self._waiting, self._out = list(workers()), {}  # what each works with: numbers of steps
        self._arrived = queue.SimpleQueue()
        self._n_given = self._n_made = trainer.n_iter

    def step(self, steps, model, batch, generator, rate):
        """A step with the next gradient that comes in; `batch` and `generator` stay as they are."""
        self._hand_out(model)
        (number, ell, sums), begun = self._next()
        note_staleness(self._n_made - begun)
        self._n_made += 1
        if sums is None:
            return math.nan
        n_made, steps.n_made = steps.n_made, number  # which blocks have moved depends on it
        steps.take(model, sums)
        value = steps.apply(model, ell, batch.total, rate)
        steps.n_made = n_made + (steps.n_made - number)
        return value

    def _hand_out(self, model):
        values = None
        while self._waiting and self._n_given < self._trainer.max_iter and self._is_safe():
            if values is None:
                values = [p.detach().cpu() for p in model.parameters()]
            worker = self._waiting.pop(0)
            send((self._n_given, values), worker)
            # a thread for each, for an operation on any rank would not notice that one of them died
            threading.Thread(target=self._listen, args=(worker,), daemon=True).start()
            self._out[worker] = self._n_made
            self._n_given += 1

    def _listen(self, worker):
        try:
            found = receive(worker)
        except Exception as error:
            found = error
        self._arrived.put((worker, found))

    def _next(self):
        """Return the next arrival, and the number of steps that its worker had begun with."""
        worker, found = self._arrived.get()
        if isinstance(found, Exception):
            raise found
        self._waiting.append(worker)
        return found, self._out.pop(worker)

    def _is_safe(self):
        """Whether all gradients are young enough if that of the oldest parameters comes last."""
        oldest = min(self._out.values(), default=self._n_made)
        return self._n_made + len(self._out) - oldest <= self._bound

    def end(self):
        """Tell all workers to stop, and drop the gradients that they still have."""
        while self._out:
            self._next()
        for worker in self._waiting:
            send(None, worker)


class Worker:
    """Computes gradients at the parameters that the server hands out.

    The trainer is that of this rank, which neither judges nor saves anything.
    """

    def __init__(self, trainer):
        self._trainer = trainer
        trainer.checkpoint = trainer.validate = trainer.on_block = None
        trainer.tol, trainer.max_time = 0.0, None
        if own_rank() > 1:  # the first worker draws as a single process does
            seed = trainer.generator.initial_seed()
            trainer.generator.manual_seed((seed + own_rank()) % 2**63)
        self._take(trainer.max_iter)

    def step(self, steps, model, batch, generator, rate):
        """Compute and send a gradient, and take the next parameters."""
        sums = None
        with contextlib.suppress(torch.linalg.LinAlgError):
            ell = steps.collect(model, batch, generator)
            sums = steps.sums(model)
        send((self._number, 0.0 if sums is None else ell, sums), 0)
        self._take(self._trainer.max_iter - 1)  # the trainer counts this step
        return 0.0

    @torch.no_grad()
    def _take(self, last):
        found = receive(0)
        if found is None:
            self._trainer.n_iter = last
            return
        self._number, values = found
        model = self._trainer.model
        for parameter, value in zip(model.parameters(), values):
            parameter.copy_(value)
        model.steps.n_made = self._number
        self._trainer.n_iter = self._number - (self._trainer.max_iter - last)
