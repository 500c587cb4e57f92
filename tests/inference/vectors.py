"""Reference vectors: cases of a file, models of a problem, and whether a result agrees with one."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from skdgp.gp.kernels import SquaredExponential
from skdgp.gp.likelihoods import (
    Bernoulli,
    Gaussian,
    HeteroscedasticGaussian,
    RobustMax,
    Softmax,
    StudentT,
)
from skdgp.inference.base import Architecture

tensor = partial(torch.tensor, dtype=torch.float64)
close = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-11)


def read(file):
    return json.loads((Path(__file__).parents[1] / "reference" / file).read_text())


def cases(file, kind):
    """Parametrizes a test by the cases of a kind."""
    found = [case for case in read(file)["cases"] if case["kind"] == kind]
    assert found
    return pytest.mark.parametrize("case", found, ids=lambda case: case["id"])


def check(case, **actual):
    """All expected values of a case, and no others, to its own tolerances."""
    assert set(actual) == set(case["expected"])
    for name, expected in case["expected"].items():
        value = actual[name].detach() if torch.is_tensor(actual[name]) else actual[name]
        np.testing.assert_allclose(
            value, np.array(expected), rtol=case["rtol"], atol=case["atol"], err_msg=name
        )


@torch.no_grad()
def build(scheme, layers, widths, noise):
    """A model with kernels, inducing inputs, mean functions and noise of the layers of a problem."""
    kernels = [SquaredExponential(np.array(l["lengthscales"]), l["variance"]) for l in layers]
    n_inducing, n_features = np.shape(layers[0]["Z"])
    shape = Architecture(n_features, (*widths[:-1],), widths[-1], n_inducing, kernels, True, False)
    model = scheme.build(shape, Gaussian(np.full(widths[-1], noise)))
    for layer, given in zip(model.layers, layers):
        layer.jitter = given["jitter"]
        layer.Z.copy_(tensor(given["Z"]))
        layer.W = None if given.get("W") is None else tensor(given["W"])
        variance = given.get("noise_variance")
        layer.log_noise = torch.nn.Parameter(tensor(variance).log()) if variance else None
    return model


@torch.no_grad()
def prior_root(layer):
    """Cholesky factor of the covariance matrix of inducing outputs."""
    K = layer.kernel()(layer.Z, layer.Z)
    return torch.linalg.cholesky(K + layer.jitter * torch.eye(len(K)))


@torch.no_grad()
def build_whitened(scheme, problem):
    """The model of a problem with its posteriors, which may be those of inducing outputs."""
    layers = problem["layers"]
    widths = [np.shape(layer["q_mu"])[1] for layer in layers]
    model = build(scheme, layers, widths, problem["likelihood"]["variance"])
    for layer, given in zip(model.layers, layers):
        L = torch.eye(len(layer.Z)).double() if given["whitened"] else prior_root(layer)
        for own, name in ((layer.q.mean, "q_mu"), (layer.q.root, "q_sqrt")):
            own.copy_(torch.linalg.solve_triangular(L, tensor(given[name]), upper=False))
    return model


def observed(item):
    """A likelihood, a target, and moments of its latents."""
    params = item["params"]
    likelihood = {
        "gaussian": lambda: Gaussian(params["variance"]),
        "bernoulli_probit": Bernoulli,
        "robustmax": lambda: RobustMax(params["epsilon"]),
        "softmax": lambda: Softmax(n_nodes=20**3),
        "heteroscedastic_exp": lambda: HeteroscedasticGaussian(1.0),
        "student_t": lambda: StudentT(params["df"], params["scale"]),
    }[item["type"]]()
    y, m, v = tensor([[item["y"]]]), tensor([item["m"]]), tensor([item["v"]])
    if item["type"] == "bernoulli_probit":
        y = (y + 1.0) / 2.0  # from -1 and 1 to 0 and 1
    return likelihood, y, m, v
