"""Results, one cell for each set, split, seed and model, in a JSON file that a run can take up."""

import json
import math
import os
import time
from importlib import metadata
from pathlib import Path

import torch
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

_NOTED = "skdgp torch scikit-learn numpy catboost gpytorch ngboost quantile-forest".split()


def read(path):
    """All cells of a file, as a dict; empty if there is no file."""
    path = Path(path)
    return json.loads(path.read_text())["cells"] if path.exists() else {}


def key_of(cell):
    """The name of a cell in its file."""
    return "/".join(str(cell[part]) for part in ("set", "split", "seed", "model"))


def write(path, cells):
    """Add cells. The file is replaced as a whole, so that it is complete at every moment."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    found = {**read(path), **cells}  # read again: another process may have added some
    part = path.with_name(f"{path.stem}.{os.getpid()}.json.part")
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(found[key])}" for key in sorted(found))
    part.write_text(f'{{"versions": {json.dumps(_versions())},\n"cells": {{\n{lines}\n}}}}\n')
    os.replace(part, path)


def is_missing(cell, known):
    """Whether a cell is not there, or was made with other settings or another expression."""
    made = known.get(key_of(cell), {"settings": ()})
    return any(made.get(part) != cell.get(part) for part in ("settings", "expression"))


def fill(path, todo, compute, n_jobs=1, about=None):
    """Compute what is not there yet, cell by cell; a failure does not stop the others.

    `todo` holds what names a cell: `set`, `split`, `seed`, `model`, and perhaps `settings` and `expression`;
    a cell that was made with others counts as missing. `compute` maps such a dict to a dict of results
    (of a module, if there are several jobs), `about` to what is kept beside these. Returns the keys of cells
    that could not be computed.
    """
    known = read(path)
    todo = [cell for cell in todo if is_missing(cell, known)]
    jobs = (delayed(_attempt)(compute, cell) for cell in todo)
    failures = []
    for cell, results, seconds in Parallel(n_jobs, return_as="generator_unordered")(jobs):
        key = key_of(cell)
        if isinstance(results, str):
            print(f"{key}: {results}", flush=True)
            failures.append(key)
        else:
            more = {} if about is None else about(cell)
            write(path, {key: {**cell, **more, **shorten(results)}})
            print(f"{key}: {seconds:.1f} s", flush=True)
    if failures:
        print(f"{len(failures)} cells failed; the same command tries them again.", flush=True)
    return failures


def _attempt(compute, cell):
    start = time.perf_counter()
    torch.set_num_threads(1)  # a cell has its process, and the times are those of one thread
    with threadpool_limits(1):
        try:
            results = compute(cell)
        except Exception as error:
            results = f"{type(error).__name__}: {error}"
    return cell, results, time.perf_counter() - start


def shorten(value):
    """Numbers with six digits, in dicts and lists, too."""
    if isinstance(value, dict):
        return {name: shorten(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [shorten(part) for part in value]
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.6g}")
    return value


def _versions():
    found = {}
    for name in _NOTED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return found
