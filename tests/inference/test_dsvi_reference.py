"""Numbers that were computed independently, twice, from the equations of the paper."""

import numpy as np
import pytest
import torch
import vectors
from toys import everything, jump_to_optimum
from vectors import close, observed, tensor

from skdgp.gp.gaussian import GaussianBlock
from skdgp.gp.inducing import linear_map
from skdgp.inference import DSVI

REFERENCE = vectors.read("dsvi.json")
SCHEME = DSVI(shared_covariance=False)


@pytest.fixture(params=REFERENCE["problems"], ids=lambda problem: problem["name"])
def problem(request):
    return request.param


@torch.no_grad()
def test_moments_and_samples_of_every_layer(problem):
    model, X, expected = (
        vectors.build_whitened(SCHEME, problem),
        tensor(problem["X"]),
        problem["expected"],
    )
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
    model, expected = vectors.build_whitened(SCHEME, problem), problem["expected"]
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


@pytest.mark.parametrize("quantity", ["ell", "log_predictive"])
@pytest.mark.parametrize("item", REFERENCE["likelihoods"], ids=lambda item: item["type"])
def test_likelihoods(item, quantity):
    likelihood, y, m, v = observed(item)
    method = {"ell": likelihood.expected_log_prob, "log_predictive": likelihood.log_partition}
    actual = float(method[quantity](y, m, v))
    assert abs(actual - item["expected"][quantity]) <= item["tolerance"]


@pytest.mark.parametrize("item", REFERENCE["collapsed_last_layer"], ids=["all_rows", "minibatch"])
def test_collapsed_last_layer(item):
    # one full natural step from the prior, on the draws of the last layer's inputs as rows
    model = vectors.build(DSVI(), [{**item, "noise_variance": None}], (1,), item["noise_variance"])
    H, y = tensor(item["H"]), tensor(item["y"])
    n_draws, n_rows, _ = H.shape
    scale = item["num_data"] / (n_rows * n_draws)
    batch = everything(H.flatten(0, 1), y.repeat(n_draws))
    batch = batch._replace(scale=scale, total=item["num_data"])
    jump_to_optimum(model, batch)
    q = model.layers[0].q
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
