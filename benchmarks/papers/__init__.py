"""The tables of the papers, by their own protocols: what they report, and what ours reaches.

PAPER is one of

dsvi        doubly stochastic variational inference and expectation propagation (the report of Ashman,
            Branigan, Tsetis and Xu on Salimbeni and Deisenroth, 2017)
structured  coupled posteriors, the mean field and the chain of Havasi et al., on random splits and away from
            the data (Lindinger et al., 2020)
rff         random features (Cutajar et al., 2017)
dkp         deep kernel processes (Aitchison et al., 2021)
thesis      step functions, draws of deep processes, and starts (Pascual Diaz, 2017)

What a cell costs is printed first; a cell that is there is not computed again, so that a run can be stopped
at any time. ``page`` in the place of PAPER writes docs/benchmarks/papers.rst from all cells.
"""

import shlex
import subprocess
import sys
from pathlib import Path

from benchmarks import cells, data, rst, runs
from benchmarks.papers import compute, page
from benchmarks.papers.protocols import PAPERS

PAGE = Path("docs/benchmarks/papers.rst")


def add_arguments(parser):
    """The paper; which of its rows and splits; data and output."""
    parser.add_argument("paper", choices=[*PAPERS, "page"], metavar="PAPER")
    parser.add_argument("--sets", type=runs.names, help="some of the paper's; default: all")
    parser.add_argument(
        "--models", type=runs.names, help="likewise, by the names in its table without commas"
    )
    parser.add_argument("--splits", type=int, metavar="N", help="at most; default: the protocol's")
    parser.add_argument("--data", type=Path, help="folder of the data; default: $SKDGP_DATA")
    parser.add_argument("--out", type=Path, help="folder of the cells; default: %(default)s")
    parser.add_argument("--print", action="store_true", help="only print what is there")
    runs.add_max_iter(parser)
    parser.set_defaults(out=page.CELLS)


def run(options):
    """Compute all cells that are not there yet, the cheapest first, and print the paper's table."""
    if options.paper == "page":
        PAGE.write_text(page.text(options.out))
        return
    paper = PAPERS[options.paper]
    rows = [row for row in paper.rows if row.expression is not None]
    for chosen, names in ((options.sets, "set"), (options.models, "model")):
        if chosen is not None:
            known = dict.fromkeys(getattr(row, names).replace(",", "") for row in rows)
            runs.check_known(chosen, known, f"{names}s")
            rows = [row for row in rows if getattr(row, names).replace(",", "") in chosen]
    path = options.out / f"{options.paper}.json"
    trial = {} if options.max_iter is None else {"settings": {"max_iter": options.max_iter}}
    path = path.with_suffix(".trial.json") if trial else path
    if not options.print:
        todo = planned(rows, path, options.splits, trial)
        print(cost(todo), flush=True)
        root, about = data.folder(options.data), provenance(options)
        cells.fill(path, [cell for _, cell in todo], compute.Cell(paper.name, root), about=about)
    print(page.table_of(paper, cells.read(path)))


def planned(rows, path, n_splits, trial):
    """Cells that are not there yet with their predicted CPU seconds, the cheapest first."""
    known, todo = cells.read(path), []
    for row in rows:
        for split in range(row.n_splits if n_splits is None else min(n_splits, row.n_splits)):
            cell = row.cell(split) | trial
            if cells.is_missing(cell, known):
                todo.append((predicted(row, known), cell))
    return sorted(todo, key=lambda pair: pair[0])


def predicted(row, known):
    """CPU seconds of a cell: those of the row's other cells or, without these, the protocol's."""
    found = [c["fit_seconds"] for c in known.values() if row.has(c) and "fit_seconds" in c]
    return sum(found) / len(found) if found else row.seconds


def cost(todo):
    """A table of what is still to be computed."""
    groups = {}
    for seconds, cell in todo:
        groups.setdefault((cell["model"], round(seconds)), []).append(cell["set"])
    lines = [
        [model, len(sets), seconds, len(sets) * seconds, " ".join(dict.fromkeys(sets))]
        for (model, seconds), sets in groups.items()
    ]
    hours = sum(seconds for seconds, _ in todo) / 3600.0
    head = ["model", "cells", "CPU s each", "CPU s", "sets"]
    table = rst.table(head, lines) if lines else ""
    return f"{len(todo)} cells, about {hours:.2f} CPU hours.\n{table}"


def provenance(options):
    """The command and the commit of a cell, for :func:`benchmarks.cells.fill`."""
    root = Path(__file__).parents[2]

    def git(*words):
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    commit = git("rev-parse", "--short=7", "HEAD") or "unknown"
    if git("status", "--porcelain", "--", "skdgp", "benchmarks/papers"):
        print("Code has changed since the last commit: cells are marked with a +.", file=sys.stderr)
        commit += "+"

    def about(cell):
        words = ["papers", options.paper, "--sets", cell["set"], "--models", cell["model"]]
        words += ["--splits", str(cell["split"] + 1)]
        return {"command": shlex.join(["python", "-m", "benchmarks", *words]), "commit": commit}

    return about
