"""The page docs/benchmarks/papers.rst, made of published numbers and stored cells alone."""

import math
from pathlib import Path

import numpy as np

from benchmarks import cells, rst
from benchmarks.papers import tables
from benchmarks.papers.protocols import BUDGET, NO_DATA, PAPERS, PUBLISHED, SHARE

CELLS = Path(__file__).parents[1] / "results" / "papers"
LOWER = ("rmse", "mse", "mnlpp", "sample_mnlpp")  #: is better
FORMS = {"accuracy": "{:.2f}", "rmse": "{:.3g}", "share": "{:.2f}"}
_VERDICTS = ("ahead", "reached", "behind")


def text(folder=CELLS):
    """The whole page."""
    found = {name: cells.read(Path(folder) / f"{name}.json") for name in PAPERS}
    parts = [words("head"), summary(found), words("columns")]
    for name, paper in PAPERS.items():
        parts += [rst.heading(paper.title), f"::\n\n   python -m benchmarks papers {name}\n"]
        parts += [words(name), table_of(paper, found[name])]
        if paper.more is not None:
            parts.append(paper.more(found[name]))
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def words(name):
    """A text of the page."""
    return (Path(__file__).parent / "texts" / f"{name}.rst").read_text()


def table_of(paper, found):
    """One line for each row: theirs, ours, splits, verdict."""
    lines = []
    for row in paper.rows:
        theirs, ours = numbers_of(paper, row), of_row(paper, row, found)
        line = [row.set, row.model]
        for column in paper.columns:
            line += [_number(column, theirs.get(column)), _number(column, ours.get(column))]
        line += [ours.get("n", rst.NOTHING), verdict(paper, row, theirs, ours)]
        if any(part != rst.NOTHING for part in line[2:-2]):
            lines.append(line)
    for name, title in paper.competitors.items():
        for set_name, rows in PUBLISHED[paper.name].items():
            if name in rows:
                pairs = ([_number(c, rows[name].get(c)), rst.NOTHING] for c in paper.columns)
                line = [set_name, title, *(part for pair in pairs for part in pair)]
                lines.append([*line, rst.NOTHING, "theirs alone"])
    head = [part for title in paper.columns.values() for part in (title, "ours")]
    return rst.table(["set", "model", *head, "splits", "verdict"], lines)


def numbers_of(paper, row):
    """What the paper reports: a pair of a number and its standard error, or None, by score."""
    names = PUBLISHED[paper.name].get(row.set, {})
    return names.get(row.model.partition(",")[0], {})


def of_row(paper, row, found):
    """Our means with standard errors by score, and the number `n` of splits; empty if there are none."""
    if row.reason == SHARE:
        return shares(row, found)
    own = [cell for cell in found.values() if row.has(cell)]
    if not own:
        return {}
    pairs = {column: _mean(own, column) for column in paper.columns if column in own[0]}
    return {**pairs, "n": len(own)}


def _mean(own, column):
    """Mean over splits, and its standard error: over splits or over blocks of test rows, the larger one."""
    values = [cell[column] for cell in own]
    errors = [np.std(values, ddof=1) / math.sqrt(len(values))] if len(values) > 1 else []
    if column in ("log_density", "standardized"):
        errors.append(_by_blocks([cell["blocks"] for cell in own]))
    elif column == "accuracy":
        p, n = np.mean(values), sum(cell["n_test"] for cell in own)
        errors.append(math.sqrt(max(p * (1.0 - p), 1.0 / n) / n))
    return float(np.mean(values)), max(errors) if errors else None


def _by_blocks(blocks):
    of_each = [np.std(part, ddof=1) / math.sqrt(len(part)) for part in blocks if len(part) > 1]
    return float(np.linalg.norm(of_each) / len(blocks)) if of_each else 0.0


def shares(row, found):
    """The share of test rows of which one model has the higher density than another, and its error."""
    ours, _, other = row.model.partition("-over-")
    names = {"star": "star-3", "full": "full-3", "mean-field": "mean-field-3", "sghmc": "sghmc-2"}
    mine, others = (
        {c["split"]: c for c in found.values() if (c["set"], c["model"]) == (row.set, names[m])}
        for m in (ours, other)
    )
    both = sorted(set(mine) & set(others))
    ahead = [tables.paired_share(mine[split], others[split]) for split in both]
    if not ahead:
        return {}
    error = np.std(ahead, ddof=1) / math.sqrt(len(ahead)) if len(ahead) > 1 else None
    return {"share": (float(np.mean(ahead)), error), "n": len(ahead)}


def verdict(paper, row, theirs, ours):
    """Reached, ahead or behind by the score that decides, within two standard errors; or why not run."""
    if not ours:
        return f"not run: {NO_DATA if row.reason == NO_DATA else BUDGET}"
    column = next((c for c in paper.columns if c in theirs and c in ours), None)
    if column is None:
        return rst.NOTHING
    (a, of_a), (b, of_b) = theirs[column], ours[column]
    gap = (a - b) if column in LOWER else (b - a)
    error = math.hypot(of_a or 0.0, of_b or 0.0)
    return "reached" if abs(gap) <= 2.0 * error else _VERDICTS[0 if gap > 0.0 else 2]


def summary(found):
    """How many rows were run, and what came of them, paper by paper."""
    lines, total = [], np.zeros(5, dtype=int)
    for name, paper in PAPERS.items():
        counts = np.zeros(5, dtype=int)
        for row in paper.rows:
            theirs = numbers_of(paper, row)
            if not theirs:
                continue
            word = verdict(paper, row, theirs, of_row(paper, row, found[name]))
            kinds = (*_VERDICTS, f"not run: {NO_DATA}")
            counts[kinds.index(word) if word in kinds else 4] += 1
        total += counts
        lines.append([paper.source, *counts, _share(counts)])
    lines.append(["all", *total, _share(total)])
    head = ["paper", *_VERDICTS, "no data", "budget", "reached or ahead"]
    return rst.table(head, lines)


def _share(counts):
    n = counts[:3].sum()
    return f"{100.0 * counts[:2].sum() / n:.0f} %" if n else rst.NOTHING


def _number(column, pair):
    if pair is None:
        return rst.NOTHING
    value, error = pair
    factor = 100.0 if column == "accuracy" else 1.0
    form = FORMS.get(column, "{:.3f}" if abs(value) < 1.0 else "{:.2f}")
    shown = form.format(factor * value)
    if error is None:
        return shown
    return f"{shown} ± {('{:.2f}' if factor * error >= 0.005 else '{:.3f}').format(factor * error)}"
