"""Versions of estimators in files."""

from .._version import __version__
from .._warnings import warn

_NAME = "_skdgp_version"


def with_version(state):
    """The state of an estimator with the version that saves it."""
    return {**state, _NAME: __version__}


def without_version(state, name):
    """The state of an estimator, the class of which has this `name`; warns if another version has saved it."""
    version = state.get(_NAME)
    if version != __version__:
        warn(
            f"This {name} was saved by skdgp {version} and is loaded by {__version__}, which may predict other "
            "numbers or fail; fit it again, or use the version that saved it.",
            UserWarning,
        )
    return {key: value for key, value in state.items() if key != _NAME}
