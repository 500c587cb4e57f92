"""What users call says which types it takes and returns; mypy checks that the package keeps to it."""

import importlib
import inspect

import pytest

MODULES = [
    "skdgp",
    *(
        f"skdgp.{name}"
        for name in (
            *("acquisition", "datasets", "distributed", "inspection", "metrics", "model_selection"),
            *("predictive", "torch", "training"),
        )
    ),
]


def functions(module):
    """Public functions of ours, and public methods of public classes."""
    for name in module.__all__:
        thing = getattr(module, name)
        if inspect.isfunction(thing):
            yield name, thing
        elif inspect.isclass(thing):
            for method, _ in inspect.getmembers(thing):
                found = inspect.getattr_static(thing, method)
                found = getattr(found, "__func__", getattr(found, "fget", found))
                ours = inspect.isfunction(found) and found.__module__.startswith("skdgp")
                if ours and (method == "__init__" or not method.startswith("_")):
                    yield f"{name}.{method}", found


@pytest.mark.parametrize("name", MODULES)
def test_public_functions_have_types(name):
    bare = []
    for where, function in functions(importlib.import_module(name)):
        signature = inspect.signature(function)
        of_no_type = [
            parameter.name
            for parameter in signature.parameters.values()
            if parameter.annotation is inspect.Parameter.empty
            and parameter.name not in ("self", "cls")
        ]
        if of_no_type:
            bare.append(f"{where}: {', '.join(of_no_type)}")
        if signature.return_annotation is inspect.Signature.empty and "__init__" not in where:
            bare.append(f"{where}: what it returns")
    assert not bare
