"""
The next two days
=================

Hours have a day and a weekday, demand follows the temperature, and what is left over wanders. Intervals for
tomorrow need all of that, and must know that the hour before will not be there to lean on. The
example needs pandas.
"""

# %%
# Three weeks of hourly demand. The last two days are to be predicted; their temperature is known, as from a
# forecast of the weather.

import datetime

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skdgp import DeepGPRegressor
from skdgp.inspection import ForecastDisplay

rng = np.random.default_rng(1)
n = 22 * 24
hours = pd.date_range("2026-06-01", periods=n, freq="h")
clock, is_weekend = hours.hour.to_numpy(), hours.dayofweek.to_numpy() >= 5
temperature = 18 + 6 * np.sin(2 * np.pi * (clock - 9) / 24) + np.cumsum(0.3 * rng.normal(size=n))
profile = 30 * np.exp(-((clock - 8) ** 2) / 8) + 40 * np.exp(-((clock - 18) ** 2) / 12)
wander = np.zeros(n)
for i in range(1, n):
    wander[i] = 0.95 * wander[i - 1] + 2 * rng.normal()
y = 200 + profile * (1 - 0.5 * is_weekend) + 0.2 * (temperature - 18) ** 2 + wander
X = pd.DataFrame({"hour": hours, "temperature": temperature})
past, later = slice(0, n - 48), slice(n - 48, n)

# %%
# With the time and how far ahead predictions will be, members are judged by blocks of two days, each from
# the rows before it. Without, by single hours between their neighbors.

horizon = datetime.timedelta(days=2)
models = {
    "without time": DeepGPRegressor(random_state=0),
    "time='hour'": DeepGPRegressor(time="hour", horizon=horizon, random_state=0),
}
fig, axes = plt.subplots(2, 1, figsize=(8, 6), sharex=True, sharey=True, layout="constrained")
recent = slice(n - 48 - 96, n - 48)
for ax, (name, model) in zip(axes, models.items()):
    model.fit(X[past], y[past])
    before = X[recent], y[recent]
    ForecastDisplay.from_estimator(model, X[later], y[later], time="hour", past=before, ax=ax)
    low, high = model.predict_interval(X[later], coverage=0.9).T
    inside = np.mean((low <= y[later]) & (y[later] <= high))
    crps = model.predict_dist(X[later]).crps(y[later]).mean()
    ax.set_title(f"{name}: {inside:.0%} inside of 90 % intervals, CRPS {crps:.1f}")
    ax.legend(loc="upper left", fontsize="small", ncols=5)
plt.show()

# %%
# What the members are, and how they predict blocks that they have not seen.

print(models["time='hour'"].summary())
