"""Leave-one-out densities are those of a refit: models on rows, under weights, repeats and copies."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from oracles import condition
from scipy.stats import norm
from toys import architecture, everything, noisy, posterior, rows

from skdgp.gp.kernels import RationalQuadratic
from skdgp.inference import NNGP, Exact, Vecchia
from skdgp.inference.rows import full_scale
from skdgp.inference.rows.unique_inputs import Rest

N, NOISE = 36, 0.1
KERNEL = RationalQuadratic(alpha=0.7, lengthscale=[0.6, 1.1], variance=1.4)
SCHEMES = {
    "exact": Exact(),
    "neighbors": Vecchia(N),
    "full scale": Vecchia(N, "subset", 9),
    "nngp": NNGP(exact=True),
}


def tensor(a):
    return torch.as_tensor(np.asarray(a, dtype=np.float64))


def built(scheme):
    kernel = "arc_cosine" if isinstance(scheme, NNGP) else KERNEL.bind(2)
    return scheme.build(architecture(kernel=kernel), noisy())


def model_of(scheme, X, y, weight, noise=None):
    """A model with these rows, without a step."""
    model = built(scheme)
    batch = everything(X, y, weight)._replace(noise=None if noise is None else tensor(noise))
    model.hold(batch)
    if isinstance(scheme, Exact):
        model.unsolved = batch
    if isinstance(scheme, Vecchia):
        model._look_in(np.array([0.6, 1.1]))
        model.induce(scheme.full_scale)
    return model


def covariance_of(model, X):
    """The kernel of a model of the rows `X`, of arrays."""
    if not hasattr(model, "process"):
        kernel = model.rows.kernel.fitted()
        return lambda A, B: kernel(tensor(A), tensor(B)).numpy()
    process = model.process

    @torch.no_grad()
    def composed(A, B):
        H = process.inputs(tensor(np.concatenate([A, B, np.unique(X, axis=0)])))
        K = process.kernels[0]().from_gram(H @ H.mT / H.shape[1]).numpy()
        n, m = len(A), len(B)
        white = process.jitter * np.diag(K)[n + m :].mean() * np.eye(n)
        return K[:n, :n] + white if A is B else K[:n, n : n + m]

    return composed


def distinct():
    X, y = rows(N)
    return X, y[:, 0], np.arange(N)


def repeated():
    """Inputs with several targets, and others with one target several times."""
    X, y, record = distinct()
    X[3:8], X[20:23] = X[2], X[19]
    X[9:12], y[9:12], record[9:12] = X[8], y[8], record[8]
    X[30], y[30], record[30] = X[29], y[29], record[29]
    return X, y, record


def near_copies():
    X, y, record = distinct()
    rng = np.random.default_rng(1)
    for first, n in ((4, 2), (10, 3), (20, 6)):
        copies = slice(first, first + n)
        X[copies] = X[first] + 1e-5 * rng.standard_normal((n, 2))
        y[copies], record[copies] = y[first] + 1e-5 * rng.standard_normal(n), record[first]
    return X, y, record


def weights_of(kind):
    rng = np.random.default_rng(3)
    return {
        "ones": np.ones(N),
        "threes": np.full(N, 3.0),
        "counts": rng.integers(1, 6, N).astype(float),
        "parts": rng.uniform(0.2, 1.0, N),
        "mixed": np.exp(rng.uniform(-1.5, 2.5, N)),
    }[kind]


def refit(k, X, y, record, weight, noise=None):
    """Log densities of targets given the others, of which the copies of a row are none.

    Where rows with its inputs have other targets, one count of a row is left out. Rows have `noise` times the
    variance of the likelihood; those with half of it are two.
    """
    noise, found = np.ones(len(X)) if noise is None else noise, np.empty(len(X))
    for i in range(len(X)):
        rest, same = weight.copy(), (X == X[i]).all(1)
        if (y[same] == y[i]).all():
            rest[same | (record == record[i])] = 0.0
        else:
            rest[i] -= min(1.0 / noise[i], weight[i])
        kept = rest > 0.0
        mean, var = condition(k, X[kept], y[kept], X[[i]], NOISE / rest[kept])
        found[i] = norm.logpdf(y[i], mean[0], np.sqrt(var[0, 0] + noise[i] * NOISE))
    return found


@pytest.mark.parametrize("weights", ["ones", "threes", "counts", "parts", "mixed"])
@pytest.mark.parametrize("data", [distinct, repeated, near_copies])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_they_are_those_of_a_refit(scheme, data, weights):
    (X, y, record), weight = data(), weights_of(weights)
    model = model_of(SCHEMES[scheme], X, y, weight)
    found = posterior(model).loo_log_density(np.arange(N))
    expected = refit(covariance_of(model, X), X, y, record, weight)
    # rows with the same inputs have a jitter each in the refit of composed kernels
    assert_allclose(found, expected, atol=1e-3 if scheme == "nngp" else 1e-4)
    # of a model that comes from a file, too
    again = built(SCHEMES[scheme])
    again.load_state(model.state())
    again.hold(everything(X, y, weight))
    assert_allclose(posterior(again).loo_log_density(np.arange(N)), found, atol=1e-7)


@pytest.mark.parametrize("data", [distinct, repeated, near_copies])
@pytest.mark.parametrize("scheme", ["exact", "neighbors", "full scale"])
def test_rows_with_noise_of_their_own(scheme, data):
    (X, y, record), count = data(), weights_of("counts")
    noise = np.exp(np.random.default_rng(4).uniform(-2.0, 2.0, N))[record]
    model = model_of(SCHEMES[scheme], X, y, count / noise, noise)
    found = posterior(model).loo_log_density(np.arange(N))
    expected = refit(covariance_of(model, X), X, y, record, count / noise, noise)
    assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("weights", ["ones", "mixed"])
@pytest.mark.parametrize("data", [distinct, near_copies, repeated])
def test_inducing_variables_without_a_row_by_dense_matrices(data, weights):
    """For six neighbors, in the joint distribution that the approximation stands for."""
    (X, y, _), weight = data(), weights_of(weights)
    model = model_of(Vecchia(6, "subset", 9), X, y, weight)
    smooth, rows_of = model._inducing_variables(), model._training_rows
    Z, targets, total = (part.numpy() for part in (model.rows.Z, model.rows.y, model.rows.weight))
    F, noise = smooth.known.numpy(), NOISE / total
    k = covariance_of(model, X)
    residual = k(Z, Z) - F @ F.T
    order = np.random.default_rng(0).permutation(len(Z))
    before = full_scale._predecessors(tensor(Z[order]), np.array([0.6, 1.1]), 6)
    B, D = np.eye(len(Z)), np.empty(len(Z))
    for position, i in enumerate(order):
        near = order[before[position][before[position] >= 0]]
        A = np.linalg.solve(residual[np.ix_(near, near)] + np.diag(noise[near]), residual[near, i])
        B[i, near], D[i] = -A, residual[i, i] + noise[i] - A @ residual[near, i]
    joint = np.linalg.inv(B.T @ np.diag(1.0 / D) @ B) + F @ F.T
    for i in (2, 4, 8, 9, 21, 29):
        rest = Rest.of(rows_of, np.array([i]), model.rows.y, model.rows.weight)
        shift, more = smooth.observations.without(rest)
        found = smooth.mean + (smooth.root @ shift[0])
        spread = smooth.root @ more[0]
        covariance = smooth.root @ smooth.root.T + spread @ spread.T
        C, values, own = joint.copy(), targets[:, 0].copy(), int(rest.unique)
        if bool(rest.alone):
            kept = np.asarray(rows_of.records) != rows_of.records[own]
        else:
            kept = np.ones(len(Z), dtype=bool)
            C[own, own] += NOISE / float(rest.weight) - noise[own]
            values[own] = float(rest.y)
        gain = np.linalg.solve(C[np.ix_(kept, kept)], F[kept]).T
        assert_allclose(found, gain @ values[kept], atol=1e-7)
        assert_allclose(covariance, np.eye(9) - gain @ F[kept], atol=1e-7)
