"""
===================
Complete the images
===================

The upper half of an image says much of the lower one, but not all. A regressor with one output for each missing
pixel completes it, with error bars.
"""

# %%
# The small digits of scikit-learn: 32 pixels are given, and 1,000 images are for training. Three pixels of the
# lower half are black in all of them, and nothing is to be predicted there. A shallow model has a function for
# each pixel, independent of the others. The outputs of a deep one share 16 hidden units.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import train_test_split

from skdgp import DeepGPRegressor
from skdgp.metrics import energy_score, variogram_score

images = load_digits(return_X_y=True)[0] / 16.0
train, test = train_test_split(images, train_size=1000, test_size=200, random_state=0)
lit = 32 + np.flatnonzero(train[:, 32:].any(axis=0))
upper, lower = test[:, :32], test[:, lit]

settings = {"inference": "rff", "batch_size": 200, "max_iter": 300, "random_state": 0}
models = {
    "shallow": DeepGPRegressor(1, **settings),
    "deep": DeepGPRegressor(2, width=16, **settings),
}

# %%
# The energy score and the variogram score judge draws of all pixels together: the second one looks at
# differences of pairs of pixels. For all three scores, smaller is better.

print("model     RMSE   energy score   variogram score")
for name, model in models.items():
    model.fit(train[:, :32], train[:, lit])
    draws = model.sample_y(upper, 50)
    scores = energy_score(lower, draws), variogram_score(lower, draws)
    error = root_mean_squared_error(lower, model.predict(upper))
    print(f"{name:8s} {error:5.3f} {scores[0]:14.3f} {scores[1]:17.1f}")

# %%
# The deep model is ahead in all three. Its means are sharp where the upper half leaves no choice, and blurred
# where several digits begin alike. Its standard deviations, on a scale to .5, are large there.

n = 9
mean, std = models["deep"].predict(upper[:n], return_std=True)
rows = {
    "image": (1.0, upper, lower),
    "given": (1.0, upper, None),
    "shallow": (1.0, upper, models["shallow"].predict(upper[:n])),
    "deep": (1.0, upper, mean),
    "deep, std": (0.5, None, std),
}
fig, axes = plt.subplots(len(rows), n, figsize=(7, 4.2), layout="constrained")
for (name, (white, top, half)), line in zip(rows.items(), axes):
    for i, ax in enumerate(line):
        image = np.zeros(64)
        if top is not None:
            image[:32] = top[i]
        if half is not None:
            image[lit] = half[i]
        ax.imshow(image.reshape(8, 8), cmap="gray", vmin=0.0, vmax=white)
        ax.set(xticks=[], yticks=[])
    line[0].set_ylabel(name, rotation=0, ha="right", va="center")
