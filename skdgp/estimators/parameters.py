"""Parameters of estimators: names that stand for objects."""

from ..gp.kernels import as_kernel
from ..gp.likelihoods import as_likelihood
from ..inference import as_scheme


def with_objects(estimator, params):
    """Parameters with objects in the place of names whose own parameters are among them."""
    found = dict(params)
    makers = {
        "inference": as_scheme,
        "kernel": as_kernel,
        "likelihood": lambda name: as_likelihood(name, estimator._likelihoods),
    }
    for name, make in makers.items():
        if any(isinstance(key, str) and key.startswith(f"{name}__") for key in params):
            given = value = params.get(name, getattr(estimator, name))
            if not isinstance(value, (str, list, tuple)):
                continue
            inference = params.get("inference", estimator.inference)
            if value == "auto" and name == "kernel" and inference != "auto":
                value = as_scheme(inference).auto_kernel
            if not isinstance(value, str) or value == "auto":
                raise ValueError(
                    f"Parameters of the {name} cannot be set while it is {given!r}; name it first."
                )
            found[name] = make(value)
    return found
