"""Tables in pieces, for the sake of memory."""

_ROWS = 65536  #: of a piece: 20 MB of 40 columns


def pieces(n_rows: int) -> list:
    """Slices that cover the rows."""
    return [slice(i, min(i + _ROWS, n_rows)) for i in range(0, n_rows, _ROWS)]
