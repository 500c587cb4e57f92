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
        If columns hold dates or durations, what number they become depends on their resolution; or text.
    """
    X = as_numpy(X)
    names = getattr(X, "columns", None)  # of a frame
    if names is not None:
        types = list(X.dtypes)
    elif isinstance(X, np.ndarray):
        types = [X.dtype] * (X.shape[1] if X.ndim == 2 and X.dtype.kind in "OUS" else 1)
    else:
        return X
    dates = [i for i, dtype in enumerate(types) if _is_date(dtype)]
    if dates:
        names = "" if names is None else f"Columns {[str(names[i]) for i in dates]} of "
        raise ValueError(
            f"{names}X hold{'' if names else 's'} dates or durations, which are numbers only in some unit; "
            "convert them, for example to days: (t - t.min()) / np.timedelta64(1, 'D')."
        )
    for i, dtype in enumerate(types):
        text = None if _is_number(dtype) or np.ndim(X) != 2 else _text(X, i)
        if text is not None:
            raise ValueError(
                f"Column {str(i if names is None else names[i])!r} of X holds text, such as {text!r}; "
                "encode it, for example by sklearn.preprocessing.OneHotEncoder, or leave it out."
            )
    return X


def _is_number(dtype):
    is_numeric = getattr(dtype, "is_numeric", None)  # of polars
    return is_numeric() if is_numeric is not None else getattr(dtype, "kind", "O") in "biufc"


def _text(X, i):
    """The first entry of a column that is text and no number; None if there is none."""
    column = np.asarray(X[:, i] if isinstance(X, np.ndarray) else X[[X.columns[i]]]).ravel()
    for value in column:
        if isinstance(value, (str, bytes)):
            try:
                float(value)
            except ValueError:
                return value
    return None


def _is_date(dtype):
    is_temporal = getattr(dtype, "is_temporal", None)  # of polars
    if is_temporal is not None:
        return is_temporal()
    return getattr(dtype, "kind", "") in ("m", "M") or str(dtype).startswith("period")
