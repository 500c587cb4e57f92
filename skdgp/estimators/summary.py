"""What a fitted estimator consists of, as one table."""

from html import escape

import numpy as np
import torch

_COLUMNS = ("model", "layers", "kernel", "weight", "log density", "seconds", "varies most with")
_LISTED = 3  #: columns at most
_VARIES = 0.1  #: of the variance along the first column: what has less is not listed
#: likewise; below it a column is flat: it moves functions less than a quarter as far as the first one does
#: (sqrt(.05)). Beside a lengthscale of 2 standard deviations, a lengthscale of 10 is flat
_FLAT = 0.05


def summary(estimator) -> str:
    """The table of :meth:`BaseDeepGP.summary`."""
    rows = _table(estimator)
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in rows)
    return "\n".join([*_of_targets(estimator), *(line.rstrip() for line in lines)])


def html_summary(estimator) -> str:
    """The same for a notebook."""
    head = "".join(f"<p>{escape(line)}</p>" for line in _of_targets(estimator))
    return head + html_table(*_table(estimator))


def _of_targets(estimator):
    """A line on what was done to targets, if anything."""
    names = estimator._y_scaler.names
    return [f"targets: {', '.join(map(str, names))}"] if any(names) else []


def html_table(head, *rows) -> str:
    """A table with a row of headers; cells are strings that need not be escaped."""
    lines = [("th", head), *(("td", row) for row in rows)]
    lines = ("".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) for tag, row in lines)
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def feature_names(estimator) -> list:
    """Names of the columns; ``"x0"`` and so on if they have none."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        names = [f"x{j}" for j in range(estimator.n_features_in_)]
    return [str(name) for name in names]


def _table(estimator):
    names = feature_names(estimator)
    names = [names[j] for j in estimator._x_scaler.columns]
    return [_COLUMNS, *(_row(member, names) for member in estimator.members_)]


def _row(member, names):
    record, kernel = member.record, member.kernels_[0]
    most, flat = in_words(kernel, names)
    if member.architecture.widths:  # hidden layers hand on what their mean functions see
        flat = []
    more = ", ..." if len(flat) > _LISTED else ""
    words = ", ".join(most), "flat in " + ", ".join(flat[:_LISTED]) + more if flat else ""
    return (
        type(member.scheme).__name__,
        str(len(member.architecture.widths) + 1),
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


def in_words(kernel, names) -> tuple:
    """Columns in which functions vary most, the first one first, and those in which they are flat.

    Nothing if the kernel treats all columns alike.
    """
    variances = np.array([_variance_along(kernel, j, len(names)) for j in range(len(names))])
    largest = variances.max()
    if np.ptp(variances) <= 1e-6 * largest:
        return [], []
    order = np.argsort(-variances, kind="stable")
    most = [names[j] for j in order[:_LISTED] if variances[j] >= _VARIES * largest]
    return most, [name for name, v in zip(names, variances) if v < _FLAT * largest]


def _variance_along(kernel, j, n):
    """Prior variance of how much functions change over two standard deviations of column `j` of `n`."""
    x = torch.zeros((2, n), dtype=torch.float64)
    x[:, j] = torch.tensor([-1.0, 1.0])
    K = kernel(x, x)
    return float(K[0, 0] + K[1, 1] - 2.0 * K[0, 1])
