"""Convert inputs: tensors, data frames, and arrays that numpy would misread."""

import narwhals as nw
import numpy as np
from sklearn.utils import check_array, check_X_y
from sklearn.utils.validation import validate_data

from .._arrays import as_numpy
from .._warnings import warn
from ..preprocessing.frame_columns import Table, as_frame, is_missing
from ..preprocessing.frames import FrameReader
from ..preprocessing.levels import UNSEEN
from ..preprocessing.scaling import Scaling
from .row_columns import with_codes

_CHECKS = {"dtype": [np.float64, np.float32], "ensure_all_finite": "allow-nan"}
_MANY = 0.1  #: share of the cells of a column with levels that fit has not seen, from which a warning says so


def check_inputs(estimator, X, y="no_validation", reset=False, extend=False, **y_checks):
    """Validate inputs, and targets if there are some, which the `y_checks` are for.

    Frames with other columns than numbers, and arrays with categories or dates, are read by the FrameReader
    that the call with `reset` makes; missing cells become NaN. With `extend`, new levels get own codes.
    """
    y_given = not (isinstance(y, str) and y == "no_validation")
    X = with_codes(estimator, as_numpy(X), reset, extend or y_given)
    objects = np.ravel(y) if getattr(y, "dtype", None) == np.dtype(object) else y
    if (objects is not y or isinstance(y, list | tuple)) and any(map(is_missing, objects)):
        raise ValueError("Input y contains NaN: leave out rows without a target.")
    if not isinstance(X, np.ndarray) and isinstance(as_frame(X), nw.Series):
        check_array(X, dtype=None)  # raises, with what to do
    if reset:
        estimator._reader = _given_reader(estimator) or _reader(X, estimator.categorical_features)
    reader, targets = estimator._reader, (y,) if y_given else ()
    checks = {**_CHECKS, **y_checks} if y_given else _CHECKS
    if reader is None and _is_plain(X):
        return validate_data(estimator, X, *targets, reset=reset, **checks)
    header = X.header if isinstance(X, Table) else X
    validate_data(estimator, header, *targets, reset=reset, skip_check_array=True)
    if reader is None:
        reader = FrameReader.of_numbers(estimator.n_features_in_)
    elif extend and not reset:
        estimator._reader = reader = reader.extended(X)
    table = reader.transform(X)
    if not (reset or extend):
        _warn_of_unseen(table, reader.levels, vars(estimator).get("feature_names_in_"))
    check = check_X_y if y_given else check_array
    return check(table, *targets, **checks, estimator=estimator)


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
    if not named and _is_plain(X):
        return None
    reader = FrameReader(given).fit(X)
    if reader.notes:
        warn(
            f"Text in X is read by what it says: {'; '.join(reader.notes)}. To have it as categories, name the "
            "columns in categorical_features, or pass an empty list there.",
            UserWarning,
        )
    texts = reader.texts()
    if texts:
        if len(texts) == len(reader.kinds):
            raise ValueError(
                "X has no column that can be used: nearly all values of each are different texts."
            )
        names = [frame.columns[j] for j in texts] if isinstance(frame, nw.DataFrame) else texts
        warn(
            f"Columns {names} of X are left out, because nearly all their values are different texts; convert "
            "them if they hold numbers or dates, or name them in categorical_features if their levels recur.",
            UserWarning,
        )
    return reader


def _is_plain(X):
    """Whether numpy reads inputs as what they are; ValueError for arrays with text."""
    frame = as_frame(X)
    if isinstance(frame, nw.DataFrame):
        each = frame.iter_columns()
        return all(one.dtype.is_numeric() and not one.is_null().any() for one in each)
    if isinstance(X, list | tuple) and all(isinstance(row, list | tuple) for row in X):
        _check_no_text(np.array(X, dtype=object))
    elif isinstance(X, np.ndarray) and X.dtype.kind in "OUS":
        _check_no_text(X)
    return not (isinstance(X, Table) or (isinstance(X, np.ndarray) and X.dtype.kind in "mM"))


def _check_no_text(X):
    """Raise ValueError if an array has text that is no number."""
    for i, column in enumerate(X.T if X.ndim == 2 else ()):
        for value in column.tolist():
            if isinstance(value, (str, bytes)) and not _is_number(value):
                raise ValueError(
                    f"Column '{i}' of X holds text, such as {value!r}; name it in categorical_features before "
                    "fit, pass a data frame, or leave it out."
                )


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


def _warn_of_unseen(table, levels, names):
    """One warning of columns in which many cells have levels that fit has not seen."""
    found = []
    for j in [j for j, of in enumerate(levels) if of is not None]:
        codes = table[~np.isnan(table[:, j]), j]
        n_unseen = np.count_nonzero(codes == UNSEEN)
        if n_unseen > _MANY * len(codes):
            name = repr(j if names is None else names[j])
            found.append(f"{n_unseen} of {len(codes)} rows ({n_unseen / len(codes):.0%}) in {name}")
    if found:
        warn(
            f"X has levels that fit has not seen: {', '.join(found)}. Predictions are those of a new level; "
            "check that levels are written as in fit.",
            UserWarning,
        )
