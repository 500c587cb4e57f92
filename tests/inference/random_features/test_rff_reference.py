"""Numbers that were computed independently, twice, from the equations of the paper."""

import math
from functools import partial

import numpy as np
import pytest
import torch
import vectors
from toys import everything
from vectors import tensor

from skdgp.gp.gaussian import DiagonalBlock
from skdgp.gp.kernels import ArcCosine, Matern, SquaredExponential
from skdgp.gp.likelihoods import Gaussian, Softmax
from skdgp.inference import RandomFeatures
from skdgp.inference.base import Architecture
from skdgp.inference.random_features.features import FeatureLayer, draw_frequencies

cases = partial(vectors.cases, "rff.json")
#: what the reference calls the treatments of the frequencies
FREQUENCIES = {
    "prior_fixed": "fixed",
    "var_fixed": "variational",
    "var_resampled": "resampled",
}

close = partial(np.testing.assert_allclose, rtol=1e-8, atol=1e-9)


def make_kernel(name, log_ell, log_s2=0.0):
    numbers = {"lengthscale": np.exp(log_ell), "variance": math.exp(log_s2)}
    if name == "rbf":
        return SquaredExponential(**numbers)
    if name.startswith("arccos"):
        return ArcCosine(bias=0.0, order=int(name[-1]), **numbers)
    return Matern(nu=2.5 if name == "matern52" else 1.5, **numbers)


@torch.no_grad()
def place(layer, given):
    """Give a layer the frequencies of the reference, whose posteriors are not whitened."""
    z = tensor(given["z"])
    layer.z = z if layer.trigonometric else torch.cat([z, torch.ones_like(z[:1])])
    if "mix" in given:
        layer.mix = tensor(given["mix"])
    if layer.q_omega is not None:
        rows = slice(len(z))
        layer.q_omega.mean[rows] = tensor(given["m"]) * tensor(given["log_ell"]).exp()[:, None]
        layer.q_omega.rho[rows] = tensor(given["lv"]) + 2.0 * tensor(given["log_ell"])[:, None]


@cases("features")
@torch.no_grad()
def test_features(case):
    given = case["inputs"]
    kernel = make_kernel(given["kernel"], given["log_ell"], given["log_s2"])
    layer = FeatureLayer(kernel, *np.shape(given["log_ell"]), 1, np.shape(given["z"])[1])
    place(layer, given)
    X = tensor(given["X"])
    Phi, c2 = layer.basis(None, X)(X)
    close(c2.sqrt() * Phi, case["expected"]["Phi"])
    close(c2 * Phi @ Phi.T, case["expected"]["Gram"])


@cases("exact_kernel")
@torch.no_grad()
def test_many_features_are_the_kernel(case):
    given, n = case["inputs"], 2**15
    kernel = make_kernel(given["kernel"], given["log_ell"])
    layer = FeatureLayer(kernel, *np.shape(given["log_ell"]), 1, n)
    X, layer.sampling = tensor(given["X"]), "independent"
    grams = []
    for seed in range(4):
        layer.start(None, None, np.random.RandomState(seed), 1.0)
        Phi, c2 = layer.basis(None, X)(X)
        grams.append((c2 * Phi @ Phi.T).numpy())
    # the error of one of these numbers is below 1 / sqrt(n) times a diagonal one, or twice that of
    # rectified units; averaged over four seeds, this is four standard errors or more
    size = np.abs(case["expected"]["K"]).max()
    np.testing.assert_allclose(np.mean(grams, 0), case["expected"]["K"], atol=6 * size / n**0.5)
    layer.sampling = "auto"
    layer.start(None, None, np.random.RandomState(0), 1.0)
    Phi, c2 = layer.basis(None, X)(X)
    np.testing.assert_allclose(c2 * Phi @ Phi.T, case["expected"]["K"], atol=3e-3 * size)


def build(given, frequencies):
    layers, X = given["layers"], given["X"]
    softmax, feed = given["lik"] == "softmax", given["feed"]
    noise = np.full(np.shape(given["Y"])[1], math.exp(given["log_lam"]))
    likelihood = Softmax() if softmax else Gaussian(noise)
    widths = [np.shape(layer["mw"])[1] for layer in layers]
    kernels = [make_kernel(given["kernel"], q["log_ell"], q["log_s2"]) for q in layers]
    n_frequencies = np.shape(layers[0]["z"])[1]
    shape = Architecture(
        len(X[0]), tuple(widths[:-1]), widths[-1], n_frequencies, kernels, False, feed
    )
    model = RandomFeatures(frequencies=frequencies, covariance="diagonal").build(shape, likelihood)
    with torch.no_grad():
        for layer, q in zip(model.layers, layers):
            place(layer, q)
            layer.q.mean.copy_(tensor(q["mw"]))
            layer.q.rho.copy_(tensor(q["lvw"]))
    return model


@torch.no_grad()
def forward(model, given):
    """The last layer's values with the draws of the reference, by the parts of the model."""
    X, H = tensor(given["X"]), tensor(given["X"])
    for layer, q in zip(model.layers, given["layers"]):
        if layer is not model.layers[0] and given["feed"]:
            H = torch.cat([H, X.expand(len(H), *X.shape)], -1)
        xi = None
        if layer.resampled:
            xi = tensor(q["zs"])
            if not layer.trigonometric:
                xi = torch.cat([xi, torch.zeros_like(xi[:, :1])], 1)
        if given["local"]:
            mean, var = layer.moments(H, xi)
            H = mean + var.sqrt() * tensor(q["eps"])
        else:
            Phi, c2 = layer.basis(xi, X)(H)
            H = c2.sqrt() * Phi @ (layer.q.mean + (0.5 * layer.q.rho).exp() * tensor(q["eps"]))
    return H


@cases("elbo")
def test_bound(case):
    given, expected = case["inputs"], case["expected"]
    model = build(given, FREQUENCIES[given["treatment"]])
    F, Y = forward(model, given), tensor(given["Y"])
    close(F, expected["F_out"])
    with torch.no_grad():
        log_prob = model.likelihood().log_prob(Y, F)  # S, B
    ell = given["N"] / len(Y) * log_prob.mean(0).sum()
    close(ell, expected["ell"])
    close(log_prob.logsumexp(0) - math.log(len(F)), expected["test_logpred"])
    close(model.divergence(), expected["kl"])  # a bias stays at its prior
    close(ell - model.divergence(), expected["elbo"])


@cases("elbo")
def test_the_model_propagates_the_same(case):
    """The moments of the last layer, integrated over its weights, agree with draws of these."""
    given = case["inputs"]
    if not given["local"]:
        pytest.skip("local draws only")
    model = build(given, FREQUENCIES[given["treatment"]])
    eps = [tensor(q["eps"]) for q in given["layers"]]
    xi = [tensor(q["zs"]) if "zs" in q else None for q in given["layers"]]
    with torch.no_grad():
        mean, var = model.propagate(tensor(given["X"]), eps[:-1], xi)
    close(mean + var.sqrt() * eps[-1], case["expected"]["F_out"])


@cases("closed_form_last_layer")
def test_a_natural_step_is_the_closed_form(case):
    given, expected = case["inputs"], case["expected"]
    Phi, Y, lam = tensor(given["Phi"]), tensor(given["Y"]), given["lam"]
    model = one_layer(Phi, lam, "full")
    model.steps.n_made = 5  # the full step at once
    batch = everything(Phi, Y)
    model.learning_rate = 0.0  # of all but the weights
    model.step(batch, torch.Generator())
    q = model.layers[0].q
    close(q.mean.detach(), expected["mean"])
    close((q.root @ q.root.mT)[0].detach(), expected["cov"])
    close(bound(model, batch), expected["log_evidence"])


@cases("closed_form_last_layer")
def test_independent_weights_at_their_optimum(case):
    given, expected = case["inputs"], case["expected"]
    Phi, Y, lam = tensor(given["Phi"]), tensor(given["Y"]), given["lam"]
    model = one_layer(Phi, lam, "diagonal")
    batch = everything(Phi, Y)
    A = torch.eye(Phi.shape[1]) + Phi.T @ Phi / lam
    with torch.no_grad():
        q = model.layers[0].q
        q.mean.copy_(tensor(expected["mean"]))
        q.rho.copy_(-A.diagonal().log()[:, None])
    close(bound(model, batch), expected["mean_field_elbo"])
    model.expected_log_likelihood(batch, torch.Generator()).neg().backward()
    q.set_gradients(1.0)
    close(q.mean.grad, 0.0, atol=1e-7)
    close(q.rho.grad, 0.0, atol=1e-7)


def one_layer(Phi, noise, covariance):
    """A shallow model whose features are its inputs, of any sign: the tests are about weights."""
    M = Phi.shape[1]
    kernel = ArcCosine().bind(M)
    shape = Architecture(M, (), 1, M, [kernel], False, False)
    model = RandomFeatures(covariance=covariance, natural_step=1.0)
    model = model.build(shape, Gaussian(np.array([noise])))
    model.layers[0].basis = lambda xi, like: lambda H: (H, tensor(1.0))
    return model


def bound(model, batch):
    with torch.no_grad():
        ell = model.expected_log_likelihood(batch, torch.Generator())
        return ell - model.kl()


@cases("kl_omega")
def test_divergence_of_frequencies(case):
    given = case["inputs"]
    ell = tensor(given["log_ell"]).exp()[:, None]
    q = DiagonalBlock(*np.shape(given["m"]))
    with torch.no_grad():
        q.mean.copy_(tensor(given["m"]) * ell)
        q.rho.copy_(tensor(given["lv"]) + 2.0 * ell.log())
    close(q.kl(), case["expected"]["kl"])


def test_frequencies_are_normal_one_by_one():
    for sampling in ("sobol", "orthogonal", "independent"):
        draws = np.stack(
            [draw_frequencies(3, 8, np.random.RandomState(s), sampling) for s in range(4000)]
        )
        # moments of single numbers: standard errors 0.016, 0.022 and (fourth) 0.155
        np.testing.assert_allclose(draws.mean(0), 0.0, atol=0.07)
        np.testing.assert_allclose((draws**2).mean(0), 1.0, atol=0.1)
        np.testing.assert_allclose((draws**4).mean(0), 3.0, atol=0.7)
        cross = np.einsum("sir,sjr->rij", draws, draws) / len(draws)
        np.testing.assert_allclose(cross, np.eye(3)[None].repeat(8, 0), atol=0.1)
