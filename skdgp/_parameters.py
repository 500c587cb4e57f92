"""Attributes of parameter objects that are no parameters."""

import functools


@functools.cache
def _fixed(kind):
    """Public attributes of a class of ours that are neither parameters nor methods."""
    names, parameters = set(), kind._get_param_names()
    for owner in kind.__mro__:
        if owner.__module__.partition(".")[0] == "skdgp":
            names |= {
                name
                for name, value in vars(owner).items()
                if not (name.startswith("_") or name.endswith("_") or callable(value))
                and not isinstance(
                    value, (property, classmethod, staticmethod, functools.cached_property)
                )
            }
    return frozenset(names.difference(parameters))


def check_settable(instance, name):
    """Raise AttributeError for an attribute that is no parameter: copies made by ``clone`` would forget it."""
    kind = type(instance)
    if name in _fixed(kind):
        raise AttributeError(
            f"{name} is no parameter of {kind.__name__}, and cannot be set; the parameters are "
            f"{', '.join(kind._get_param_names())}."
        )
