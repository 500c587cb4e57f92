"""Standard deviations of class probabilities: what the data leave open."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.special import expit, ndtr, softmax
from sklearn.datasets import load_iris, make_moons

from skdgp import DeepGPClassifier, SparseGPClassifier
from skdgp.gp.likelihoods import Bernoulli, RobustMax, Softmax

NODES = np.linspace(-9.0, 9.0, 10_001)  # fine enough for steps
WEIGHTS = np.exp(-0.5 * NODES**2)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
NEW = np.random.default_rng(0).uniform(-3.0, 3.0, (7, 2))


def moons(n=60):
    return make_moons(n, noise=0.2, random_state=0)


def std_of(link, weights, mean, var):
    """Of the second class, over components (C, n, 1)."""
    p = link(mean + np.sqrt(var) * NODES)
    return np.sqrt(weights @ (p**2 @ WEIGHTS) - (weights @ (p @ WEIGHTS)) ** 2)


@pytest.mark.parametrize(("link", "function"), [("probit", ndtr), ("logit", expit)])
@pytest.mark.parametrize(
    "model",
    [
        SparseGPClassifier(n_inducing=10, max_iter=20),
        DeepGPClassifier(inference="dsvi", max_iter=20, n_inducing=10, n_predict_draws=8),
    ],
)
def test_std_is_that_of_quadrature(model, link, function):
    X, y = moons()
    model = model.set_params(likelihood=Bernoulli(link), random_state=0).fit(X, y)
    proba, std = model.predict_proba(NEW, return_std=True)
    assert_allclose(proba, model.predict_proba(NEW))
    latent = model.members_[0].posterior().latent(torch.as_tensor(model._x_scaler.transform(NEW)))
    weights, mean, var = latent.log_weights.exp().numpy(), latent.mean.numpy(), latent.var.numpy()
    right = std_of(function, weights, mean, var)
    assert_allclose(std, np.column_stack([right, right]), rtol=1e-5)


def test_std_of_the_default_is_that_of_draws():
    X, y = load_iris(return_X_y=True)
    model = DeepGPClassifier(max_iter=30, random_state=0).fit(X[::3], y[::3])
    assert len(model.members_) > 1
    rows = X[1::40]
    std = model.predict_proba(rows, return_std=True)[1]
    draws = model._predictor().draw(rows, 600, 0, "mean")
    assert_allclose(std, draws.std(0), atol=0.05)  # four standard errors, and shapes of functions
    assert std.shape == (len(rows), 3)


@pytest.mark.parametrize("n_classes", [2, 3, 6])
@pytest.mark.parametrize("kind", [Softmax, RobustMax])
def test_several_classes_against_draws(kind, n_classes):
    rng, n = np.random.default_rng(n_classes), 200_000
    m, v = rng.standard_normal((4, n_classes)), rng.uniform(0.1, 2.0, (4, n_classes))
    likelihood = kind()
    var = likelihood.variance_of_mean(torch.as_tensor(m)[None], torch.as_tensor(v)[None])[0]
    f = m + np.sqrt(v) * rng.standard_normal((n, 4, n_classes))
    if kind is Softmax:
        p = softmax(f, -1)
    else:
        wrong = likelihood.epsilon / (n_classes - 1)
        won = np.arange(n_classes) == f.argmax(-1)[..., None]
        p = np.where(won, 1.0 - likelihood.epsilon, wrong)
    assert_allclose(np.sqrt(var.numpy()), p.std(0), rtol=0.01, atol=0.002)


@pytest.mark.parametrize("likelihood", [Bernoulli(), Bernoulli("logit"), Softmax(), RobustMax()])
def test_known_functions_leave_nothing_open(likelihood):
    m = torch.randn(3, 5, likelihood.n_latents(2), dtype=torch.float64)
    var = likelihood.variance_of_mean(m, torch.zeros_like(m))
    assert_allclose(var.numpy(), 0.0, atol=1e-12)


def test_more_rows_leave_less_open():
    few, many = (
        SparseGPClassifier(n_inducing=20, max_iter=50, random_state=0).fit(*moons(n))
        for n in (20, 500)
    )
    rows = moons(200)[0][100:]
    stds = [model.predict_proba(rows, return_std=True)[1].mean() for model in (few, many)]
    assert stds[1] < 0.5 * stds[0]
