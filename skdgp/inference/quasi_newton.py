"""Models whose hyperparameters are found by L-BFGS on all rows at once."""

import math

import torch


class QuasiNewton:
    """A model whose hyperparameters are found by L-BFGS on all rows at once.

    A subclass gives :meth:`lower_bound`, and sets `_lbfgs` and `_unsolved`: the rows whose posterior is still
    to be found for the present hyperparameters, or None.
    """

    sees_all_rows = True

    def lower_bound(self, batch):
        """Lower bound of all rows; its gradients are added to the parameters'.

        Parameters
        ----------
        batch : Batch
            All rows; a row of weight w stands for w rows.

        Returns
        -------
        lower_bound : float
        """
        raise NotImplementedError

    def objective(self, batch):
        """What is maximized, likewise."""
        return self.lower_bound(batch)

    def prepare(self, learning_rate, dtype):
        pass  # everything is in float64

    @property
    def finished(self):
        return self._lbfgs.converged

    def step(self, batch, generator, rate=1.0):
        parameters, search = [p for p in self.parameters() if p.requires_grad], self._lbfgs
        total = float(batch.weight.sum())

        def evaluate(x):
            torch.nn.utils.vector_to_parameters(x, parameters)
            for parameter in parameters:
                parameter.grad = torch.zeros_like(parameter)
            try:
                value = self.objective(batch)
            except torch.linalg.LinAlgError:  # L-BFGS tries a smaller step
                return math.inf, torch.zeros_like(x)
            return -value / total, torch.cat([p.grad.flatten() for p in parameters]) / -total

        self._unsolved = batch
        if not parameters:  # all hyperparameters are given
            if search.converged:
                return search.f
            with torch.no_grad():
                search.f, search.converged = -self.objective(batch) / total, True
            self.accept()
            return search.f
        if search.x is None:
            x = torch.nn.utils.parameters_to_vector(parameters).detach().clone()
            search.start(x, evaluate)
            self.accept()
        before = search.x
        try:
            search.step(evaluate)
        finally:  # also after an interrupt no hyperparameters stay that were only tried
            torch.nn.utils.vector_to_parameters(search.x, parameters)
        if search.x is not before:
            self.accept()
        return search.f

    def accept(self):
        """Called when the search has come to stay where :meth:`lower_bound` was asked for last."""

    def training_state(self):
        return self._lbfgs.state()

    def load_training_state(self, arrays):
        self._lbfgs.load(arrays, self.layers[0].Z)


def backward(*pairs):
    """Hand gradients on to what tensors were computed from, as far as that wants any."""
    # as a product: torch imports sympy, which takes a second, to compare shapes of given gradients
    products = [torch.sum(t * gradient) for t, gradient in pairs if t.requires_grad]
    if products:
        torch.autograd.backward(products)
