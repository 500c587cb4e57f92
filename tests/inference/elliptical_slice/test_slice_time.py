"""Steps of slices look at the clock: a bracket that shrinks for long is left when time is over."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.inference import EllipticalSlice
from skdgp.inference.elliptical_slice.model import SlicedDeepGP
from skdgp.inference.elliptical_slice.moves import elliptical_slice, slice_step


def after(n):
    """A clock that says late after so many looks."""
    looks = iter([False] * n + [True] * 10_000)
    return lambda: next(looks)


def uniform(generator):
    return lambda n: torch.rand(n, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("n_looks", [0, 1, 3])
def test_elliptical_slices_stay_where_they_are(n_looks, generator):
    """Half of the states accept everything, the others nothing."""
    v, nu = (torch.randn(6, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    log_lik = torch.zeros(6, dtype=torch.float64)
    easy = torch.arange(6) % 2 == 0

    def evaluate(proposals, i):
        return torch.where(easy[i], 1.0, -torch.inf).double()

    new, value = elliptical_slice(
        v, log_lik, evaluate, nu, uniform(generator), torch.ones(6), 1, after(n_looks)
    )
    moved = easy if n_looks else torch.zeros(6, dtype=torch.bool)
    assert_array_equal((new != v).all(1), moved)
    assert_array_equal((new != v).any(1), moved)
    assert_array_equal(value, moved.double())


def test_slices_of_one_number_stay_where_they_are(generator):
    x = torch.randn(5, generator=generator, dtype=torch.float64)

    def evaluate(z, i):
        return torch.full_like(z, -torch.inf)

    start = torch.zeros(5, dtype=torch.float64)
    for n_looks in (0, 1, 4):
        found = slice_step(x, evaluate, uniform(generator), start, is_late=after(n_looks))
        assert_array_equal(found, x)


@pytest.mark.parametrize("integrates", [True, False])
@pytest.mark.parametrize("n_layers", [1, 2, 3])
def test_likelihoods_stay_those_of_the_states(n_layers, integrates, watch):
    """Wherever time is over within a step: otherwise all later steps would be wrong."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(8, 2))
    y = np.sin(6.0 * X[:, 0]) if integrates else rng.poisson(3.0, 8)
    scheme = EllipticalSlice(n_tempering=2, n_chains=2, n_samples=4)
    noise = "gaussian" if integrates else "poisson"
    for n_looks in (0, 1, 2, 4, 7, 12):
        looks = []

        def look(n, model, *args, at=n_looks, looks=looks):
            looks.append(n)
            return len(looks) > at

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SlicedDeepGP, "is_late", lambda self, share=1.0: look(0, self))
            models = watch(SlicedDeepGP, "posterior")
            DeepGPRegressor(
                n_layers,
                inference=scheme,
                likelihood=noise,
                max_iter=2,
                target_transform=None,
                random_state=0,
            ).fit(X, y)
        model = models[-1][0]
        v, phi, log_lik = (model.chains[name].flatten(0, 1) for name in ("v", "phi", "log_lik"))
        expected = model.evaluate(v, phi)
        torch.testing.assert_close(log_lik, expected, rtol=1e-7, atol=1e-7)


def test_informative_rows_are_in_time(monkeypatch, watch):
    """Each likelihood takes a second of this clock, and a step would take dozens of them."""
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def look(n, *args):
        clock[0] += 1.0

    watch(SlicedDeepGP, "log_likelihood", look)
    X = np.random.default_rng(0).uniform(size=(18, 2))
    y = (X[:, 0] > 0.5).astype(int) + (X[:, 1] > 0.6)
    model = DeepGPClassifier(inference="ess", max_iter=50, max_time=20.0, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"max_time=20.0 seconds|burn-in was not over"):
        model.fit(X, y, sample_weight=np.full(18, 1e9))
    assert clock[0] <= 30.0
    proba = model.predict_proba(X)
    assert np.isfinite(proba).all()
