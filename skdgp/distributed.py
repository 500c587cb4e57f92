"""Fits that the ranks of a process group of ``torch.distributed`` share."""

import contextlib
import contextvars
import time

import joblib
import numpy as np
import torch
import torch.distributed as dist

__all__ = ["fit"]

_divides = contextvars.ContextVar("divides", default=False)
_MESSAGE = "skdgp/error"  #: key of the group's store


def fit(estimator, X, y, sample_weight=None):
    """Fit an estimator to the rows of all ranks; call it on every rank of an initialized group.

    Every rank receives all rows, in the order of the ranks, and ends with the same fitted estimator. Steps of
    schemes that learn from minibatches are divided: each rank computes the gradients of its part of the
    minibatch, and they are summed. Every rank computes the whole of a minibatch with fewer rows than ranks.
    Members of a mixture, as ``inference="auto"`` has them, are trained by one rank each. If a rank dies, the
    others end with an error. Rank 0 writes the `checkpoint`, and runs the callbacks.

    Parameters
    ----------
    estimator : DeepGPRegressor or DeepGPClassifier
        With an integer `random_state`, and the same parameters on all ranks.
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
        If no process group is initialized, or another rank ended.
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
    settings, tables = zip(*together(lambda: _checked(estimator, X, y, sample_weight)))
    if len(set(settings)) > 1:
        raise ValueError("The ranks' estimators or kinds of arguments differ; make them the same.")
    columns = [None if column[0] is None else _joined(column) for column in zip(*tables)]
    token = _divides.set(True)
    try:
        estimator.fit(columns[0], columns[1], columns[2])
        estimator.members_ = from_first(
            lambda: estimator.members_
        )  # the last digits of machines differ
        return estimator
    finally:
        _divides.reset(token)


def _joined(parts):
    filled = [part for part in parts if len(part)]
    return np.concatenate(filled or parts[:1])


def _checked(estimator, X, y, sample_weight):
    """Settings and rows of this rank."""
    params = estimator.get_params()
    if not isinstance(params["random_state"], (int, np.integer)):
        raise ValueError("random_state must be an integer, the same on all ranks.")
    if params.get("max_time") is not None:
        raise ValueError("max_time is not supported on several ranks; set it to None.")
    if params.get("warm_start"):
        raise ValueError("warm_start=True is not supported on several ranks; set it to False.")
    tables = [None if a is None else np.asarray(a) for a in (X, y, sample_weight)]
    lengths = {len(table) for table in tables if table is not None}
    if len(lengths) > 1:
        raise ValueError("X, y and sample_weight must have the same number of rows.")
    settings = joblib.hash(estimator.get_params(deep=False))
    return (type(estimator).__name__, settings, sample_weight is None), tables


# In the fit of several ranks. Elsewhere, these functions do what a single process does.


def divides():
    """Whether ranks divide what is computed now."""
    return _divides.get()


def n_ranks():
    """Number of ranks that fit."""
    return dist.get_world_size() if divides() else 1


def own_part(n):
    """This rank's slice of the rows of a batch, and its share of terms without rows.

    Everything, if ranks divide nothing, or if there are fewer rows than ranks.
    """
    size = n_ranks()
    if size == 1 or n < size:
        return slice(0, n), 1.0
    rank = dist.get_rank()
    return slice(rank * n // size, (rank + 1) * n // size), 1.0 / size


class _Sum(torch.autograd.Function):
    """Sums of the tensors of all ranks, which all ranks go on with."""

    @staticmethod
    def forward(ctx, tensor):
        total = tensor.detach().clone()
        _call(dist.all_reduce, total)
        return total

    @staticmethod
    def backward(ctx, g):
        return _Sum.forward(ctx, g)


def summed(*tensors):
    """Sums of tensors over all ranks, in one reduction in float64; None stays None."""
    given = [t for t in tensors if t is not None]
    flat = _Sum.apply(torch.cat([t.reshape(-1).double() for t in given]))
    parts = iter(flat.split([t.numel() for t in given]))
    return [None if t is None else next(parts).view_as(t).to(t.dtype) for t in tensors]


@torch.no_grad()
def add_up(tensors):
    """Replace tensors by their sums over all ranks."""
    for t, total in zip(tensors, summed(*tensors)):
        t.copy_(total)


def gathered(batch):
    """The batch of all ranks."""
    if batch.share == 1.0:
        return batch
    parts = zip(*gather([t.cpu() for t in batch[:3]]))
    X, y, weight = (torch.cat(part).to(batch.X.device) for part in parts)
    return batch._replace(X=X, y=y, weight=weight, share=1.0, first=0, n_all=0)


def gather(value):
    """The values of all ranks, in their order."""
    parts = [None] * dist.get_world_size()
    _call(dist.all_gather_object, parts, value)
    return parts


def together(make):
    """The results of a function on all ranks; an error of one is raised on all."""
    try:
        mine = make()
    except Exception as error:
        mine = _Failure(f"{type(error).__name__}: {error}")
    parts = gather(mine)
    for rank, part in enumerate(parts):
        if isinstance(part, _Failure):
            raise ValueError(f"Rank {rank} cannot fit: {part}")
    return parts


class _Failure(str):
    """What an error said."""


def from_first(make):
    """The result of a function on rank 0, or its error, on all ranks."""
    if not divides():
        return make()
    found = [None, None]
    if dist.get_rank() == 0:
        try:
            found[0] = make()
        except Exception as error:
            found[1] = error
    _call(dist.broadcast_object_list, found)
    if found[1] is not None:
        raise found[1]
    return found[0]


def is_first():
    """Whether this process writes files and messages."""
    return not divides() or dist.get_rank() == 0


def spread(function, costs):
    """``function(i)`` for each cost, as a list; each is called by one rank, dear ones first."""
    load, owners, rank = np.zeros(n_ranks()), {}, dist.get_rank()
    for i in sorted(range(len(costs)), key=lambda i: -costs[i]):
        owners[i] = int(load.argmin())
        load[owners[i]] += costs[i]
    token = _divides.set(False)
    try:
        parts = together(lambda: {i: function(i) for i in range(len(costs)) if owners[i] == rank})
    finally:
        _divides.reset(token)
    return [parts[owners[i]][i] for i in range(len(costs))]


class LostRank(RuntimeError):
    """Another rank ended, or did not answer in time."""


def _call(collective, *args):
    """Call an operation of all ranks."""
    began = time.monotonic()
    try:
        return collective(*args)
    except RuntimeError as error:
        waited = time.monotonic() - began
        why = _message() or "it ended, or the timeout of init_process_group is too short for it"
        raise LostRank(
            f"Another rank did not answer for {waited:.0f} seconds ({why}); start all ranks again, and with a "
            "checkpoint fit goes on from there."
        ) from error


def _message():
    """What the rank that failed has left."""
    try:
        store = dist.distributed_c10d._get_default_store()
        return store.get(_MESSAGE).decode() if store.check([_MESSAGE]) else None
    except (RuntimeError, ValueError):  # the store is gone with its rank
        return None


@contextlib.contextmanager
def ends_all():
    """A context in which an error of this rank alone ends the fit on all ranks."""
    try:
        yield
    except LostRank:
        raise
    except BaseException as error:
        if divides():
            store = dist.distributed_c10d._get_default_store()
            store.set(_MESSAGE, f"rank {dist.get_rank()}: {type(error).__name__}: {error}")
            dist.destroy_process_group()
        raise
