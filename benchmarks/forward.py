"""Rows of later times: twelve series, the next 24 to 96 rows of each from three origins.

Beside quantiles by LightGBM and CatBoost and a ridge regression, which get the calendar of the date.
"""

from benchmarks import shifted


def add_arguments(parser):
    """Which tables."""
    shifted.add_arguments(parser, shifted.SERIES)


def splits(name):
    """Three origins, a horizon apart, the last one a horizon before the end."""
    make, horizon = shifted.SERIES[name]
    X, y = make()
    for i in (3, 2, 1):
        end = len(y) - (i - 1) * horizon
        past = slice(max(0, end - horizon - shifted.MOST), end - horizon)
        later = slice(end - horizon, end)
        yield X[past].reset_index(drop=True), y[past], X[later].reset_index(drop=True), y[later]


def models(name):
    """Ours with and without the time, and the others."""

    def timed(X, y, X_test):
        horizon = X_test["date"].iloc[-1] - X["date"].iloc[-1]
        return shifted.ours({"time": "date", "horizon": horizon}, X, y, X_test)

    def plain(X, y, X_test):
        return shifted.ours({}, X, y, X_test)

    return {"skdgp, time=": timed, "skdgp": plain, **shifted.PEERS}


def run(options):
    """Print the table."""
    shifted.run_tables(options, splits, models)
