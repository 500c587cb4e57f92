import math

import numpy as np
import pytest
import torch
from oracles import check_gradients, units
from toys import (
    bound,
    check_progress,
    check_settings,
    check_single_precision,
    classes_of,
    everything,
    latents,
    run,
    seeded,
    toy,
)

from skdgp.gp.likelihoods import (
    Bernoulli,
    HeteroscedasticGaussian,
    Poisson,
    RobustMax,
    Softmax,
    StudentT,
)
from skdgp.inference.structured.coupled import CoupledGaussian
from skdgp.inference.structured.pattern import COUPLINGS, Pattern
from skdgp.linalg import workspace


def data(n=20, k=1, seed=0):
    return toy(n, k=k, seed=seed)


def test_every_setting_changes_the_predictions(make_structured):
    X, y = data()

    def predictions(coupling="full", n_warmup=2, **settings):
        model = make_structured((2, 2), coupling, random_q=False, n_warmup=n_warmup, **settings)
        for i in range(8):
            model.step(everything(X, y), seeded(i))
        return latents(model, X)[0]

    settings = [
        {"coupling": "mean-field"},
        {"coupling": "stripes-and-arrow"},
        {"n_draws": 3},
        {"n_warmup": 0},
        {"inner_noise": 0.2},
        {"inner_scale": 0.1},
        {"natural_gradient": False},
        {"natural_step": 0.05},
        {"linear_mean": False},
        {"input_connected": True},
        {"kernel": "matern32"},
    ]
    check_settings(predictions, settings, 1e-6)


# Steps


@pytest.mark.parametrize(
    ("coupling", "widths", "n_latents", "natural_gradient"),
    [
        ("mean-field", (2,), 1, False),
        ("mean-field", (3, 1, 2), 2, True),
        ("stripes-and-arrow", (), 2, True),
        ("stripes-and-arrow", (2,), 2, False),
        ("stripes-and-arrow", (3, 1, 2), 1, True),
        ("stripes-and-arrow", (3, 1, 2), 2, False),
        ("full", (), 1, False),
        ("full", (2,), 1, True),
        ("full", (3, 1, 2), 2, True),
        ("full", (3, 1, 2), 1, False),
    ],
)
def test_the_optimizer_gets_the_gradient_of_the_bound(
    make_structured, coupling, widths, n_latents, natural_gradient
):
    batch = everything(*data(5, n_latents))
    settings = {"n_draws": 2, "natural_gradient": natural_gradient, "input_connected": True}
    model, twin = (make_structured(widths, coupling, n_latents, **settings) for _ in range(2))
    with workspace():
        model.step(batch, seeded())
    if natural_gradient:
        model.q.mean.grad, model.q.root.grad = model.q.collected_gradients()
    for (_, parameter), p in zip(twin.named_parameters(), model.parameters()):
        parameter.grad = p.grad

    @torch.no_grad()
    def loss():
        divergence = 0.0 if natural_gradient else twin.divergence()
        return float(divergence - twin.expected_log_likelihood(batch, seeded())) / batch.total

    def some(p):
        return units(p)[list({0, p.numel() // 2, p.numel() - 1})]

    check_gradients(loss, twin.named_parameters(), rtol=1e-4, atol=1e-7, directions=some)


@pytest.mark.parametrize(
    ("coupling", "natural_gradient", "likelihood", "n_latents"),
    [("full", True, None, 1), ("stripes-and-arrow", False, None, 1), ("mean-field", True, None, 2),
     ("full", False, None, 2), ("stripes-and-arrow", True, HeteroscedasticGaussian(np.array([0.1])), 2),
     ("full", True, Poisson(np.array([1.0])), 1), ("mean-field", False, Bernoulli(), 1),
     ("stripes-and-arrow", True, StudentT(np.array([4.0]), np.array([0.3])), 1),
     ("full", True, Softmax(), 3), ("mean-field", True, RobustMax(), 3)],
)  # fmt: skip
def test_steps_make_progress(make_structured, coupling, natural_gradient, likelihood, n_latents):
    X, y = data()
    y = torch.cat([y, -y], 1)[:, : 1 if likelihood else n_latents]
    settings = {"random_q": False, "n_warmup": 5, "n_draws": 2}
    model = make_structured(
        (2, 2), coupling, n_latents, likelihood=likelihood, natural_gradient=natural_gradient, **settings
    )  # fmt: skip
    check_progress(model, everything(X, classes_of(y, likelihood)), 40, 3.0)


def test_the_loss_is_the_negative_bound_per_row(make_structured):
    X, y = data()
    model = make_structured((2, 2), "full", n_draws=3)
    batch = everything(X, y, torch.linspace(0.5, 2.0, 20).double(), scale=2.0, total=50.0)
    expected = -bound(model, batch) / 50.0
    assert model.step(batch, seeded()) == pytest.approx(expected, rel=1e-12)


def test_a_weight_of_two_is_the_row_twice(make_structured):
    X, y = data(6)
    weight = torch.tensor([1.0, 2.0, 1.0, 0.0, 3.0, 1.0]).double()
    rows = torch.repeat_interleave(torch.arange(6), weight.long())
    eps = [e[:, None] for e in torch.as_tensor(make_structured().draws(4, 0)).split([2, 2], 1)]
    values = []
    for batch in (everything(X, y, weight), everything(X[rows], y[rows])):
        model = make_structured()
        mean, var = model.propagate(batch.X, eps)  # the same draws for every row
        ell = model.likelihood().expected_log_prob(batch.y, mean, var)
        value = (batch.weight * ell.mean(0)).sum()
        value.backward()
        values.append((value.detach(), *model.q.collected_gradients()))
    for a, b in zip(*values):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("natural_gradient", [False, True])
def test_natural_steps_stay_in_the_pattern_and_within_the_radius(make_structured, natural_gradient):
    X, y = data()
    model = make_structured((3, 2), natural_gradient=natural_gradient, natural_step=1.0)
    generator = seeded()
    for _ in range(10):
        C, mean = model.q.dense_root(), model.q.mean.detach().clone()
        assert math.isfinite(model.step(everything(X, 30.0 * y), generator))
        new = model.q.dense_root()
        assert torch.equal(new, new.tril())
        assert (new.diagonal() != 0.0).all()
        if natural_gradient:
            assert (new.diagonal() > 0.0).all()
            step = torch.linalg.solve_triangular(C, new, upper=False)
            moved = torch.linalg.solve_triangular(
                C, (model.q.mean - mean).detach().view(-1, 1), upper=False
            )
            M = mean.shape[1]
            # to first order, the metric is that of the tangent
            off, diagonal = step.tril(-1).square(), step.diagonal().log().square()
            lengths = (off.sum(1) + diagonal + 0.5 * moved[:, 0].square()).view(-1, M).sum(1).sqrt()
            assert lengths.max() <= 0.5 + 1e-9


# From simple to rich


def used(model):
    """The richest coupling whose blocks are not all zero."""
    q, T = model.q, len(model.q.mean)
    blocks = {
        tuple(pair) for pair in np.argwhere(q.slots >= 0) if q.root[q.slots[tuple(pair)]].any()
    }
    blocks -= {(i, i) for i in range(T)}
    for name in COUPLINGS:
        final = q.patterns[q.coupling]
        if blocks <= set(zip(*Pattern(final.widths, final.n_outputs, name).blocks())):
            return name
    raise AssertionError


@pytest.mark.parametrize("natural_gradient", [False, True])
def test_richer_posteriors_start_from_simpler_ones(make_structured, natural_gradient):
    batch, seen = everything(*data()), []
    settings = {"random_q": False, "inner_scale": 0.3, "natural_gradient": natural_gradient}
    model, generator = make_structured((2, 2), "full", n_warmup=3, **settings), seeded()
    simple = make_structured((2, 2), "mean-field", **settings)
    run(simple, batch, 3, seeded())
    for step in range(9):
        model.step(batch, generator)
        seen.append(used(model))
        if step == 2:
            torch.testing.assert_close(model.q.mean, simple.q.mean, rtol=1e-9, atol=1e-12)
            torch.testing.assert_close(model.q.root[:5], simple.q.root, rtol=1e-9, atol=1e-12)
    assert seen == [name for name in COUPLINGS for _ in range(3)]


def test_blocks_in_use_are_not_left_out_again(make_structured):
    X, y = data()
    model = make_structured((2, 2), "full", n_warmup=100)  # with blocks that are not zero
    batch = everything(X, y)
    expected = -bound(model, batch) / batch.total
    assert model.step(batch, seeded()) == pytest.approx(expected, rel=1e-12)
    assert model.q.active == "full"


def test_a_coupling_that_sleeps(make_structured):
    # with tiny inner variances the gradient of the arrow all but vanishes
    X, y = data()

    def largest(inner_scale):
        model = make_structured((2, 2), random_q=False, inner_scale=inner_scale)
        model.expected_log_likelihood(everything(X, y), seeded()).backward()
        return model.q.collected_gradients()[1][len(model.q.mean) :].abs().max()

    assert largest(0.1) > 1e3 * largest(1e-5) > 0.0


@pytest.mark.parametrize(
    ("coupling", "n_latents"), [("mean-field", 1), ("stripes-and-arrow", 2), ("full", 1)]
)
def test_inputs_in_single_precision(make_structured, coupling, n_latents):
    X, y = data(k=n_latents)
    model = make_structured((2, 2), coupling, n_latents, n_draws=2)
    model.prepare(0.01, torch.float32)
    eps = [torch.as_tensor(e)[:, None] for e in np.split(model.draws(2, 0), [2, 4], 1)]
    check_single_precision(model, X, y, eps, 1e-2, 1e-3)


@pytest.mark.parametrize("n_latents", [1, 2, 3])
@pytest.mark.parametrize("coupling", COUPLINGS)
def test_the_posterior_of_a_single_layer(make_structured, coupling, n_latents):
    model = make_structured((2, 3), coupling, n_latents=n_latents)
    C, M = model.q.dense_root(), 4
    S = (C @ C.T).detach().view(5 + n_latents, M, 5 + n_latents, M)
    for layer, first in zip(model.layers, (0, 2, 5)):
        with torch.no_grad():
            mean, excess = layer.q.moments()
        assert mean.shape == (M, layer.n_outputs)
        for d in range(layer.n_outputs):
            expected = S[first + d, :, first + d] - torch.eye(M)
            torch.testing.assert_close(excess[d], expected, rtol=1e-10, atol=1e-12)
            assert torch.equal(mean[:, d], model.q.mean[first + d])


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_draws_of_the_inducing_variables(make_structured, coupling):
    q = make_structured((2, 1), coupling, n_latents=2).q
    n = 50_000
    v = (q.frozen().sample(n, seeded())[0] - q.mean).detach().flatten(1)
    C, second = q.dense_root().detach(), v.T @ v / n
    deviation = (v.square().T @ v.square() / n - second.square()).sqrt()
    z = (second - C @ C.T) / deviation * math.sqrt(n)
    assert z.abs().max() < 5  # of 400


def test_gather_and_scatter_are_inverse():
    for coupling in COUPLINGS:
        q = CoupledGaussian(3, (3, 1, 2), 2, coupling)
        blocks = torch.randn(q.root.shape, generator=seeded(), dtype=torch.float64)
        blocks[: len(q.mean)].tril_()
        pattern = q.patterns[coupling]
        back = q._scatter(q._gather(blocks, pattern), torch.zeros_like(blocks))
        assert torch.equal(back, blocks)
