"""Numbers that were computed independently, twice, from the equations of the papers."""

import numpy as np
import pytest
import torch
import vectors
from toys import everything, latents
from vectors import close, observed, tensor

from skdgp.gp.kernels import SquaredExponential
from skdgp.inference import AEP
from skdgp.inference.aep.aep import _Cavity
from skdgp.inference.aep.matching import psi_of

REFERENCE = vectors.read("aep.json")


@pytest.mark.parametrize("item", REFERENCE["psi"], ids=["one_input", "several_inputs"])
def test_psi_statistics(item):
    kernel = SquaredExponential(np.array(item["lengthscales"]), item["variance"])
    Z, m, v, W = (tensor(item[name]) for name in ("Z", "m", "v", "W"))
    psi, expected = psi_of(kernel)(Z, m, v), {k: tensor(x) for k, x in item["expected"].items()}
    assert float(psi.variance) == expected["psi0"][0]
    close(psi.psi1, expected["psi1"])
    i, j = torch.tril_indices(len(Z), len(Z))
    E = torch.zeros(len(i), len(Z), len(Z), dtype=torch.float64)
    E[range(len(i)), i, j] = E[range(len(i)), j, i] = 1.0
    both = torch.where(i == j, 1.0, 2.0)
    roots = psi.root[:, i] * psi.root[:, j]
    close(psi.contract(E) / both + roots, expected["psi2"][:, i, j])
    # psi3 and psi4 enter as covariances
    close(v @ W.square() + (m @ W).square(), expected["psi3"])
    for k in range(len(Z)):
        c = torch.zeros(len(Z), W.shape[1], dtype=torch.float64)
        c[k] = 1.0
        close(psi.slopes(c, W) + (m @ W) * psi.psi1[:, k : k + 1], expected["psi4"][:, k])


@pytest.mark.parametrize("item", REFERENCE["log_z"], ids=lambda i: f"{i['type']}-{i['alpha']}")
def test_log_partition(item):
    likelihood, y, m, v = observed(item)
    actual = float(likelihood.log_partition(y, m, v, item["alpha"]))
    assert abs(actual - item["expected"]["log_z"]) <= item["tolerance"]


def build(problem):
    return vectors.build_whitened(
        AEP(alpha=problem["alpha"], prediction="moment-matching"), problem
    )


@pytest.mark.parametrize("problem", REFERENCE["problems"], ids=lambda problem: problem["name"])
@torch.no_grad()
def test_energy(problem):
    model, expected = build(problem), problem["expected"]
    X, y = tensor(problem["X"]), tensor(problem["Y"])
    cavities = [_Cavity.apply(*q.moments(), problem["alpha"] / len(X)) for q in model.blocks()]
    for i, (mean, Q, extra) in enumerate(cavities):
        close(mean, expected["cavity_mean"][i])
        close(Q + torch.eye(len(mean)), expected["cavity_cov"][i])
        close(
            extra - model.blocks()[i].kl(),
            expected["phi_q_minus_phi_p"][i] + expected["scaled_phi_cav_minus_phi_q"][i],
        )
        layers, model.layers = model.layers, model.layers[: i + 1]
        mean, var = model.match(X, [cavity[:2] for cavity in cavities[: i + 1]])
        model.layers = layers
        close(mean, expected["h_mean"][i])
        close(var, expected["h_var"][i])
    log_z = model.likelihood().log_partition(y, mean, var, problem["alpha"]) / problem["alpha"]
    close(log_z, expected["log_z_over_alpha"])
    batch = everything(X, y)
    close(model.expected_log_likelihood(batch, None) - model.kl(), expected["F"])
    rows = problem["batch"]
    part = everything(X[rows], y[rows])._replace(scale=len(X) / len(rows), total=float(len(X)))
    close(model.expected_log_likelihood(part, None) - model.kl(), expected["F_minibatch"])
    mean, var = latents(model, X)
    close(mean[0], expected["predict_mean"])
    close(var[0], expected["predict_var"])
