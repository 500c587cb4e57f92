"""The members of a fitted estimator: models as numpy, with their torch modules made when needed."""

import torch


class Member:
    """One model of the mixture that an estimator predicts with.

    Parameters
    ----------
    scheme : Scheme
    architecture : Architecture
    likelihood : Likelihood
        Bound, with the numbers at the start.
    weight : float
        Share in the mixture.

    Attributes
    ----------
    arrays : dict of ndarray
        State of the fitted model.
    draws : ndarray of shape (n_draws, ...)
        The base randomness that all predictions share.
    """

    def __init__(self, scheme, architecture, likelihood, weight=1.0):
        self.scheme = scheme
        self.architecture = architecture
        self.likelihood = likelihood
        self.weight = weight
        self._model = None

    def __getstate__(self):
        return {**self.__dict__, "_model": None}

    def __setstate__(self, state):
        self.__dict__.update(state)

    def __repr__(self):
        return f"Member({self.scheme!r}, weight={self.weight:.3g})"

    def build(self):
        """A new torch module of this member's shape."""
        return self.scheme.build(self.architecture, self.likelihood)

    def fitted(self, model, draws):
        """A copy that holds the present state of `model`."""
        new = Member(self.scheme, self.architecture, self.likelihood, self.weight)
        new.arrays, new.draws = model.state(), draws
        return new

    def holding(self, model, draws):
        """A member that predicts with `model` itself, whatever its state."""
        new = Member(self.scheme, self.architecture, self.likelihood, self.weight)
        new.draws = draws
        new.hold(model)
        return new

    def hold(self, model):
        """Take a model that is in the state of `arrays`, instead of building one."""
        self._model = next(model.parameters()).device, model

    def model(self, device):
        """The fitted torch module on a device."""
        device = torch.device(device)
        if self._model is None or self._model[0] != device:
            model = self.build()
            model.load_state(self.arrays)
            self._model = device, model.to(device)
        return self._model[1]

    def _at_hand(self):
        return self.model("cpu") if self._model is None else self._model[1]

    @property
    def kernels(self):
        """Kernels of the layers with fitted numbers, in units of the standardized inputs."""
        return [layer.kernel.numbers() for layer in self._at_hand().layers]

    @property
    def fitted_likelihood(self):
        """The likelihood with fitted numbers, in units of the standardized target."""
        return self._at_hand().likelihood.numbers()

    @property
    def inducing_inputs(self):
        """Inducing inputs of the layers, in units of the standardized inputs."""
        return [layer.Z.detach().cpu().numpy().copy() for layer in self._at_hand().layers]
