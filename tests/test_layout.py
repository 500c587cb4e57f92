"""A room of the package imports from rooms below it alone, and a scheme from no other scheme."""

import ast
import contextlib
import importlib
from pathlib import Path

import pytest

import skdgp

ROOT = Path(skdgp.__file__).parent
#: rooms by floor, the ground first; those of one floor do not import each other
FLOORS = [
    ["_parameters", "_version", "_warnings", "exceptions"],
    ["_arrays", "_checks", "linalg", "parallel", "_threads"],
    ["random"],
    ["quadrature"],
    ["optim", "metrics.crps"],
    ["gp"],
    ["inference"],
    ["training", "preprocessing"],
    ["predictive"],
    ["fitting"],
    ["estimators"],
    ["_scoring"],
    [
        "inspection",
        "acquisition",
        "model_selection",
        "distributed",
        "metrics",
        "datasets",
        "torch",
        "integrations",
    ],
]
#: schemes, each in a file or folder of its own
SCHEMES = [
    *("aep", "collapsed", "deep_kernel_process", "dsvi", "elliptical_slice", "exact", "sghmc"),
    *("random_features", "sparse", "structured", "vecchia"),
]


#: imports that are still to go
LEFT = {("inference.vecchia.neighbors", "inference.exact")}


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


NAMES = {name for name, _ in modules()}


def imports(name, path):
    """Modules of the package that a file imports, wherever the import stands."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            target = ".".join([*base, *filter(None, [node.module])])
            for alias in node.names:
                inner = f"{target}.{alias.name}".strip(".")
                yield inner if inner in NAMES else target


def floor(name):
    """Number of the floor of a module; the most specific entry counts."""
    found = [
        (len(room), i)
        for i, rooms in enumerate(FLOORS)
        for room in rooms
        if name == room or name.startswith(f"{room}.")
    ]
    return max(found)[1] if found else None


def test_every_room_has_a_floor():
    assert not [name for name in NAMES if name and floor(name) is None]


@pytest.mark.parametrize(
    ("name", "path"), [(n, p) for n, p in modules() if n], ids=lambda x: str(x)
)
def test_imports_go_down(name, path):
    room = name.split(".")[0]
    for other in imports(name, path):
        if other.split(".")[0] not in ("", room):
            assert floor(other) < floor(name), f"{name} imports {other}"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_schemes_do_not_import_each_other(scheme):
    for name, path in modules():
        if name.startswith(f"inference.{scheme}"):
            for other in imports(name, path):
                others = [s for s in SCHEMES if s != scheme and other.startswith(f"inference.{s}")]
                assert not others or (name, other) in LEFT, f"{name} imports {other}"


@pytest.mark.parametrize(("name", "path"), list(modules()), ids=lambda x: str(x))
def test_files_have_a_readable_size(name, path):
    assert len(path.read_text().splitlines()) <= 400, name


def test_classes_have_few_ancestors():
    for name, _ in modules():
        with contextlib.suppress(ModuleNotFoundError):  # without an extra
            importlib.import_module(f"skdgp.{name}".strip("."))
    for found in all_subclasses(object):
        if str(found.__module__).startswith("skdgp."):
            ours = [base for base in found.__mro__[1:] if str(base.__module__).startswith("skdgp.")]
            assert len(ours) <= 3, f"{found.__qualname__} descends from {ours}"


def all_subclasses(of):
    return {of}.union(*(all_subclasses(one) for one in type.__subclasses__(of)))
