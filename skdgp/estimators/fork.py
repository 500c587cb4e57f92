"""A guard against threads that do not survive a fork."""

import os

import torch

_worked = False
_broken = False


def mark_work():
    """Called before torch works for skdgp in this process."""
    global _worked
    if _broken:
        raise RuntimeError(
            "This process was forked after torch had used several threads, and would hang. Use "
            "joblib's 'loky' backend, or the start method 'spawn' of multiprocessing, or set "
            "n_threads=1 before the first fit."
        )
    _worked = _worked or torch.get_num_threads() > 1


def _after_fork():
    global _broken
    _broken = _worked


if os.name == "posix":
    os.register_at_fork(after_in_child=_after_fork)
