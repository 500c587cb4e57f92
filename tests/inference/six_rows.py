"""Six rows for every likelihood, with its density and mean written anew in numpy and SciPy."""

import numpy as np
from scipy import special, stats

from skdgp.gp.likelihoods import (
    Bernoulli,
    Gaussian,
    HeteroscedasticGaussian,
    HeteroscedasticStudentT,
    NegativeBinomial,
    Poisson,
    RobustMax,
    Softmax,
    StudentT,
)

X = np.array([[0.1], [-1.2], [1.3], [-0.5], [0.7], [-1.9]])  # in an order that spreads out
REAL = np.array([0.4, -0.9, 1.6, 0.2, 0.1, -1.2])
COUNTS = np.array([2.0, 0.0, 7.0, 1.0, 3.0, 1.0])
CLASSES = np.array([1.0, 0.0, 2.0, 0.0, 1.0, 0.0])


def one_hot(scores):
    return CLASSES.astype(int) == scores.argmax(-1)


# likelihood, targets, latents, centers of the logarithms sampled, log density of rows and mean given
# f (n, rows, latents) and the numbers t (n, 1)
NOISES = {
    "gaussian": (
        Gaussian(0.3), REAL, 1, [np.log(0.3 - 1e-6)],
        lambda f, a: stats.norm.logpdf(REAL, f[..., 0], np.sqrt(1e-6 + a)),
        lambda f, a: f[..., 0],
    ),
    "student_t": (
        StudentT(4.0, 0.4), REAL, 1, [np.log(2.0), np.log(0.4 - 1e-4)],
        lambda f, df, s: stats.t.logpdf(REAL, 2.0 + df, f[..., 0], 1e-4 + s),
        lambda f, df, s: f[..., 0],
    ),
    "heteroscedastic": (
        HeteroscedasticGaussian(0.3), REAL, 2, [np.log(0.3 - 1e-6)],
        lambda f, a: stats.norm.logpdf(REAL, f[..., 0], np.sqrt((1e-6 + a) * np.exp(f[..., 1]))),
        lambda f, a: f[..., 0],
    ),
    "heteroscedastic t": (
        HeteroscedasticStudentT(4.1, 0.4), REAL, 2, [np.log(2.0), np.log(0.4 - 1e-4)],
        lambda f, df, s: stats.t.logpdf(
            REAL, 2.1 + df, f[..., 0], (1e-4 + s) * np.exp(0.5 * f[..., 1])
        ),
        lambda f, df, s: f[..., 0],
    ),
    "poisson": (
        Poisson(2.0), COUNTS, 1, [np.log(2.0)],
        lambda f, r: stats.poisson.logpmf(COUNTS, r * np.exp(f[..., 0])),
        lambda f, r: r * np.exp(f[..., 0]),
    ),
    "negative binomial": (
        NegativeBinomial(2.0, 0.5), COUNTS, 1, [np.log(2.0), np.log(0.5 - 1e-4)],
        lambda f, r, a: stats.nbinom.logpmf(
            COUNTS, 1.0 / (1e-4 + a), 1.0 / (1.0 + (1e-4 + a) * r * np.exp(f[..., 0]))
        ),
        lambda f, r, a: r * np.exp(f[..., 0]),
    ),
    "bernoulli": (
        Bernoulli(), (CLASSES > 0.0) * 1.0, 1, [],
        lambda f: stats.norm.logcdf((2.0 * (CLASSES > 0.0) - 1.0) * f[..., 0]),
        lambda f: stats.norm.cdf(f[..., 0]),
    ),
    "softmax": (
        Softmax(), CLASSES, 3, [],
        lambda f: np.take_along_axis(
            f - special.logsumexp(f, -1, keepdims=True), CLASSES.astype(int)[None, :, None], -1
        )[..., 0],
        lambda f: special.softmax(f, -1)[..., 2],
    ),
    "robust-max": (
        RobustMax(0.05), CLASSES, 3, [],
        lambda f: np.log(np.where(one_hot(f), 0.95, 0.025)),
        lambda f: np.where(f.argmax(-1) == 2, 0.95, 0.025),
    ),
}  # fmt: skip
