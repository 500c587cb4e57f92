"""
====================================
Choose the number of random features
====================================

Random features turn a Gaussian process into a linear model in sines and cosines, which is fast for any
number of rows. With too few of them the model is a different one: between the data it looks the same,
and beyond them it oscillates and is too sure of itself.
"""

# %%
# Two hundred rows of a smooth function, in the middle of a wide window. The exact Gaussian process returns
# to its prior beyond the data: mean zero, and a large standard deviation.

import matplotlib.pyplot as plt
import numpy as np

from skdgp import DeepGPRegressor
from skdgp.gp.kernels import SquaredExponential
from skdgp.gp.likelihoods import Gaussian
from skdgp.inference import RandomFeatures

rng = np.random.default_rng(0)
x = rng.uniform(-3.0, 3.0, size=200)
y = np.sin(2.0 * x) * np.exp(-0.1 * x**2) + 0.1 * rng.standard_normal(200)
window = np.linspace(-9.0, 9.0, 400)
settings = {
    "n_layers": 1,
    "kernel": SquaredExponential(lengthscale=0.9, trainable=False),
    "likelihood": Gaussian(variance=0.01, trainable=False),
    "standardize": False,
    "random_state": 0,
}


def fitted(n_features, sampling="auto", seed=0):
    """A shallow model with given numbers; one natural step of full size finds its posterior."""
    scheme = RandomFeatures(n_features, sampling=sampling, natural_step=1.0)
    model = DeepGPRegressor(inference=scheme, max_iter=10, **settings)
    return model.set_params(random_state=seed).fit(x[:, None], y)


exact = DeepGPRegressor(inference="vfe", **settings).fit(x[:, None], y)
models = {f"{n} frequencies": fitted(n) for n in (5, 15, 60)}
models["exact Gaussian process"] = exact

fig, axes = plt.subplots(2, 2, figsize=(10, 6), sharex=True, sharey=True, layout="constrained")
for ax, (name, model) in zip(axes.flat, models.items()):
    mean, std = model.predict(window[:, None], return_std=True, latent=True)
    draws = model.sample_y(window[:, None], 4, latent=True)
    ax.fill_between(window, mean - 2 * std, mean + 2 * std, color="C0", alpha=0.2, label="two std")
    ax.plot(window, draws, color="C0", alpha=0.5, lw=0.8)
    ax.plot(window, mean, color="C0", lw=2, label="mean")
    ax.plot(x, y, "k.", ms=2, label="rows")
    ax.set(title=name, ylim=(-4.0, 4.0))
axes[0, 0].legend(loc="lower center", ncols=3)
for ax in axes[1]:
    ax.set_xlabel("x")
for ax in axes[:, 0]:
    ax.set_ylabel("latent function")

# %%
# With five frequencies the mean goes on to oscillate beyond the data, and the model is far too sure of it.
# The functions that it draws (thin lines) hardly differ there: ten weights are too few to agree with the
# rows and be free elsewhere. With sixty frequencies the prior returns, nearly.
#
# What cures it
# -------------
# More features, above all, and better ones. By default the frequencies are not drawn independently but
# from a Sobol sequence (orthogonal blocks for many inputs), which approximates the kernel as well as several
# times as many independent ones. This avoids the worst where there are few of them; for a mean without
# oscillations there must be many. The root mean square error of the mean in the window outside the data,
# and the ratio of the standard deviation there to the exact one, for five seeds:

outside = window[np.abs(window) > 4.0][:, None]
mean, std = exact.predict(outside, return_std=True, latent=True)
numbers, errors = [5, 15, 30, 60, 120], {}
print("             n   error of the mean   ratio of the std")
for sampling in ("independent", "sobol"):
    for n in numbers:
        parts = [
            fitted(n, sampling, seed).predict(outside, return_std=True, latent=True)
            for seed in range(5)
        ]
        error = np.sqrt(np.mean([(m - mean) ** 2 for m, _ in parts]))
        errors[sampling, n] = error
        ratio = np.mean([s / std for _, s in parts])
        print(f"{sampling:11s}{n:4d}   {error:17.2f}   {ratio:16.2f}")

fig, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
for sampling, style in (("independent", "o--"), ("sobol", "s-")):
    ax.plot(numbers, [errors[sampling, n] for n in numbers], style, label=sampling)
ax.set(xscale="log", yscale="log", xlabel="frequencies", xticks=numbers, xticklabels=numbers)
ax.set_ylabel("error of the mean beyond the data")
_ = ax.legend()
