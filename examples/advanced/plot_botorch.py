"""
===================================
Minimize a black box in forty lines
===================================

BoTorch chooses the runs, and an exact Gaussian process with a local scale is its model. The black box is a bowl
with a step, and its minimum is beside the foot of the step.
"""

# %%
# The page needs the extra ``[botorch]``; without it, there is nothing to show.

import sys
from importlib.util import find_spec

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import qmc

from skdgp import DeepGPRegressor

if find_spec("botorch") is None:
    print("BoTorch is not installed: pip install 'skdgp[botorch]'.")
    sys.exit(0)

import torch
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.optim import optimize_acqf

from skdgp.integrations.botorch import as_model


def black_box(X):
    high = X[:, 0] < 0.3 + 0.5 * X[:, 1] ** 2
    return 2.0 * high + 3.0 * np.square(X - [0.5, 0.6]).sum(1)


# %%
# Ten runs fill the square, and fifteen follow, each where the expected improvement is largest. A fit takes
# tenths of a second; its ``posterior(X)`` has gradients, which ``optimize_acqf`` follows.

torch.manual_seed(0)
X = qmc.LatinHypercube(2, rng=np.random.default_rng(0)).random(10)
y = black_box(X)
bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
for _ in range(15):
    model = DeepGPRegressor(1, inference="exact", target_transform=None, random_state=0)
    model.fit(X, -y)  # BoTorch maximizes
    acquisition = qLogExpectedImprovement(as_model(model), best_f=-y.min())
    x, _ = optimize_acqf(acquisition, bounds, q=1, num_restarts=4, raw_samples=64)
    X, y = np.concatenate([X, x.numpy()]), np.append(y, black_box(x.numpy()))

print(f"lowest of the first ten runs: {y[:10].min():.4f}, of all: {y.min():.4f}; the minimum is 0")

# %%
# The runs gather at the foot of the step, where the model is least sure among low values.

fig, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 101)] * 2), -1)
shown = -model.predict(grid.reshape(-1, 2)).reshape(101, 101)
image = axes[0].pcolormesh(grid[..., 0], grid[..., 1], shown, shading="gouraud")
fig.colorbar(image, ax=axes[0], label="prediction")
axes[0].plot(*X[:10].T, "wo", label="first runs", markersize=4)
axes[0].plot(*X[10:].T, "r.", label="chosen runs")
axes[0].legend(loc="upper left", fontsize="small")
axes[0].set(xlabel="x0", ylabel="x1")
axes[1].step(np.arange(1, len(y) + 1), np.minimum.accumulate(y), where="post")
axes[1].set(xlabel="runs", ylabel="lowest value", yscale="log")
plt.show()
