"""One cell of a paper's table: a split, a fit, and scores in the target's units."""

from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from benchmarks import data, runs
from benchmarks.papers import thesis

MOST_SHARED = (
    500  #: test rows of a projection whose log densities are kept, to be compared row by row
)
N_BINS = 5  #: of the distance from the training rows


class Cell(NamedTuple):
    """A function from what names a cell of a paper to its results."""

    paper: str
    root: object  #: folder of the data

    def __call__(self, cell):
        return runs.evaluate(self._split, self.root, 0.95, self._more(cell), cell)

    def _split(self, root, name, number):
        return split_of(self.paper, root, name, number)

    def _more(self, cell):
        if self.paper == "thesis":
            return thesis.scores
        if cell["set"].endswith("-projection"):
            return by_row
        if self.paper == "rff":
            deviation = self._split(self.root, cell["set"], cell["split"]).y_train.std()
            return lambda found, y: standardized(found, y, deviation)
        return None


def split_of(paper, root, name, number):
    """One split of a set, with the test rows that repeat training rows, as in the papers."""
    if paper == "thesis":
        return thesis.split_of(name, number)
    if name == "mnist":
        return data.mnist(root)
    if name == "eeg":
        return data.eeg_fold(root, number)
    name, _, kind = name.partition("-")
    if kind == "projection":
        return projection(root, name, number)
    return data.uci_split(root, name, number, keep_repeated=True)


def projection(root, name, number):
    """Half of the rows beyond a hyperplane in a random direction; test rows nearest to the others first."""
    from skdgp.model_selection import ProjectionSplit

    with data.load(root, f"uci/{name}.npz") as archive:
        X, y = archive["X"], archive["y"]
    train, test = next(ProjectionSplit(1, random_state=number).split(X))
    test = test[np.argsort(distances(X[train], X[test]), kind="stable")]
    return data.Split(X[train], y[train], X[test], y[test], False, len(test))


def distances(X_train, X_test):
    """Distance of each test row from the nearest training row, in standardized inputs."""
    spread = X_train.std(0)
    varies = spread > 0
    X_train, X_test = (X[:, varies] / spread[varies] for X in (X_train, X_test))
    return cKDTree(X_train).query(X_test)[0]


def by_row(found, y):
    """Log densities of some rows, and squared errors and variances of bins by distance."""
    some = np.linspace(0, len(y) - 1, min(MOST_SHARED, len(y))).round().astype(int)
    errors, variances = np.square(y - found.mean), np.square(found.std)
    return {
        "log_densities": [float(f"{v:.4g}") for v in found.log_density(y)[some]],
        "squared_errors": [float(p.mean()) for p in np.array_split(errors, N_BINS)],
        "variances": [float(p.mean()) for p in np.array_split(variances, N_BINS)],
    }


def standardized(found, y, deviation):
    """The log density in units of the standardized target."""
    if isinstance(found, np.ndarray):
        return {}
    return {"standardized": float(found.log_density(y).mean() + np.log(deviation))}
