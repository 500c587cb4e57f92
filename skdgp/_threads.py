"""Limits on threads that end when they should, whoever else has some."""

import contextlib
import functools
import os
import threading

from threadpoolctl import ThreadpoolController


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
def _libraries(api):
    return ThreadpoolController().select(user_api=api)


@contextlib.contextmanager
def at_most(n):
    """At most `n` threads of BLAS and OpenMP, and hence of torch, inside.

    The number of OpenMP's threads belongs to the thread that asks for them, that of BLAS to the whole
    process: threads that come and go in any order leave it as the first one found it.
    """
    blas, limits = _libraries("blas").lib_controllers, _limits
    with limits.lock:
        found = limits.enter(blas, n)
    try:
        with _libraries("openmp").limit(limits=n):
            yield
    finally:
        with limits.lock:
            limits.leave(blas, found)


def _after_fork():
    global _limits
    _limits = _Limits()  # threads that are no longer there may have had some


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
