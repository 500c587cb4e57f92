"""What all displays refuse, each in the same words."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import BayesianRidge

from skdgp import DeepGPRegressor
from skdgp.inspection import (
    CovarianceDisplay,
    CoverageDisplay,
    EffectsDisplay,
    ImportanceDisplay,
    LayersDisplay,
    LossCurveDisplay,
    PredictiveDisplay,
)

X = np.linspace(0.0, 1.0, 20)[:, None]
OF_MODELS = (ImportanceDisplay, EffectsDisplay, CovarianceDisplay, LossCurveDisplay, LayersDisplay)
ROWS = {LayersDisplay: (X,), PredictiveDisplay: (X,), CoverageDisplay: (X, X[:, 0])}
every_display = pytest.mark.parametrize("display", [*OF_MODELS, PredictiveDisplay, CoverageDisplay])


@every_display
def test_misspelled_keywords_fail_before_anything_is_computed(plt, display):
    with pytest.raises((AttributeError, TypeError), match="colour"):
        display.from_estimator(object(), *ROWS.get(display, ()), colour="red")  # predicts nothing


@every_display
def test_models_that_are_not_fitted(plt, display):
    with pytest.raises(NotFittedError):
        display.from_estimator(DeepGPRegressor(), *ROWS.get(display, ()))


@pytest.mark.parametrize("display", OF_MODELS)
def test_models_of_others(plt, display):
    model = BayesianRidge().fit(X, X[:, 0])
    match = f"{display.__name__} shows the estimators of skdgp; got BayesianRidge"
    with pytest.raises(ValueError, match=match):
        display.from_estimator(model, *ROWS.get(display, ()))


@pytest.mark.parametrize("display", [PredictiveDisplay, CoverageDisplay])
def test_classifiers_have_no_intervals(plt, display, classifier):
    with pytest.raises(ValueError, match=f"{display.__name__} shows regressors; got DeepGPClassif"):
        display.from_estimator(classifier, *ROWS[display])


@pytest.mark.parametrize("display", [LayersDisplay, CovarianceDisplay])
def test_models_without_inducing_inputs(plt, display):
    model = DeepGPRegressor(1, inference="vecchia", max_iter=2, random_state=0).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="inducing inputs, and Vecchia has none"):
        display.from_estimator(model, *ROWS.get(display, ()))


@pytest.mark.parametrize(
    "display",
    [
        PredictiveDisplay(x=[0.0], mean=[0.0], intervals=np.zeros((0, 1, 2)), coverage=[]),
        LayersDisplay([]),
        CoverageDisplay([0.5], [0.5], 10),
        LossCurveDisplay([1.0]),
    ],
    ids=lambda display: type(display).__name__,
)
def test_without_matplotlib(display, data, regressor, no_matplotlib):
    name, rows = type(display).__name__, data[: len(ROWS.get(type(display), ()))]
    with pytest.raises(ImportError, match=rf"{name}.from_estimator requires matplotlib\. You can"):
        display.from_estimator(regressor, *rows)
    with pytest.raises(ImportError, match=f"{name}.plot requires matplotlib"):
        display.plot()
    if name == "CoverageDisplay":
        with pytest.raises(ImportError, match=f"{name}.from_predictions requires matplotlib"):
            display.from_predictions([0.0], [[0.0]], [[1.0]], [0.5])
