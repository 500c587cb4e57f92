"""
===============================
Foldings, and who sees them all
===============================

Two layers can explain the same rows in several ways. An approximation that is optimized takes one of them; a
sampler that mixes has all. This is the example of Cutajar et al. (2017, figure 2): 50 rows of a function of a
function.
"""

# %%
# The rows
# --------
# The function is h(h(x)) with h(x) = 2 x exp(-x^2), and the noise has a standard deviation of 0.1.

import matplotlib.pyplot as plt
import numpy as np

from skdgp import DeepGPRegressor
from skdgp.gp.kernels import SquaredExponential
from skdgp.gp.likelihoods import Gaussian
from skdgp.inference import SGHMC, EllipticalSlice
from skdgp.model_selection import compare_posteriors


def h(x):
    return 2 * x * np.exp(-(x**2))


rng = np.random.default_rng(0)
X = np.sort(rng.uniform(-3, 3, size=(50, 1)), axis=0)
y = h(h(X[:, 0])) + 0.1 * rng.standard_normal(50)
grid = np.linspace(-4, 4, 100)[:, None]

# %%
# The same model, eight times
# ---------------------------
# Kernels and noise are given, and there is no mean function, so that only inference differs.
# ``freeze_hyperparameters`` gives such settings for a model that was fitted.

settings = {
    "kernel": SquaredExponential(lengthscale=1.0, variance=0.5, trainable=False),
    "likelihood": Gaussian(variance=0.01, trainable=False),
    "mean": "zero",
    "width": 1,
    "standardize": False,
    "random_state": 0,
}
schemes = {
    "dsvi": ("dsvi", 600),
    "structured": ("structured", 300),
    "global": ("global", 400),
    "aep": ("aep", 300),
    "rff": ("rff", 600),
    "collapsed": ("collapsed", 300),
    "sghmc": (SGHMC(n_learn=0), 800),
    "ess": (EllipticalSlice(hyperparameters="fixed"), 600),  # the default is 6,000
}
models = {
    name: DeepGPRegressor(inference=scheme, max_iter=max_iter, **settings).fit(X, y)
    for name, (scheme, max_iter) in schemes.items()
}

# %%
# Draws of the optimized posteriors fan out less where rows end: they know one folding each, not all the same.
# Chains of SGHMC stay in theirs, of which some are poor. Elliptical slices with tempering have several, each as
# often as it deserves.

fig, axes = plt.subplots(2, 4, figsize=(13, 6), sharex=True, sharey=True, layout="constrained")
for ax, (name, model) in zip(axes.flat, models.items()):
    draws = model.sample_y(grid, n_samples=30, random_state=0, latent=True)
    ax.plot(grid[:, 0], draws, lw=0.6, alpha=0.5)
    ax.plot(X[:, 0], y, "k.", ms=4)
    ax.set(title=name)
fig.supxlabel("x")
fig.supylabel("f")
plt.show()

# %%
# How far off?
# ------------
# In standard deviations of the reference: means, standard deviations, and Wasserstein distances. The 90 %
# intervals of the reference hold ``coverage`` of what a model says. The first lines compare halves of
# the reference, which is what so few samples can tell.

reference = models.pop("ess")
print(compare_posteriors(reference, models, grid, inside=np.abs(grid[:, 0]) < 3))
