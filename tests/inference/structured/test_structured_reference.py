"""Numbers that were computed independently, twice, from the equations of the paper."""

import numpy as np
import pytest
import torch
import vectors
from vectors import close, prior_root, tensor

from skdgp.inference import StructuredVI
from skdgp.inference.structured.coupled import CoupledGaussian
from skdgp.inference.structured.pattern import Pattern

REFERENCE = vectors.read("structured.json")
COUPLING = {"fc": "full", "star": "stripes-and-arrow", "mf": "mean-field"}


@torch.no_grad()
def build(problem, coupling, set_root):
    layers, noise = problem["layers"], problem["likelihood"]["variance"]
    widths = [layer["width"] for layer in layers]
    model = vectors.build(StructuredVI(coupling), layers, widths, noise)
    mean, C = tensor(problem["mu"]), tensor(problem["q_sqrt"])
    if not problem["whitened"]:
        L = [prior_root(layer) for layer, n in zip(model.layers, widths) for _ in range(n)]
        L = torch.block_diag(*L)
        mean = torch.linalg.solve_triangular(L, mean[:, None], upper=False)[:, 0]
        C = torch.linalg.solve_triangular(L, C, upper=False)
    model.q.mean.copy_(mean.view(-1, len(layers[0]["Z"])))
    set_root(model.q, C)
    close(model.q.dense_root(), C)
    return model


@pytest.mark.parametrize("as_full", [False, True])
@pytest.mark.parametrize("problem", REFERENCE["problems"], ids=lambda problem: problem["name"])
def test_problems(problem, as_full, set_root):
    coupling = "full" if as_full else COUPLING[problem["family"]]
    model = build(problem, coupling, set_root)
    X, y, expected = tensor(problem["X"]), tensor(problem["Y"]), problem["expected"]
    eps = [tensor(e) for e in problem["epsilon"] if e is not None]
    with torch.no_grad():
        mean, var = model.propagate(X, eps)
        close(model.divergence(), expected["kl"])
        ell = model.likelihood().expected_log_prob(y, mean, var)
    close(mean, expected["mu_hat"][-1])
    close(var[..., None], expected["Sigma_hat"][-1])
    close(ell, expected["ell"])
    close(ell.mean(0).sum() - model.divergence(), expected["elbo"])
    for moment, in_training in zip((mean, var), model.propagate(X, eps)):
        close(in_training.detach(), moment)


@pytest.mark.parametrize("item", REFERENCE["star_pattern"], ids=lambda item: f"{item['tau']}")
def test_stripes_and_arrow(item):
    tau, L, expected = item["tau"], item["L"], item["expected"]
    masks = {}
    for coupling in COUPLING.values():
        mask = np.eye(tau * (L - 1) + 1, dtype=int)
        mask[tuple(Pattern((tau,) * (L - 1), 1, coupling).blocks())] = 1
        masks[coupling] = mask
    np.testing.assert_array_equal(masks["stripes-and-arrow"], expected["lower_block_mask"])
    n_blocks = {name: (mask | mask.T).sum() for name, mask in masks.items()}
    assert n_blocks == {
        "stripes-and-arrow": expected["full_blocks"],
        "mean-field": expected["mean_field_blocks"],
        "full": expected["fully_coupled_blocks"],
    }
    assert masks["stripes-and-arrow"].sum() == expected["lower_blocks"]


@pytest.mark.parametrize("item", REFERENCE["local_natural_gradient"])
def test_natural_direction(item, set_root):
    mask, M = np.array(item["block_mask"]), item["M"]
    (coupling,) = (
        name
        for name in COUPLING.values()
        if len(mask) + len(Pattern((2, 2), 1, name).blocks()[0]) == mask.sum()
    )
    q = CoupledGaussian(M, (2, 2), 1, coupling)
    set_root(q, tensor(item["q_sqrt"]))
    gradient = CoupledGaussian(M, (2, 2), 1, coupling)
    set_root(gradient, tensor(item["grad_q_sqrt"]))
    g_mean = tensor(item["grad_mu"]).view(-1, M)
    xi, delta = q.natural_direction((g_mean, gradient.root.detach()))
    into = torch.zeros_like(q.root)
    gradient.root.data = q._scatter(xi, into)
    C = q.dense_root()
    close(C @ gradient.dense_root(), item["expected"]["direction_q_sqrt"])
    close(C @ delta.flatten(), item["expected"]["direction_mu"])
