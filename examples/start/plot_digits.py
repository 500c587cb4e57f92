"""
=======================================
Classify digits, and know when in doubt
=======================================

A classifier that says "90 percent" should be right nine times out of ten. This page compares the
probabilities of a deep Gaussian process with those of three neighbors, on handwritten digits of which
few are labeled, and looks at the images that it is least sure about.
"""

# %%
# 500 images for training, about 1,300 for the test. The support vector machine gets its probabilities by
# temperature scaling, inside cross-validation, which suits many classes better than Platt's.

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import entropy
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from skdgp import DeepGPClassifier

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, train_size=500, stratify=y, random_state=0
)
models = {
    "deep Gaussian process": DeepGPClassifier(max_iter=100, random_state=0),
    "calibrated SVC": CalibratedClassifierCV(SVC(C=10, gamma=0.001), method="temperature"),
    "random forest": RandomForestClassifier(300, random_state=0),
    "neural network": make_pipeline(StandardScaler(), MLPClassifier(max_iter=500, random_state=0)),
}
probabilities = {
    name: model.fit(X_train, y_train).predict_proba(X_test) for name, model in models.items()
}

# %%
# Log-loss and Brier score judge probabilities, the latter with less weight on gross errors; less is
# better for both.

print("                       accuracy  log-loss  Brier score  mean confidence")
for name, proba in probabilities.items():
    accuracy = accuracy_score(y_test, proba.argmax(axis=1))
    loss, brier = log_loss(y_test, proba), brier_score_loss(y_test, proba)
    confidence = proba.max(axis=1).mean()
    print(f"{name:21s}  {accuracy:8.3f}  {loss:8.3f}  {brier:11.3f}  {confidence:15.3f}")

# %%
# The support vector machine is the most accurate, and a little too modest: it is right 98 times out of 100,
# and claims 95. The random forest is far too modest. Confidence and accuracy of the deep Gaussian process and
# of the neural network are within two points. The deep Gaussian process has the best log-loss; by the Brier
# score the support vector machine is level. On digits with labels that are all correct there is little to be
# in doubt about.
#
# Calibration
# -----------
# For each image, the confidence is the probability of the class that is predicted. Where a model
# says 70 percent, is it right in 70 percent of the cases? Each point is a tenth of the test images, sorted
# by confidence. The random forest errs on the safe side, far above the diagonal; the
# other three are close to it.

fig, ax = plt.subplots(figsize=(6.5, 6), layout="constrained")
styles = zip(["o-", "s--", "^--", "D--"], ["#0072B2", "#D55E00", "#009E73", "#CC79A7"])
for (name, proba), (style, color) in zip(probabilities.items(), styles):
    right = proba.argmax(axis=1) == y_test
    order = np.argsort(proba.max(axis=1))
    bins = np.array_split(order, 10)
    confidence = [proba.max(axis=1)[rows].mean() for rows in bins]
    accuracy = [right[rows].mean() for rows in bins]
    ax.plot(confidence, accuracy, style, color=color, label=name)
ax.plot([0, 1], [0, 1], "k:", label="perfectly calibrated")
ax.set(xlim=(0.25, 1.02), ylim=(0.25, 1.02), xlabel="Confidence", ylabel="Accuracy", aspect="equal")
_ = ax.legend(loc="lower right")

# %%
# Doubt
# -----
# What is doubt good for? Suppose that the tenth of the images whose predicted probabilities have the
# largest entropy goes to a person:

proba = probabilities["deep Gaussian process"]
wrong = proba.argmax(axis=1) != y_test
doubtful = np.argsort(-entropy(proba, axis=1))
n_person = len(doubtful) // 10
print(f"{wrong.sum()} of {len(wrong)} images are classified wrongly;")
print(f"{wrong[doubtful[:n_person]].sum()} of them are among the {n_person} most doubtful ones.")

# %%
# The most doubtful of all, with the two most probable classes above and the true one below:

fig, axes = plt.subplots(2, 6, figsize=(10, 4.4), layout="constrained")
for ax, i in zip(axes.flat, doubtful):
    ax.imshow(X_test[i].reshape(8, 8), cmap="gray_r")
    first, second = np.argsort(-proba[i])[:2]
    ax.set_title(f"{first}: {proba[i, first]:.0%},  {second}: {proba[i, second]:.0%}", fontsize=10)
    ax.set(xlabel=f"true: {y_test[i]}", xticks=[], yticks=[])
