"""Parameters of estimators: names that stand for objects, and those that a scheme does not use."""

from ..gp.kernels import as_kernel
from ..gp.likelihoods import as_likelihood
from ..inference import as_scheme

#: arguments that not every scheme understands, and that are left at their defaults then
_MAY_MEAN_NOTHING = (
    "width n_inducing init mean input_connected learning_rate batch_size dtype".split()
)


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


def settable(estimator, scheme):
    """Names of the parameters that mean something to a scheme."""
    names = estimator.get_params(deep=False)
    return {name for name in names if name in scheme.uses or name not in _MAY_MEAN_NOTHING}


def check_all_used(estimator, scheme, defaults):
    """Raise ValueError if a parameter is set that means nothing to the scheme; `defaults` are attributes."""
    for name in _MAY_MEAN_NOTHING:
        default = getattr(defaults, name)
        if name not in scheme.uses and getattr(estimator, name) != default:
            raise ValueError(
                f"{name} means nothing to {type(scheme).__name__}; leave it at {default!r}."
            )
