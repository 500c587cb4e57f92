"""Operations of all ranks of a process group; in a single process they do what it would do alone."""

import contextlib
import contextvars
import time
from dataclasses import dataclass, field, replace

import numpy as np
import torch
import torch.distributed as dist

_MESSAGE = "skdgp/error"  #: key of the group's store


@dataclass(frozen=True)
class _JointFit:
    """A fit that ranks share."""

    own_rows: list | None  #: inputs, targets, weights and exposures that only this rank has
    staleness: int | None  #: bound of asynchronous steps
    made: list = field(default_factory=list)  #: staleness of the steps so far, on rank 0
    apart: bool = False  #: whether ranks do not wait for each other
    divides: bool = True  #: whether ranks divide what is computed


_ALONE = _JointFit(None, None, divides=False)
_fit = contextvars.ContextVar("fit", default=_ALONE)


@contextlib.contextmanager
def _within(fit):
    token = _fit.set(fit)
    try:
        yield fit.made
    finally:
        _fit.reset(token)


def joint(rows, staleness):
    """A context in which ranks divide what they compute; yields the staleness of steps, on rank 0.

    `rows` are a list of arrays that only this rank has, or None, and `staleness` is the bound of
    asynchronous steps, or None.
    """
    return _within(_JointFit(rows, staleness))


def own_rows():
    """Inputs, targets, weights and exposures that only this rank has, or None."""
    return _fit.get().own_rows


def divides():
    """Whether ranks divide what is computed now."""
    return _fit.get().divides


def n_ranks():
    """Number of ranks that fit."""
    return dist.get_world_size() if divides() else 1


def own_rank():
    """Number of this rank."""
    return dist.get_rank() if divides() else 0


def own_part(n):
    """This rank's slice of the rows of a batch, and its share of terms without rows.

    Everything, if ranks divide nothing, or if there are less than two rows for each. In asynchronous steps,
    everything for workers, and nothing for the server.
    """
    size = n_ranks()
    if _fit.get().apart:
        return slice(0, n if own_rank() else 0), 1.0
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
    if not divides() or _fit.get().apart:
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


# In asynchronous steps


def apart():
    """A context in which ranks do not wait for each other."""
    return _within(replace(_fit.get(), apart=True))


def bound_of_staleness():
    """The bound if the fit is asynchronous, else None."""
    return _fit.get().staleness


def note_staleness(n):
    """Take down how many steps were made since the parameters of a gradient."""
    _fit.get().made.append(n)


def workers():
    """Ranks that compute gradients of their own."""
    return range(1, dist.get_world_size())


def send(value, rank):
    """Send anything to a rank."""
    _call(dist.send_object_list, [value], rank)


def receive(rank):
    """Receive something from a rank."""
    found = [None]
    _call(dist.recv_object_list, found, rank)
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
    with _within(replace(_fit.get(), divides=False)):
        own = agreed(lambda: {i: function(i) for i in range(len(costs)) if owners[i] == rank})
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
