"""Parquet files as memory maps."""

import os
import shutil
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np


def read_parquet(
    files: Any,
    target: str | Sequence[str],
    dtype: Any = np.float32,
    temp_folder: str | os.PathLike[str] | None = None,
) -> Any:
    """Rows of Parquet files as memory maps of a temporary file, which are read piece by piece.

    Parameters
    ----------
    files : list of str or path-like
        Those of this rank, with the same columns of numbers.
    target : str
        The column to predict.
    dtype : dtype, default=numpy.float32
        Of the inputs; targets are float64.
    temp_folder : str or path-like, optional
        Folder of the temporary files, with room for all rows; they vanish with the arrays. None is that of
        :mod:`tempfile`, which may be in memory.

    Returns
    -------
    X : memmap of shape (n_samples, n_features)
        All other columns.
    y : memmap of shape (n_samples,)

    Raises
    ------
    ImportError
        If pyarrow is missing.
    ValueError
        If a file lacks columns of the first one, or some hold no numbers.
    OSError
        If the folder has no room.
    """
    from pyarrow import parquet, types

    tables = [parquet.ParquetFile(file) for file in files]
    names = [name for name in tables[0].schema_arrow.names if name != target]
    for file, table in zip(files, tables):
        schema = table.schema_arrow
        for name in (*names, target):
            if name not in schema.names:
                raise ValueError(f"{file} has no column {name!r}.")
            kind = schema.field(name).type
            numbers = types.is_integer, types.is_floating, types.is_boolean, types.is_decimal
            if not any(holds(kind) for holds in numbers):
                raise ValueError(
                    f"Column {name!r} of {file} holds no numbers but {kind}; convert it, or give frames to fit."
                )
    n, at = sum(table.metadata.num_rows for table in tables), 0
    folder = os.fspath(temp_folder or tempfile.gettempdir())
    needed = n * (len(names) * np.dtype(dtype).itemsize + 8)
    free = shutil.disk_usage(folder).free
    if needed > free:  # a full disk would end the process
        raise OSError(
            f"The rows need {needed / 1e9:.1f} GB, and temp_folder has {free / 1e9:.1f}; name another one."
        )
    X, y = (
        np.memmap(tempfile.TemporaryFile(dir=folder), kind, "w+", shape=shape)
        for kind, shape in ((dtype, (n, len(names))), (np.float64, (n,)))
    )
    for table in tables:
        for batch in table.iter_batches(columns=[*names, target]):
            rows = slice(at, at := at + batch.num_rows)
            for j, name in enumerate(names):
                X[rows, j] = batch[name].to_numpy(zero_copy_only=False)
            y[rows] = batch[target].to_numpy(zero_copy_only=False)
    return X, y
