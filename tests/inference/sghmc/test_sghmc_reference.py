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
from skdgp.inference.chains import split_rhat
from skdgp.inference.sghmc import SGHMC
from skdgp.inference.sghmc.dynamics import adaptive_step, autocorrelation_time, preconditioned_step

cases = partial(vectors.cases, "sghmc.json")


def build(Z, kernels, noise, jitter, widths=(), **settings):
    n_inducing, n_features = np.shape(Z[0])
    shape = Architecture(n_features, widths, 1, n_inducing, kernels, True, False)
    model = SGHMC(n_chains=1, **settings).build(shape, Gaussian(np.array([noise])))
    with torch.no_grad():
        for layer, z in zip(model.layers, Z):
            layer.Z.copy_(tensor(z))
            layer.jitter = jitter
            if layer.W is not None:
                layer.W.copy_(torch.eye(*layer.W.shape))
    return model


@cases("sampler_step")
def test_adaptive_step(case):
    given = case["inputs"]
    state = {name: tensor(given[name]) for name in ("p", "xi", "g", "g2")}
    theta, state = adaptive_step(
        tensor(given["theta"]), state, tensor(given["grad"]), tensor(given["noise"]),
        given["N"], given["epsilon"], given["mdecay"], given["adapt"],
    )  # fmt: skip
    check(case, theta=theta, **state)


@cases("stationary_1d")
def test_stationary_law_of_the_preconditioned_step(case):
    # the root of the curvature as coordinates; the law is that of the linear map which a step is
    h, eta, alpha, s2 = (case["inputs"][k] for k in ("h", "eta", "alpha", "grad_noise_var"))
    kappa, root = eta * h, tensor([[[h**-0.5]]])

    def step(theta, p, noise):
        theta, p = (tensor(x).reshape(1, 1, 1) for x in (theta, p))
        noise, s2_z = tensor(noise).reshape(1, 1, 1), s2 / h
        theta, p = preconditioned_step(theta, p, h * theta, root, noise, kappa, alpha)
        return np.array([float(theta), float(p)]), s2_z

    M = np.stack([step(1.0, 0.0, 0.0)[0], step(0.0, 1.0, 0.0)[0]], 1)
    (b, s2_z) = step(0.0, 0.0, 1.0)
    extra = np.array([h**-0.5, 1.0]) * kappa * s2_z**0.5  # noise of the gradient enters as p does
    V = np.linalg.solve(
        np.eye(4) - np.kron(M, M), (np.outer(b, b) + np.outer(extra, extra)).ravel()
    )
    assert V[0] == pytest.approx(case["expected"]["var_theta"], rel=1e-8)
    inflation = (1.0 + kappa * s2_z / (2.0 * alpha)) / (1.0 - kappa / (2.0 * (2.0 - alpha)))
    check(case, var_theta=inflation / h, iat=autocorrelation_time(kappa, alpha))


@cases("single_layer_exact")
def test_one_layer(case):
    given = case["inputs"]
    kernel = SquaredExponential(np.array([given["lengthscale"]]), given["variance"])
    model = build(
        [given["Z"]], [kernel], given["noise"], given["jitter"], target=given["target"],
        last_layer="sampled",
    )  # fmt: skip
    batch, v = everything(given["X"], given["Y"]), tensor(given["V"])[None].requires_grad_()
    R = [layer.whitening() for layer in model.layers]
    value = model.log_target(batch, [v], [], R)[0] - 0.5 * v.numel() * np.log(2.0 * np.pi)
    (grad,) = torch.autograd.grad(value, v)
    _, A, variance = model.propagate(batch.X, [], [], R)
    log_z, L, b = model.integrated(A, variance, batch)
    cov = torch.cholesky_inverse(L[0, 0])
    root = torch.linalg.inv(R[0])
    mean = cov @ b[0, 0]
    check(
        case,
        log_target_at_V=value,
        grad_at_V=grad[0],
        post_mean_V=mean,
        post_cov_V=cov,
        log_normaliser=log_z[0],
        post_mean_u=root @ mean,
        post_cov_u=root @ cov @ root.T,
    )


@cases("two_layer_potential")
def test_two_layers(case):
    given = case["inputs"]
    n_features, width = np.shape(given["X"])[1], np.shape(given["V1"])[1]
    kernels = [
        SquaredExponential(np.full(n, given[f"ell{i}"]), given[f"var{i}"])
        for i, n in ((1, n_features), (2, width))
    ]
    model = build(
        [given["Z1"], given["Z2"]], kernels, given["noise"], given["jitter"], (width,),
        last_layer="sampled",
    )  # fmt: skip
    batch, total = everything(given["X"], given["Y"]), float(given["N_total"])
    batch = batch._replace(scale=total / batch.total, total=total)
    v = [tensor(given[k])[None].requires_grad_() for k in ("V1", "V2")]
    eps, R = [tensor(given["eps"])[None]], [layer.whitening() for layer in model.layers]
    potential = -model.log_target(batch, v, eps, R)[0] / given["N_total"]
    g1, g2 = torch.autograd.grad(potential, v)
    passed, _, variance = model.propagate(batch.X, v, eps, R)
    expected_shape = np.shape(case["expected"]["f_var_plus_noise"])
    check(
        case,
        potential=potential,
        f_mean=passed[-1][1][0, :, 0],
        f_var_plus_noise=(variance[0] + given["noise"]).reshape(expected_shape),
        grad_V1=g1[0],
        grad_V2=g2[0],
    )


@cases("split_rhat")
def test_split_rhat(case):
    check(case, rhat=split_rhat(case["inputs"]["draws"]))


@cases("mixture_prediction")
def test_mixture(case):
    # two outputs of one row, each with its own moments under every state
    means, variances, y = (tensor(case["inputs"][k]) for k in ("means", "variances", "y"))
    noise = Gaussian(1e-300)  # whose moments are given with the noise
    log_density = torch.stack(
        [
            torch.logsumexp(noise.log_partition(y[i : i + 1], m[:, None], v[:, None]), 0)
            for i, (m, v) in enumerate(zip(means.mT, variances.mT))
        ]
    ) - np.log(len(means))  # fmt: skip
    mean, var = means.mean(0), (variances + means.square()).mean(0) - means.mean(0).square()
    check(
        case,
        mean=mean,
        var=var,
        log_density=log_density.reshape(np.shape(case["expected"]["log_density"])),
    )
