"""
============================
Add depth to random features
============================

With random features a deep Gaussian process is a network of sines and cosines, with a posterior over its
weights. For images, learned frequencies help a model without hidden layers, and depth must not cost accuracy.
Both are settings.
"""

# %%
# The small digits of scikit-learn, 64 pixels, 1,200 images for training. Frequencies are fixed or learned
# ("variational"), and there are none or two hidden layers. The last case takes the mean functions of
# hidden layers away, as in the original paper, where every layer then has to pass on by itself what the next
# one should know of the image.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from skdgp import DeepGPClassifier
from skdgp.inference import RandomFeatures

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, train_size=1200, stratify=y, random_state=0
)
cases = {
    "fixed": ("fixed", "linear"),
    "variational": ("variational", "linear"),
    "variational, zero mean": ("variational", "zero"),
}
models = {}
print("frequencies              hidden layers   accuracy   log-loss")
for name, (frequencies, mean) in cases.items():
    for n_layers in (1, 3):
        model = DeepGPClassifier(
            n_layers,
            mean=mean,
            inference=RandomFeatures(64, frequencies),
            dtype="float32",
            batch_size=200,
            max_iter=200,
            n_predict_draws=16,
            random_state=0,
        ).fit(X_train, y_train)
        models[name, n_layers] = model
        accuracy = model.score(X_test, y_test)
        loss = log_loss(y_test, model.predict_proba(X_test))
        print(f"{name:24s} {n_layers - 1:13d}   {accuracy:8.3f}   {loss:8.3f}")

# %%
# Fixed or learned, two hidden layers lower the log-loss here: hidden layers start as projections of their
# inputs, and the last layer knows what a shallow model would know. Without mean functions depth costs
# probability again. Learning the frequencies helps a model without hidden layers, from .117 to .092, for 64
# frequencies chosen in advance are few for 64 pixels. With hidden layers it does not: fixed frequencies have
# .075, learned ones .081.

fig, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
places = np.arange(len(cases))
for shift, n_layers, color in ((-0.2, 1, "#0072B2"), (0.2, 3, "#D55E00")):
    losses = [log_loss(y_test, models[name, n_layers].predict_proba(X_test)) for name in cases]
    bars = ax.bar(places + shift, losses, 0.36, color=color, label=f"{n_layers - 1} hidden layers")
    ax.bar_label(bars, fmt="%.3f")
ax.set(
    xticks=places, xticklabels=list(cases), xlabel="frequencies", ylabel="log-loss of test images"
)
ax.set_ylim(0.0, 0.16)
_ = ax.legend(loc="upper right")
