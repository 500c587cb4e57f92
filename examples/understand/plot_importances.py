"""
==============================
Which columns of a car matter?
==============================

Two questions follow every good prediction: which columns does it come from, and what does the target do
along them? Both answers are estimates. Draws of the function, each of which the data leave possible, tell
how sure they are.
"""

# %%
# Miles per gallon of 398 cars, and an exact Gaussian process with the ANOVA kernel. The names of the columns
# come with the data frame. The table says what the hyperparameters say: columns in which the function varies
# most, and those in which it is flat.

import matplotlib.pyplot as plt
import numpy as np

from skdgp import DeepGPRegressor
from skdgp.datasets import load_cars
from skdgp.inspection import EffectsDisplay, ImportanceDisplay

cars = load_cars(as_frame=True)
model = DeepGPRegressor(n_layers=1, inference="exact", random_state=0).fit(cars.data, cars.target)
print(model.summary())

# %%
# Importances are shares of the variation of predictions. Error bars say how much they differ between
# functions that fit the same cars. The year matters for sure. Columns that say nearly the same, as weight,
# displacement and cylinders do, share what they say, and how they share it is less sure.

display = ImportanceDisplay.from_estimator(model, n_draws=32)
plt.show()

# %%
# Main effects say how much, and in which direction: miles per gallon (mpg) beside the average car, when one
# column changes and the others take all their values. The band holds 90 % of the effects of function
# draws. Heavy cars are thirsty, and the effect levels off; the oil crisis shows in the years.

names = list(cars.data.columns)
order = np.argsort(-display.importances_mean)[:3]
display = EffectsDisplay.from_estimator(model, features=[names[j] for j in order])
plt.show()

# %%
# How much of an error bar is ignorance of the function, which more cars would cure, and how much is noise:
# cars of one kind that differ.

mean, function, noise = model.predict(cars.data, return_std=True, decompose=True)
print(
    f"typical standard deviations: function {np.median(function):.2f}, noise {np.median(noise):.2f}"
)
