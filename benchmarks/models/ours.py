"""Our own estimator: the default, or a single deep Gaussian process."""

from functools import partial

from skdgp import DeepGPRegressor

from .. import scores


def fit(X, y, seed, max_iter=None, **settings):
    """Fit with all defaults but those given."""
    if max_iter is not None:
        settings["max_iter"] = max_iter
    model = DeepGPRegressor(random_state=seed).set_params(**settings).fit(X, y)
    return partial(scores.of_estimator, model)
