"""What pages show beside the rows of the papers' tables: paired gains, a figure's curves."""

import json
import math
from pathlib import Path

import numpy as np

from benchmarks import rst, table

_FIGURE = Path(__file__).parents[1] / "results" / "papers" / "asynchronous.json"


def depth_gains(found):
    """What each layer more gains over one layer, paired by split: log density, and the bound of a row."""
    of_sets = {}
    for cell in found.values():
        depth = {"sgp-100": 1}.get(cell["model"]) or cell["model"].removeprefix("dsvi-")
        if str(depth).isdigit():
            of_sets.setdefault(cell["set"], {}).setdefault(int(depth), {})[cell["split"]] = cell
    lines = []
    for name, of_depths in of_sets.items():
        flat = of_depths.get(1, {})
        for depth, splits in sorted(of_depths.items()):
            both = sorted(set(flat) & set(splits))
            if depth == 1 or not both:
                continue
            line = [name, depth, len(both)]
            for column in ("log_density", "elbo"):
                gap = table.difference(splits, flat, column)
                line.append(_with_error(gap) if gap else rst.NOTHING)
            lines.append(line)
    if not lines:
        return ""
    head = ["set", "layers", "splits", "log density", "bound of a row"]
    return (
        f"More than one layer of ours, less one layer, paired by split:\n\n{rst.table(head, lines)}"
    )


def _with_error(gap):
    mean, error = gap
    return f"{mean:+.3f}" if math.isnan(error) else f"{mean:+.3f} ± {error:.3f}"


def asynchronous(found):
    """Figure 4 of Cutajar et al. (2017): error and time by the number of workers."""
    if not _FIGURE.exists():
        return ""
    stored = json.loads(_FIGURE.read_text())
    gradient, late = stored["seconds_of_a_gradient"], stored["seconds_of_a_step"]
    lines = []
    for cell in stored["cells"]:
        n, steps = cell["workers"], cell["steps"]
        seconds = [steps * step_seconds(n, gradient, late, packet) for packet in stored["packets"]]
        lines.append(
            [
                n,
                steps,
                f"{cell['staleness']:.2f}",
                f"{100.0 * cell['error']:.1f}",
                *(f"{s:.1f}" for s in seconds),
            ]
        )
    packets = [f"{1e3 * packet:.0f} ms" for packet in stored["packets"]]
    body = rst.table(["workers", "steps", "staleness", "error (%)", *packets], lines)
    text = (Path(__file__).parent / "texts" / "asynchronous.rst").read_text()
    return f"{text.format(gradient=1e3 * gradient, step=1e3 * late)}\n{body}"


def step_seconds(n_workers, gradient, apply, packet):
    """Seconds of a step of an asynchronous fit.

    A worker makes a gradient, sends it, and waits for parameters, a packet there and back; the first rank takes
    the gradients one by one. A single process sends nothing.
    """
    if n_workers == 1:
        return gradient + apply
    return max(apply, (gradient + apply + packet) / n_workers)


def paired_share(ours, theirs):
    """Share of rows of which `ours` has the higher density, on a split that both have."""
    return float(np.mean(np.array(ours["log_densities"]) > theirs["log_densities"]))
