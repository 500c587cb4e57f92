"""Steps of L-BFGS on all rows at once."""

import contextlib
import math

import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from .lbfgs import LBFGS


class QuasiNewtonSteps:
    """Trains a model by L-BFGS on all rows at once.

    ``model.objective(batch)``, a float, is maximized. It adds its gradients to those of the
    parameters. ``model.accept()`` is called when the search has come to stay where the objective
    was asked for last, and ``model.unsolved`` are the rows whose posterior is still to be found for
    the present hyperparameters.
    """

    def __init__(self, tol=1e-8):
        self.search = LBFGS(tol=tol)

    @property
    def finished(self):
        return self.search.converged

    def forget(self):
        """Nothing, for there are no averages."""

    def averaged(self, model):
        """A context in which the parameters are those of the last step."""
        return contextlib.nullcontext()

    def step(self, model, batch, generator, rate):
        """As :meth:`Model.step <skdgp.inference.base.Model.step>`."""
        parameters, search = [p for p in model.parameters() if p.requires_grad], self.search
        total, given = float(batch.weight.sum()), bool(model.given_priors())

        def evaluate(x):
            vector_to_parameters(x, parameters)
            for parameter in parameters:
                parameter.grad = torch.zeros_like(parameter)
            try:
                value = model.objective(batch)
                if given:
                    log_prior = model.prior_log_density()
                    backward((log_prior, torch.ones_like(log_prior)))
                    value += float(log_prior.detach())
            except torch.linalg.LinAlgError:  # L-BFGS tries a smaller step
                return math.inf, torch.zeros_like(x)
            return -value / total, torch.cat([p.grad.flatten() for p in parameters]) / -total

        model.unsolved = batch
        if not parameters:  # all hyperparameters are given
            if search.converged:
                return search.f
            with torch.no_grad():
                search.f, search.converged = -model.objective(batch) / total, True
            model.accept()
            return search.f
        if search.x is None:
            search.start(parameters_to_vector(parameters).detach().clone(), evaluate)
            model.accept()
        before = search.x
        try:
            search.step(evaluate)
        finally:  # also after an interrupt no hyperparameters stay that were only tried
            vector_to_parameters(search.x, parameters)
        if search.x is not before:
            model.accept()
        return search.f

    def state(self, model):
        """As :meth:`Model.training_state <skdgp.inference.base.Model.training_state>`."""
        return self.search.state()

    def load(self, model, arrays):
        """The inverse of :meth:`state`."""
        self.search.load(arrays, next(iter(model.state_dict().values())))


def backward(*pairs):
    """Backpropagate the gradients given for tensors, for those that require them."""
    # as a product: torch imports sympy, which takes a second, to compare shapes of given gradients
    products = [torch.sum(t * gradient) for t, gradient in pairs if t.requires_grad]
    if products:
        torch.autograd.backward(products)
