"""What comes in: tensors, and arrays of which numpy would lose the meaning in silence."""

import numpy as np
import torch


def as_numpy(array):
    """Torch tensors as numpy; everything else as it is.

    Raises
    ------
    ValueError
        If some values are masked: what is under a mask would count.
    """
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        raise ValueError(
            "Some values are masked, and would count as what is under the mask; fill them, or drop their rows."
        )
    return array.detach().cpu().numpy() if isinstance(array, torch.Tensor) else array


def as_inputs(X):
    """As :func:`as_numpy`, of inputs.

    Raises
    ------
    ValueError
        If columns hold dates or durations: what number they become depends on their resolution.
    """
    X = as_numpy(X)
    types = getattr(X, "dtypes", None)  # of a frame
    types = [getattr(X, "dtype", None)] if types is None else list(types)
    dates = [i for i, dtype in enumerate(types) if _is_date(dtype)]
    if dates:
        names = getattr(X, "columns", None)
        names = "" if names is None else f"Columns {[str(names[i]) for i in dates]} of "
        raise ValueError(
            f"{names}X hold{'' if names else 's'} dates or durations, which are numbers only in some unit; "
            "convert them, for example to days: (t - t.min()) / np.timedelta64(1, 'D')."
        )
    return X


def _is_date(dtype):
    is_temporal = getattr(dtype, "is_temporal", None)  # of polars
    if is_temporal is not None:
        return is_temporal()
    return getattr(dtype, "kind", "") in ("m", "M") or str(dtype).startswith("period")
