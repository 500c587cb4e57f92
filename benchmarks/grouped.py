"""Rows of new groups: twelve panels, three parts of whole groups each.

Beside quantiles by LightGBM and CatBoost and a ridge regression, none of which sees the column of the group.
"""

from sklearn.model_selection import GroupKFold

from benchmarks import shifted


def add_arguments(parser):
    """Which tables."""
    shifted.add_arguments(parser, shifted.PANELS)


def splits(name):
    """Three parts of whole groups, each predicted from the others."""
    X, y, groups = shifted.panel(name)
    for train, test in GroupKFold(3, shuffle=True, random_state=0).split(X, y, groups):
        parts = [X.iloc[rows].reset_index(drop=True) for rows in (train, test)]
        yield parts[0], y[train], parts[1], y[test]


def models(name):
    """Ours with the column named and as a category, and the others without it."""
    group = shifted.PANELS[name][2]

    def without(model):
        return lambda X, y, X_test: model(X.drop(columns=group), y, X_test.drop(columns=group))

    def named(X, y, X_test):
        return shifted.ours({"groups": group}, X, y, X_test)

    def plain(X, y, X_test):
        return shifted.ours({}, X, y, X_test)

    peers = {label: without(model) for label, model in shifted.PEERS.items()}
    return {"skdgp, groups=": named, "skdgp": plain, **peers}


def run(options):
    """Print the table."""
    shifted.run_tables(options, splits, models)
