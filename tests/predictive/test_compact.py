"""Members with a local scale have it mixed in one component: the same distribution as on the grid."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch.utils._python_dispatch import TorchDispatchMode

from skdgp import DeepGPRegressor
from skdgp.inference import CollapsedVI
from skdgp.predictive.base import mixed_moments
from skdgp.predictive.mixture import Mixture

SCHEMES = {"exact": "exact", "vecchia": "vecchia", "collapsed": CollapsedVI(n_draws=4)}


@pytest.fixture(scope="module", params=SCHEMES)
def fitted(request):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = np.sin(2.0 * X) + 0.3 * rng.standard_t(3, size=(40, 2)) * np.exp(X[:, :1])
    if request.param != "vecchia":  # several outputs share the factor of the scale
        y = y[:, 0]
    settings = {"likelihood": "heteroscedastic", "target_transform": None, "random_state": 0}
    n_layers = 1 + (request.param == "collapsed")
    model = DeepGPRegressor(n_layers, inference=SCHEMES[request.param], max_iter=5, **settings)
    model.fit(X, y)
    return model.members_, rng.normal(size=(7, 2)), 3.0 * rng.normal(size=(7, y.ndim))


@pytest.mark.parametrize("dispersion", [1.0, 0.8])
def test_one_component_has_the_distribution_of_the_grid(fitted, dispersion, monkeypatch):
    members, X, y = fitted
    y = y[:, : members[0].architecture.n_latents // 2]
    monkeypatch.setattr(members[0], "dispersion", dispersion)
    with torch.no_grad():
        one, grid = Mixture(members, X, "cpu"), Mixture(members, X, "cpu")
        grid.__dict__["parts"] = grid.gaussian_parts
        assert 8 * len(one.parts[0].mean) <= len(grid.parts[0].mean)
        k = y.shape[1]
        for method, *given in [
            ("moments",),
            ("decomposed_moments",),
            ("log_prob", y),
            ("tail", y, True),
            ("quantiles", [0.01, 0.5, 0.95]),
            ("crps", y),
        ]:
            found, expected = (getattr(part, method)(*given) for part in (one, grid))
            assert_allclose(found, expected, rtol=1e-8, atol=1e-12, err_msg=method)
        latent = one.latent(k).moments()[1] ** 2
        assert_allclose(latent, one.decomposed_moments()[1] ** 2, rtol=1e-8)


class Counted(TorchDispatchMode):
    """Counts what torch computes."""

    n = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.n += 1
        return func(*args, **(kwargs or {}))


def test_moments_of_all_members_are_mixed_at_once():
    """Those of the sum of weighted densities, by raw moments; and members cost no sums of their own."""
    rng, counts = np.random.default_rng(0), []
    for n_members in (1, 6):
        moments, weights = [], []
        for size in [1, 3, 2, 1, 4, 1][:n_members]:
            moments.append(torch.tensor(rng.uniform(0.5, 2.0, (2, size, 5, 2))))
            weights.append(torch.tensor(rng.uniform(size=(size, 1, 1))))
        total = sum(w.sum() for w in weights)
        parts = [(w / total, *pair) for w, pair in zip(weights, moments)]
        with Counted() as counted:
            mean, var = mixed_moments(parts)
        counts.append(counted.n)
        shares = [w.numpy() / total.item() for w in weights]
        first, second = (
            sum((w * part(*pair.numpy())).sum(0) for w, pair in zip(shares, moments))
            for part in (lambda m, v: m, lambda m, v: v + m**2)
        )
        assert_allclose(mean, first, rtol=1e-12)
        assert_allclose(var, second - first**2, rtol=1e-12)
    assert counts[1] - counts[0] <= 5 * 3  # three views of each
