"""Convert inputs: tensors, data frames, and arrays that numpy would misread."""

import narwhals as nw
import numpy as np
from sklearn.utils import check_array, check_X_y
from sklearn.utils.validation import validate_data

from .._arrays import as_numpy
from .._warnings import warn
from ..preprocessing.frames import FrameReader, as_frame, is_missing
from ..preprocessing.scaling import Scaling

_CHECKS = {"dtype": [np.float64, np.float32], "ensure_all_finite": "allow-nan"}


def check_inputs(estimator, X, y="no_validation", reset=False, extend=False, **y_checks):
    """Validate inputs, and targets if there are some, which the `y_checks` are for.

    Frames with other columns than numbers, and arrays with categories, are read by the FrameReader that the
    call with `reset` makes; missing cells become NaN. With `extend`, new levels get codes of their own.
    """
    X, y_given = as_numpy(X), not (isinstance(y, str) and y == "no_validation")
    objects = np.ravel(y) if getattr(y, "dtype", None) == np.dtype(object) else y
    if (objects is not y or isinstance(y, list | tuple)) and any(map(is_missing, objects)):
        raise ValueError("Input y contains NaN: leave out rows without a target.")
    if not isinstance(X, np.ndarray) and isinstance(as_frame(X), nw.Series):
        check_array(X, dtype=None)  # raises, with what to do
    if reset:
        estimator._reader = _given_reader(estimator) or _reader(X, estimator.categorical_features)
    if extend and estimator._reader is not None:
        estimator._reader = estimator._reader.extended(X)
    reader, targets = estimator._reader, (y,) if y_given else ()
    checks = {**_CHECKS, **y_checks} if y_given else _CHECKS
    if reader is None:
        return validate_data(estimator, as_inputs(X), *targets, reset=reset, **checks)
    validate_data(estimator, X, *targets, reset=reset, skip_check_array=True)
    check = check_X_y if y_given else check_array
    return check(reader.transform(X), *targets, **checks, estimator=estimator)


def _given_reader(estimator):
    """The reader of the fit whose scaling is taken over, or None."""
    if isinstance(estimator.standardize, Scaling):
        return estimator.standardize.reader
    source = getattr(estimator.init, "estimator", estimator.init)  # of a FrozenEstimator
    return getattr(source, "_reader", None)


def _reader(X, categorical_features):
    """The reader that inputs need; None for arrays and frames of numbers."""
    frame, given = as_frame(X), categorical_features
    named = given is not None and not (isinstance(given, str) and given == "from_dtype")
    is_frame = isinstance(frame, nw.DataFrame)
    if not named and (not is_frame or all(map(_is_plain, frame.iter_columns()))):
        return None
    reader = FrameReader(given).fit(X)
    texts = reader.texts()
    if texts:
        if len(texts) == len(reader.kinds):
            raise ValueError(
                "X has no column that can be used: nearly all values of each are different texts."
            )
        names = [frame.columns[j] for j in texts] if is_frame else texts
        warn(
            f"Columns {names} of X are left out, because nearly all their values are different texts; name "
            "them in categorical_features if their levels recur.",
            UserWarning,
        )
    return reader


def _is_plain(values):
    return values.dtype.is_numeric() and not values.is_null().any()


def as_inputs(X):
    """As :func:`as_numpy`, of inputs. ValueError if columns hold text, dates or durations."""
    X = as_numpy(X)
    names = getattr(X, "columns", None)  # of a frame
    if names is not None:
        types = list(X.dtypes)
    elif isinstance(X, np.ndarray):
        types = [X.dtype] * (X.shape[1] if X.ndim == 2 and X.dtype.kind in "OUS" else 1)
    elif isinstance(X, (list, tuple)) and all(isinstance(row, (list, tuple)) for row in X):
        entries = np.array(X, dtype=object)
        return as_inputs(entries) if entries.ndim == 2 else X
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
                "name it in categorical_features before fit, or leave it out."
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
