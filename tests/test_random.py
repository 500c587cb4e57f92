import numpy as np
import pytest
import torch
from scipy import stats

from skdgp.random import RowNoise, gamma, latin_normal, normal, sobol_normal

LIKE = torch.empty(0, dtype=torch.float64)

pytestmark = pytest.mark.usefixtures("no_global_randomness")


def test_sobol_normal_is_normal_and_even():
    points = sobol_normal(1024, 3, seed=0)
    assert points.shape == (1024, 3)
    assert points.dtype == np.float64
    # every interval of probability 1/1024 holds exactly one point of each coordinate
    for column in points.T:
        cells = np.floor(stats.norm.cdf(column) * 1024).astype(int)
        np.testing.assert_array_equal(np.sort(cells), np.arange(1024))
    assert np.abs(np.corrcoef(points.T) - np.eye(3)).max() < 0.02


def test_dimensions_without_sobol_points_are_independent():
    points = sobol_normal(2, 30_000, seed=0)  # the mean of squares has a standard error of .006
    assert points.shape == (2, 30_000)
    assert abs(np.mean(points**2) - 1.0) < 0.03 and abs(np.mean(points[0] * points[1])) < 0.03


def test_sobol_normal_depends_on_the_seed_alone():
    """Any number of points are the start of the next power of two."""
    points = sobol_normal(16, 2, seed=3)
    np.testing.assert_array_equal(sobol_normal(16, 2, seed=3), points)
    np.testing.assert_array_equal(sobol_normal(11, 2, seed=3), points[:11])
    assert not np.array_equal(points, sobol_normal(16, 2, seed=4))
    assert sobol_normal(1, 2, seed=0).shape == (1, 2) and sobol_normal(8, 0, seed=0).shape == (8, 0)
    assert np.isfinite(sobol_normal(2**16, 1, seed=0)).all()


def test_latin_hypercubes_are_normal_even_and_the_same_for_ever():
    points = latin_normal(64, 5000, seed=1)
    cells = np.floor(stats.norm.cdf(points) * 64).astype(int)
    np.testing.assert_array_equal(np.sort(cells, 0), np.repeat(np.arange(64)[:, None], 5000, 1))
    within = stats.norm.cdf(points) * 64 - cells
    assert stats.kstest(within.ravel(), "uniform").pvalue > 1e-3
    # correlations of columns have standard errors of 1 / sqrt(63)
    z = np.sqrt(63.0) * np.corrcoef(points[:, -300:].T)[np.triu_indices(300, 1)]
    assert np.abs(z).max() < 5.5 and abs(z.std() - 1.0) < 0.02
    assert abs(np.corrcoef(points.ravel(), latin_normal(64, 5000, seed=2).ravel())[0, 1]) < 0.01
    # integer arithmetic, and the inverse of the normal distribution function
    known = [[0.24924117, -0.95660315], [-0.29048156, 1.13277931]]
    np.testing.assert_allclose(latin_normal(4, 3, seed=7)[:2, :2], known, rtol=1e-7)
    assert latin_normal(1, 0, seed=0).shape == (1, 0)


def test_normal_draws():
    x = normal((50_000, 2), torch.Generator().manual_seed(0), LIKE)
    assert x.dtype == torch.float64
    assert stats.kstest(x[:, 0], "norm").pvalue > 1e-3
    assert abs(np.corrcoef(x.T)[0, 1]) < 4 / np.sqrt(50_000)


def test_normal_follows_dtype_and_generator():
    def draw():
        return normal((5,), torch.Generator().manual_seed(2), LIKE.float())

    assert draw().dtype == torch.float32
    assert torch.equal(draw(), draw())


@pytest.mark.parametrize("concentration", [0.3, 1.0, 1.5, 2.5, 40.0])
def test_gamma_draws(concentration):
    x = gamma(concentration, (20_000,), torch.Generator().manual_seed(0), LIKE)
    assert stats.kstest(x, stats.gamma(concentration).cdf).pvalue > 1e-3


def test_gamma_takes_one_concentration_for_each_column():
    a = torch.tensor([0.5, 8.0]).double()
    x = gamma(a, (20_000, 2), torch.Generator().manual_seed(0), LIKE)
    z = (x.mean(0) - a) / (a / len(x)).sqrt()
    assert z.abs().max() < 4


def test_noise_of_rows_is_normal_and_independent():
    X = np.random.default_rng(0).standard_normal((40, 3))
    noise = RowNoise(X, 5)
    first, second = noise.draw((200, 40, 2)), noise.draw((200, 40, 2))
    values = np.concatenate([first.ravel(), second.ravel()])
    assert stats.kstest(values, "norm").pvalue > 1e-3
    columns = np.concatenate([first, second], axis=2).transpose(0, 2, 1).reshape(-1, 40)
    others = [first[..., 0].ravel(), first[..., 1].ravel(), second[..., 0].ravel()]
    assert np.abs(np.corrcoef(others)[np.triu_indices(3, 1)]).max() < 4.5 / np.sqrt(8000)
    assert np.abs(np.corrcoef(columns.T)[np.triu_indices(40, 1)]).max() < 4.9 / np.sqrt(800)


def test_noise_belongs_to_the_row():
    X = np.random.default_rng(0).standard_normal((40, 3))
    X[0], X[1] = 0.0, -0.0
    rows = np.array([7, 3, 11])
    together = RowNoise(X, 5).draw((4, 40, 2))
    np.testing.assert_array_equal(RowNoise(X[rows], 5).draw((4, 3, 2)), together[:, rows])
    np.testing.assert_array_equal(together[:, 0], together[:, 1])
    assert (RowNoise(X, 6).draw((4, 40, 2)) != together).all()
