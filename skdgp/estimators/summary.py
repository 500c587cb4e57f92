"""Summary of a fitted estimator, as one table."""

from html import escape

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ..fitting.sample import TrainingSample
from .group_codes import are_behind
from .importances import total_effects

_COLUMNS = "model", "layers", "kernel", "weight", "log density", "CPU seconds", "varies most with"
_LISTED = 3  #: columns at most
_ROWS = 64  #: at which functions are compared
_CHANGES, _FEWEST, _MOST = 160, 8, 32  #: changed rows of all columns together, and of each
_VARIES = 0.1  #: of the effect of the first column: what has less is not listed
#: likewise; below it a column is flat: it moves functions less than a quarter as far as the first one does
_FLAT = 0.05


def summary(estimator) -> str:
    """The table of :meth:`BaseDeepGP.summary`."""
    rows = kept_table(estimator)
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in rows)
    return "\n".join([*_of_targets(estimator), *(line.rstrip() for line in lines)])


def html_summary(estimator) -> str:
    """Return the summary as HTML, for a notebook."""
    head = "".join(f"<p>{escape(line)}</p>" for line in _of_targets(estimator))
    return head + html_table(*kept_table(estimator))


def _of_targets(estimator):
    """Lines on what was done to targets, if anything."""
    names, atoms = estimator._y_scaler.names, estimator._atoms
    found = [", ".join(map(str, names))] * any(names) + [str(atoms)] * (atoms is not None)
    return [f"targets: {line}" for line in found]


def html_table(head, *rows) -> str:
    """A table with a row of headers; cells are strings that need not be escaped."""
    lines = [("th", head), *(("td", row) for row in rows)]
    lines = ("".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) for tag, row in lines)
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def feature_names(estimator) -> list:
    """Names of the columns; ``"x0"`` and so on if they have none."""
    names = [f"x{j}" for j in range(estimator.n_features_in_)]
    return [str(name) for name in getattr(estimator, "feature_names_in_", names)]


def input_names(estimator) -> list:
    """Names of the columns of tables that models learn from: those of X, and of groups behind them."""
    return feature_names(estimator) + ["groups"] * are_behind(estimator)


def column_kinds(estimator: BaseEstimator) -> dict:
    """Kind of each column of X, as inferred by the fit.

    Returns
    -------
    kinds : dict of str to str
        By name: "number", "boolean", "category", "ordered", "date", "time", "duration"; of columns of long
        texts that are left out, "text"; of columns that `exposure` or `groups` names, that name.
    """
    check_is_fitted(estimator)
    reader = estimator._reader
    kinds = ["number"] * estimator.n_features_in_ if reader is None else list(reader.kinds)
    for name, position in estimator._row_positions.items():
        if name != "time":
            kinds[position] = name
    return dict(zip(feature_names(estimator), kinds))


def names_of_targets(y):
    """Names of the targets in a Series or data frame, None if there are none."""
    names = getattr(y, "columns", None)
    if names is None:
        names = [name for name in [getattr(y, "name", None)] if name is not None and name != ""]
    return [str(name) for name in names] or None


def kept_table(estimator):
    """The table as rows of strings, made once: hyperparameters of a loaded model take a while to find."""
    if estimator._table is None:
        names = estimator._x_scaler.names(input_names(estimator))
        names = names[: len(names) - are_behind(estimator)]  # no row of the sample has a group
        rows = estimator._x_scaler.transform(estimator._pairs.sample(_ROWS))
        n_changes = int(np.clip(_CHANGES // len(names), _FEWEST, _MOST))
        pairs, device = TrainingSample(rows, n_changes=n_changes), estimator._prediction_device()
        with torch.no_grad():
            lines = [_row(one, names, _effects(one, pairs, device)) for one in estimator.members_]
        estimator._table = [_COLUMNS, *lines]
    return estimator._table


def _row(member, names, effects):
    record, kernel = member.record, member.kernels_[0]
    kernel = kernel[0] if isinstance(kernel, list) else kernel  # of each unit
    most, flat = in_words(effects, names)
    words, n_hidden = [", ".join(most)], len(member.architecture.widths)
    if flat:
        words.append("flat in " + ", ".join(flat[:_LISTED]) + ", ..." * (len(flat) > _LISTED))
    return (
        type(member.scheme).__name__,
        str(n_hidden + 1),
        kernel_name(kernel),
        f"{member.mixture_weight:.2f}",
        f"{record.log_density:.3f}" if np.isfinite(record.log_density) else "",
        f"{record.seconds:.1f}",
        "; ".join(filter(None, words)),
    )


def kernel_name(kernel) -> str:
    """The classes of a kernel, without their hyperparameters."""
    if not kernel._parts:
        return type(kernel).__name__
    sign = {"Sum": " + ", "Product": " * "}.get(type(kernel).__name__, ", ")
    return sign.join(kernel_name(getattr(kernel, part)) for part in kernel._parts)


def in_words(effects, names) -> tuple:
    """Columns with which functions vary most, and flat ones; nothing if all columns are alike."""
    largest = effects.max(initial=0.0)
    if np.ptp(effects) <= 1e-6 * largest:
        return [], []
    order = np.argsort(-effects, kind="stable")
    most = [names[j] for j in order[:_LISTED] if effects[j] >= _VARIES * largest]
    return most, [name for name, v in zip(names, effects) if v < _FLAT * largest]


def _effects(member, pairs, device):
    """Total effects of the columns on the mean functions of a member, in its units."""
    posterior = member.posterior(device)

    def mean(X):
        log_weights, mean, _ = posterior.latent(torch.as_tensor(X, device=device))
        k = posterior.likelihood.n_means(mean.shape[-1])
        return (log_weights.exp()[:, None, None] * mean[..., :k]).sum(0).numpy(force=True)

    return total_effects(mean, pairs)
