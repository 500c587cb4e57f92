import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from oracles import check_gradients, in_standard_errors, of_mixture, units
from toys import (
    bound,
    check_progress,
    check_settings,
    check_single_precision,
    draw_functions,
    everything,
    jump_to_optimum,
    latents,
    posterior,
    run,
    same,
    seeded,
    toy,
)

from skdgp.gp.kernels import Linear, Matern, SquaredExponential
from skdgp.gp.likelihoods import Bernoulli, Gaussian, HeteroscedasticGaussian, Softmax, StudentT
from skdgp.inference import DSVI, StructuredVI, as_scheme
from skdgp.inference.base import Architecture
from skdgp.random import normal

NATURAL = ["last", "all", "none"]


def data(n=30, n_features=2, seed=0):
    return toy(n, n_features, seed=seed)


# The scheme


def test_steps_by_rows():
    rows = [1, 400, 401, 1000, 1001, 4000, 4001]
    assert [DSVI().max_iter(n) for n in rows] == [1000, 1000, 350, 350, 500, 500, 1500]


@pytest.mark.parametrize(
    ("kernel", "scale"),
    [
        (SquaredExponential(variance=1e-4), 1.0),
        (SquaredExponential(variance=0.01), 1.0),
        (Matern(variance=4.0), 0.05),
        (SquaredExponential(variance=0.75) + Matern(variance=0.25), 0.1),
        (Linear(variance=0.5, bias=0.0), 0.1),  # of two inputs of one
    ],
)
def test_hidden_outputs_deviate_by_a_tenth_and_no_more_than_the_prior(make_model, kernel, scale):
    hidden, last = make_model(2, (3,), kernel=kernel, random_q=False).layers
    torch.testing.assert_close(hidden.q.root[0], scale * torch.eye(5).double())
    assert torch.equal(last.q.root[0], torch.eye(5).double())


@pytest.mark.parametrize("widths", [(2,), (2, 2)])
@pytest.mark.parametrize("likelihood", [None, Bernoulli()])
def test_a_deep_model_starts_at_the_bound_of_a_shallow_one(make_model, widths, likelihood):
    """Without variance of its hidden kernels, and at any variance there is no divergence."""
    X, y = data()
    batch = everything(X, y if likelihood is None else (y > 0).double())
    shallow = make_model(2, (), likelihood=likelihood)

    def of_deep(variance):
        kernel = SquaredExponential(variance=variance)
        settings = {"likelihood": likelihood, "random_q": False, "inner_noise": 0.0}
        deep = make_model(2, widths, kernel=kernel, **settings)
        with torch.no_grad():
            for layer in deep.layers[:-1]:
                layer.W.copy_(torch.eye(2))
            deep.layers[-1].load_state_dict(shallow.layers[0].state_dict())
            eps = [normal((1, len(X), 2), seeded(i), X) for i in range(len(widths))]
            eps = [torch.cat([e, -e]) for e in eps]  # what is odd in them cancels
            return float(deep.of_moments(batch, *deep.propagate(X, eps)) - deep.kl())

    with torch.no_grad():
        moments = shallow.propagate(X, [])
        expected = float(shallow.of_moments(batch, *moments) - shallow.kl())
    assert of_deep(1e-14) == pytest.approx(expected, rel=1e-6)
    lost = [expected - of_deep(variance) for variance in (1e-4, 1e-5)]
    assert lost[0] / lost[1] == pytest.approx(10.0, rel=0.2)  # in proportion to the variance


def test_names_that_are_none():
    with pytest.raises(ValueError, match=r"Unknown inference 'svi'; the names are .*'dsvi'"):
        as_scheme("svi")
    with pytest.raises(
        TypeError, match=r"inference must be a string or an object of skdgp\.inference"
    ):
        as_scheme(None)


@pytest.mark.parametrize(
    ("n_classes", "name"),
    [(None, "heteroscedastic_student_t"), (2, "probit"), (3, "softmax"), (10, "softmax")],
)
@pytest.mark.parametrize("scheme", [DSVI(), StructuredVI()])
def test_automatic_likelihood(n_classes, name, scheme):
    assert scheme.auto_likelihood(n_classes) == name
    shallow = "gaussian" if n_classes is None else name
    assert scheme.auto_likelihood(n_classes, n_layers=1) == shallow


def test_inputs_of_layers():
    plain = Architecture(4, (3, 2), 1, 5, [], True, False)
    connected = Architecture(4, (3, 2), 1, 5, [], True, True)
    assert plain.layer_inputs() == [4, 3, 2]
    assert connected.layer_inputs() == [4, 7, 6]


# The model


@pytest.mark.parametrize("n_layers", [1, 2, 3, 5])
@pytest.mark.parametrize("input_connected", [False, True])
@pytest.mark.parametrize("k", [1, 2])
def test_models_of_any_depth(make_model, n_layers, input_connected, k):
    X, y = data()
    batch = everything(X, torch.cat([y, -2.0 * y], 1)[:, :k])
    widths = (3, 2, 1, 2)[: n_layers - 1]
    likelihood = Gaussian(np.array([0.1, 0.2])[:k])
    model = make_model(2, widths, k, likelihood=likelihood, input_connected=input_connected)
    before = bound(model, batch)
    assert np.isfinite(run(model, batch, 10)).all()
    assert bound(model, batch) > before
    mean, var = latents(model, X)
    assert mean.shape == var.shape == (1 if n_layers == 1 else 8, 30, k)
    assert (var > 0).all()


@pytest.mark.parametrize(
    ("kernel", "inner_scale", "scale"),
    [
        (SquaredExponential(variance=1e-4), None, 1.0),
        (SquaredExponential(variance=0.01), None, 1.0),
        (Matern(variance=4.0), None, 0.05),
        (SquaredExponential(variance=0.75) + Matern(variance=0.25), None, 0.1),
        (Linear(variance=0.5, bias=0.0), None, 0.1),  # of two inputs of one
        ("squared_exponential", 0.01, 0.01),
    ],
)
def test_starting_values(make_model, kernel, inner_scale, scale):
    """Hidden outputs deviate by a tenth unless it is given, and no more than the prior."""
    given = {} if inner_scale is None else {"inner_scale": inner_scale}
    model = make_model(2, (3,), kernel=kernel, random_q=False, inner_noise=0.2, **given)
    hidden, last = model.layers
    torch.testing.assert_close(hidden.q.root[0], scale * torch.eye(5).double())
    assert torch.equal(last.q.root[0], torch.eye(5).double())
    np.testing.assert_allclose(hidden.noise().detach(), 0.2)
    assert last.noise() == 0.0
    assert hidden.W is not None and last.W is None


def test_draws_are_even_over_all_hidden_units(make_model):
    model = make_model(2, (3, 2))
    draws = model.draws(256, 0)
    assert draws.shape == (256, 5)
    assert np.abs(draws.mean(0)).max() < 0.02
    np.testing.assert_array_equal(draws, model.draws(256, 0))
    assert not np.array_equal(draws, model.draws(256, 1))


def test_one_layer_needs_no_draws(make_model):
    assert make_model(2, ()).draws(64, 0).shape == (1, 0)


def test_every_draw_has_the_same_deviation_in_every_row(make_model):
    X = data(6)[0]
    model = make_model(2, (3,), inner_noise=0.2)
    draws = torch.as_tensor(model.draws(4, 0))
    mean, var = latents(model, X, 4)
    with torch.no_grad():
        per_row = model.propagate(X, [draws[:, None].expand(4, 6, 3)])
    torch.testing.assert_close((mean, var), per_row, rtol=1e-12, atol=1e-12)


# Functions


@pytest.mark.parametrize(
    ("widths", "input_connected"), [((), False), ((2,), False), ((1, 2), True)]
)
@pytest.mark.parametrize("dispersion", [1.0, 0.5])
def test_functions_have_the_moments_of_the_predictive(
    make_model, widths, input_connected, dispersion
):
    X = data(3)[0]
    model = make_model(2, widths, input_connected=input_connected, inner_noise=0.2)
    of_model = posterior(model)
    of_model.n_features = 4
    center, deviation = of_model.functions(20_000, seeded())(X, noise=seeded(6))
    mean, var = latents(model, X, n=4096)
    assert of_mixture(center + dispersion * deviation, mean, dispersion**2 * var) < 4


def test_noise_of_hidden_layers_is_fresh_for_every_row(make_model):
    X = data(1)[0].expand(2, 2)  # the same row twice
    model = make_model(2, (2,), inner_noise=0.2)
    f = draw_functions(model, 4, seeded(), 30)
    silent, noisy = f(X), f(X, noise=seeded(6))
    torch.testing.assert_close(silent[:, 0], silent[:, 1], rtol=1e-12, atol=1e-12)
    assert (noisy[:, 0] - noisy[:, 1]).abs().min() > 1e-6


# Settings


def test_every_setting_changes_the_predictions(make_model):
    X, y = data()

    def predictions(**settings):
        model = make_model(2, (2,), random_q=False, **settings)
        for i in range(8):
            model.step(everything(X, y), seeded(i))
        return latents(model, X)[0]

    settings = [
        {"n_draws": 3},
        {"inner_noise": 0.2},
        {"inner_scale": 0.5},
        {"shared_covariance": True},
        {"natural_gradient": "all"},
        {"natural_gradient": "none"},
        {"natural_step": 1.0},
        {"linear_mean": False},
        {"input_connected": True},
        {"kernel": "matern32"},
        {"likelihood": StudentT(4.0, np.array([0.2]))},
    ]
    check_settings(predictions, settings, 1e-5)


@pytest.mark.parametrize(
    ("natural_gradient", "natural"),
    [("last", [False, False, True]), ("all", [True] * 3), ("none", [False] * 3)],
)
def test_natural_gradient_names_the_blocks(make_model, natural_gradient, natural):
    model = make_model(2, (2, 2), natural_gradient=natural_gradient)
    assert [block.natural for block in model.blocks()] == natural


def test_shared_covariances_of_hidden_layers(make_model):
    X, y = data()
    batch = everything(X, y)
    settings = {"inner_noise": 0.1, "natural_gradient": "none"}
    shared = make_model(2, (3, 2), shared_covariance=True, **settings)
    separate = make_model(2, (3, 2), **settings)
    with torch.no_grad():
        for a, b in zip(shared.state_dict().values(), separate.state_dict().values()):
            b.copy_(a)  # which repeats the shared roots
    assert bound(shared, batch) == pytest.approx(bound(separate, batch), rel=1e-12)
    for a, b in zip(latents(shared, X), latents(separate, X)):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    f, g = (draw_functions(model, 3, seeded(), 20)(X) for model in (shared, separate))
    torch.testing.assert_close(f, g, rtol=1e-10, atol=1e-10)
    shared.step(batch, seeded())
    separate.step(batch, seeded())
    for a, b in zip(shared.parameters(), separate.parameters()):
        torch.testing.assert_close(a.grad, b.grad.sum_to_size(a.shape), rtol=1e-9, atol=1e-10)
    assert [len(block.root) for block in shared.blocks()] == [1, 1, 1]
    assert [len(block.root) for block in separate.blocks()] == [3, 2, 1]


def test_blocks_of_natural_steps_and_of_outputs_are_separate(make_model):
    settings = {"n_latents": 2, "likelihood": Gaussian(np.full(2, 0.1)), "shared_covariance": True}
    roots = [len(block.root) for block in make_model(2, (3,), **settings).blocks()]
    assert roots == [1, 2]
    settings["natural_gradient"] = "all"
    roots = [len(block.root) for block in make_model(2, (3,), **settings).blocks()]
    assert roots == [3, 2]


# Steps


@pytest.mark.parametrize(
    ("natural_gradient", "likelihood"),
    [("last", None), ("all", None), ("none", None), ("all", HeteroscedasticGaussian(np.array([0.1]))),
     ("all", StudentT(np.array([4.0]), np.array([0.3]))), ("none", Bernoulli()), ("last", Softmax())],
    ids=["last", "all", "none", "heteroscedastic", "student_t", "probit", "softmax"],
)  # fmt: skip
def test_steps_make_progress(make_model, natural_gradient, likelihood):
    X, y = data()
    n_latents = 2 if isinstance(likelihood, Softmax | HeteroscedasticGaussian) else 1
    settings = {"natural_gradient": natural_gradient, "n_draws": 2}
    model = make_model(2, (2,), n_latents, likelihood=likelihood, random_q=False, **settings)
    if likelihood is not None and likelihood.is_class:
        y = (y > 0.0).double()
    check_progress(model, everything(X, y), 60, 5.0)


def test_the_loss_is_the_negative_bound_per_row(make_model):
    X, y = data()
    model = make_model(2, (2,), n_draws=3)
    weight = torch.linspace(0.5, 2.0, 30, dtype=torch.float64)
    batch = everything(X, y, weight, scale=2.0, total=70.0)
    expected = -bound(model, batch) / 70.0
    assert model.step(batch, seeded()) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("natural_gradient", NATURAL)
def test_the_optimizer_gets_the_gradient_of_the_bound(make_model, natural_gradient):
    X, y = data()
    batch = everything(X, y)
    settings = {"natural_gradient": natural_gradient, "inner_noise": 0.1}
    model, twin = make_model(2, (2,), **settings), make_model(2, (2,), **settings)
    model.step(batch, seeded())
    named = [(name, p) for name, p in twin.named_parameters() if p.requires_grad]
    for name, parameter in named:
        parameter.grad = model.get_parameter(name).grad
    # of a root, the last entry is on the diagonal
    check_gradients(
        lambda: -bound(twin, batch) / batch.total, named, atol=1e-8,
        directions=lambda p: units(p)[-1:],
    )  # fmt: skip
    names = [name for name, _ in named]
    assert "likelihood.log_variance" in names
    assert sum(name.startswith("layers") for name in names) > 6


def test_roots_stay_lower_triangular(make_model):
    X, y = data()
    model = make_model(2, (2,), natural_gradient="none")
    for i in range(5):
        model.step(everything(X, y), seeded(i))
    for block in model.blocks():
        assert torch.equal(block.root, block.root.tril())


@pytest.mark.parametrize("natural_gradient", NATURAL)
def test_the_rate_shrinks_every_kind_of_step(make_model, natural_gradient):
    X, y = data()
    batch = everything(X, y)
    moves = []
    for rate in (1.0, 0.01):
        model = make_model(2, (2,), natural_gradient=natural_gradient)
        before = model.state()
        model.step(batch, seeded(), rate)
        after = model.state()
        moves.append({name: np.abs(after[name] - before[name]).max() for name in before})
    for name, move in moves[0].items():
        if not name.endswith(("W", "progress")):  # a fixed map, and the number of steps
            assert moves[1][name] == pytest.approx(0.01 * move, rel=0.05), name


def test_natural_steps_grow_over_five_steps(make_model):
    # in one dimension of a quadratic bound, a step of size gamma leaves 1 - gamma of the precision error
    X, y = data()
    batch = everything(X, y)
    model = make_model(2, (), natural_step=0.5)
    model.learning_rate = 0.0
    q = model.layers[0].q
    target = make_model(2, (), natural_step=0.5)
    jump_to_optimum(target, batch)
    optimum = torch.cholesky_inverse(target.layers[0].q.root.detach())
    errors = []
    for _ in range(8):
        errors.append((torch.cholesky_inverse(q.root.detach()) - optimum).norm())
        model.step(batch, seeded())
    gammas = 1.0 - torch.stack(errors[1:]) / torch.stack(errors[:-1])
    expected = 0.5 * 10.0 ** np.minimum(0.6 * np.arange(7) - 3.0, 0.0)
    np.testing.assert_allclose(gammas, expected, rtol=1e-6)


def test_natural_steps_never_lose_positive_definiteness(make_model):
    # a density that is not log-concave, with outliers: full steps are refused and halved
    X, y = data()
    y[::7] += 30.0
    likelihood = StudentT(np.array([2.5]), np.array([0.05]))
    settings = {"natural_gradient": "all", "natural_step": 1.0}
    model = make_model(2, (2,), likelihood=likelihood, **settings)
    generator = seeded()
    for _ in range(30):
        assert math.isfinite(model.step(everything(X, y), generator))
    for block in model.blocks():
        assert torch.isfinite(block.root).all()
        assert (torch.diagonal(block.root, dim1=1, dim2=2) > 0).all()


# Averages


@pytest.mark.parametrize("natural_gradient", ["all", "none"])
def test_averages_of_the_last_steps(make_model, natural_gradient):
    """By their definition: over a tenth of the steps, over at most 30, and over fewer small ones."""
    X, y = data()
    model, expected = make_model(2, (2,), natural_gradient=natural_gradient), None
    for n, rate in enumerate([1.0] * 310 + [0.5] * 10 + [0.01] * 10, 1):
        model.step(everything(X, y), seeded(n), rate)
        last = {name: p.detach().numpy().copy() for name, p in model.named_parameters()}
        reach = min(0.1 * n, 30.0 * rate)
        expected = expected or last
        expected = {k: v + (last[k] - v) / (1.0 + reach) for k, v in expected.items()}
        if n in (1, 2, 100, 310, 320, 330):
            average = model.state()
            for name, array in expected.items():
                np.testing.assert_allclose(average[name], array, rtol=1e-9, atol=1e-12)
            same({name: p.detach().numpy() for name, p in model.named_parameters()}, last)


def test_a_look_at_averages_does_not_change_training(make_model):
    X, y = data()
    models = [make_model(2, (2,)) for _ in range(2)]
    for i in range(5):
        for model in models:
            model.step(everything(X, y), seeded(i))
        models[0].divergence(), posterior(models[0])
    same(models[0].state(), models[1].state())
    same(models[0].training_state(), models[1].training_state())


def test_averages_scatter_less_than_steps(make_model):
    """From minibatches of ten rows, the mean of a posterior moves by less than half from look to look."""
    X, y = data(300)
    model, looks = make_model(2, (), natural_gradient="all"), {"own": [], "average": []}
    rng = np.random.default_rng(0)
    for step in range(600):
        rows = rng.choice(len(X), 10, replace=False)
        model.step(everything(X[rows], y[rows])._replace(scale=30.0, total=300.0), seeded(step))
        if step >= 300 and step % 10 == 0:
            looks["own"].append(model.blocks()[0].mean.detach().numpy().copy())
            looks["average"].append(model.state()["layers.0.q.mean"])
    own, average = (np.diff(looks[name], axis=0).std() for name in ("own", "average"))
    assert average < 0.5 * own


# Precision


def test_inputs_in_single_precision(make_model):
    X, y = data()
    model = make_model(2, (2,), n_inducing=10, n_draws=2, inner_noise=0.1)
    check_single_precision(model, X, y, [normal((2, 30, 2), seeded(), X)], 1e-3, 1e-4)


@pytest.mark.parametrize("natural_gradient", NATURAL)
def test_blocks_in_single_precision(make_model, natural_gradient):
    X, y = data()

    def train(dtype):
        model = make_model(2, (2,), natural_gradient=natural_gradient, inner_noise=0.1)
        model.prepare(0.02, dtype)
        assert model.learning_rate == 0.02
        return model, [model.step(everything(X.to(dtype), y), seeded()) for _ in range(5)]

    (_, exact), (model, losses) = train(torch.float64), train(torch.float32)
    # draws in single precision are other draws, so only the size of the losses is comparable
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]
    assert abs(losses[0] / exact[0] - 1.0) < 0.5
    other = make_model(2, (2,), natural_gradient=natural_gradient, inner_noise=0.1)
    other.load_state(model.state())
    for a, b in zip(latents(other, X), latents(model, X)):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


# Posteriors


def test_the_mean_of_a_function_is_that_given_its_hidden_layers(make_model):
    """Without deviations of the hidden layer, that of the one component; deviations have mean zero."""
    X, n = data(3)[0], 4000
    model = make_model(2, (2,), inner_noise=0.0)
    with torch.no_grad():
        model.layers[0].q.root.mul_(1e-8)
        model.layers[0].Z.copy_(torch.cat([X, X[:2]]) + 1e-3 * model.layers[0].Z)
    frozen = posterior(model)
    frozen.n_features = 4
    mean, deviation = frozen.functions(n, seeded())(X)
    assert_allclose(mean[:10], frozen.latent(X).mean[:1].expand(10, 3, 1), atol=0.02)
    assert in_standard_errors(deviation, 0.0) < 4
