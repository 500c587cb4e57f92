"""Kernels of a user, derived from Stationary and from the package's kernels: values, gradients, training."""

import numpy as np
import pytest
import torch
from oracles import gradcheck

from skdgp import DeepGPRegressor
from skdgp.gp.component import Trainable
from skdgp.gp.kernels import Kernel, Matern, RationalQuadratic, SquaredExponential, Stationary
from skdgp.gp.kernels.base import check_gradients
from skdgp.gp.likelihoods import Gaussian
from skdgp.inference import Vecchia


class OwnQuadratic(Stationary):
    """With a slope, which does not hold all gradients."""

    _positive = {**Stationary._positive, "alpha": 0.0}

    def __init__(self, alpha=1.0, lengthscale=None, variance=1.0, ard=True, trainable=True):
        super().__init__(lengthscale, variance, ard, trainable)
        self.alpha = alpha

    def profile(self, r2):
        alpha = torch.as_tensor(self.alpha, dtype=r2.dtype)
        return (1 + r2 / (2 * alpha)) ** -alpha

    def scale_by_slope(self, G, r2):
        alpha = torch.as_tensor(self.alpha, dtype=r2.dtype)
        return G.mul_(-0.5 / (1 + r2 / (2 * alpha)))


class OfMatern(Matern):
    """A rational quadratic kernel whose class is derived from another one."""

    _positive = {**Matern._positive, "alpha": 0.0}

    def __init__(self, alpha=1.0, lengthscale=None, variance=1.0, ard=True, trainable=True):
        super().__init__(1.5, lengthscale, variance, ard, trainable)
        self.alpha = alpha

    profile = OwnQuadratic.profile


class OwnMatern(Stationary):
    """Without a slope."""

    def profile(self, r2):
        s = (3.0 * r2).sqrt()
        return (1.0 + s) * torch.exp(-s)


class Smoother(SquaredExponential):
    """The Matern kernel once more, as a change of the squared exponential one."""

    profile = OwnMatern.profile


class OwnRough(Stationary):
    is_rough = True

    def profile(self, r2):
        return torch.exp(-r2.sqrt())


TWINS = {
    "quadratic": (OwnQuadratic(0.7, [0.6, 1.4], 1.3), RationalQuadratic(0.7, [0.6, 1.4], 1.3)),
    "of matern": (OfMatern(0.7, [0.6, 1.4], 1.3), RationalQuadratic(0.7, [0.6, 1.4], 1.3)),
    "matern": (OwnMatern([0.6, 1.4], 1.3), Matern(1.5, [0.6, 1.4], 1.3)),
    "smoother": (Smoother([0.6, 1.4], 1.3), Matern(1.5, [0.6, 1.4], 1.3)),
    "rough": (OwnRough([0.6, 1.4], 1.3), Matern(0.5, [0.6, 1.4], 1.3)),
}
WAYS = {
    "between two": lambda kernel, X: kernel(X[:5], X[3:]),
    "within": lambda kernel, X: kernel.within(X.view(2, 4, 2)),
    "groups": lambda kernel, X: kernel.between(X.view(2, 4, 2), X.view(2, 4, 2).flip(0) + 0.1),
    "gram": lambda kernel, X: kernel.of_gram(2).from_gram(X @ X.T),
}


def rows(n, seed=0):
    return torch.as_tensor(np.random.default_rng(seed).uniform(-2.0, 2.0, (n, 2)))


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("own", "built_in"), TWINS.values(), ids=TWINS)
def test_values_and_gradients_are_those_of_the_built_in_kernel(own, built_in, way):
    found = []
    for kernel in (own, built_in):
        if way is WAYS["gram"]:
            kernel = kernel.with_values(lengthscale=0.8)
        X, module = rows(8).requires_grad_(), Trainable(kernel.bind(2))
        bound = module() if way is not WAYS["gram"] else Trainable(kernel)()
        if way is WAYS["gram"]:
            bound = bound.with_values(of_gram=lambda n, one=bound: one)
        K = way(bound, X)
        weight = torch.arange(K.numel(), dtype=K.dtype).cos().view(K.shape)
        (weight * K).sum().backward()
        with torch.no_grad():
            plain = way(bound, X)
        found.append([K.detach(), plain, X.grad])
    for a, b in zip(*found):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("own", [own for own, _ in TWINS.values()], ids=TWINS)
def test_gradients_of_inputs_and_hyperparameters(own):
    module = Trainable(own)
    gradcheck(module, lambda X, Z: (module()(X, Z), module().diag(X)), rows(4), rows(3, 1))
    gradcheck(module, lambda X: module().within(X.view(2, 2, 2)), rows(4))


SCHEMES = {
    "exact": {"inference": "exact"},
    "vecchia": {"inference": "vecchia"},
    "full scale": {"inference": Vecchia(8, "subset", 10)},
    "collapsed": {"inference": "collapsed", "n_layers": 2, "max_iter": 15},
    "vfe": {"inference": "vfe", "n_inducing": 15},
    "pep": {"inference": "pep", "n_inducing": 15},
    "dsvi": {"inference": "dsvi", "n_inducing": 15},
    "structured": {"inference": "structured", "n_layers": 2, "n_inducing": 10},
    "aep": {"inference": "aep", "n_inducing": 15},
    "diwp": {"inference": "diwp", "n_inducing": 15},
    "nngp": {"inference": "nngp"},
    "sghmc": {"inference": "sghmc", "n_inducing": 15},
}


@pytest.mark.parametrize("kind", [OwnQuadratic, OfMatern])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_trains_its_hyperparameters(scheme, kind):
    """As those of the built-in kernel, from the same start."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (60, 1))
    y, found = np.sin(X[:, 0]) + 0.05 * rng.standard_normal(60), []
    settings = {"n_layers": 1, "max_iter": 25, "random_state": 0, "likelihood": "gaussian"}
    for kernel in (kind(alpha=0.3), RationalQuadratic(alpha=0.3)):
        model = DeepGPRegressor(kernel=kernel, **{**settings, **SCHEMES[scheme]}).fit(X, y)
        found.append(np.ravel(model.members_[0].kernels_[-1].alpha)[0])
    assert abs(np.log(found[1] / 0.3)) > 0.01
    np.testing.assert_allclose(found[0], found[1], rtol=2e-3)


class Floats(OwnQuadratic):
    def profile(self, r2):
        return (1 + r2 / (2 * float(self.alpha))) ** -float(self.alpha)


class Other(Kernel):
    """No function of the distance, and without a gradient in anything."""

    _positive = {"slope": 0.0}

    def __init__(self, slope=1.0, trainable=True):
        self.slope, self.trainable = slope, trainable

    def __call__(self, X, Z):
        return float(self.slope) * X @ Z.mT

    def diag(self, X):
        return float(self.slope) * X.square().sum(-1)


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (Floats(0.3), "alpha"),
        (Matern() + Floats(0.3), r"right\.alpha"),
        (Other(), "slope"),
    ],
)
def test_hyperparameters_without_gradients_are_named(kernel, name):
    X = np.linspace(0.0, 1.0, 12)[:, None]
    model = DeepGPRegressor(1, inference="exact", kernel=kernel, max_iter=2, random_state=0)
    with pytest.raises(ValueError, match=f"Training cannot change {name} of"):
        model.fit(X, np.sin(6.0 * X[:, 0]))


def test_what_is_fixed_needs_no_gradients():
    check_gradients(Floats(0.3, trainable=["lengthscale", "variance"]).bind(2), 2)
    check_gradients(Other(trainable=False), 2)


@pytest.mark.parametrize("kind", [OwnQuadratic, OfMatern, OwnMatern, Smoother])
def test_frequencies_of_another_kernel_are_not_taken(kind):
    """Small draws need none; those of functions at many rows say so."""
    X = np.linspace(0.0, 1.0, 40)[:, None]
    noise = Gaussian(0.01, trainable=False)
    settings = {"inference": "exact", "likelihood": noise, "max_iter": 2, "random_state": 0}
    model = DeepGPRegressor(1, kernel=kind(), **settings)
    model.fit(X, np.sin(6.0 * X[:, 0]))
    assert np.isfinite(model.sample_y(X, 3)).all()
    many = np.linspace(0.0, 1.0, 700)[:, None]
    with pytest.raises(ValueError, match=f"{kind.__name__} has no random features"):
        model.sample_y(many, 3, latent=True)
