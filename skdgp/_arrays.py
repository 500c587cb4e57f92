"""Arrays of any library as numpy arrays."""

import numpy as np
import torch
from sklearn.utils import assert_all_finite, check_array

_NO_NUMBERS = (
    "Some values of y are no numbers; convert them, or use a classifier if they are labels."
)


def as_numpy(array):
    """Torch tensors as numpy; everything else as it is. ValueError if values are masked."""
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        raise ValueError(
            "Some values are masked, and would count as what is under the mask; fill them, or drop their rows."
        )
    return array.detach().cpu().numpy() if isinstance(array, torch.Tensor) else array


def check_no_dates(values, name):
    """Raise ValueError, which mentions the name, for dates and durations."""
    if np.asarray(as_numpy(values)).dtype.kind in "mM":
        raise ValueError(
            f"{name} must be numbers, and holds dates or durations, whose unit depends on the library; convert "
            "them, as (end - start).days."
        )


def one_dimensional(values, name):
    """An array with one value for each row; ValueError, which mentions the name, if it has another shape."""
    found = np.asarray(as_numpy(values))
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim != 1:
        raise ValueError(f"{name} must have one value for each row; got shape {found.shape}.")
    return found


def as_numbers(y):
    """Targets as a dense array whose type is that of numbers."""
    y = check_array(y, ensure_2d=False, dtype=None, ensure_all_finite=False, input_name="y")
    kind = y.dtype.kind
    if kind in "mMV":  # times and durations would become numbers of some unit
        raise ValueError(_NO_NUMBERS)
    if kind not in "OUS" and y.itemsize <= 8:
        return y
    try:
        with np.errstate(over="ignore"):
            y = y.astype(np.float64)  # also numbers that are wider
    except (TypeError, ValueError) as error:
        raise ValueError(_NO_NUMBERS) from error
    assert_all_finite(y, input_name="y")
    return y
