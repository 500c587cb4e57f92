"""
Patients who are not in the table
=================================

Rows of one patient are alike. Rows that are left out one by one are therefore easy, and what they say of error
bars is too good for a new patient.
"""

# %%
# Thirty patients with six visits each. Age, height and dose are known, and each patient has a level that no
# column tells. Fifty more patients come later.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import GroupKFold

from skdgp import DeepGPRegressor
from skdgp.model_selection import cross_val_distribution

rng = np.random.default_rng(0)
patient = np.repeat(np.arange(80), 6)
level, age = rng.normal(size=80), rng.uniform(20, 80, 80)
height, dose = rng.normal(170, 10, 80), rng.uniform(0, 3, 480)
columns = {"patient": patient, "age": age[patient], "height": height[patient], "dose": dose}
X = pd.DataFrame(columns)
y = np.sin(2 * X["dose"]) + 0.02 * age[patient] + level[patient] + 0.2 * rng.normal(size=480)
old = patient < 30

# %%
# The column of the patient is named, and is no input. Without it, age and height tell the patients of training
# apart.

rows = X.drop(columns="patient")
models = {
    "rows left out": DeepGPRegressor(random_state=0).fit(rows[old], y[old]),
    "groups='patient'": DeepGPRegressor(groups="patient", random_state=0).fit(X[old], y[old]),
}

# %%
# Intervals of new patients, sorted by their centers.

fig, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items()):
    new = (X if model.groups else rows)[~old]
    low, high = model.predict_interval(new, coverage=0.9).T
    order, inside = np.argsort(low + high), (low <= y[~old]) & (y[~old] <= high)
    ax.fill_between(np.arange(300), low[order], high[order], alpha=0.3, linewidth=0)
    ax.plot(np.arange(300), y[~old].to_numpy()[order], "k.", markersize=3)
    ax.set(title=f"{name}: {inside.mean():.0%} inside of 90 %", xlabel="visits of new patients")
axes[0].set_ylabel("response")
plt.show()

# %%
# The thirty happen to have levels that are more alike than those of the fifty, which nobody can know. Before
# these come, folds of whole patients say what to expect. The name of the column is all that ``fit`` needs
# within the folds.

found = cross_val_distribution(
    models["groups='patient'"], X[old], y[old], cv=GroupKFold(3), groups=patient[old]
)
low, high = found.quantiles.T
print(f"inside, by folds of patients: {((low <= y[old]) & (y[old] <= high)).mean():.2f}")
