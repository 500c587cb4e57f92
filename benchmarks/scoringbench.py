"""An entry for ScoringBench (github.com/jonaslandsgesell/ScoringBench), which has no Gaussian process yet.

Run it in a checkout of ScoringBench, with an entry in its table of models::

    from benchmarks.scoringbench import DeepGPWrapper

    MODELS["skdgp"] = DeepGPWrapper
"""

import numpy as np
from scoringbench.univariate.wrappers.base import DistributionPrediction, ProbabilisticWrapper
from sklearn.pipeline import make_pipeline

from benchmarks.data import as_text, encoder
from skdgp import DeepGPRegressor


class DeepGPWrapper(ProbabilisticWrapper):
    """The default regressor, whose distributions are handed over as quantiles.

    Parameters
    ----------
    n_quantiles : int, default=199
        Quantiles, of equally spaced orders, and one in a thousand on both sides.
    **settings
        Of :class:`~skdgp.DeepGPRegressor`.
    """

    def __init__(self, n_quantiles=199, **settings):
        inner = np.arange(1, n_quantiles + 1) / (n_quantiles + 1)
        self.orders = np.concatenate([[0.001], inner, [0.999]])
        self.settings = {"random_state": 0, **settings}

    def fit(self, X, y):
        """Fit to a frame and targets; rows without a finite target are left out."""
        y = np.asarray(y, dtype=float).ravel()
        known = np.isfinite(y)
        X, y = X[known], y[known]
        self._set_train_range(y)
        numbers = list(X.select_dtypes("number").columns)
        levels = [column for column in X.columns if column not in numbers]
        self.model_ = make_pipeline(
            encoder(numbers, levels, len(y)), DeepGPRegressor(**self.settings)
        )
        self.model_.fit(as_text(X, levels), y)
        self._levels = levels
        return self

    def predict(self, X):
        """Means (n,)."""
        return self.model_.predict(as_text(X, self._levels))

    def predict_distribution(self, X):
        """Distributions from their quantiles, with the exact means."""
        quantiles = self.model_.predict(as_text(X, self._levels), quantiles=self.orders)
        return DistributionPrediction.from_multi_quantile(
            quantiles, self.orders, self.predict(X), train_range=self._y_train_range
        )
