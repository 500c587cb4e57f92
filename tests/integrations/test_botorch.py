"""Regressors as models of BoTorch: moments, batches, gradients, conditioning, acquisition functions."""

import functools

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from skdgp import DeepGPClassifier, DeepGPRegressor

botorch = pytest.importorskip("botorch")

from botorch.acquisition import LogExpectedImprovement, qKnowledgeGradient  # noqa: E402
from botorch.acquisition.logei import (  # noqa: E402
    qLogExpectedImprovement,
    qLogNoisyExpectedImprovement,
)
from botorch.acquisition.max_value_entropy_search import qMaxValueEntropy  # noqa: E402
from botorch.acquisition.monte_carlo import qUpperConfidenceBound  # noqa: E402
from botorch.acquisition.multi_objective.logei import (  # noqa: E402
    qLogNoisyExpectedHypervolumeImprovement,
)
from botorch.acquisition.objective import ScalarizedPosteriorTransform  # noqa: E402
from botorch.generation import MaxPosteriorSampling  # noqa: E402
from botorch.models import ModelListGP, SingleTaskGP  # noqa: E402
from botorch.models.model import ModelList  # noqa: E402
from botorch.optim import optimize_acqf  # noqa: E402
from botorch.sampling import SobolQMCNormalSampler  # noqa: E402

from skdgp.integrations.botorch import as_model  # noqa: E402

CLOSED = ["exact", "vecchia", "collapsed", "vfe"]
SCHEMES = [*CLOSED, "dsvi", "rff", "nngp", "auto"]
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
UNITS = np.array([1.0, 100.0])


def table():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(30, 2)) * UNITS
    return X, np.sin(6.0 * X[:, 0]) + X[:, 1] / 100.0 + 0.05 * rng.standard_normal(30)


def rows(*shape):
    return torch.tensor(np.random.default_rng(1).uniform(size=(*shape, 2)) * UNITS)


@functools.cache
def fitted(scheme, outputs=1, **settings):
    X, y = table()
    y = y if outputs == 1 else np.column_stack([y, X[:, 0] - y])
    settings = {"max_iter": 15, "n_predict_draws": 8, "random_state": 0, **settings}
    n_layers = 1 if scheme in ("exact", "vecchia", "vfe") else 2
    model = DeepGPRegressor(n_layers, inference=scheme, target_transform=None, **settings)
    return model.fit(X, y)


def covariance(posterior):
    return posterior.distribution.covariance_matrix


@pytest.mark.parametrize("scheme", SCHEMES)
def test_moments(scheme):
    estimator, X = fitted(scheme), rows(3, 4)
    model = as_model(estimator)
    posterior, flat = model.posterior(X), X.view(-1, 2).numpy()
    mean, std = estimator.predict(flat, return_std=True, latent=True)
    assert posterior.mean.shape == (3, 4, 1)
    assert_allclose(posterior.mean.flatten(), mean, rtol=1e-7)
    assert_allclose(posterior.variance.sqrt().flatten(), std, rtol=1e-6)
    for i in range(3):
        alone = model.posterior(X[i])
        assert_allclose(posterior.mean[i], alone.mean, atol=1e-10)
        assert_allclose(covariance(posterior)[i], covariance(alone), atol=1e-10)
    noisy = model.posterior(X, observation_noise=True)
    assert_allclose(
        noisy.variance.sqrt().flatten(), estimator.predict(flat, return_std=True)[1], rtol=1e-6
    )
    if scheme in CLOSED:
        _, cov = estimator.predict(X[0].numpy(), return_cov=True, latent=True)
        assert_allclose(covariance(posterior)[0], cov, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("scheme", ["exact", "vecchia", "dsvi", "auto"])
def test_gradients(scheme):
    model, X = as_model(fitted(scheme)), rows(2, 3)

    def value(X):
        posterior = model.posterior(X)
        weights = torch.arange(1.0, 10.0).view(3, 3).double()
        return posterior.mean.square().sum() + (weights * covariance(posterior)).sum()

    X.requires_grad_(True)
    (gradient,) = torch.autograd.grad(value(X), X)
    with torch.no_grad():
        for i, j, d in ((0, 1, 0), (1, 2, 1)):
            e = torch.zeros_like(X)
            e[i, j, d] = 1e-5 * UNITS[d]
            difference = (value(X + e) - value(X - e)) / (2.0 * e[i, j, d])
            assert_allclose(gradient[i, j, d], difference, rtol=1e-5, atol=1e-7)


def test_conditioning_is_that_of_a_gaussian_process():
    """With constant noise, conditioning is the same as with all rows at once, also in batches and in turn."""
    X, y = table()
    settings = {"likelihood": "gaussian", "standardize": False, "max_iter": 15}
    model = as_model(fitted("exact", **settings))
    member = fitted("exact", **settings).members_[0]
    kernel, noise = member.kernels_[0], float(member.likelihood_.variance[0])
    X, new, test = torch.tensor(X), rows(2, 3), rows(4)
    Y = torch.stack([new.sum(-1), -new.sum(-1)]) / 100.0
    Y = Y[..., None]  # 2 targets, 2 batches, 3 rows, 1
    found = model.condition_on_observations(new, Y)
    assert found.batch_shape == (2, 2) and found.num_outputs == 1
    posterior = found.posterior(test)
    assert posterior.mean.shape == (2, 2, 4, 1)
    in_turn = model.condition_on_observations(new[:, :1], Y[..., :1, :])
    in_turn = in_turn.condition_on_observations(new[:, 1:], Y[..., 1:, :])
    assert_allclose(in_turn.posterior(test).mean, posterior.mean, atol=1e-7)
    for i, j in np.ndindex(2, 2):
        everything = torch.cat([X, new[j]])
        targets = torch.cat([torch.tensor(y), Y[i, j, :, 0]])
        K = kernel(everything, everything) + noise * torch.eye(len(everything))
        k = kernel(everything, test)
        solved = torch.linalg.solve(K, torch.cat([targets[:, None], k], 1))
        assert_allclose(posterior.mean[i, j, :, 0], k.T @ solved[:, 0], atol=1e-6)
        cov = kernel(test, test) - k.T @ solved[:, 1:]
        assert_allclose(covariance(posterior)[i, j], cov, atol=1e-7)


def test_given_noise_of_observations():
    model, new = as_model(fitted("exact")), rows(1)
    Y = torch.full((1, 1), 3.0).double()
    sure = model.condition_on_observations(new, Y, noise=torch.zeros(1, 1)).posterior(new)
    assert_allclose(sure.mean, Y, atol=1e-6)
    assert float(sure.variance) < 1e-6
    unsure = model.condition_on_observations(new, Y, noise=torch.full((1, 1), 1e9)).posterior(new)
    assert_allclose(unsure.mean, model.posterior(new).mean, rtol=1e-6)


def test_several_outputs():
    estimator, X = fitted("exact", 2), rows(3, 4)
    model = as_model(estimator)
    posterior = model.posterior(X)
    mean, std = estimator.predict(X.view(-1, 2).numpy(), return_std=True, latent=True)
    assert model.num_outputs == 2 and posterior.mean.shape == (3, 4, 2)
    assert_allclose(posterior.mean.view(-1, 2), mean)
    assert_allclose(posterior.variance.sqrt().view(-1, 2), std, rtol=1e-6)
    second = model.subset_output([1])
    assert second.num_outputs == 1
    for one in (second.posterior(X), model.posterior(X, output_indices=[1])):
        assert_allclose(one.mean[..., 0], posterior.mean[..., 1])
        assert_allclose(one.variance[..., 0], posterior.variance[..., 1])
    total = ScalarizedPosteriorTransform(torch.ones(2).double())
    summed = model.posterior(X, posterior_transform=total)
    assert_allclose(summed.mean[..., 0], posterior.mean.sum(-1))
    with pytest.raises(ValueError, match="some of the outputs cannot be conditioned"):
        second.condition_on_observations(X[0], X[0, :, :1])
    both = model.condition_on_observations(X[0], X[0] / 100.0)
    assert both.posterior(X[1]).mean.shape == (4, 2)
    reference = torch.tensor([-2.0, -2.0]).double()
    sampler = SobolQMCNormalSampler(torch.Size([8]), seed=0)
    acquisition = qLogNoisyExpectedHypervolumeImprovement(model, reference, rows(5), sampler)
    assert torch.isfinite(acquisition(X[:, :2])).all()


@pytest.mark.parametrize("scheme", ["exact", "auto"])
def test_acquisition_functions(scheme):
    X, y = map(torch.tensor, table())
    model, bounds = as_model(fitted(scheme)), torch.tensor([[0.0, 0.0], [1.0, 100.0]]).double()
    sampler = SobolQMCNormalSampler(torch.Size([32]), seed=0)
    functions = [
        (LogExpectedImprovement(model, y.max()), 1),
        (qLogExpectedImprovement(model, y.max(), sampler), 2),
        (qLogNoisyExpectedImprovement(model, X[:10], sampler, prune_baseline=True), 2),
        (qUpperConfidenceBound(model, 2.0, sampler), 2),
        (qMaxValueEntropy(model, rows(50)), 1),
        (qKnowledgeGradient(model, 2), 1),
    ]
    for acquisition, q in functions:
        torch.manual_seed(0)
        candidate, value = optimize_acqf(
            acquisition, bounds, q, num_restarts=2, raw_samples=8, options={"maxiter": 3}
        )
        assert candidate.shape == (q, 2) and torch.isfinite(value)
        assert ((bounds[0] <= candidate) & (candidate <= bounds[1])).all()
    best = MaxPosteriorSampling(model, replacement=False)(rows(40), num_samples=3)
    assert best.shape == (3, 2)


def test_fantasies():
    model, new = as_model(fitted("exact")), rows(2, 1)
    sampler = SobolQMCNormalSampler(torch.Size([5]), seed=0)
    fantasies = model.fantasize(new, sampler)
    assert fantasies.batch_shape == (5, 2)
    posterior = fantasies.posterior(rows(3))
    assert posterior.mean.shape == (5, 2, 3, 1)
    variance = posterior.variance
    assert_allclose(variance, variance[:1].expand_as(variance))
    assert (variance < model.posterior(rows(3)).variance).all()
    none = model.fantasize(new[:, :0], sampler)
    assert_allclose(none.posterior(rows(3)).mean, model.posterior(rows(3)).mean)
    given = model.fantasize(new, sampler, observation_noise=torch.full((1, 1), 1e-8).double())
    assert float(given.posterior(new).variance.max()) < 1e-6


def test_lists_of_models():
    """Ours beside one of BoTorch's, as for constraints."""
    X, y = map(torch.tensor, table())
    ours, single = as_model(fitted("exact")), SingleTaskGP(X, y[:, None]).eval()
    both = ModelList(ours, single)
    found = both.posterior(rows(3)).mean
    for j, model in enumerate((ours, single)):
        assert_allclose(found[:, j].detach(), model.posterior(rows(3)).mean[:, 0].detach())


def test_dtype_and_bad_input():
    model = as_model(fitted("exact"))
    assert model.posterior(rows(3).float()).mean.dtype == torch.float32
    with pytest.raises(ValueError, match="3 columns, but the model was fitted with 2"):
        model.posterior(torch.zeros(2, 3))
    X, y = table()
    mapped = DeepGPRegressor(1, inference="exact", target_transform="yeo-johnson", max_iter=5)
    with pytest.raises(ValueError, match="target_transform=None"):
        as_model(mapped.fit(X, y))
    classifier = DeepGPClassifier(1, inference="vecchia", max_iter=5).fit(X, y > 1.0)
    for other in (classifier, "exact", ModelListGP):
        with pytest.raises(TypeError, match="regressor of skdgp"):
            as_model(other)
