"""The classifiers that are compared, each as its users would start."""

import warnings

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdgp import DeepGPClassifier
from skdgp.inference import DSVI

from .models.trees import HELD_OUT, MOST_TREES, PATIENCE

_MOST_ROWS = 600  #: of scikit-learn's exact Gaussian process, and
_MOST_COLUMNS = 15  #: beyond which it takes minutes


def _skdgp(seed, X):
    return DeepGPClassifier(random_state=seed)


def _single(seed, X):
    return DeepGPClassifier(inference=DSVI(inner_scale=0.1), random_state=seed)


def _hgb(seed, X):
    return HistGradientBoostingClassifier(
        max_iter=MOST_TREES,
        learning_rate=0.05,
        early_stopping=True,
        n_iter_no_change=PATIENCE,
        random_state=seed,
    )


def _forest(seed, X):
    return RandomForestClassifier(500, min_samples_leaf=2, random_state=seed)


def _logistic(seed, X):
    model = LogisticRegressionCV(Cs=10, scoring="neg_log_loss", max_iter=5000)
    return make_pipeline(StandardScaler(), model)


def _exact(seed, X):
    if len(X) > _MOST_ROWS or X.shape[1] > _MOST_COLUMNS:
        return None
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1]))
    return make_pipeline(StandardScaler(), GaussianProcessClassifier(kernel, random_state=seed))


class _CatBoost:
    """Trees that find their number on a tenth of the rows."""

    def __init__(self, seed, X):
        self.seed = seed

    def fit(self, X, y):
        from catboost import CatBoostClassifier

        X, X_val, y, y_val = train_test_split(
            X, y, test_size=HELD_OUT, random_state=self.seed, stratify=y
        )
        self.model = CatBoostClassifier(
            iterations=MOST_TREES,
            random_seed=self.seed,
            thread_count=torch.get_num_threads(),
            allow_writing_files=False,
            verbose=False,
        )
        self.model.fit(X, y, eval_set=(X_val, y_val), early_stopping_rounds=PATIENCE)
        return self

    def predict_proba(self, X):
        return self.model.predict_proba(X)


#: For each name, what makes an unfitted classifier, or None if it is not for such data.
PEERS = {
    "skdgp": _skdgp,
    "single": _single,
    "hgb": _hgb,
    "catboost": _CatBoost,
    "forest": _forest,
    "logistic": _logistic,
    "exact": _exact,
}


def probabilities(name, seed, X, y, X_test):
    """Of the classes in their order, on the test rows; None if the classifier is not for such data."""
    model = PEERS[name](seed, X)
    if model is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of peers; what is measured is what they predict
        return model.fit(X, y).predict_proba(X_test)
