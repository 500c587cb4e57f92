"""Every scheme with every likelihood: a fit, or a sentence."""

import numpy as np
import pytest

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.gp.likelihoods import CLASSIFICATION, REGRESSION
from skdgp.inference import SCHEMES

COUNTS = [name for name, make in REGRESSION.items() if make().discrete]
CLASSES = [(name, 2 if name in ("probit", "logit") else 3) for name in CLASSIFICATION]
PAIRS = [(name, 1) for name in REGRESSION] + CLASSES
SHALLOW = ("exact", "pep", "vecchia", "vfe")
SOME = {  # docs/guide/target.rst has the same table
    "collapsed": {("gaussian", 1), ("heteroscedastic", 1)},
    "vfe": {("gaussian", 1), ("probit", 2), ("logit", 2), ("softmax", 3)},
    "pep": {("gaussian", 1)},
    "vecchia": {("gaussian", 1), ("heteroscedastic", 1), *CLASSES[:4]},
    "exact": {("gaussian", 1), ("heteroscedastic", 1), *CLASSES[:3], ("ordinal", 3)},
    "sghmc": set(PAIRS) - {("robustmax", 3)},
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("likelihood", "n_classes"), PAIRS)
@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_pair(scheme, likelihood, n_classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = np.digitize(X[:, 0] + 0.3 * X[:, 1], [-0.3, 0.4][: n_classes - 1])
    if n_classes == 1:
        y = rng.poisson(np.exp(X[:, 0])) if likelihood in COUNTS else np.sin(X[:, 0])
    estimator = DeepGPRegressor if n_classes == 1 else DeepGPClassifier
    model = estimator(
        1 if scheme in SHALLOW else 2,
        inference=scheme,
        likelihood=likelihood,
        max_iter=3,
        n_predict_draws=4,
        random_state=0,
    )
    if (likelihood, n_classes) not in SOME.get(scheme, PAIRS):
        why = "SGHMC follows gradients" if scheme == "sghmc" else "is for Gaussian noise"
        with pytest.raises(ValueError, match=why):
            model.fit(X, y)
        return
    model.fit(X, y)
    if n_classes == 1:
        assert np.isfinite(model.log_predictive_density(X, y)).all()
        assert (model.predict(X, return_std=True)[1] > 0.0).all()
        assert np.isfinite(model.sample_y(X, 2)).all()
    else:
        proba = model.predict_proba(X)
        assert proba.shape == (40, n_classes) and (proba > 0.0).all()
        np.testing.assert_allclose(proba.sum(1), 1.0)
