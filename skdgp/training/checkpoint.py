"""Training states on disk: plain numpy archives, written atomically."""

import errno
import hashlib
import json
import os
import tempfile
import time
from numbers import Integral, Real

import numpy as np
from sklearn.base import BaseEstimator

from ..parallel import from_first, is_first

_FORMAT = 1
_HEADER = "__header__"
_FULL = errno.ENOSPC, errno.EDQUOT  #: numbers of errors of a full disk
_AT_ONCE = 1 << 24  #: bytes of an array that are read together


class Checkpoint:
    """File and frequency with which ``fit`` saves the state of training.

    Parameters
    ----------
    path : str or path-like
        A file, or an existing directory in which every fit keeps a file of its own, as in a search
        over many candidates.
    n_steps : int or None, default=100
        Save after so many steps.
    n_seconds : float or None, default=None
        Save after so many seconds.

    Examples
    --------
    >>> from skdgp import DeepGPRegressor
    >>> from skdgp.training import Checkpoint
    >>> model = DeepGPRegressor(checkpoint=Checkpoint("fit.npz", n_seconds=30))
    """

    def __init__(self, path, n_steps=100, n_seconds=None):
        self.path = path
        self.n_steps = n_steps
        self.n_seconds = n_seconds

    def __repr__(self):
        return f"Checkpoint({os.fspath(self.path)!r}, n_steps={self.n_steps}, n_seconds={self.n_seconds})"

    def open(self, fingerprint, member=0):
        """The file of a member of the fit with this fingerprint.

        Members after the first one have files of their own beside it, ``fit.1.npz`` and so on. In a
        fit of several ranks, rank 0 reads and writes. Raises ValueError if a setting makes no
        sense, or no file can be written there.
        """
        return from_first(lambda: self._open(fingerprint, member))

    def _open(self, fingerprint, member):
        for name, kind in (("n_steps", Integral), ("n_seconds", Real)):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, kind) and value > 0):
                raise ValueError(f"{name} of Checkpoint must be positive or None; got {value!r}.")
        path = os.fspath(self.path) if isinstance(self.path, os.PathLike) else self.path
        if not isinstance(path, str) or not path:
            raise ValueError(
                f"path of Checkpoint must name a file or a directory; got {self.path!r}."
            )
        is_directory = os.path.isdir(path)
        place, name = (path, fingerprint) if is_directory else os.path.split(path)
        try:
            with tempfile.NamedTemporaryFile(prefix=name, dir=place or os.curdir):
                pass
        except (OSError, ValueError) as error:
            if getattr(error, "errno", None) in _FULL:
                raise ValueError(
                    f"The checkpoint {path!r} cannot be written, because the disk is full; make room."
                ) from error
            raise ValueError(
                f"The checkpoint {path!r} cannot be written, because its directory does not exist or is "
                "read-only; create the directory, or choose another path."
            ) from error
        if is_directory:
            path = os.path.join(path, f"{fingerprint}.npz")
        elif member:
            root, ending = os.path.splitext(path)
            path = f"{root}.{member}{ending}"
        return CheckpointFile(path, self.n_steps, self.n_seconds, fingerprint)


class CheckpointFile:
    """The saved state of one fit; a file with another fingerprint is not touched."""

    def __init__(self, path, n_steps, n_seconds, fingerprint):
        self.path = path
        self.n_steps = n_steps
        self.n_seconds = n_seconds
        self.fingerprint = fingerprint
        self._last_step = 0
        self._last_time = time.monotonic()

    def exists(self):
        """Whether there is a state from which to go on."""
        return from_first(lambda: os.path.exists(self.path))

    def due(self, step, stop):
        """Whether to save now."""
        if self.n_seconds is None:
            return self._due(step, stop)
        return from_first(lambda: self._due(step, stop))  # by whose clock

    def _due(self, step, stop):
        if self.n_steps is not None and step - self._last_step >= self.n_steps:
            return True
        if self.n_seconds is not None and time.monotonic() - self._last_time >= self.n_seconds:
            return True
        return stop

    def save(self, arrays, numbers, finished):
        """Replace the file in one atomic move."""
        header = {
            "format": _FORMAT,
            "fingerprint": self.fingerprint,
            "finished": bool(finished),
            "numbers": numbers,
        }
        header = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        part = f"{self.path}.{os.getpid()}.part"
        try:
            if not is_first():
                return
            with open(part, "wb") as file:
                np.savez(file, **{_HEADER: header}, **arrays)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, self.path)
        finally:
            if os.path.exists(part):
                os.remove(part)
            self._last_step = numbers["n_iter"]  # if it failed, too: not each step tries again
            self._last_time = time.monotonic()

    def load(self):
        """Arrays and numbers of the saved state and whether it is the last; None without a file.

        Raises ValueError if the file belongs to another fit, or is no checkpoint.
        """
        found = from_first(lambda: self._read(everything=True))
        if found is None:
            return None
        arrays, header = found
        self._last_step = header["numbers"]["n_iter"]
        return arrays, header["numbers"], header["finished"]

    def check(self):
        """Raise ValueError, as :meth:`load`, if there is a file that is not of this fit."""
        from_first(lambda: self._read(everything=False))

    def _read(self, everything):
        """Arrays, or none of them, and the header; None without a file."""
        if not os.path.exists(self.path):
            return None
        is_damaged = False
        try:
            with np.load(self.path, allow_pickle=False) as archive:
                header = json.loads(archive[_HEADER].tobytes())
                is_damaged = True  # unless all of it can be read
                names = [name for name in archive if everything and name != _HEADER]
                arrays = {name: archive[name] for name in names}
        except Exception as error:
            why = "is not a checkpoint of skdgp; move it away, or choose another path."
            if is_damaged:
                why = f"is damaged ({error}); delete it, and the fit starts anew."
            raise ValueError(f"{self.path} {why}") from error
        if header["format"] != _FORMAT or header["fingerprint"] != self.fingerprint:
            raise ValueError(
                f"{self.path} holds the state of a fit with other parameters or other data; move it away, "
                "or choose another path. With warm_start=True each fit needs its own file, as in a directory."
            )
        return arrays, header


def fingerprint(*parts):
    """A short digest of values, parameter objects and arrays.

    Every number counts. Arrays are read in pieces, so that a memory map stays on disk.
    """
    digest = hashlib.sha256()

    def add(part):
        if isinstance(part, np.ndarray):
            digest.update(repr((part.shape, part.dtype.str)).encode())
            rows = np.atleast_1d(part)
            size = max(1, _AT_ONCE // max(1, rows[:1].nbytes))
            for i in range(0, len(rows), size):
                digest.update(rows[i : i + size].tobytes())
        elif isinstance(part, BaseEstimator):
            add((type(part).__name__, part.get_params(deep=False)))
        elif isinstance(part, dict):
            add(sorted(part.items()))
        elif isinstance(part, (set, frozenset)):
            add(sorted(part))
        elif isinstance(part, (list, tuple)):
            digest.update(f"{len(part)}(".encode())
            for item in part:
                add(item)
        elif getattr(part, "__dict__", None):
            add((type(part).__name__, vars(part)))
        else:
            digest.update(f"{part!r},".encode())

    add(parts)
    return digest.hexdigest()[:32]
