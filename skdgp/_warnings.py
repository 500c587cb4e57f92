"""Warnings that point to the caller's own line."""

import sys
import warnings

_PACKAGES = frozenset({"contextlib", "joblib", "skdgp", "sklearn"})  #: between the caller and us


def warn(message, category=UserWarning):
    """Attribute a warning to the caller's line, which may be in a search or pipeline around us."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _package(frame) in _PACKAGES:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _package(frame):
    return frame.f_globals.get("__name__", "").partition(".")[0]
