"""Imports from parts of scikit-learn that may change without notice, in one place."""

from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import _fit_context  # noqa: F401
from sklearn.utils._param_validation import (  # noqa: F401
    HasMethods,
    Interval,
    InvalidParameterError,
    StrOptions,
)
from sklearn.utils.validation import _check_sample_weight

from .._arrays import check_no_dates
from ..fitting.problem import Progress

if TYPE_CHECKING:
    from sklearn.callback import CallbackSupportMixin
else:
    try:
        from sklearn.callback import CallbackSupportMixin
    except ImportError:  # before scikit-learn 1.9
        CallbackSupportMixin = type("CallbackSupportMixin", (), {})  # which adds nothing


def check_sample_weight(sample_weight, X):
    """Weights as float64; ones if none are given, and zero where their reciprocals would overflow."""
    check_no_dates(sample_weight, "sample_weight")
    weights = _check_sample_weight(sample_weight, X, dtype="float64", ensure_non_negative=True)
    tiny = np.finfo(np.float64).tiny
    weights = np.where(weights < tiny, 0.0, weights)
    if not weights.any():  # older versions let this pass
        raise ValueError(
            f"Sample weights must contain at least one non-zero number, and those below {tiny:.2g} count as "
            "zero; scale them to a mean of one."
        )
    return weights


class FitProgress(Progress):
    """Calls scikit-learn's callbacks in a fit, with one task for each block of steps.

    Members that train side by side have one task each. `data` holds `X`, `y` and `metadata` for the
    callbacks, `known` the attributes that the fit has found before it trains. `stopped` is whether a callback
    has ended the fit.
    """

    def __init__(self, estimator, data, known):
        self._known, self._given = known, {"estimator": estimator, **data}
        self._root = self._block = None

    def begin(self, n_tasks):
        estimator = self._given["estimator"]
        if getattr(estimator, "_skl_callbacks", None):
            self._root = estimator._init_callback_context(max_subtasks=n_tasks)
            self._root.call_on_fit_task_begin(**self._given)
            self._begin_block()

    def _begin_block(self):
        self._block = self._root.subcontext(task_name="block")
        self._block.call_on_fit_task_begin(**self._given)

    def block_ends(self, fitted, last):
        if self._block is None:
            return self.stopped
        block, self._block = self._block, None
        stop = block.call_on_fit_task_end(
            reconstruction_attributes=self._attributes_of(fitted), **self._given
        )
        self.stopped = self.stopped or bool(stop)
        if not (self.stopped or last):
            self._begin_block()
        return self.stopped

    def end(self, fitted):
        """All tasks that have begun end."""
        if self._root is not None:
            self.block_ends(fitted, True)  # of a member that failed, or had no time
            self._root.call_on_fit_task_end(
                reconstruction_attributes=self._attributes_of(fitted), **self._given
            )

    def _attributes_of(self, fitted):
        """A function that makes all attributes of the present mixture, or None before there is one."""

        def make():
            found = fitted()
            return None if found is None else {**self._known, **found.attributes()}

        return make
