"""Limits on threads that end when they should, and a guard of those that do not survive a fork."""

import contextlib
import functools
import os
import threading

import numpy as np
import torch
from threadpoolctl import ThreadpoolController

from .exceptions import memory_errors

#: numpy's own settings, whatever the caller's are: numbers that vanish are zero
ERRSTATE = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
_worked = _broken = False  #: whether torch has had several threads here, or before the fork


class _Limits:
    """The limits of the process that are in force, in the order in which they came."""

    def __init__(self):
        self.lock = threading.Lock()
        self.in_force = []

    def enter(self, libraries, n):
        found = [library.num_threads for library in libraries]
        self.in_force.append(found)
        for library in libraries:
            _set(library, n)
        return found

    def leave(self, libraries, found):
        """The last one restores what it found; another one leaves that to the one that came next."""
        place = next(i for i, other in enumerate(self.in_force) if other is found)
        if place + 1 < len(self.in_force):
            self.in_force[place + 1][:] = found
        else:
            for library, n in zip(libraries, found):
                _set(library, n)
        del self.in_force[place]


def _set(library, n):
    """Set the number of threads, also where one thread alone has had the say."""
    release = getattr(library, "clear_controlling_thread", lambda force: None)
    release(force=True)
    library.set_num_threads(n)
    release(force=True)


_limits = _Limits()


@functools.cache
def _libraries():
    """Return the libraries with a thread count for each calling thread, and those with a shared one."""
    own, common = [], []
    for library in ThreadpoolController().lib_controllers:
        kinds = library.user_api, getattr(library, "threading_layer", None)
        (own if "openmp" in kinds else common).append(library)
    return own, common


@contextlib.contextmanager
def at_most(n):
    """At most `n` threads of BLAS and OpenMP, and hence of torch, inside.

    Threads that come and go in any order leave a number of the whole process as the first one found it.
    """
    (own, common), limits = _libraries(), _limits
    before = [library.num_threads for library in own]
    with limits.lock:
        found = limits.enter(common, n)
    try:
        for library in own:
            library.set_num_threads(n)
        yield
    finally:
        for library, number in zip(own, before):
            library.set_num_threads(number)
        with limits.lock:
            limits.leave(common, found)


def mark_work():
    """Note that torch works for skdgp in this process; RuntimeError if it cannot any more."""
    global _worked
    if _broken:
        raise RuntimeError(
            "This process was forked after torch had used several threads, and would hang. Use "
            "joblib's 'loky' backend, or the start method 'spawn' of multiprocessing, or set "
            "n_threads=1 before the first fit."
        )
    _worked = _worked or torch.get_num_threads() > 1


@contextlib.contextmanager
def computing(n):
    """All that torch computes happens in here, whatever the caller has done to gradients and defaults."""
    gradients, numbers = torch.enable_grad(), np.errstate(**ERRSTATE)
    with torch.inference_mode(False), gradients, at_most(n), numbers, memory_errors(), on_cpu():
        mark_work()
        yield


def on_cpu():
    """Context in which new tensors are on the CPU unless a device is given, whatever torch's default is."""
    is_default = torch.empty(0).device.type == "cpu"
    return contextlib.nullcontext() if is_default else torch.device("cpu")


def _after_fork():
    global _limits, _broken
    _limits = _Limits()  # threads that are no longer there may have had some
    _broken = _worked


if os.name == "posix":
    os.register_at_fork(after_in_child=_after_fork)
