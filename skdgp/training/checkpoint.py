"""Training states on disk: plain numpy archives, written atomically."""

import errno
import hashlib
import json
import os
import tempfile
import time
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.base import BaseEstimator

from .._version import __version__
from ..parallel import from_first, is_first
from . import files

_FORMAT = 2
#: of what computes: others round in another way, and a fit would not go on as if it had never stopped
_VERSIONS = {"skdgp": __version__, "torch": str(torch.__version__)}
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

    def __init__(
        self,
        path: str | os.PathLike[str],
        n_steps: int | None = 100,
        n_seconds: float | None = None,
    ):
        self.path = path
        self.n_steps = n_steps
        self.n_seconds = n_seconds

    def __repr__(self):
        return f"Checkpoint({os.fspath(self.path)!r}, n_steps={self.n_steps}, n_seconds={self.n_seconds})"

    def open(self, fingerprint: str, member: int = 0) -> "CheckpointFile":
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
            why, advice = _reason(error)
            raise ValueError(
                f"The checkpoint {path!r} cannot be written, because {why}; {advice}."
            ) from error
        if is_directory:
            path = os.path.join(path, f"{fingerprint}.npz")
        elif member:
            root, ending = os.path.splitext(path)
            path = f"{root}.{member}{ending}"
        files.remove_leftovers(path)
        return CheckpointFile(path, self.n_steps, self.n_seconds, fingerprint)


def _reason(error):
    """Why a file cannot be written, and what to do."""
    number, another = getattr(error, "errno", None), "or choose another path"
    if number in _FULL:
        return "the disk is full", "make room"
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return "its directory does not exist", f"create the directory, {another}"
    if isinstance(error, PermissionError) or number == errno.EROFS:
        return "its directory is read-only", f"make it writable, {another}"
    return getattr(error, "strerror", None) or str(error), "choose another path"


class CheckpointFile:
    """The saved state of one fit; a file with another fingerprint is not touched."""

    def __init__(self, path, n_steps, n_seconds, fingerprint):
        self.path = path
        self.n_steps = n_steps
        self.n_seconds = n_seconds
        self.fingerprint = fingerprint
        self._last_step = 0
        self._last_time = time.monotonic()
        self._own = None  # what identifies the file that was saved last

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
        """Replace the file in one atomic move; FileExistsError if it has become that of another fit."""
        arrays = {name: np.asarray(array) for name, array in arrays.items()}
        try:
            if is_first():
                header = {
                    "format": _FORMAT,
                    "versions": _VERSIONS,
                    "fingerprint": self.fingerprint,
                    "finished": bool(finished),
                    "numbers": numbers,
                }
                header["digest"] = _digest(header, arrays)
                text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
                self._own = files.write(
                    self.path,
                    lambda file: np.savez(file, **{_HEADER: text}, **arrays),
                    self._is_own,
                )
        finally:
            self._last_step = numbers["n_iter"]  # if it failed, too: not each step tries again
            self._last_time = time.monotonic()

    def _is_own(self):
        """Whether the file that is there is of this fit."""
        if self._own == files.identity(self.path):
            return True
        try:
            with np.load(self.path, allow_pickle=False) as archive:
                return json.loads(archive[_HEADER].tobytes())["fingerprint"] == self.fingerprint
        except FileNotFoundError:
            return True
        except Exception:  # whatever it is, it is none of ours
            return False

    def load(self):
        """Arrays and numbers of the saved state and whether it is the last; None without a file.

        Raises ValueError if the file belongs to another fit, was written by another version, is damaged, or
        is no checkpoint.
        """
        found = from_first(self._read)
        if found is None:
            return None
        arrays, header = found
        self._last_step = header["numbers"]["n_iter"]
        return arrays, header["numbers"], header["finished"]

    def check(self):
        """Raise ValueError, as :meth:`load`, if there is a file from which this fit cannot go on."""
        from_first(lambda: self._read() and None)

    def _read(self):
        """Arrays and the header; None without a file."""
        if not os.path.exists(self.path):
            return None
        what, damaged = f"The checkpoint {self.path!r}", False
        try:
            with np.load(self.path, allow_pickle=False) as archive:
                header = json.loads(archive[_HEADER].tobytes())
                damaged = True  # unless all of it can be read
                arrays = {name: archive[name] for name in archive if name != _HEADER}
        except MemoryError:
            raise
        except Exception as error:
            if getattr(error, "errno", None) is not None:
                raise ValueError(
                    f"{what} cannot be read ({error}); choose another path."
                ) from error
            why = "is not a checkpoint of skdgp; move it away, or choose another path."
            if damaged:
                why = f"is damaged ({error}); delete it, and the fit starts anew."
            raise ValueError(f"{what} {why}") from error
        header = header if isinstance(header, dict) else {}
        if header.pop("digest", None) != _digest(header, arrays):
            raise ValueError(
                f"{what} is damaged, or older than this version; delete it, and the fit starts anew."
            )
        if header["versions"] != _VERSIONS:
            names = " and ".join(f"{name} {number}" for name, number in header["versions"].items())
            raise ValueError(
                f"{what} was written by {names}; use these versions, or delete it, and the fit starts anew."
            )
        if header["fingerprint"] != self.fingerprint:
            raise ValueError(
                f"{what} holds the state of a fit with other parameters or other data; move it away, or choose "
                "another path. With warm_start=True each fit needs its own file, as in a directory."
            )
        return arrays, header


def _digest(header, arrays):
    """A digest of all that a checkpoint holds, by which damage is seen."""
    return fingerprint(json.dumps(header), arrays)


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
