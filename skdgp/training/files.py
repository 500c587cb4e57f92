"""Files that are written at once or not at all, and never into what is not ours."""

import contextlib
import errno
import os
import re
import secrets

_ENDING = ".part"
#: errors of file systems without hard links
_NO_LINKS = errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK
_writing: set[str] = set()  #: names that this process is writing to


def write(path, put, is_own):
    """Write a file by ``put(file)`` under another name, and move it to `path`; returns its :func:`identity`.

    The other name cannot be guessed, and nothing that has it is followed or changed. FileExistsError if there
    is a file at `path` that is not our own, by ``is_own()``.
    """
    part = f"{path}.{os.getpid()}.{secrets.token_hex(8)}{_ENDING}"
    _writing.add(part)
    try:
        with open(part, "xb") as file:
            put(file)
            file.flush()
            os.fsync(file.fileno())
        _move(part, path, is_own)
        return identity(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)
        _writing.discard(part)


def _move(part, path, is_own):
    """Move a file to where none is, or our own one: of two that come first at once, one fails."""
    if not os.path.lexists(path):
        try:
            os.link(part, path, follow_symlinks=False)
            return
        except FileExistsError:
            pass
        except (OSError, NotImplementedError) as error:
            if getattr(error, "errno", errno.ENOSYS) not in _NO_LINKS:
                raise
    if not is_own():
        raise FileExistsError(errno.EEXIST, "another fit has written to it", path)
    os.replace(part, path)


def identity(path):
    """Numbers that change if a file is replaced; None without one."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def remove_leftovers(path):
    """Remove what processes that are no longer there have left beside a file, half written."""
    folder, name = os.path.split(os.path.abspath(path))
    pattern = re.compile(rf"{re.escape(name)}\.(\d+)(\.[0-9a-f]+)?{re.escape(_ENDING)}")
    with os.scandir(folder) as entries:
        found = [(entry.path, pattern.fullmatch(entry.name)) for entry in entries]
    mine = {os.path.abspath(part) for part in _writing}
    for part, match in found:
        if match and part not in mine and not _is_alive(int(match[1])):
            with contextlib.suppress(OSError):  # another process may have been faster
                os.remove(part)


def _is_alive(number):
    """Whether another process with this number runs."""
    if number == os.getpid():  # as an earlier one in a container may have had
        return False
    if os.name != "posix":
        return True
    try:
        os.kill(number, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
