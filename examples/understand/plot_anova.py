"""
==============================
Learn faster when parts add up
==============================

Many targets are sums of parts, each of which depends on one or two inputs. A kernel of one distance cannot
see this: rows that differ in any input are far from each other. The ANOVA kernel has a term for every
subset of the inputs, and learns which of them matter.
"""

# %%
# Six inputs
# ----------
# Two parts with one input each, a step among them, one with two, and two inputs that do nothing.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import root_mean_squared_error

from skdgp import DeepGPRegressor


def make_parts(n_samples, rng):
    X = rng.uniform(-1, 1, size=(n_samples, 6))
    y = 2 * (X[:, 0] > 0.2) + np.sin(6 * X[:, 1]) + 2 * X[:, 2] * X[:, 3]
    return X, y + 0.1 * rng.standard_normal(n_samples)


rng = np.random.default_rng(0)
X, y = make_parts(400, rng)
X_test, y_test = make_parts(2000, rng)

# %%
# The same exact Gaussian process with both kernels, for more and more rows. With a hundred of them, the
# ANOVA kernel finds what the other does not find with four hundred.

sizes = (25, 50, 100, 200, 400)
kernels = {"Matern 3/2": "matern32", "ANOVA": "anova"}
errors = {name: [] for name in kernels}
for name, kernel in kernels.items():
    for n in sizes:
        model = DeepGPRegressor(n_layers=1, inference="exact", kernel=kernel, random_state=0)
        model.fit(X[:n], y[:n])
        errors[name].append(root_mean_squared_error(y_test, model.predict(X_test)))

print("rows       " + "".join(f"{n:7d}" for n in sizes))
for name, row in errors.items():
    print(f"{name:11s}" + "".join(f"{error:7.3f}" for error in row))

# %%
# What was learned
# ----------------
# Along the first input, with the others where no row is near, the ANOVA kernel sees the step that all rows
# have in common.

grid = np.full((200, 6), 0.9)
grid[:, 0] = np.linspace(-1, 1, 200)
truth = 2 * (grid[:, 0] > 0.2) + np.sin(6 * grid[:, 1]) + 2 * grid[:, 2] * grid[:, 3]

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for (name, row), style in zip(errors.items(), ("o--", "o-")):
    left.plot(sizes, row, style, label=name)
left.set(xscale="log", yscale="log", xlabel="rows", ylabel="RMSE", xticks=sizes, xticklabels=sizes)
left.minorticks_off()
left.set(yticks=[0.2, 0.4, 0.8], yticklabels=[0.2, 0.4, 0.8])
left.legend()
for (name, kernel), color in zip(kernels.items(), ("C0", "C1")):
    model = DeepGPRegressor(n_layers=1, inference="exact", kernel=kernel, random_state=0).fit(X, y)
    mean, std = model.predict(grid, return_std=True)
    right.plot(grid[:, 0], mean, color=color, label=name)
    right.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, color=color, alpha=0.15, lw=0)
right.plot(grid[:, 0], truth, "k:", label="truth")
right.set(xlabel="first input, others at 0.9", ylabel="y")
right.legend()
plt.show()
