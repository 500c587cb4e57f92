import math
from itertools import product

import numpy as np
import pytest
import torch
from oracles import of_mixture
from scipy.stats import norm
from toys import everything, latents, posterior, seeded

from skdgp.gp.likelihoods import HeteroscedasticGaussian
from skdgp.inference.structured import inflation
from skdgp.inference.structured.inflation import LOG_FACTORS, NODES, VarianceInflation, learned


def known(mean=1.0, spread=0.7):
    layer = VarianceInflation()
    layer.moments.copy_(torch.tensor([mean, spread]))
    return layer


def moments(S=3, n=4, K=2, seed=0):
    rng = np.random.default_rng(seed)
    parts = (
        rng.normal(size=(S, n, K)),
        rng.uniform(0.1, 0.6, (S, n, K)),
        rng.uniform(1.0, 2.0, (S, n)),
    )
    return [torch.as_tensor(part) for part in parts]


def test_nodes_are_equally_probable():
    np.testing.assert_allclose(norm.cdf(NODES), [0.1, 0.3, 0.5, 0.7, 0.9])


def test_the_mixture_is_the_formula():
    mean, var, k_ff = moments()
    wide_mean, wide_var = known().mixture(mean, var, k_ff, 1)
    S, n, _ = mean.shape
    for q, s, i in product(range(len(NODES)), range(S), range(n)):
        m, v, c = mean[:, i, 0].numpy(), var[:, i, 0].numpy(), math.exp(1.0 + 0.7 * NODES[q])
        back = min(1.0, (v.mean() + m.var()) / float(k_ff[:, i].mean()))
        a2 = 1.0 + (c - 1.0) * back
        at = q * S + s
        assert float(wide_mean[at, i, 0]) == pytest.approx(
            m.mean() + math.sqrt(a2) * (m[s] - m.mean())
        )
        assert float(wide_var[at, i, 0]) == pytest.approx(a2 * v[s])
        assert float(wide_mean[at, i, 1]) == pytest.approx(float(mean[s, i, 1]))  # of the noise
        assert wide_var[at, i, 1] == var[s, i, 1]
    assert len(wide_mean) == S * len(NODES)
    torch.testing.assert_close(wide_mean.mean(0), mean.mean(0))  # the mean stays


def test_where_nothing_is_unknown_nothing_changes():
    mean, var, k_ff = moments()
    wide_mean, wide_var = known().mixture(mean[:1], 1e-12 * var[:1], k_ff[:1], 2)
    torch.testing.assert_close(wide_mean, mean[:1].expand_as(wide_mean))
    torch.testing.assert_close(wide_var, 1e-12 * var[:1].expand_as(wide_var), rtol=1e-9, atol=0.0)
    same = VarianceInflation()
    assert not same.known() and known().known()
    for part, whole in zip((mean, var), same.mixture(mean, var, k_ff, 2)):
        torch.testing.assert_close(whole, part.repeat(len(NODES), 1, 1))


def splits(log_factors, k=1.0, noise=0.05, n=4000, seed=0):
    """Mean log-densities of rows whose errors need these factors."""
    rng, scores = np.random.default_rng(seed), []
    for log_factor in log_factors:
        v = rng.uniform(0.0, k, n)

        def wide(g, v=v):
            return v * (1.0 + (math.exp(g) - 1.0) * v / k) + noise

        y = rng.normal(size=n) * np.sqrt(wide(log_factor))
        scores.append([norm.logpdf(y, scale=np.sqrt(wide(g))).mean() for g in LOG_FACTORS])
    return np.array(scores)


def test_the_learned_inflation_fits_both_sides_of_a_split(monkeypatch):
    assert learned(splits([0.0] * 4))[0] < 0.3
    # with many rows and splits, mean and spread are those of the directions
    monkeypatch.setattr(inflation, "_ROWS", 200.0)
    mean, spread = learned(splits(np.tile(2.0 + NODES, 8), n=500))
    assert mean == pytest.approx(2.0, abs=0.3) and spread == pytest.approx(1.0, abs=0.3)
    mean, spread = learned(splits([2.0] * 40, n=500))
    assert mean == pytest.approx(2.0, abs=0.15) and spread <= 0.25


def test_learned_is_the_posterior_mode():
    scores, best = splits([0.5, 2.5, 1.0], n=300), None
    for mean, spread in product(np.arange(0.0, 4.01, 0.25), (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)):
        total = norm.logpdf(mean, scale=1.5) + norm.logpdf(math.log(spread), scale=0.5)
        for split in scores:
            density = [
                math.exp(30.0 * np.interp(mean + spread * z, LOG_FACTORS, split)) for z in NODES
            ]
            total += math.log(np.mean(density))
        if best is None or total > best[0]:
            best = total, mean, spread
    np.testing.assert_allclose(learned(scores), best[1:])


def test_few_rows_are_not_believed():
    flat = np.zeros((4, len(LOG_FACTORS)))
    assert learned(flat)[0] == 0.0
    assert learned(np.array([0.01 * LOG_FACTORS]))[0] < 0.8  # a hundredth of a nat


# The model


def inflated(make_structured, **settings):
    model = make_structured(n_inflation_splits=1, **settings)
    model.variance_inflation.moments.copy_(torch.tensor([1.5, 0.7]))
    return model


X = torch.tensor([[0.0, 0.1], [0.5, -0.4], [2.0, 1.0], [4.0, -4.0]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("coupling", "widths", "n_latents"),
    [
        ("mean-field", (2,), 2),
        ("stripes-and-arrow", (), 1),
        ("stripes-and-arrow", (2, 2), 2),
        ("full", (2, 2), 1),
    ],
)
def test_predictions_are_a_mixture_of_the_widened(make_structured, coupling, widths, n_latents):
    model = inflated(make_structured, coupling=coupling, widths=widths, n_latents=n_latents)
    draws = torch.as_tensor(model.draws(8, 0))
    frozen = model.posterior(draws)
    log_weights, mean, var = frozen.latent(X)
    _, plain_mean, plain_var = model.posterior(draws, as_trained=True).latent(X)
    assert len(log_weights) == len(frozen.inflation) == len(mean) == len(NODES) * len(plain_mean)
    assert float(log_weights.exp().sum()) == pytest.approx(1.0)
    factors = model.variance_inflation.factors()
    torch.testing.assert_close(frozen.inflation, factors.repeat_interleave(len(plain_mean)))
    torch.testing.assert_close(mean.mean(0), plain_mean.mean(0))
    k_ff = torch.ones(1, len(X), dtype=torch.float64)  # the kernel's variance
    for part, expected in zip(
        (mean, var), model.variance_inflation.mixture(plain_mean, plain_var, k_ff, n_latents)
    ):
        torch.testing.assert_close(part, expected)


@pytest.mark.parametrize(("widths", "n_latents"), [((), 2), ((2,), 1), ((2, 2), 2)])
def test_functions_scatter_as_predicted(make_structured, widths, n_latents):
    model = inflated(make_structured, widths=widths, n_latents=n_latents, inner_noise=1e-6)
    of_model = posterior(model, 1024)
    of_model.n_features = 256
    f = of_model.functions(4000, seeded(1))
    factors = model.variance_inflation.factors()
    assert torch.isin(f.inflation, factors).all() and len(f.inflation.unique()) == len(NODES)
    assert of_mixture(sum(f(X)), *latents(model, X, 1024)) < 4.0


def test_the_covariance_of_a_single_layer(make_structured):
    model = inflated(make_structured, widths=(), n_latents=2)
    draws = model.draws(8, 0)
    cov = model.posterior(draws).covariance(X)
    plain = model.posterior(draws, as_trained=True).covariance(X)
    back = torch.diagonal(plain, dim1=1, dim2=2).clamp_max(1.0)  # of the kernel's variance
    expected = torch.zeros_like(cov)
    for factor in np.exp(1.5 + 0.7 * NODES):
        a = (1.0 + (factor - 1.0) * back).sqrt()  # k, n
        expected += a[:, :, None] * a[:, None] * plain / len(NODES)
    torch.testing.assert_close(cov, expected)
    assert (torch.linalg.eigvalsh(cov) > -1e-9).all()


def test_latents_of_the_noise_stay(make_structured):
    likelihood = HeteroscedasticGaussian(np.full(1, 0.1))
    model = inflated(make_structured, n_latents=2, likelihood=likelihood)
    draws = torch.as_tensor(model.draws(8, 0))
    mean, var = model.posterior(draws).latent(X)[1:]
    plain = model.posterior(draws, as_trained=True).latent(X)[1:]
    for part, own in zip((mean, var), plain):
        torch.testing.assert_close(part[..., 1], own[..., 1].repeat(len(NODES), 1))
        assert not torch.allclose(part[..., 0], own[..., 0].repeat(len(NODES), 1))


def test_training_is_without_inflation(make_structured):
    y = torch.sin(X[:, :1])
    losses = []
    for model in (inflated(make_structured), make_structured()):
        losses.append(model.step(everything(X, y), seeded(4)))
    assert losses[0] == losses[1]
