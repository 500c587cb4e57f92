"""Displays of regressors of other libraries, which have some of the methods: a picture, or one sentence."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import BayesianRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdgp import DeepGPRegressor
from skdgp.inspection import (
    CovarianceDisplay,
    CoverageDisplay,
    EffectsDisplay,
    ImportanceDisplay,
    LayersDisplay,
    LossCurveDisplay,
    PredictiveDisplay,
    diagnose,
    mcmc_diagnostics,
)

pytestmark = pytest.mark.filterwarnings("ignore")
RNG = np.random.default_rng(0)
X, Y = RNG.uniform(size=(60, 2)), RNG.standard_normal(60)


class Fitted(RegressorMixin, BaseEstimator):
    def fit(self, X, y):
        self.sorted_, self.n_features_in_ = np.sort(y), X.shape[1]
        return self


class Predicts(Fitted):
    def predict(self, X):
        return np.full(len(X), self.sorted_.mean())


class Quantiles(Predicts):
    """Quantiles of the training targets, whatever X is."""

    def predict_quantiles(self, X, alpha=(0.05, 0.95)):
        return np.tile(np.quantile(self.sorted_, np.atleast_1d(alpha)), (len(X), 1))


class Frames(Quantiles):
    """The same in data frames, as of skpro."""

    def predict(self, X):
        return pd.DataFrame({"y": super().predict(X)})

    def predict_quantiles(self, X, alpha=(0.05, 0.95)):
        return pd.DataFrame(super().predict_quantiles(X, alpha))


class Deviations(Fitted):
    def predict(self, X, return_std=False):
        mean = np.full(len(X), self.sorted_.mean())
        return (mean, np.full(len(X), self.sorted_.std())) if return_std else mean


class QuantilesAlone(Fitted):
    predict_quantiles = Quantiles.predict_quantiles


class Plain:
    """Of no base class of scikit-learn."""

    fit, predict = Fitted.fit, Predicts.predict
    predict_quantiles = Quantiles.predict_quantiles


SHOWN = [Quantiles, Frames, Deviations, Plain]
PICTURES = {
    "coverage": lambda model: CoverageDisplay.from_estimator(model, X, Y),
    "pit": lambda model: CoverageDisplay.from_estimator(model, X, Y, kind="pit"),
    "predictive": lambda model: PredictiveDisplay.from_estimator(model, X, Y),
}
SENTENCES = {
    "latent": lambda model: PredictiveDisplay.from_estimator(model, X, latent=True),
    "functions": lambda model: PredictiveDisplay.from_estimator(model, X, n_functions=2),
    "effects": lambda model: EffectsDisplay.from_estimator(model, X),
    "importances": lambda model: ImportanceDisplay.from_estimator(model, X),
    "layers": lambda model: LayersDisplay.from_estimator(model, X),
    "covariance": lambda model: CovarianceDisplay.from_estimator(model),
    "loss": lambda model: LossCurveDisplay.from_estimator(model),
    "diagnosis": lambda model: diagnose(model, X, Y),
    "chains": lambda model: mcmc_diagnostics(model, X),
}


@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("cls", SHOWN)
def test_models_with_a_distribution_are_shown(plt, cls, picture):
    display = PICTURES[picture](cls().fit(X, Y))
    assert display.figure_ is not None
    if cls is not Plain:  # which scikit-learn's pipelines do not take
        pipeline = make_pipeline(StandardScaler(), cls()).fit(X, Y)
        assert PICTURES[picture](pipeline).figure_ is not None


@pytest.mark.parametrize("cls", [Quantiles, Frames, Plain])
def test_shares_below_quantiles_are_counted(plt, cls):
    model = cls().fit(X, Y)
    display = CoverageDisplay.from_estimator(model, X, Y, kind="pit", n_levels=3)
    expected = [(np.quantile(Y, level) >= Y).mean() for level in (0.25, 0.5, 0.75)]
    assert_allclose(display.empirical, expected)


def test_shares_of_gaussian_models_are_those_of_their_distribution_function(plt):
    from scipy.stats import norm

    model = BayesianRidge().fit(X, Y)
    display = CoverageDisplay.from_estimator(model, X, Y, kind="pit", n_levels=9)
    cdf = norm.cdf(Y, *model.predict(X, return_std=True))
    expected = [(cdf <= level).mean() for level in np.arange(1, 10) / 10]
    assert_allclose(display.empirical, expected)


@pytest.mark.parametrize("what", [*SENTENCES, *PICTURES])
@pytest.mark.parametrize("cls", [*SHOWN, Predicts, QuantilesAlone])
def test_all_others_meet_one_sentence(plt, cls, what):
    if cls in SHOWN and what in PICTURES:
        return
    if what == "chains":
        pytest.importorskip("arviz")
    with pytest.raises((TypeError, ValueError), match=rf"{cls.__name__}") as caught:
        {**SENTENCES, **PICTURES}[what](cls().fit(X, Y))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("picture", PICTURES)
def test_models_that_are_not_fitted(plt, picture):
    for model in (Quantiles(), DeepGPRegressor()):
        with pytest.raises(NotFittedError):
            PICTURES[picture](model)
