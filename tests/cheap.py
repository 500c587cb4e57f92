"""Few draws of hidden functions and few steps of searches, where it does not matter how well models search."""

from skdgp.inference import collapsed
from skdgp.inference.rows import marginal_likelihood

CHEAP = (
    (collapsed, "_MOST_DRAWS", 2),
    (marginal_likelihood, "_STARTS", marginal_likelihood._STARTS[:1]),
    (marginal_likelihood, "_TRIAL_STEPS", 1),
    (marginal_likelihood, "_SEARCH_STEPS", 2),
)


def search_little(patch=setattr):
    """Set these constants by a function of a module, a name and a value, as that of a monkeypatch."""
    for module, name, value in CHEAP:
        patch(module, name, value)
