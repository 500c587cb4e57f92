"""
====================================
See which units depend on each other
====================================

The layers of a deep Gaussian process depend on each other once data have been seen: what one layer
does, the next has to undo. The usual posterior knows nothing of it; it takes all units for
independent. The posteriors of :class:`~skdgp.inference.StructuredVI` couple them [1]_. This page looks
at what they find.

.. [1] J. Lindinger, D. Reeb, C. Lippert and B. Rakitsch (2020). Beyond the mean-field: structured deep
   Gaussian processes improve the predictive uncertainties. NeurIPS 33.
"""

# %%
# Three layers with three hidden units each, for a function of three inputs, and three families of
# posteriors. Each richer one starts from the simpler ones within the same ``fit``.

import matplotlib.pyplot as plt
import numpy as np

from skdgp import DeepGPRegressor
from skdgp.inference import StructuredVI
from skdgp.inspection import CovarianceDisplay

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, size=(150, 3))
y = np.sign(X[:, 0] + 0.5 * X[:, 1]) * (1 + 0.5 * X[:, 2]) + 0.2 * rng.standard_normal(150)

models = {}
for coupling in ("mean-field", "stripes-and-arrow", "full"):
    model = DeepGPRegressor(
        n_layers=3,
        n_inducing=20,
        inference=StructuredVI(coupling),
        likelihood="gaussian",
        max_iter=300,
        random_state=0,
    )
    models[coupling] = model.fit(X, y)

# %%
# The posterior correlations of the inducing outputs, one block for each pair of units. By
# construction the mean field has none between units, and the second family only those of its
# pattern: stripes between units with the same number, and an arrow to the output.

fig, axes = plt.subplots(1, 3, figsize=(15, 5))
displays = {}
for ax, (coupling, model) in zip(axes, models.items()):
    displays[coupling] = CovarianceDisplay.from_estimator(model, name=coupling, ax=ax)
for display in list(displays.values())[:2]:
    display.colorbar_.remove()
fig.tight_layout()
plt.show()

# %%
# Where does the full posterior put its correlations? The root mean square over each kind of block
# tells. The pattern of stripes and arrow is the part that it uses most.

display = displays["full"]
n_units = len(display.labels)
layer = np.searchsorted(display.first_units, np.arange(n_units), side="right")
number = np.arange(n_units) - np.array(display.first_units)[layer - 1]
rows, columns = np.tril_indices(n_units, -1)
arrow = layer[rows] == 3
stripes = ~arrow & (number[rows] == number[columns])
for name, chosen in (("arrow", arrow), ("stripes", stripes), ("others", ~arrow & ~stripes)):
    rms = np.sqrt(np.mean(display.strength[rows, columns][chosen] ** 2))
    print(f"{name:8s} {rms:.3f}")

# %%
# A richer family can only raise the optimum of the bound on the log marginal likelihood. Most of what there
# is to gain comes with stripes and arrow, which have 16 of the 28 blocks of the full posterior; the last
# two differ by less than the noise of their estimates.

for coupling, model in models.items():
    print(f"{coupling:18s} {model.lower_bound_:8.1f}")
