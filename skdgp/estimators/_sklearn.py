"""What comes from corners of scikit-learn that may change without notice, in one place."""

import numpy as np
from sklearn.base import _fit_context  # noqa: F401
from sklearn.utils._param_validation import (  # noqa: F401
    HasMethods,
    Interval,
    InvalidParameterError,
    StrOptions,
)
from sklearn.utils.validation import _check_sample_weight

try:
    from sklearn.callback import CallbackSupportMixin
except ImportError:  # before scikit-learn 1.9
    CallbackSupportMixin = type("CallbackSupportMixin", (), {})  # which adds nothing


def check_sample_weight(sample_weight, X):
    """Weights as float64; ones if none are given, and zero where their reciprocals would overflow."""
    weights = _check_sample_weight(sample_weight, X, dtype="float64", ensure_non_negative=True)
    tiny = np.finfo(np.float64).tiny
    weights = np.where(weights < tiny, 0.0, weights)
    if not weights.any():  # older versions let this pass
        raise ValueError(
            f"Sample weights must contain at least one non-zero number, and those below {tiny:.2g} count as "
            "zero; scale them to a mean of one."
        )
    return weights


class FitProgress:
    """Tells scikit-learn's callbacks of a fit, one task for each block of steps.

    Parameters
    ----------
    estimator : estimator
    n_blocks : int
    data : dict
        `X`, `y` and `metadata` for the callbacks.
    """

    def __init__(self, estimator, n_blocks, data):
        self._estimator = estimator
        self._data = data
        self._root = None
        if getattr(estimator, "_skl_callbacks", None):
            self._root = estimator._init_callback_context(max_subtasks=n_blocks)
            self._root.call_on_fit_task_begin(estimator=estimator, **data)
            self._begin()

    def _begin(self):
        self._block = self._root.subcontext(task_name="block")
        self._block.call_on_fit_task_begin(estimator=self._estimator, **self._data)

    def block_ends(self, attributes, last):
        """True if a callback wants to stop; `attributes` makes the fitted attributes."""
        if self._root is None:
            return False
        stop = self._block.call_on_fit_task_end(
            estimator=self._estimator, reconstruction_attributes=attributes, **self._data
        )
        if not (stop or last):
            self._begin()
        return bool(stop)

    def end(self, attributes):
        if self._root is not None:
            self._root.call_on_fit_task_end(
                estimator=self._estimator, reconstruction_attributes=attributes, **self._data
            )
