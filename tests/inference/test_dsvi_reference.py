"""Numbers that were computed independently, twice, from the equations of the paper."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from skdgp.gp.gaussian import GaussianBlock
from skdgp.gp.inducing import linear_map
from skdgp.gp.kernels import SquaredExponential
from skdgp.gp.likelihoods import (
    Bernoulli,
    Gaussian,
    HeteroscedasticGaussian,
    RobustMax,
    Softmax,
    StudentT,
)
from skdgp.inference import DSVI
from skdgp.inference.base import Architecture
from skdgp.inference.batch import Batch

pytestmark = pytest.mark.usefixtures("no_global_randomness")

REFERENCE = json.loads((Path(__file__).parents[1] / "reference" / "dsvi.json").read_text())

tensor = partial(torch.tensor, dtype=torch.float64)
close = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-11)


def build(layers, noise_variance, widths):
    kernels = [SquaredExponential(np.array(l["lengthscales"]), l["variance"]) for l in layers]
    n_inducing, n_features = np.shape(layers[0]["Z"])
    shape = Architecture(n_features, widths[:-1], widths[-1], n_inducing, kernels, True, False)
    model = DSVI(shared_covariance=False).build(
        shape, Gaussian(np.full(widths[-1], noise_variance))
    )
    with torch.no_grad():
        for layer, given in zip(model.layers, layers):
            layer.jitter = given["jitter"]
            layer.Z.copy_(tensor(given["Z"]))
    return model


def build_problem(problem):
    layers = problem["layers"]
    widths = tuple(np.shape(layer["q_mu"])[1] for layer in layers)
    model = build(layers, problem["likelihood"]["variance"], widths)
    with torch.no_grad():
        for layer, given in zip(model.layers, layers):
            layer.W = None if given["W"] is None else tensor(given["W"])
            noise = given["noise_variance"]
            layer.log_noise = torch.nn.Parameter(tensor(noise).log()) if noise else None
            q_mean, q_root = tensor(given["q_mu"]), tensor(given["q_sqrt"])
            if not given["whitened"]:
                K = layer.kernel()(layer.Z, layer.Z)
                L = torch.linalg.cholesky(K + layer.jitter * torch.eye(len(K)).double())
                q_mean = torch.linalg.solve_triangular(L, q_mean, upper=False)
                q_root = torch.linalg.solve_triangular(L, q_root, upper=False)
            layer.q.mean.copy_(q_mean)
            layer.q.root.copy_(q_root)
    return model


@pytest.fixture(params=REFERENCE["problems"], ids=lambda problem: problem["name"])
def problem(request):
    return request.param


@torch.no_grad()
def test_moments_and_samples_of_every_layer(problem):
    model, X, expected = build_problem(problem), tensor(problem["X"]), problem["expected"]
    n_draws = len(expected["f_mean"][-1])
    H = X.expand(n_draws, *X.shape)
    for i, layer in enumerate(model.layers):
        mean, var = (m.reshape(*H.shape[:2], -1) for m in layer.moments(H.flatten(0, 1)))
        close(mean, expected["f_mean"][i])
        close(var, expected["f_var"][i])
        if i < len(model.layers) - 1:
            H = mean + var.sqrt() * tensor(problem["epsilon"][i])
            close(H, expected["f_sample"][i])


@torch.no_grad()
def test_bound_and_predictive_density(problem):
    model, expected = build_problem(problem), problem["expected"]
    X, y = tensor(problem["X"]), tensor(problem["Y"])
    eps = [tensor(e) for e in problem["epsilon"] if e is not None]
    mean, var = model.propagate(X, eps)
    close(mean, expected["f_mean"][-1])
    close(var, expected["f_var"][-1])
    close([block.kl() for block in model.blocks()], expected["kl"])
    likelihood = model.likelihood()
    ell = likelihood.expected_log_prob(y, mean, var)
    close(ell, expected["ell"])
    close(ell.mean(0).sum() - model.divergence(), expected["elbo"])
    density = torch.logsumexp(likelihood.log_partition(y, mean, var), 0) - np.log(len(mean))
    close(density, expected["log_predictive"])


def make_likelihood(kind, params):
    return {
        "gaussian": lambda: Gaussian(params["variance"]),
        "bernoulli_probit": Bernoulli,
        "robustmax": lambda: RobustMax(params["epsilon"]),
        "softmax": lambda: Softmax(n_nodes=20**3),
        "heteroscedastic_exp": lambda: HeteroscedasticGaussian(1.0),
        "student_t": lambda: StudentT(params["df"], params["scale"]),
    }[kind]()


@pytest.mark.parametrize("quantity", ["ell", "log_predictive"])
@pytest.mark.parametrize("item", REFERENCE["likelihoods"], ids=lambda item: item["type"])
def test_likelihoods(item, quantity):
    likelihood = make_likelihood(item["type"], item["params"])
    y, m, v = tensor([[item["y"]]]), tensor([item["m"]]), tensor([item["v"]])
    if item["type"] == "bernoulli_probit":
        y = (y + 1.0) / 2.0  # from -1 and 1 to 0 and 1
    method = {"ell": likelihood.expected_log_prob, "log_predictive": likelihood.log_partition}[
        quantity
    ]
    actual = float(method(y, m, v))
    assert abs(actual - item["expected"][quantity]) <= item["tolerance"]


@pytest.mark.parametrize("item", REFERENCE["collapsed_last_layer"], ids=["all_rows", "minibatch"])
def test_collapsed_last_layer(item):
    # one full natural step from the prior, on the draws of the last layer's inputs as rows
    model = build([item], item["noise_variance"], (1,))
    H, y = tensor(item["H"]), tensor(item["y"])
    n_draws, n_rows, _ = H.shape
    batch = Batch(
        H.flatten(0, 1),
        y.repeat(n_draws)[:, None],
        torch.ones(n_draws * n_rows).double(),
        item["num_data"] / (n_rows * n_draws),
        item["num_data"],
    )
    model.expected_log_likelihood(batch, None).backward()
    q = model.layers[0].q
    assert q.natural_step(q.collected_gradients(), 1.0)
    close(q.mean.detach()[:, 0], item["expected"]["mu"])
    close((q.root @ q.root.mT)[0].detach(), item["expected"]["S"])
    with torch.no_grad():
        value = model.expected_log_likelihood(batch, None) - model.divergence()
    close(value, item["expected"]["value"])


@pytest.mark.parametrize("item", REFERENCE["natural_gradient"])
def test_natural_gradient(item):
    mean, root = tensor(item["mu"]), tensor(item["q_sqrt"])
    block = GaussianBlock(len(mean), 1, natural=True)
    with torch.no_grad():
        block.mean.copy_(mean[:, None])
        block.root.copy_(root[None])
    gradients = tensor(item["grad_mu_ell"])[:, None], tensor(item["grad_S_ell"])[None]
    assert block.natural_step(gradients, item["gamma"])
    S = (block.root @ block.root.mT)[0].detach()
    close(block.mean.detach()[:, 0], item["expected"]["mu"])
    close(S, item["expected"]["S"])
    close(torch.linalg.inv(S), item["expected"]["precision"])


@pytest.mark.parametrize("item", REFERENCE["mean_function"], ids=["narrower", "equal", "wider"])
def test_mean_function(item):
    X = np.array(item["X"])
    W = linear_map(X, item["D_out"])
    close(W @ W.T, item["expected"]["projector"])
    if X.shape[1] <= item["D_out"]:
        np.testing.assert_array_equal(W, item["expected"]["W"])
