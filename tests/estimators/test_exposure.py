"""Exposures of counts: in training, in all predictions, in pipelines and searches."""

from unittest import mock

import numpy as np
import pytest
import torch
from numpy.polynomial.hermite_e import hermegauss
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import logsumexp
from sklearn import config_context
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdgp import DeepGPClassifier, DeepGPRegressor, SparseGPRegressor
from skdgp.estimators.diagnostics import Diagnostics
from skdgp.fitting.table import Table
from skdgp.gp.kernels import SquaredExponential
from skdgp.gp.likelihoods import NegativeBinomial, Poisson
from skdgp.inference import SGHMC
from skdgp.inspection import diagnose, to_arviz
from skdgp.metrics import crps_scorer, log_predictive_density_scorer
from skdgp.predictive.mixture import Mixture
from skdgp.preprocessing.frames import FrameReader

RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (60, 2))
E = np.round(np.exp(1.5 * RNG.standard_normal(60))) + 1.0
Y = RNG.poisson(2.0 * np.exp(X[:, 0]) * E).astype(float)
KINDS = {"poisson": Poisson, "negative_binomial": NegativeBinomial}


def quick(**settings):
    settings = {"inference": "dsvi", "likelihood": "poisson", "max_iter": 60, **settings}
    return DeepGPRegressor(1, random_state=0, **settings)


@pytest.fixture(scope="module", params=KINDS)
def fitted(request):
    return quick(likelihood=request.param).fit(X, Y, exposure=E)


def with_exposure(y, e):
    return np.column_stack([y, np.log(e)])


def test_poisson_objective_is_that_of_weighted_rates():
    rates = RNG.poisson(3.0, 60)
    y = torch.as_tensor(with_exposure(E * rates, E))
    normals = torch.as_tensor(np.random.default_rng(0).standard_normal((2, 60, 1)))
    m, v = (part.clone().requires_grad_() for part in normals)
    likelihood, e = Poisson(rate=1.7), torch.as_tensor(E)
    exposed = likelihood.expected_log_prob(y, m, v.exp())
    plain = torch.as_tensor(rates, dtype=torch.float64)[:, None]
    weighted = e * likelihood.expected_log_prob(plain, m, v.exp())
    found, right = (torch.autograd.grad(part.sum(), (m, v)) for part in (exposed, weighted))
    for one, other in zip(found, right):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-8)
    constants = y[:, 0] * e.log() - torch.lgamma(y[:, 0] + 1.0)
    constants += e * torch.lgamma(plain[:, 0] + 1.0)
    torch.testing.assert_close(exposed, weighted + constants, rtol=1e-12, atol=1e-8)


@pytest.mark.parametrize("k", [1, 2])
def test_densities_are_those_of_larger_rates(k):
    f = 0.5 * RNG.standard_normal((60, k))
    y = np.tile(Y[:, None], k)
    mean = 1.3 * np.exp(f) * E[:, None]
    right = {
        Poisson(1.3): stats.poisson(mean).logpmf(y),
        NegativeBinomial(1.3, 0.4): stats.nbinom(2.5, 2.5 / (2.5 + mean)).logpmf(y),
    }
    for likelihood, expected in right.items():
        parts = (torch.as_tensor(part) for part in (with_exposure(y, E), f))
        assert_allclose(likelihood.log_prob(*parts).numpy(), expected.sum(1), rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS.values())
def test_partition_is_the_integral_over_the_log_rate(kind):
    likelihood, (nodes, weights) = kind(1.3), hermegauss(200)
    likelihood = likelihood.bind(with_exposure(Y, E), np.ones(60), np.ones(1))
    m, v = 0.3 * torch.ones(4, 1).double(), 0.2 * torch.ones(4, 1).double()
    y = torch.as_tensor(with_exposure(Y[:4], E[:4]))
    f = torch.as_tensor(0.3 + np.sqrt(0.2) * nodes)[:, None, None].expand(-1, 4, 1)
    density = likelihood.log_prob(y, f).exp().numpy()
    right = np.log(weights @ density / weights.sum())
    assert_allclose(likelihood.log_partition(y, m, v).numpy(), right, rtol=1e-6)


def test_starts_are_those_of_rates():
    rates, e = np.full((50, 1), 3.0), np.exp(RNG.uniform(-20.0, 5.0, 50))
    for kind in KINDS.values():
        bound = kind().bind(with_exposure(e[:, None] * rates, e), np.ones(50), np.ones(1))
        assert_allclose(bound.rate, 3.0)
    counts = RNG.negative_binomial(2.0, 2.0 / (2.0 + 5.0 * E), 60)[:, None]
    bound = NegativeBinomial().bind(with_exposure(counts, E), np.ones(60), np.ones(1))
    assert 0.1 < bound.overdispersion[0] < 0.5  # half of 0.5, in three standard errors


@pytest.mark.parametrize("inference", ["dsvi", "structured"])
def test_fit_is_that_of_weighted_rates(inference):
    rates = RNG.poisson(2.0 * np.exp(X[:, 0]))
    kernel = SquaredExponential(1.0, 1.0, trainable=False)
    given = {"kernel": kernel, "likelihood": Poisson(2.0, trainable=False), "init": "random"}
    model = quick(inference=inference, standardize=False, max_iter=100, n_inducing=60, **given)
    exposed = model.fit(X, E * rates, exposure=E).predict(X, exposure=1)
    weighted = model.fit(X, rates, sample_weight=E).predict(X)
    # gradients of the mean per row and of that per exposure have different sizes beside Adam's epsilon
    assert_allclose(exposed, weighted, rtol=1e-4)


@pytest.mark.parametrize("inference", ["aep", "rff", "nngp", "sghmc", "auto"])
def test_every_scheme_learns_rates(inference):
    model = quick(inference=inference, max_iter=40, n_predict_draws=8).fit(X, Y, exposure=E)
    assert_allclose(model.predict(X, exposure=E).sum(), Y.sum(), rtol=0.2)
    unexposed = np.mean(Y) / model.predict(X, exposure=1).mean()
    assert unexposed > 2.0  # rates are per unit of exposure, of which rows have several


@pytest.mark.parametrize("inference", ["dsvi", "aep", "rff", "nngp", "sghmc", "auto"])
def test_the_unit_of_exposure_does_not_matter(inference):
    model = quick(inference=inference, max_iter=40, n_predict_draws=8)
    years = model.fit(X, Y, exposure=E).predict(X, exposure=E)
    hours = model.fit(X, Y, exposure=8760.0 * E).predict(X, exposure=8760.0 * E)
    assert_allclose(hours, years, rtol=1e-5)


def test_exposure_without_a_rate_is_refused_under_a_map():
    model = quick(inference="exact", likelihood="gaussian", target_transform="yeo-johnson")
    model.fit(X, Y)
    with pytest.raises(ValueError, match="no rate"):
        crps_scorer(model, X, Y, exposure=E)


def test_predictions_are_integrals(fitted):
    new, e = X[:5], np.array([0.1, 1.0, 3.0, 50.0, 7.0])
    m, s = fitted.predict(new, return_std=True, latent=True)
    likelihood, (nodes, weights) = fitted.likelihood_, hermegauss(80)
    rates = e[:, None] * np.exp(m[:, None] + s[:, None] * nodes)
    weights = weights / weights.sum()
    if isinstance(likelihood, Poisson):
        counts, over = stats.poisson(rates), 0.0
    else:
        over = likelihood.overdispersion
        counts = stats.nbinom(1.0 / over, 1.0 / (1.0 + over * rates))
    mean, std = fitted.predict(new, return_std=True, exposure=e)
    assert_allclose(mean, rates @ weights, rtol=1e-6)
    second = (rates + (1.0 + over) * rates**2) @ weights
    assert_allclose(std**2, second - mean**2, rtol=1e-6)
    assert_allclose(fitted.predict_var(new, exposure=e), std**2)
    y = np.array([0.0, 1.0, 9.0, 60.0, 20.0])
    cdf = counts.cdf(y[:, None]) @ weights
    assert_allclose(fitted.predict_cdf(new, y, exposure=e), cdf, atol=1e-7)
    density = np.log(counts.pmf(y[:, None]) @ weights)
    assert_allclose(fitted.log_predictive_density(new, y, exposure=e), density, rtol=1e-5)
    q = fitted.predict_quantiles(new, [0.05, 0.95], exposure=e)
    assert_allclose(fitted.predict_interval(new, 0.9, exposure=e), q)
    assert_allclose(fitted.predict(new, quantiles=[0.05, 0.95], exposure=e), q)
    below = [counts.cdf(q[:, [j]] - down) @ weights for j in (0, 1) for down in (1.0, 0.0)]
    assert (below[0] < 0.05).all() and (below[1] >= 0.05).all()
    assert (below[2] < 0.95).all() and (below[3] >= 0.95).all()
    own, noise = fitted.predict(new, return_std=True, decompose=True, exposure=e)[1:]
    assert_allclose(own**2, (rates - mean[:, None]) ** 2 @ weights, rtol=1e-5)
    assert_allclose(own**2 + noise**2, std**2)
    scores = fitted._crps(new, y, e)
    grid = np.arange(2000.0)
    steps = np.stack([counts.cdf(n) @ weights for n in grid]) - (y <= grid[:, None])
    assert_allclose(scores, np.square(steps).sum(0), rtol=1e-3)


def test_draws_and_covariances(fitted):
    new, e = X[:3], np.array([0.5, 4.0, 20.0])
    mean, std = fitted.predict(new, return_std=True, exposure=e)
    draws = fitted.sample_y(new, 1000, exposure=e)
    assert (np.abs(draws.mean(1) - mean) < 4.0 * std / np.sqrt(1000)).all()
    latent = fitted.sample_y(new, 3, latent=True)
    assert_allclose(fitted.sample_y(new, 3, latent=True, exposure=e), latent)
    cov = fitted.predict(new, return_cov=True, exposure=e)[1]
    assert_allclose(np.diag(cov), std**2)
    one = fitted.predict(new, return_cov=True, exposure=1)[1]
    off = ~np.eye(3, dtype=bool)
    assert_allclose(cov[off], (one * np.outer(e, e))[off], rtol=0.05)


def test_chunks_and_held_out_rows():
    model = quick().partial_fit(X[:30], Y[:30], exposure=E[:30])
    model.partial_fit(X[30:], Y[30:], exposure=E[30:])
    assert_allclose(model.predict(X, exposure=E).sum(), Y.sum(), rtol=0.2)
    given = {"X_val": X[40:], "y_val": Y[40:]}
    model = quick().fit(X[:40], Y[:40], exposure=E[:40], exposure_val=E[40:], **given)
    density = model.log_predictive_density(X[40:], Y[40:], exposure=E[40:]).mean()
    assert_allclose(density, model.validation_scores_[-1], rtol=1e-6)
    with pytest.raises(ValueError, match=r"exposure_val.*exposure must have one number"):
        quick().fit(X[:40], Y[:40], exposure=E[:40], exposure_val=E[:40], **given)
    assert np.isfinite(
        quick(early_stopping=True).fit(X, Y, exposure=E).predict(X, exposure=E)
    ).all()


def test_weights_and_order_of_rows_go_along():
    rows = np.repeat(np.arange(60), 2)
    order = RNG.permutation(120)
    model = quick(n_inducing=20)
    repeated = model.fit(X[rows][order], Y[rows][order], exposure=E[rows][order]).predict(
        X, exposure=1
    )
    weighted = model.fit(X, Y, np.full(60, 2.0), exposure=E).predict(X, exposure=1)
    assert_allclose(repeated, weighted, rtol=1e-7)
    two = quick(max_iter=20).fit(X, np.column_stack([Y, 2.0 * Y]), exposure=E)
    assert two.predict(X[:3], exposure=E[:3]).shape == (3, 2)


def test_levels_have_positions_by_rates():
    levels = np.array(["rare", "frequent", "other"])[np.arange(300) % 3]
    e = np.array([2.0, 2000.0, 2.0])[np.arange(300) % 3]
    y = RNG.poisson(e * np.array([5.0, 5.0, 50.0])[np.arange(300) % 3])[:, None]
    reader = FrameReader([0])
    table = reader.fit(levels[:, None]).transform(levels[:, None])
    data = Table(table, y.astype(float), np.ones(300), reader.kinds, np.log(e)[:, None])
    data.scale(True, False, np.random.RandomState(0), likelihood=Poisson())
    encoded = data.x_scaler.encoder.transform(table[:3])[:, 0]
    assert abs(encoded[0] - encoded[1]) < 0.1 * abs(encoded[0] - encoded[2])


def test_metadata_are_routed():
    with config_context(enable_metadata_routing=True):
        model = quick(max_iter=20).set_fit_request(exposure=True)
        model.set_predict_request(exposure=True).set_score_request(exposure=True)
        pipe = make_pipeline(StandardScaler(), model).fit(X, Y, exposure=E)
        scaled = pipe[0].transform(X)
        plain = quick(max_iter=20).fit(scaled, Y, exposure=E)
        assert_allclose(pipe.predict(X, exposure=E), plain.predict(scaled, exposure=E))
        assert_allclose(pipe.score(X, Y, exposure=E), plain.score(scaled, Y, exposure=E))
        scores = cross_val_score(pipe, X, Y, cv=2, params={"exposure": E})
        assert (scores > 0.5).all()
        scaler = StandardScaler().fit(X[30:])
        half = quick(max_iter=20).fit(scaler.transform(X[30:]), Y[30:], exposure=E[30:])
        for scorer in (log_predictive_density_scorer, crps_scorer):
            routed = scorer.set_score_request(exposure=True)
            given = {"scoring": routed, "cv": 2, "params": {"exposure": E}}
            scores = cross_val_score(pipe, X, Y, error_score="raise", **given)
            right = scorer(half, scaler.transform(X[:30]), Y[:30], exposure=E[:30])
            assert_allclose(scores[0], right, rtol=1e-6)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (-E, "exposure must be positive and finite, but is -"),
        (E.astype(int).astype("m8[D]"), "exposure must be numbers, and holds dates or durations"),
        (np.where(np.arange(60) == 3, 0.0, E), "but is 0 in row 3"),
        (np.where(np.arange(60) == 3, np.nan, E), "but is nan in row 3"),
        (E[:5], "exposure must have one number for each of the 60 rows"),
        (np.column_stack([E, E]), "exposure must have one number"),
    ],
)
def test_bad_exposures_meet_one_sentence(fitted, bad, message):
    calls = (quick().fit, quick().partial_fit, fitted.score, fitted.predict_cdf)
    for call, rows in (*((call, (X, Y)) for call in calls), (fitted.predict, (X,))):
        with pytest.raises(ValueError, match=message):
            call(*rows, exposure=bad)


@pytest.mark.parametrize(
    "model",
    [
        DeepGPRegressor(1, inference="exact"),
        quick(likelihood="student_t"),
        SparseGPRegressor(),
        DeepGPClassifier(inference="dsvi"),
    ],
)
def test_exposure_needs_a_rate(model):
    labels = (Y > 5.0).astype(int)
    with pytest.raises(ValueError, match="has no rate, so leave exposure out"):
        model.fit(X, labels, exposure=E)
    if not isinstance(model, DeepGPClassifier):
        model.set_params(max_iter=5).fit(X, labels)
        with pytest.raises(ValueError, match="has no rate, so leave exposure out"):
            model.predict(X, exposure=E)


def test_diagnosis_knows_exposures(fitted):
    """The mixture's log densities are those of predictions, and the reference's those of rates."""
    rows = np.unique(X, axis=0, return_index=True)[1]
    diagnosis = diagnose(fitted, X, Y, exposure=E)
    with mock.patch.object(Diagnostics, "reports", lambda self: self):
        found = diagnose(fitted, X, Y, exposure=E).reports
    expected = fitted.log_predictive_density(X, Y, exposure=E)
    densities = Mixture(fitted.members_, found.X_ref, "cpu").log_prob(found.y_ref)
    assert_allclose(np.sort(densities), np.sort(expected[rows]), rtol=1e-9)
    assert diagnosis.ok
    labels = Y > np.median(Y)
    classifier = DeepGPClassifier(1, inference="dsvi", max_iter=5).fit(X, labels)
    for model, y in ((quick(likelihood="gaussian").fit(X, Y), Y), (classifier, labels)):
        with pytest.raises(ValueError, match="has no rate"):
            diagnose(model, X, y, exposure=E)


@pytest.mark.filterwarnings("ignore:The chains have not sampled")
def test_exposures_of_arviz():
    pytest.importorskip("arviz")
    settings = {"inference": SGHMC(n_samples=40, n_chains=2), "max_iter": 100}
    model = quick(**settings).fit(X, Y, exposure=E)
    data = to_arviz(model, X, Y, exposure=E)
    log_density = data.log_likelihood["y"].to_numpy().reshape(-1, len(Y))
    expected = model.log_predictive_density(X, Y, exposure=E)
    assert_allclose(logsumexp(log_density, 0) - np.log(len(log_density)), expected, rtol=1e-6)
    draws = data.posterior_predictive["y"].to_numpy().reshape(-1, len(Y))
    mean, std = model.predict(X, return_std=True, exposure=E)
    assert np.abs((draws.mean(0) - mean) / std * len(draws) ** 0.5).max() < 5.0  # standard errors
    plain = to_arviz(model, X, exposure=np.ones(60))
    assert_allclose(plain.posterior["f"], data.posterior["f"])
    model = quick(likelihood="gaussian", **settings).fit(X, np.log1p(Y))
    with pytest.raises(ValueError, match="has no rate"):
        to_arviz(model, X, exposure=E)
