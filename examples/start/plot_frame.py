"""
========================
From a table to answers
========================

A table of cars has a category, missing cells and numbers. It goes into ``fit`` as it is, and out come
intervals, importances and effects by the names of its columns.
"""

# %%
# The origin is a category, and the horsepower of six cars is unknown. ``column_kinds_`` says what each
# column was taken for.

import matplotlib.pyplot as plt
from sklearn.model_selection import train_test_split

from skdgp import DeepGPRegressor
from skdgp.datasets import load_cars
from skdgp.inspection import EffectsDisplay

X, y = load_cars(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
model = DeepGPRegressor(n_layers=1, inference="exact", random_state=0).fit(X_train, y_train)
print(model.column_kinds_)

# %%
# Each car has an interval of its own, and about nine of ten are inside.

low, high = model.predict_interval(X_test, coverage=0.9).T
print(f"inside: {((low < y_test) & (y_test < high)).mean():.2f}")

# %%
# What the weight and the origin do, on average over all other columns.

EffectsDisplay.from_estimator(model, features=["weight", "origin"], n_draws=32)
plt.show()

# %%
# Nobody knows what a car from another country is like, or the weight of a car whose cell is empty. Error bars
# say so: a level that was never seen may be like any of the known ones, and a gap hides what similar cars
# have.

strange = X_test.assign(origin="sweden")
widths = {
    "known": model.predict(X_test, return_std=True)[1],
    "origin never seen": model.predict(strange, return_std=True)[1],
    "weight never missing before": model.predict(X_test.assign(weight=None), return_std=True)[1],
}
fig, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
ax.boxplot(list(widths.values()), orientation="horizontal", tick_labels=list(widths))
ax.set(xlabel="predicted standard deviation, miles per gallon", title="Error bars of 100 cars")
plt.show()
