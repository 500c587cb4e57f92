"""Fits that the ranks of a process group of ``torch.distributed`` share."""

import contextlib
import contextvars
import tempfile
import time

import joblib
import numpy as np
import torch
import torch.distributed as dist
from sklearn.base import is_classifier

__all__ = ["fit", "read_parquet"]

_divides = contextvars.ContextVar("divides", default=False)
_own_rows = contextvars.ContextVar("own rows", default=None)
#: Rows, at least and at most, and numbers of the sample from which scaling and starts come: means of 100,000
#: rows are off by .003 deviations, and each rank holds 16 MB of them
_SHARED_ROWS, _SHARED_NUMBERS = (10_000, 100_000), 2_000_000
_MESSAGE = "skdgp/error"  #: key of the group's store


def fit(estimator, X, y, sample_weight=None, *, exposure=None, shard="auto"):
    """Fit an estimator to the rows of all ranks; call it on every rank of an initialized group.

    Every rank ends with the same fitted estimator. Schemes that learn from minibatches divide their steps:
    each rank computes the gradients of its part of the minibatch, and they are summed. All ranks compute the
    whole of minibatches with less than two rows for each rank. Members of a mixture, as ``inference="auto"``
    has them, are trained by one rank each. If a rank dies, the others end with an error. Rank 0 writes the
    `checkpoint`, and runs the callbacks.

    Parameters
    ----------
    estimator : DeepGPRegressor or DeepGPClassifier
        With an integer `random_state`, and the same parameters on all ranks.
    X : array-like of shape (n_samples, n_features)
        Rows of this rank; there may be none. Names of columns are not kept.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
    sample_weight, exposure : array-like of shape (n_samples,), optional
        Given on all ranks or on none.
    shard : {"auto", "given"}, default="auto"
        With ``"auto"`` every rank receives all rows, in the order of the ranks. With ``"given"`` rows stay
        where they are, and may be memory maps: each rank adds rows of its own to every minibatch, in
        proportion to their number. Scaling, inducing inputs and other starts come from up to 100,000 rows of
        all ranks, and so do `lower_bound_` and the diagnosis.

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
    settings, rows = agreed(lambda: _checked(estimator, X, y, sample_weight, exposure, shard))
    settings, n_rows = zip(*gather((settings, len(rows[0]))))
    if len(set(settings)) > 1:
        raise ValueError("The ranks' estimators or kinds of arguments differ; make them the same.")
    is_given = shard == "given"
    some = _some_rows(rows, sum(n_rows), is_classifier(estimator)) if is_given else rows
    some = [None if parts[0] is None else _joined(parts) for parts in zip(*gather(some))]
    tokens = _divides.set(True), _own_rows.set(rows if is_given else None)
    try:
        given = {} if exposure is None else {"exposure": some[3]}
        estimator.fit(*some[:3], **given)
        # machines differ in the last digits
        estimator.members_ = from_first(lambda: estimator.members_)
        return estimator
    finally:
        _divides.reset(tokens[0])
        _own_rows.reset(tokens[1])


def _joined(parts):
    filled = [part for part in parts if len(part)]
    return np.concatenate(filled or parts[:1])


def _checked(estimator, X, y, sample_weight=None, exposure=None, shard="auto"):
    """Settings and rows of this rank."""
    params = estimator.get_params()
    if not isinstance(params["random_state"], (int, np.integer)):
        raise ValueError("random_state must be an integer, the same on all ranks.")
    if params.get("max_time") is not None:
        raise ValueError("max_time is not supported on several ranks; set it to None.")
    if params.get("warm_start"):
        raise ValueError("warm_start=True is not supported on several ranks; set it to False.")
    if shard not in ("auto", "given"):
        raise ValueError(f"shard must be 'auto' or 'given'; got {shard!r}.")
    if shard == "given" and params.get("inference") == "auto":
        raise ValueError("shard='given' trains one model: set inference, for instance to 'dsvi'.")
    if shard == "given" and params.get("early_stopping"):
        raise ValueError(
            "early_stopping=True needs shard='auto', for all ranks hold the same rows out."
        )
    tables = [None if a is None else np.asarray(a) for a in (X, y, sample_weight, exposure)]
    lengths = {len(table) for table in tables if table is not None}
    if len(lengths) > 1:
        raise ValueError("X, y and the weights of rows must have the same number of rows.")
    kinds = type(estimator).__name__, sample_weight is None, exposure is None, shard
    return (*kinds, joblib.hash(estimator.get_params(deep=False))), tables


def _some_rows(tables, n_all, by_class):
    """This rank's rows of a sample of all, with weights that make up for those that are missing.

    The smallest and the largest value of each column, or a row of each class, are among them.
    """
    X, y, weights, exposure = tables
    most = int(np.clip(_SHARED_NUMBERS // X.shape[1], *_SHARED_ROWS))
    if n_all <= most:
        return tables
    weights, n = np.ones(len(X)) if weights is None else weights, len(X)
    if n == 0:
        return X, y, weights, exposure
    columns = [*X.T, *([] if by_class else y.reshape(n, -1).T)]
    columns = [column for column in columns if column.dtype.kind in "fiub"]
    ends = [end for column in columns for end in (column.argmin(), column.argmax())]
    ends += list(np.unique(y, return_index=True)[1]) if by_class else []
    ends = np.unique(np.array(ends, dtype=np.int64))
    others = np.random.default_rng(dist.get_rank()).choice(n, most * n // n_all, replace=False)
    others = np.setdiff1d(others, ends)
    of_ends, of_others = weights[ends], weights[others]
    if len(others) and of_others.sum() > 0.0:
        of_others = of_others * ((weights.sum() - of_ends.sum()) / of_others.sum())
    rows = np.concatenate([ends, others])
    exposure = None if exposure is None else exposure[rows]
    return X[rows], y[rows], np.concatenate([of_ends, of_others]), exposure


def read_parquet(files, target, dtype=np.float32):
    """Rows of Parquet files as memory maps of a temporary file, which are read piece by piece.

    Parameters
    ----------
    files : list of str or path-like
        Those of this rank, with the same columns of numbers.
    target : str
        The column to predict.
    dtype : dtype, default=numpy.float32
        Of the inputs; targets are float64.

    Returns
    -------
    X : memmap of shape (n_samples, n_features)
        All other columns.
    y : memmap of shape (n_samples,)

    Raises
    ------
    ImportError
        If pyarrow is missing.
    """
    from pyarrow import parquet

    tables = [parquet.ParquetFile(file) for file in files]
    names = [name for name in tables[0].schema_arrow.names if name != target]
    n, at = sum(table.metadata.num_rows for table in tables), 0
    X = np.memmap(tempfile.TemporaryFile(), dtype, "w+", shape=(n, len(names)))
    y = np.memmap(tempfile.TemporaryFile(), np.float64, "w+", shape=(n,))
    for table in tables:
        for batch in table.iter_batches(columns=[*names, target]):
            rows = slice(at, at := at + batch.num_rows)
            for j, name in enumerate(names):
                X[rows, j] = batch[name].to_numpy(zero_copy_only=False)
            y[rows] = batch[target].to_numpy(zero_copy_only=False)
    return X, y


# In the fit of several ranks. Elsewhere, these functions do what a single process does.


def own_rows():
    """Inputs, targets, weights and exposures that only this rank has, or None."""
    return _own_rows.get()


def divides():
    """Whether ranks divide what is computed now."""
    return _divides.get()


def n_ranks():
    """Number of ranks that fit."""
    return dist.get_world_size() if divides() else 1


def own_rank():
    """Number of this rank."""
    return dist.get_rank() if divides() else 0


def own_part(n):
    """This rank's slice of the rows of a batch, and its share of terms without rows.

    Everything, if ranks divide nothing, or if there are less than two rows for each.
    """
    size = n_ranks()
    if size == 1 or n < 2 * size:  # halves of a part need rows, too
        return slice(0, n), 1.0
    rank = own_rank()
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


def agreed(make):
    """The result of a function on this rank; an error of one rank is raised on all."""
    found = failure = None
    try:
        found = make()
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    for rank, why in enumerate(gather(failure)):
        if why is not None:
            raise ValueError(f"Rank {rank} cannot fit: {why}")
    return found


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
    return own_rank() == 0


def spread(function, costs):
    """``function(i)`` for each cost, as a list; each is called by one rank, dear ones first."""
    load, owners, rank = np.zeros(n_ranks()), {}, dist.get_rank()
    for i in sorted(range(len(costs)), key=lambda i: -costs[i]):
        owners[i] = int(load.argmin())
        load[owners[i]] += costs[i]
    token = _divides.set(False)
    try:
        own = agreed(lambda: {i: function(i) for i in range(len(costs)) if owners[i] == rank})
    finally:
        _divides.reset(token)
    parts = gather(own)
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
    """Error message of the rank that failed; None if it left none."""
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
