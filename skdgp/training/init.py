"""Starting values that depend on data."""

from ..gp.gaussian import GaussianBlock
from ..gp.inducing import METHODS, centers
from ..gp.layer import SparseLayer
from ..gp.units import UnitsLayer
from .greedy import greedy
from .handover import hand_over
from .lengthscales import shorten_lengthscales

STARTS = (*METHODS, "greedy")

__all__ = ["METHODS", "STARTS", "accepts", "centers", "hand_over", "start"]


def start(model, X, weights, method, rng, y=None, train=None):
    """Place inducing inputs by a `method` of `STARTS`, and set the mean functions of hidden layers.

    `X` (n_rows, n_features) are training rows as the model sees them, or a sample. The greedy start
    needs targets `y` (n_rows, k), too, and the function `train` of
    :func:`~skdgp.training.greedy.greedy`. Raises ValueError if the model has no inducing inputs to
    be placed.
    """
    if method != METHODS[0]:
        _check(model, method)
    inputs = model.start(X, weights, rng, *[method] * (method == METHODS[1]))
    if inputs is not None and y is not None and method in METHODS:
        *hidden, layer = model.layers
        if any(other.W is None for other in hidden):  # which hand nothing on as yet
            layer, inputs = hidden[0], X
        for part in layer.parts():
            if isinstance(part, SparseLayer):
                shorten_lengthscales(part, model.likelihood(), inputs, y, weights)
    if method == "greedy":
        greedy(model, X, y, weights, train, rng)


def accepts(model, method):
    """Whether a model can start so."""
    try:
        _check(model, method)
    except ValueError:
        return False
    return True


def _check(model, method):
    """Raise ValueError if the model cannot start so."""
    if any(getattr(layer, "Z", None) is None for layer in getattr(model, "layers", [None])):
        raise ValueError(
            f"init={method!r} places inducing inputs, and {type(model).__name__} has none; leave init "
            f"at {METHODS[0]!r}, which such a model answers by a method `start`."
        )
    if method in METHODS:
        return
    if any(isinstance(layer, UnitsLayer) for layer in model.layers):
        raise ValueError(
            f"init={method!r} gives all units of a hidden layer one kernel; set shared_kernel=True, or choose "
            f"init={METHODS[0]!r} or {METHODS[1]!r}."
        )
    if not all(isinstance(layer.q, GaussianBlock) for layer in model.layers):
        raise ValueError(
            f"init={method!r} sets the posterior of each layer, and {type(model).__name__} has none for "
            f"each alone; choose init={METHODS[0]!r} or {METHODS[1]!r}."
        )
