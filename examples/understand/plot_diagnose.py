"""
===================================
Find out what is wrong with a model
===================================

A deep Gaussian process that failed to learn looks like one that learned that there is nothing but
noise. :func:`~skdgp.inspection.diagnose` tells the two apart, and names what is wrong inside.
"""

# %%
# A wave of growing frequency, and a good model of it.

import warnings

import matplotlib.pyplot as plt
import numpy as np

from skdgp import DeepGPRegressor
from skdgp.gp.likelihoods import Gaussian
from skdgp.inspection import PathologyWarning, diagnose

rng = np.random.default_rng(0)
X = np.linspace(0.0, 1.0, 200)[:, None]
y = np.sin(25.0 * X[:, 0] ** 2) + 0.1 * rng.standard_normal(200)


def regressor(**settings):
    settings = {"likelihood": "gaussian", "n_inducing": 30, "max_iter": 400, **settings}
    return DeepGPRegressor(inference="dsvi", random_state=0, **settings)


good = regressor().fit(X, y)
print(diagnose(good, X, y))

# %%
# Each line is a figure, with the threshold from where on it is suspicious in brackets. The verdict comes
# from somewhere else: from the log-density of the rows, beside that of a simple Gaussian process which
# predicts every row from the others. Figures tell why a bad model is bad; a good one may have odd
# figures, and be well.
#
# Three models that are bad on purpose. ``fit`` warns of each.

bad = {
    "too few inducing points": regressor(n_inducing=3),
    "loud noise": regressor(likelihood=Gaussian(variance=0.5, trainable=False)),
    "six layers, one unit, no mean": regressor(n_layers=6, width=1, mean="zero"),
}
for name, model in bad.items():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PathologyWarning)
        model.fit(X, y)
    print(f"--- {name}: {len(caught)} warning")
    print(diagnose(model, X, y), "\n")

# %%
# And one that is spoilt after training: its inducing inputs are moved away from the rows. The state of a
# model is plain arrays, which can be edited by hand; ``release`` lets the next prediction start from them.

spoilt = regressor().fit(X, y)
arrays = spoilt.members_[0].arrays
for layer in ("layers.0.Z", "layers.1.Z"):
    arrays[layer] = arrays[layer] + 10.0
spoilt.members_[0].release()
print(diagnose(spoilt, X, y))

fig, axes = plt.subplots(1, 5, figsize=(15, 3), sharey=True, layout="constrained")
everyone = {"good": good, **bad, "inducing inputs away": spoilt}
for ax, (name, model) in zip(axes, everyone.items()):
    mean, std = model.predict(X, return_std=True)
    ax.fill_between(X[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.3, linewidth=0)
    ax.plot(X, mean)
    ax.plot(X, y, "k.", markersize=2)
    missed = diagnose(model, X, y).missed
    ax.set(title=f"{name}\n{max(missed, 0.0):.0%} missed", xlabel="x")
axes[0].set_ylabel("y")
plt.show()

# %%
# In a notebook a diagnosis shows as a table. Such is the one of the model with few inducing points:

diagnose(bad["too few inducing points"], X, y)
