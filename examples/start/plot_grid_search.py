"""
==========================
Grid search and pipelines
==========================

Deep Gaussian processes inside the tools of scikit-learn: a pipeline that encodes a column, a search
over the depth and a setting of the inference scheme, judged by the predictive distribution rather than
the mean, and cross-validation.
"""

# %%
# The diabetes data, as a frame. One column is a category; the others need nothing, not even scaling. Names
# of nested parameters are joined by two underscores, and the scheme is one more level:
# ``model__inference__inner_scale``.

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skdgp import DeepGPRegressor
from skdgp.metrics import crps_scorer, log_predictive_density_scorer

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
columns = make_column_transformer(
    (OneHotEncoder(drop="if_binary"), ["sex"]), remainder="passthrough"
)
model = DeepGPRegressor(
    inference="dsvi", likelihood="gaussian", n_inducing=50, max_iter=200, random_state=0
)
pipeline = Pipeline([("columns", columns), ("model", model)])

# %%
# Search
# ------
# ``inner_scale`` is the standard deviation of hidden layers at the start, relative to their prior. A
# tiny one, the default with many rows or few steps, suits data with little noise; these are full of it.
# With one layer there is none that is hidden, so that the grid has two parts.
#
# The score is the logarithm of the predictive density. It is a proper score: none is better, on
# average, than that of the true distribution, so that it rewards right means and honest intervals. With
# ``n_jobs=2`` there are two processes with a share of the threads each.

grid = [
    {"model__n_layers": [1]},
    {"model__n_layers": [2, 3], "model__inference__inner_scale": [1e-5, 1e-3, 1e-1]},
]
folds = KFold(3, shuffle=True, random_state=0)
search = GridSearchCV(pipeline, grid, scoring=log_predictive_density_scorer, cv=folds, n_jobs=2)
search.fit(X_train, y_train)
print("best:", search.best_params_)

# %%
# Some folds are harder than others for all models, so the picture shows differences to the model with one
# layer, fold by fold. Deep models that start almost without uncertainty learn the noise. With more of
# it they are as good as the shallow model, and not better: this function is smooth, and one layer is enough.
# The search prefers a deep one by a hundredth of a nat, which is next to nothing.

results = pd.DataFrame(search.cv_results_)
scores = results[[f"split{i}_test_score" for i in range(3)]].to_numpy()
shallow = (results["param_model__n_layers"] == 1).to_numpy()
gain = scores - scores[shallow]
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.axhline(0.0, color="black", ls="--", label="1 layer")
for n_layers, marker, color, shift in [(2, "o", "C0", 0.93), (3, "s", "C1", 1.07)]:
    part = (results["param_model__n_layers"] == n_layers).to_numpy()
    x = results.loc[part, "param_model__inference__inner_scale"].astype(float).to_numpy()
    ax.plot(
        shift * x, gain[part].mean(axis=1), marker=marker, color=color, label=f"{n_layers} layers"
    )
    ax.plot(shift * x, gain[part], marker, color=color, ms=4, alpha=0.4)
ax.plot([], [], "o", color="gray", ms=4, alpha=0.6, label="single folds")
ax.set(xscale="log", xlabel="inner_scale", ylabel="Gain in log-density per row\nover 1 layer")
_ = ax.legend(loc="lower right")

# %%
# Predictions of the pipeline
# ---------------------------
# Scorers take searches and pipelines as they are. A pipeline hands keywords of ``predict`` through to its
# last step; a search does not, so ask its ``best_estimator_``. What only the last step knows, such as
# ``predict_interval``, wants transformed rows.

best = search.best_estimator_
print(f"log-density on the test rows: {log_predictive_density_scorer(search, X_test, y_test):.2f}")
mean, std = best.predict(X_test, return_std=True)
interval = best[-1].predict_interval(best[:-1].transform(X_test), coverage=0.9)
for i in range(3):
    print(
        f"predicted {mean[i]:3.0f} +- {std[i]:2.0f}, with 90 percent from {interval[i, 0]:3.0f} to "
        f"{interval[i, 1]:3.0f}; true {y_test.iloc[i]:3.0f}"
    )

# %%
# Cross-validation
# ----------------
# The continuous ranked probability score is in the units of the target. The scorers also
# take other regressors that predict a standard deviation, and on these data a linear one is not far behind.

for name, estimator in [
    ("best pipeline", best),
    (
        "BayesianRidge",
        Pipeline([("columns", columns), ("scaler", StandardScaler()), ("model", BayesianRidge())]),
    ),
]:
    scores = -cross_val_score(estimator, X_train, y_train, scoring=crps_scorer, cv=folds, n_jobs=2)
    print(f"{name}: CRPS {scores.mean():.1f}, by folds {scores.round(1)}")
