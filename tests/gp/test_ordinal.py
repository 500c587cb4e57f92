"""Classes in an order: thresholds on one latent function."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.base import clone

from skdgp import DeepGPClassifier
from skdgp.gp.component import Trainable
from skdgp.gp.likelihoods import Bernoulli, Ordinal

THRESHOLDS = np.array([-0.7, 0.2, 1.9])
EXACT = {"inference": "exact", "n_layers": 1, "random_state": 0}


def bound(ranks=(0, 1, 2, 3)):
    likelihood = Ordinal(odds=np.exp(THRESHOLDS[0]), gap=np.diff(THRESHOLDS))
    likelihood = likelihood.with_values(ranks=np.array(ranks))
    return likelihood.bind(np.arange(4.0)[:, None], np.ones(4), np.ones(1))


def column(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


@pytest.mark.parametrize("f", [-3.0, 0.1, 2.5])
def test_probabilities_are_differences_of_distribution_functions(f):
    ends = np.concatenate([[-np.inf], THRESHOLDS, [np.inf]])
    expected = np.diff(norm.cdf(ends - f))
    found = bound().log_probabilities(column(f), column(0.0)).exp()
    np.testing.assert_allclose(found[0], expected, rtol=1e-10)
    ell = bound().expected_log_prob(column(*range(4)), column(*[f] * 4), column(*[1e-12] * 4))
    np.testing.assert_allclose(ell, np.log(expected), rtol=1e-5)


@pytest.mark.parametrize("c", range(4))
@pytest.mark.parametrize("v", [0.3, 9.0])
def test_expectations_over_the_latent_function(c, v):
    likelihood, density = bound(), norm(0.4, v**0.5).pdf

    def p(f):
        return float(likelihood.log_density(column(c), column(f)).exp())

    ends = {"points": [-0.7, 0.2, 1.9], "limit": 200}
    mean, _ = quad(lambda f: p(f) * density(f), -20.0, 20.0, **ends)
    log_mean, _ = quad(lambda f: np.log(p(f)) * density(f), -20.0, 20.0, **ends)
    y, moments = column(c), (column(0.4), column(v))
    assert float(likelihood.log_partition(y, *moments).exp()) == pytest.approx(mean, rel=1e-7)
    assert float(likelihood.expected_log_prob(y, *moments)) == pytest.approx(log_mean, rel=1e-5)


def test_labels_may_be_sorted_in_another_order():
    """Classes are numbered as `classes_` has them, whatever their ranks."""
    ranks = [2, 0, 3, 1]
    plain = bound().log_probabilities(column(0.4), column(0.5))[0]
    np.testing.assert_allclose(
        bound(ranks).log_probabilities(column(0.4), column(0.5))[0], plain[ranks]
    )


def test_two_classes_are_probit():
    likelihood = Ordinal(odds=1.0).with_values(ranks=np.arange(2))
    likelihood = likelihood.bind(column(0.0, 1.0).numpy(), np.ones(2), np.ones(1))
    m, v = column(-0.3, 1.2), column(0.5, 2.0)
    expected = Bernoulli().log_probabilities(m, v)
    np.testing.assert_allclose(likelihood.log_probabilities(m, v), expected, rtol=1e-9)


def test_values_and_gradients_are_finite_far_from_all_thresholds():
    likelihood = bound()
    for f in (-1e4, -40.0, 40.0, 1e4):
        m = column(*[f] * 4).requires_grad_()
        v = torch.full_like(m, 0.5).requires_grad_()
        ell = likelihood.expected_log_prob(column(*range(4)), m, v)
        gradients = torch.autograd.grad(ell.sum(), (m, v))
        assert torch.isfinite(ell).all() and all(torch.isfinite(g).all() for g in gradients)
        total = likelihood.log_probabilities(m.detach(), v.detach()).exp().sum(-1)
        np.testing.assert_allclose(total, 1.0)


def test_gradients_of_thresholds():
    trainable = Trainable(bound())
    y, m, v = column(0.0, 1.0, 3.0), column(0.2, -1.0, 0.9), column(0.4, 1.0, 0.3)

    def total(odds, gap):
        values = {"log_odds": odds, "log_gap": gap}
        return torch.func.functional_call(
            _Expected(trainable, y, m, v), {f"t.{k}": x for k, x in values.items()}, ()
        )

    parameters = [p.detach().requires_grad_() for p in trainable.parameters()]
    assert torch.autograd.gradcheck(total, parameters)


class _Expected(torch.nn.Module):
    def __init__(self, t, *moments):
        super().__init__()
        self.t, self.moments = t, moments

    def forward(self):
        return self.t().expected_log_prob(*self.moments).sum()


def test_thresholds_start_at_shares():
    y = np.repeat(np.arange(3.0), [50, 30, 20])[:, None]
    likelihood = Ordinal().with_values(ranks=np.arange(3)).bind(y, np.ones(100), np.ones(1))
    shares = likelihood.log_probabilities(column(0.0), column(1.25)).exp()[0]
    np.testing.assert_allclose(shares, [0.5, 0.3, 0.2], atol=0.02)


# Labels


def grades(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 1))
    rank = np.digitize(1.5 * X[:, 0] + rng.normal(size=n), [-1.5, 0.5, 1.5])
    return X, np.array(["bad", "average", "good", "excellent"])[rank]


ORDER = ["bad", "average", "good", "excellent"]


def test_order_of_strings_is_given():
    X, y = grades()
    model = DeepGPClassifier(likelihood=Ordinal(order=ORDER), max_iter=20, **EXACT).fit(X, y)
    assert model.classes_.tolist() == sorted(ORDER)
    proba = pd.DataFrame(model.predict_proba([[-2.0], [0.0], [2.0]]), columns=model.classes_)[ORDER]
    mean = proba.to_numpy() @ np.arange(4)
    assert mean[0] < 0.6 < 1.0 < mean[1] < 2.0 < 2.4 < mean[2]
    # one peak each: a class farther from the most probable one is less probable
    for row in proba.to_numpy():
        signs = np.sign(np.diff(row))
        assert (np.diff(signs) <= 0.0).all()
    ordered = pd.Series(pd.Categorical(y, ORDER, ordered=True))
    other = DeepGPClassifier(likelihood="ordinal", max_iter=20, **EXACT).fit(X, ordered)
    np.testing.assert_allclose(other.predict_proba(X), model.predict_proba(X))
    with pytest.raises(ValueError, match="needs the order of labels that are no numbers"):
        DeepGPClassifier(likelihood="ordinal", **EXACT).fit(X, y)


def test_numbers_have_their_own_order():
    X, y = grades()
    stars = np.array([ORDER.index(label) for label in y]) * 2 + 1
    model = DeepGPClassifier(likelihood="ordinal", max_iter=20, **EXACT).fit(X, stars)
    assert model.classes_.tolist() == [1, 3, 5, 7]
    assert model.predict([[-2.0], [2.0]]).tolist() == [1, 7]


def test_thresholds_are_those_of_the_data():
    """Noise of one and a linear function: differences of thresholds over the slope are known."""
    X, y = grades(1500)
    model = DeepGPClassifier(likelihood=Ordinal(order=ORDER), **EXACT).fit(X, y)
    likelihood = model.likelihood_
    np.testing.assert_allclose(likelihood.gap, [2.0, 1.0], atol=0.3)
    p = model.predict_proba(X)[np.arange(1500), np.searchsorted(model.classes_, y)]
    ends = np.array([-np.inf, -1.5, 0.5, 1.5, np.inf])
    rank = np.array([ORDER.index(label) for label in y])
    right = norm.cdf(ends[rank + 1] - 1.5 * X[:, 0]) - norm.cdf(ends[rank] - 1.5 * X[:, 0])
    assert np.log(p).mean() == pytest.approx(np.log(right).mean(), abs=0.01)


@pytest.mark.parametrize("n_layers", [1, 2])
def test_deep_models_learn_thresholds(n_layers):
    X, y = grades()
    settings = {"inference": "dsvi", "max_iter": 30, "random_state": 0, "n_predict_draws": 8}
    model = DeepGPClassifier(n_layers, likelihood=Ordinal(order=ORDER), **settings).fit(X, y)
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba.sum(1), 1.0)
    assert model.score(X, y) > 0.4
    again = clone(model).fit(X, y)
    np.testing.assert_array_equal(again.predict_proba(X), proba)


@pytest.mark.parametrize(
    ("likelihood", "why"),
    [
        (Ordinal(order=["bad", "good"]), r"order of Ordinal lacks \['average', 'excellent'\]"),
        (Ordinal(order=[*ORDER, "bad"]), "has a label twice"),
        (Ordinal(order=ORDER, gap=[1.0]), "4 classes have 3 thresholds, with 2 differences"),
    ],
)
def test_orders_and_thresholds_that_do_not_suit_the_labels(likelihood, why):
    X, y = grades(40)
    with pytest.raises(ValueError, match=why):
        DeepGPClassifier(likelihood=likelihood, **EXACT).fit(X, y)


def test_labels_without_a_row_have_their_place():
    X, y = grades(60)
    order = ["awful", *ORDER]
    model = DeepGPClassifier(likelihood=Ordinal(order=order), max_iter=3, **EXACT).fit(X, y)
    assert len(model.classes_) == 4
