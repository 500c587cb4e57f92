"""Fits whose minibatches are divided among the ranks of a process group of ``torch.distributed``."""

import contextvars

import joblib
import numpy as np
import torch
import torch.distributed as dist

__all__ = ["fit"]

_divides = contextvars.ContextVar("divides", default=False)


def fit(estimator, X, y, sample_weight=None):
    """Fit an estimator to the rows of all ranks; call it on every rank of an initialized group.

    Every rank receives all rows, in the order of the ranks, and ends with the same fitted estimator. Steps of
    ``inference="dsvi"`` are divided: each rank computes the gradients of its part of the minibatch, and they
    are summed. Every rank computes the whole of a minibatch with fewer rows than ranks. If a rank dies during
    the fit, the others end with an error of torch when the timeout of the group is over.

    Parameters
    ----------
    estimator : DeepGPRegressor or DeepGPClassifier
        With ``inference="dsvi"`` and an integer `random_state`, the same on all ranks.
    X : array-like of shape (n_samples, n_features)
        Rows of this rank; there may be none. Names of columns are not kept.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
    sample_weight : array-like of shape (n_samples,), optional
        Given on all ranks or on none.

    Returns
    -------
    estimator : estimator
        The fitted `estimator`.

    Raises
    ------
    RuntimeError
        If no process group is initialized.
    ValueError
        On all ranks, if the settings or the rows of one make no sense.

    Examples
    --------
    >>> import torch.distributed
    >>> torch.distributed.is_initialized()  # torchrun and init_process_group("gloo") come first
    False
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            "No process group is initialized; call torch.distributed.init_process_group first."
        )
    try:
        mine = _checked(estimator, X, y, sample_weight)
    except Exception as error:  # all ranks raise it
        mine = f"{type(error).__name__}: {error}"
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, mine)
    for rank, part in enumerate(parts):
        if isinstance(part, str):
            raise ValueError(f"Rank {rank} cannot fit: {part}")
    settings, tables = zip(*parts)
    if len(set(settings)) > 1:
        raise ValueError("The ranks' estimators or kinds of arguments differ; make them the same.")
    columns = [None if column[0] is None else _joined(column) for column in zip(*tables)]
    token = _divides.set(True)
    try:
        return estimator.fit(columns[0], columns[1], columns[2])
    finally:
        _divides.reset(token)


def _joined(parts):
    filled = [part for part in parts if len(part)]
    return np.concatenate(filled or parts[:1])


def _checked(estimator, X, y, sample_weight):
    """Settings and rows of this rank."""
    params = estimator.get_params()
    name = params.get("inference")
    if (name if isinstance(name, str) else type(name).__name__).lower() != "dsvi":
        raise ValueError("only inference='dsvi' is divided among ranks; choose it.")
    if not isinstance(params["random_state"], (int, np.integer)):
        raise ValueError("random_state must be an integer, the same on all ranks.")
    for unsupported in ("max_time", "checkpoint"):
        if params.get(unsupported) is not None:
            raise ValueError(f"{unsupported} is not supported on several ranks; set it to None.")
    if params.get("warm_start"):
        raise ValueError("warm_start=True is not supported on several ranks; set it to False.")
    tables = [None if a is None else np.asarray(a) for a in (X, y, sample_weight)]
    lengths = {len(table) for table in tables if table is not None}
    if len(lengths) > 1:
        raise ValueError("X, y and sample_weight must have the same number of rows.")
    settings = joblib.hash(estimator.get_params(deep=False))
    return (type(estimator).__name__, settings, sample_weight is None), tables


def divided(batch, eps):
    """This rank's part of a batch and of its draws (S, n, width)."""
    rank, size, n = dist.get_rank(), dist.get_world_size(), len(batch.X)
    rows = slice(rank * n // size, (rank + 1) * n // size)
    part = batch._replace(X=batch.X[rows], y=batch.y[rows], weight=batch.weight[rows])
    return part, [e[:, rows] for e in eps]


def divides(batch):
    """Whether the batch is divided: in :func:`fit`, if it has a row for each rank."""
    return _divides.get() and len(batch.X) >= dist.get_world_size()


@torch.no_grad()
def add_up(tensors):
    """Replace tensors by their sums over all ranks, in one reduction."""
    flat = torch.cat([t.reshape(-1).double() for t in tensors])
    dist.all_reduce(flat)
    for t, total in zip(tensors, flat.split([t.numel() for t in tensors])):
        t.copy_(total.view_as(t))
