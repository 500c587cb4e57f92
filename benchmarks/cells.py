"""Results, one cell for each set, split, seed and model, in a JSON file that a run can take up."""

import json
import os
import time
from importlib import metadata
from pathlib import Path

import torch

import skdgp

_OURS = ("torch", "scikit-learn", "numpy")


def read(path):
    """All cells of a file, as a dict; empty if there is no file."""
    path = Path(path)
    return json.loads(path.read_text())["cells"] if path.exists() else {}


def write(path, key, cell):
    """Add a cell. The file is replaced as a whole, so that it is complete at every moment."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    cells = {**read(path), key: cell}  # read again: another process may have added some
    part = path.with_name(f"{path.stem}.{os.getpid()}.json.part")
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(cells[key])}" for key in sorted(cells))
    part.write_text(f'{{"cells": {{\n{lines}\n}}}}\n')
    os.replace(part, path)


def fill(path, todo, compute, packages=()):
    """Compute what is not there yet, cell by cell; a failure does not stop the others.

    Parameters
    ----------
    path : path-like
        The JSON file.
    todo : iterable of dict
        What names a cell: `set`, `split`, `seed`, `model`, and perhaps `settings`. A cell that was
        made with other settings counts as missing.
    compute : callable
        Maps such a dict to a dict of results.
    packages : sequence of str
        Whose versions are noted, beside skdgp's own.

    Returns
    -------
    failures : list of str
        The keys of cells that could not be computed.
    """
    failures = []
    for name in todo:
        key = "/".join(str(name[part]) for part in ("set", "split", "seed", "model"))
        known = read(path).get(key)
        if known is not None and known.get("settings") == name.get("settings"):
            print(f"{key}: known", flush=True)
            continue
        start = time.perf_counter()
        try:
            results = compute(name)
        except Exception as error:
            print(f"{key}: {type(error).__name__}: {error}", flush=True)
            failures.append(key)
            continue
        versions = {"n_threads": torch.get_num_threads(), "versions": _versions(packages)}
        write(path, key, {**name, **results, **versions})
        print(f"{key}: {time.perf_counter() - start:.1f} s", flush=True)
    if failures:
        print(f"{len(failures)} cells failed; the same command tries them again.", flush=True)
    return failures


def _versions(packages):
    versions = {name: metadata.version(name) for name in (*_OURS, *packages)}
    return {"skdgp": skdgp.__version__, **versions}
