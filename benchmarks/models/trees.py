"""Boosted trees, which find their number of trees on a tenth of the training rows."""

from functools import partial

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

from .. import scores

MOST_TREES = 2000
PATIENCE = 50
HELD_OUT = 0.1


def fit(X, y, seed, max_iter=None, *, kind):
    """Fit one of the kinds."""
    return _KINDS[kind](X, y, seed, max_iter or MOST_TREES)


def _ngboost(X, y, seed, n_trees):
    from ngboost import NGBRegressor

    X, X_val, y, y_val = train_test_split(X, y, test_size=HELD_OUT, random_state=seed)
    model = NGBRegressor(n_estimators=n_trees, random_state=seed, verbose=False)
    model.fit(X, y, X_val, y_val, early_stopping_rounds=PATIENCE)
    best = model.best_val_loss_itr + 1

    def predict(X):
        dist = model.pred_dist(X, max_iter=best)
        return dist.loc[None], dist.scale[None] ** 2

    return partial(scores.of_mixture, predict)


def _catboost(X, y, seed, n_trees):
    from catboost import CatBoostRegressor

    X, X_val, y, y_val = train_test_split(X, y, test_size=HELD_OUT, random_state=seed)
    model = CatBoostRegressor(
        loss_function="RMSEWithUncertainty",
        iterations=n_trees,
        random_seed=seed,
        thread_count=torch.get_num_threads(),
        allow_writing_files=False,
        verbose=False,
    )
    model.fit(X, y, eval_set=(X_val, y_val), early_stopping_rounds=PATIENCE)

    def predict(X):
        mean, variance = model.predict(X).T
        return mean[None], np.maximum(variance, 1e-300)[None]

    return partial(scores.of_mixture, predict)


def _hgb(X, y, seed, n_trees):
    model = HistGradientBoostingRegressor(
        max_iter=n_trees,
        early_stopping=True,
        validation_fraction=HELD_OUT,
        n_iter_no_change=PATIENCE,
        random_state=seed,
    ).fit(X, y)
    return partial(scores.of_mean, model.predict)


_KINDS = {"ngboost": _ngboost, "catboost": _catboost, "hgb": _hgb}
