"""
===========================================
Compare sparse approximations: VFE and FITC
===========================================

A sparse Gaussian process sees its rows through a few inducing points. What these leave unexplained has to
go somewhere, and methods differ in where. This page repeats on a small scale what Bauer, van der
Wilk and Rasmussen [1]_ found about the variational free energy (VFE) and the fully independent training
conditional (FITC).

.. [1] M. Bauer, M. van der Wilk and C. Rasmussen (2016). Understanding probabilistic sparse Gaussian
   process approximations. Advances in Neural Information Processing Systems 29.
"""

# %%
# The data are 100 rows with noise of standard deviation 0.25. By default all rows are inducing inputs:
# the exact Gaussian process is what the others should come near to.

import matplotlib.pyplot as plt
import numpy as np

from skdgp import SparseGPRegressor
from skdgp.inspection import PredictiveDisplay


def make_rows(n_samples, rng):
    x = np.sort(rng.uniform(0, 6, n_samples))
    f = np.sin(2.5 * x) + 0.5 * np.cos(5 * x) * (x > 3)
    return x[:, None], f + 0.25 * rng.standard_normal(n_samples)


rng = np.random.default_rng(0)
X, y = make_rows(100, rng)
X_test, y_test = make_rows(2000, rng)
exact = SparseGPRegressor(random_state=0).fit(X, y)
print(f"standard deviation of the noise: {exact.likelihood_.variance[0] ** 0.5:.3f}")

# %%
# Too few inducing points
# -----------------------
# Eight points, whose places are optimized, are not enough for this function. VFE says so by more noise, and
# its intervals are too wide. FITC counts the variance that inducing points leave out as noise of each row.
# It uses this to explain nearly all noise, so that the noise proper falls to less than half of the truth.
# Its intervals pulsate: narrow at the inducing inputs, wide between them. The true noise does neither.

methods = {"VFE": "vfe", "FITC": "fitc"}
few = {
    name: SparseGPRegressor(8, method=method, train_inducing=True, random_state=0).fit(X, y)
    for name, method in methods.items()
}
fig, axes = plt.subplots(1, 3, figsize=(12, 4), sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, {"exact": exact, **few}.items()):
    PredictiveDisplay.from_estimator(model, X, y, coverage=0.95, name="mean", ax=ax)
    noise = model.likelihood_.variance[0] ** 0.5
    ax.set(title=f"{name}, noise {noise:.2f}", xlabel="x", ylabel="", ylim=(-2.7, 3.4))
    if model is not exact:
        Z = model.inducing_inputs_[0]
        ax.plot(Z, np.full(len(Z), -2.6), "k|", ms=12, label="inducing inputs")
    ax.get_legend().remove()
axes[2].legend(loc="upper right", ncols=2, fontsize="small")
_ = axes[0].set_ylabel("y")

# %%
# More inducing points
# --------------------
# The objective of VFE is a lower bound on the log marginal likelihood, rises with the number of inducing
# points, and ends at the exact value; the noise falls to that of the exact process. That of FITC is no
# bound: from eight points on it lies above the exact log marginal likelihood, and optimizing it leads away
# from the exact process. The compromise, power expectation propagation with a power of one half, is between
# the two.

methods = {"VFE": "vfe", "power EP, 0.5": "pep", "FITC": "fitc"}
numbers = [4, 6, 8, 10, 12, 16, 20, 30]
models = {
    name: [
        SparseGPRegressor(n, method=method, train_inducing=True, random_state=0).fit(X, y)
        for n in numbers
    ]
    for name, method in methods.items()
}
units = np.log(y.std())  # losses are those of the standardized target
quantities = {
    "standard deviation of the noise": lambda m: m.likelihood_.variance[0] ** 0.5,
    "objective": lambda m: -len(y) * (m.loss_curve_[-1] + units),
    "log-density of new rows": lambda m: m.log_predictive_density(X_test, y_test).mean(),
}
fig, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
for ax, (title, quantity) in zip(axes, quantities.items()):
    for name, fits in models.items():
        ax.plot(numbers, [quantity(model) for model in fits], "o-", ms=4, label=name)
    ax.axhline(quantity(exact), color="k", lw=1, ls="--", label="exact")
    ax.set(title=title, xlabel="inducing points")
_ = axes[0].legend(fontsize="small")

# %%
# Density of new rows is what counts in the end. In the middle of the range FITC gets worse with more
# inducing points, because it uses them to lower the noise. With 30 points all methods start at the exact
# process, and stay there.
#
# Where inducing inputs go
# ------------------------
# VFE spreads them over the range, for each of them has something left to explain. FITC puts some on top of
# each other, where they are of no use: a gap of zero between neighbors.

print("inducing points  smallest gap: VFE   FITC")
for n, vfe, fitc in zip(numbers, models["VFE"], models["FITC"]):
    gaps = [np.diff(np.sort(m.inducing_inputs_[0][:, 0])).min() for m in (vfe, fitc)]
    print(f"{n:15d}  {gaps[0]:17.3f}  {gaps[1]:5.3f}")
