"""What a fitted estimator consists of, as one table."""

import numpy as np

_COLUMNS = ("model", "layers", "kernel", "weight", "log density", "seconds", "varies most with")
_FLAT = 3.0  #: times the shortest lengthscale: columns beyond it are not listed
_LISTED = 3  #: columns at most


def summary(estimator) -> str:
    """The table of :meth:`BaseDeepGP.summary`."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        names = [f"x{j}" for j in range(estimator.n_features_in_)]
    names = [str(names[j]) for j in estimator._x_scaler.columns]
    table = [_COLUMNS, *(_row(member, names) for member in estimator.members_)]
    widths = [max(map(len, column)) for column in zip(*table)]
    transforms = estimator._y_scaler.names
    head = [f"targets: {', '.join(map(str, transforms))}"] if any(transforms) else []
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in table)
    return "\n".join([*head, *(line.rstrip() for line in lines)])


def _row(member, names):
    record = member.record
    return (
        type(member.scheme).__name__,
        str(len(member.architecture.widths) + 1),
        kernel_name(member.kernels_[0]),
        f"{member.mixture_weight:.2f}",
        f"{record.log_density:.3f}" if np.isfinite(record.log_density) else "",
        f"{record.seconds:.1f}",
        ", ".join(important(member.kernels_[0], names)),
    )


def kernel_name(kernel) -> str:
    """The classes of a kernel, without their hyperparameters."""
    if not kernel._parts:
        return type(kernel).__name__
    sign = {"Sum": " + ", "Product": " * "}.get(type(kernel).__name__, ", ")
    return sign.join(kernel_name(getattr(kernel, part)) for part in kernel._parts)


def important(kernel, names) -> list:
    """Columns with the shortest lengthscales, the shortest first; none if all columns share one."""
    for part in kernel._parts:
        found = important(getattr(kernel, part), names)
        if found:
            return found
    lengthscale = np.atleast_1d(getattr(kernel, "lengthscale", ()))
    if lengthscale.shape != (len(names),) or len(names) < 2:
        return []
    order = np.argsort(lengthscale, kind="stable")[:_LISTED]
    return [names[j] for j in order if lengthscale[j] <= _FLAT * lengthscale[order[0]]]
