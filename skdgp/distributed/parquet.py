"""Parquet files as memory maps."""

import tempfile

import numpy as np


def read_parquet(files, target, dtype=np.float32):
    """Rows of Parquet files as memory maps of a temporary file, which are read piece by piece.

    Parameters
    ----------
    files : list of str or path-like
        Those of this rank, with the same columns of numbers.
    target : str
        The column to predict.
    dtype : dtype, default=numpy.float32
        Of the inputs; targets are float64.

    Returns
    -------
    X : memmap of shape (n_samples, n_features)
        All other columns.
    y : memmap of shape (n_samples,)

    Raises
    ------
    ImportError
        If pyarrow is missing.
    """
    from pyarrow import parquet

    tables = [parquet.ParquetFile(file) for file in files]
    names = [name for name in tables[0].schema_arrow.names if name != target]
    n, at = sum(table.metadata.num_rows for table in tables), 0
    X = np.memmap(tempfile.TemporaryFile(), dtype, "w+", shape=(n, len(names)))
    y = np.memmap(tempfile.TemporaryFile(), np.float64, "w+", shape=(n,))
    for table in tables:
        for batch in table.iter_batches(columns=[*names, target]):
            rows = slice(at, at := at + batch.num_rows)
            for j, name in enumerate(names):
                X[rows, j] = batch[name].to_numpy(zero_copy_only=False)
            y[rows] = batch[target].to_numpy(zero_copy_only=False)
    return X, y
