"""Our own estimator: the default, or a single deep Gaussian process."""

from functools import partial

from skdgp import DeepGPRegressor

from .. import scores


def fit(X, y, seed, max_iter=None, *, n_steps=None, **settings):
    """Fit with all defaults but those given; `n_steps` are made unless `max_iter` says otherwise."""
    settings["max_iter"] = max_iter or n_steps
    model = DeepGPRegressor(random_state=seed).set_params(**settings).fit(X, y)
    return partial(scores.of_estimator, model)
