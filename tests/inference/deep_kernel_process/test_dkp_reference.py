"""Numbers that were computed independently, twice, from the equations of the paper."""

import numpy as np
import pytest
import torch
import vectors
import wishart_formulas as wf
from torch.distributions import MultivariateNormal
from toys import everything
from vectors import tensor

from skdgp.gp.kernels import ArcCosine, Matern, SquaredExponential
from skdgp.gp.likelihoods import Gaussian
from skdgp.inference import NNGP, DeepInverseWishart
from skdgp.inference.base import Architecture
from skdgp.inference.deep_kernel_process import wishart as w
from skdgp.inference.deep_kernel_process.process import Level, factorize
from skdgp.inference.deep_kernel_process.sites import Whitened

CASES = vectors.read("diwp.json")["cases"]


def root(K):
    return torch.linalg.cholesky(tensor(K))


def make_kernel(name, lengthscale=1.0, height=1.0):
    if name.startswith("arccos"):
        return ArcCosine(1.0, height, bias=0.0, ard=False, order=int(name[-1]))
    if name == "se":
        return SquaredExponential(lengthscale, height, ard=False)
    return Matern(int(name[-2:-1]) / 2, lengthscale, height, ard=False)


def level_of(K_ii):
    L = root(K_ii)[None]
    return Level(None, None, L.new_zeros(1), L, torch.linalg.inv(L))


def condition_on(level, C, delta):
    """Take ``C C^T`` as the Gram matrix of the inducing points."""
    level.C, level.W, level.delta = C, C.mT @ level.J.mT, delta


def densities(i):
    density = wf.wishart_log_density if "V" in i else wf.inverse_wishart_log_density
    scale = i["V"] if "V" in i else i["Psi"]
    return {"logpdf": density(root(i["X"]), root(scale), tensor(i["nu"]))}


def divergence(i):
    of = [root(i["Psi_q"]), tensor(i["nu_q"]), root(i["Psi_p"]), tensor(i["nu_p"])]
    return {"kl": wf.inverse_wishart_kl(*of)}


def sample(i):
    n, c2, L = tensor(i["n_strict_lower"]), tensor(i["chi2_diag"]), root(i["Psi"])
    C = w.inverse_wishart_root(L, n, c2)
    trace = wf.triangular(C, L).square().sum()
    return {
        "G": C @ C.T, "chol_G": C, "logdet_G": 2.0 * w.log_det(C), "trace_Psi_Ginv": trace
    }  # fmt: skip


def kernel(i):
    k = make_kernel(i["kernel"], i["lengthscale"], i["height"])
    ii, it, tt = (tensor(i[name]) for name in ("G_ii", "G_it", "G_tt"))
    return {
        "K_ii": k.from_gram(ii),
        "K_it": k.from_gram(it, ii.diagonal(), tt),
        "K_tt": k.diag_from_gram(tt),
    }


def conditional(i):
    level, delta = level_of(i["K_ii"]), tensor(i["delta"])
    condition_on(level, root(i["G_ii"])[None], delta)
    K_it, K_tt, eps, c2 = (tensor(i[name])[None] for name in ("K_it", "K_tt", "eps", "chi2"))
    s = delta * level.schur(K_it, K_tt)[1]
    G_it, G_tt = level.draw_rows(K_it, K_tt, eps, c2)
    mean = level.draw_rows(K_it, K_tt, 0.0 * eps, c2)[0]
    K_ii, G_ii, joint = tensor(i["K_ii"]), tensor(i["G_ii"]), []
    P = len(K_ii)
    for t in range(K_it.shape[-1]):  # as a ratio of two densities of matrices
        full_K, full_G = (
            torch.cat(
                [torch.cat([ii, it[:, t, None]], 1), torch.cat([it[:, t], tt[t, None]])[None]]
            )
            for ii, it, tt in ((K_ii, K_it[0], K_tt[0]), (G_ii, G_it[0], G_tt[0]))
        )
        both = [
            wf.inverse_wishart_log_density(
                root(G.tolist()), delta.sqrt() * root(K.tolist()), delta + p + 1
            )
            for G, K, p in ((full_G, full_K, P + 1), (G_ii, K_ii, P))
        ]
        joint.append(both[0] - both[1])
    return {
        "psi_tt_i": s[0], "G_tt_i": (s / c2)[0], "mean_G_it": mean[0], "G_it": G_it[0],
        "G_tt": G_tt[0], "log_joint_cond": torch.stack(joint),
    }  # fmt: skip


def output(i):
    level, R, v = level_of(i["K_ii"]), tensor(i["L"]), tensor(i["v"])
    q = Whitened.of(level.L, R @ R.T @ v, (R @ R.T)[None])
    mean, cov = level.L[0] @ q.mean[0], level.L[0] @ q.J[0, 0].T @ q.J[0, 0] @ level.L[0].T
    f_mean, f_var = q.moments(*level.schur(tensor(i["K_it"])[None], tensor(i["K_tt"])[None]))
    e1, e2 = tensor(i["e1"]), tensor(i["e2"])
    u = mean + cov @ (torch.linalg.solve_triangular(level.L[0].T, e1, upper=True) + R @ e2)
    p = MultivariateNormal(torch.zeros(len(cov)).double(), tensor(i["K_ii"]))
    ratio = sum(p.log_prob(a) - MultivariateNormal(m, cov).log_prob(a) for a, m in zip(u.T, mean.T))
    return {
        "mean": mean, "cov": cov, "u": u, "kl": q.kl[0], "f_mean": f_mean[0], "f_var": f_var[0, :, 0],
        "logp_minus_logq": ratio,
    }  # fmt: skip


class Given:
    """Base randomness in the order in which it is asked for."""

    def __init__(self, i):
        self._lower = [tensor(n)[None] for n in i["n"]]
        self._chi2 = [tensor(c)[None] for c in (*i["c2"], *i["g2"])]
        self._eps = [tensor(e)[None] for e in i["eps"]]

    def lower(self, p, like):
        return self._lower.pop(0)

    def normal(self, shape, like):
        return self._eps.pop(0)

    def chi2(self, dof, shape):
        return self._chi2.pop(0)


def build(scheme, kernel, n_layers, n_features, n_inducing, n_outputs, sigma2):
    shape = Architecture(
        n_features, (n_features,) * (n_layers - 1), n_outputs, n_inducing, [], False, False
    )
    shape.kernels = [make_kernel(kernel, n_features**0.5).bind(n_features)] * n_layers
    if kernel.startswith("arccos"):
        for k in shape.kernels:
            k.lengthscale = n_features**0.5
    model = scheme.build(shape, Gaussian(np.full(n_outputs, sigma2)))
    getattr(model, "process", model).jitter = 0.0
    return model


@torch.no_grad()
def bound(i):
    X, y, Z, R, v = (tensor(i[name]) for name in ("Xb", "Yb", "Z", "L", "v"))
    model = build(
        DeepInverseWishart(),
        i["kernel"],
        len(i["delta"]),
        X.shape[1],
        len(Z),
        y.shape[1],
        i["sigma2"],
    )
    shift = tensor(i["bias"]) / tensor(i["scale"])  # of the inputs; models have none of their own
    X, Z = X + shift, Z + shift
    model.Z.copy_(Z), model.log_scale.copy_(tensor(i["scale"]).log())
    model.log_delta.copy_(tensor(i["delta"]).log()), model.log_gamma.copy_(tensor(i["gamma"]).log())
    for own, V in zip(model.V, i["V"]):
        own.copy_(tensor(V) * len(V) ** 0.5)
    (
        model.sites.h.copy_(R @ R.T @ v),
        model.sites.Lambda.copy_((R @ R.T).expand_as(model.sites.Lambda)),
    )
    mean, var, kl = model.sample_moments(X, Given(i))
    path = model.path(Given(i))
    ell = i["N"] / len(X) * model.likelihood().expected_log_prob(y, mean, var).sum()
    # log P - log Q of the Gram matrices that were drawn
    logpq, eye = 0.0, torch.eye(X.shape[1]).double()
    for j, (level, V) in enumerate(zip([None, *path.levels], i["V"])):
        delta, gamma, p = tensor(i["delta"][j]), tensor(i["gamma"][j]), len(V)
        K, C = (eye, path.metric[0]) if j == 0 else ((level.L @ level.L.mT)[0], level.C[0])
        V = tensor(V)
        L_q, L_p = root((delta * K + V @ V.T).tolist()), delta.sqrt() * root(K.tolist())
        logpq += wf.inverse_wishart_log_density(C, L_p, delta + p + 1.0)
        logpq -= wf.inverse_wishart_log_density(C, L_q, delta + gamma + p + 1.0)
    last, q = path.levels[-1], model.output(path.levels[-1])
    if len(path.levels) > 1:
        below = path.levels[-2].C[0]
        G_ii = below @ below.T
    else:
        G_ii = (path.F @ path.F.mT)[0]
    mean_u, cov = last.L[0] @ q.mean[0], last.L[0] @ q.J[0, 0].T @ q.J[0, 0] @ last.L[0].T
    e1, e2 = tensor(i["e1"]), tensor(i["e2"])
    u = mean_u + cov @ (torch.linalg.solve_triangular(last.L[0].T, e1, upper=True) + R @ e2)
    return {
        "kl_iw": path.kl[0], "kl_out": (kl - path.kl)[0], "ell_rb": ell, "elbo_rb": ell - kl[0],
        "f_mean": mean[0], "f_var": var[0, :, 0], "G_ii_last": G_ii, "u": u, "logpq_iw": logpq,
    }  # fmt: skip


@torch.no_grad()
def evidence(i):
    X, y = tensor(i["X"]), tensor(i["y"])
    model = build(
        NNGP(exact=True), i["kernel"], i["n_kernel"], X.shape[1], 1, y.shape[1], i["sigma2"]
    )
    batch = everything(X, y)
    model._keep(*batch[:3])
    K = model.covariances()[0] - i["sigma2"] * torch.eye(len(X))
    return {"K": K, "log_evidence": model.lower_bound(batch)}


def student_t(i):
    # by Bayes's rule, at a Gram matrix G that may be any
    K, f, delta, P = tensor(i["K"]), tensor(i["f"]), tensor(i["delta"]), len(i["f"])
    G = root((0.7 * K + torch.eye(P)).tolist())
    prior = wf.inverse_wishart_log_density(G, root((delta * K).tolist()), delta + P + 1.0)
    update = root((delta * K + torch.outer(f, f)).tolist())
    posterior = wf.inverse_wishart_log_density(G, update, delta + P + 2.0)
    f_given_G = MultivariateNormal(torch.zeros(P).double(), scale_tril=G).log_prob(f)
    return {"logpdf": prior + f_given_G - posterior}


COMPUTE = {
    "iw_logpdf": densities, "wishart_logpdf": densities, "iw_kl": divergence, "iw_sample": sample,
    "kernel_from_gram": kernel, "conditional_per_point": conditional, "gi_output": output,
    "elbo": bound, "nngp": evidence, "student_t_marginal": student_t,
}  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_reference(case):
    got, expected = COMPUTE[case["kind"]](case["inputs"]), dict(case["expected"])
    tolerance = {"rtol": case["rtol"], "atol": case["atol"]}
    left_out = {
        "G_it_last",
        "G_tt_last",
        "logpq_out",
        "ell_sampled",
        "elbo_sampled",
    }  # follow from others
    assert set(expected) - left_out == set(got)
    for name in got:
        np.testing.assert_allclose(np.asarray(got[name]), expected[name], err_msg=name, **tolerance)


def test_a_matrix_that_is_indefinite_is_refused_with_advice():
    with pytest.raises(torch.linalg.LinAlgError, match="fewer inducing points"):
        factorize(-torch.eye(2).double()[None], 1e-6)
