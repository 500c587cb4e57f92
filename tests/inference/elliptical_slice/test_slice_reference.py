"""Numbers that were computed independently, twice, from the equations of the papers."""

from functools import partial

import numpy as np
import pytest
import torch
import vectors
from toys import everything
from vectors import check, tensor

from skdgp.gp.kernels import SquaredExponential
from skdgp.gp.likelihoods import Gaussian
from skdgp.inference.base import Architecture
from skdgp.inference.elliptical_slice import EllipticalSlice
from skdgp.inference.elliptical_slice.factors import ConditioningSets
from skdgp.inference.elliptical_slice.moves import elliptical_slice
from skdgp.inference.elliptical_slice.posterior import JITTER, SlicedPosterior

cases = partial(vectors.cases, "mcmc.json")


def build(given, lengthscales, variances, widths):
    X, y = tensor(given["X"]), tensor(given["Y"])
    inputs = [X.shape[1], *widths]
    kernels = [
        SquaredExponential(np.broadcast_to(np.array(ell, dtype=float), d).copy(), var)
        for ell, var, d in zip(lengthscales, variances, inputs)
    ]
    shape = Architecture(X.shape[1], tuple(widths), y.shape[1], 0, kernels, False, False)
    scheme = EllipticalSlice(1, "fixed", n_chains=1)
    model = scheme.build(shape, Gaussian(np.full(y.shape[1], given["noise"])))
    model.hold(everything(X, y))
    return model


def two_layers(given):
    lengthscales, variances = ([given[f"{k}{i}"] for i in (0, 1)] for k in ("ell", "var"))
    return build(given, lengthscales, variances, [np.shape(given["V"])[1]])


def log_prior(model, F, i, H):
    off = F - 0.0
    kernel = model.logarithms.components(torch.zeros(0))[0][i]
    L = model.root(kernel, H)
    constant = 0.5 * off[0].numel() * np.log(2.0 * np.pi)
    return -0.5 * L.whiten(off).square().sum() - off.shape[-1] * L.log_det().sum() - constant


@cases("collapsed_log_joint")
def test_collapsed_log_joint(case):
    given = case["inputs"]
    model, V = two_layers(given), tensor(given["V"])[None]
    assert given["jitter0"] == JITTER
    kernels, likelihood = model.logarithms.components(torch.zeros(0))
    (F1,) = model.propagate(V, kernels)
    log_lik = model.log_likelihood(F1, kernels[-1], likelihood)[0]
    prior = log_prior(model, F1, 0, model.rows[0][None])
    # moments of the last layer's values given the targets, from the posterior at the rows
    states = {"v": V, "phi": torch.zeros(1, 0).double()}
    last, _ = SlicedPosterior(model, states, torch.zeros(1, model.n_hidden()))._layers[0][-1]
    mean, cov = (part[:, 0] for part in last.joint(F1[:1]))
    check(
        case,
        F1=F1[0],
        log_lik=log_lik,
        log_prior_F1=prior,
        log_joint=log_lik + prior,
        log_prior_V=-0.5 * V.square().sum() - 0.5 * V.numel() * np.log(2.0 * np.pi),
        F2_mean=mean.T,
        F2_cov=cov[0],
    )


@cases("predict")
def test_predictions(case):
    given = case["inputs"]
    model, V, eps = two_layers(given), tensor(given["V"])[None], tensor(given["eps"])
    states = {"v": V, "phi": torch.zeros(1, 0).double()}
    Xs = tensor(given["Xs"])
    first, _ = SlicedPosterior(model, states, torch.zeros(1, model.n_hidden()))._layers[0][0]
    mean, cov = (part[:, 0] for part in first.joint(Xs[None]))
    mean, cov = mean.T, cov[0]
    expected = case["expected"]
    np.testing.assert_allclose(mean, expected["F1s_mean"], rtol=case["rtol"], atol=case["atol"])
    np.testing.assert_allclose(
        cov + JITTER * torch.eye(len(Xs)), expected["F1s_cov"], rtol=1e-6, atol=1e-8
    )
    # rows one at a time, with the draws that give the values of hidden units that are expected
    F1s = tensor(expected["F1s"])
    for j in range(len(Xs)):
        z = (F1s[j] - mean[j]) / cov[j, j].sqrt()
        latent = SlicedPosterior(model, states, z[None]).latent(Xs[j : j + 1])
        np.testing.assert_allclose(latent.mean[0, 0], expected["F2s_mean"][j], rtol=1e-6)
        np.testing.assert_allclose(latent.var[0, 0, 0], expected["F2s_cov"][j][j], rtol=1e-6)
    np.testing.assert_allclose(
        F1s, mean + torch.linalg.cholesky(cov + JITTER * torch.eye(len(Xs))) @ eps, rtol=1e-6
    )


@cases("three_layer_log_joint")
def test_three_layers(case):
    given = case["inputs"]
    widths = [np.shape(given[k])[1] for k in ("V1", "V2")]
    model = build(given, given["ells"], given["vars"], widths)
    kernels, likelihood = model.logarithms.components(torch.zeros(0))
    V = torch.cat([tensor(given["V1"]), tensor(given["V2"])], 1)[None]
    F1, F2 = model.propagate(V, kernels)
    prior = log_prior(model, F1, 0, model.rows[0][None]) + log_prior(model, F2, 1, F1)
    log_lik = model.log_likelihood(F2, kernels[-1], likelihood)[0]
    np.testing.assert_allclose(
        model._log_density(F1, F2, kernels, 1)[0] - F2.numel() / 2 * np.log(2.0 * np.pi),
        log_prior(model, F2, 1, F1), rtol=1e-12,
    )  # fmt: skip
    check(case, F1=F1[0], F2=F2[0], log_prior_F=prior, log_lik=log_lik)


@cases("ess_step")
def test_elliptical_slice(case):
    given = case["inputs"]
    model, angles = two_layers(given), []
    uniforms = iter([*given["uniforms"], *np.linspace(0.1, 0.9, 50)])
    kernels, likelihood = model.logarithms.components(torch.zeros(0))
    V, nu = tensor(given["V"])[None], tensor(given["nu_std"])[None]

    def evaluate(v, i):
        (F,) = model.propagate(v, kernels)
        return model.log_likelihood(F, kernels[-1], likelihood)

    v, log_lik = elliptical_slice(
        V, evaluate(V, None), evaluate, nu, lambda k: tensor([next(uniforms) for _ in range(k)]),
        torch.ones(1).double(),
    )  # fmt: skip
    angle = float(torch.atan2(*torch.linalg.lstsq(torch.cat([nu[0], V[0]], 1), v[0])[0][:, 0]))
    angles.append(angle % (2.0 * np.pi))
    assert case["expected"]["n_evals"] == len(case["expected"]["angles"])
    assert angles[-1] == pytest.approx(case["expected"]["angles"][-1] % (2.0 * np.pi), rel=1e-8)
    (F,) = model.propagate(v, kernels)
    np.testing.assert_allclose(F[0], case["expected"]["F_new"], rtol=1e-8)
    np.testing.assert_allclose(log_lik[0], case["expected"]["log_lik_new"], rtol=1e-8)


@cases("vecchia")
def test_rows_given_their_neighbors(case):
    given = case["inputs"]
    X, y = tensor(given["X"]), tensor(given["y"])
    sets = ConditioningSets(X.numpy(), 3, X)
    assert [sorted(near[: min(i, 3)]) for i, near in enumerate(sets.index.tolist())] == given[
        "neighbours"
    ]
    kernel = SquaredExponential(given["lengthscale"], given["variance"], ard=False)
    near = sets.of(kernel, X[None], tensor([[[given["noise"]] * len(X)]]))
    white, root = near.whiten(y[:, None])[0, 0], near.whiten(torch.eye(len(X)).double())[0, 0]
    log_density = -0.5 * white.square().sum() - near.log_det().sum()
    log_density = log_density - 0.5 * len(X) * np.log(2.0 * np.pi)
    check(case, log_density=log_density, precision=root.T @ root)
