"""
=====================================
Search with the tools of scikit-learn
=====================================

A pipeline that encodes a column, a grid search over depth and kernel, and cross-validation: all judged by the
predictive distribution rather than by the mean.
"""

# %%
# The cars, as a frame. A deep Gaussian process takes it as it is; the pipeline is for the linear model at the
# end, which needs dummies for categories and no missing cells. Names of nested parameters are joined by
# two underscores.

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skdgp import DeepGPRegressor
from skdgp.datasets import load_cars
from skdgp.metrics import crps_scorer, log_predictive_density_scorer

X, y = load_cars(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
columns = make_column_transformer(
    (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["cylinders", "origin"]),
    (SimpleImputer(), ["horsepower"]),
    remainder="passthrough",
)
model = DeepGPRegressor(inference="dsvi", n_inducing=50, max_iter=150, random_state=0)
pipeline = Pipeline([("columns", columns), ("model", model)])

# %%
# Search
# ------
# The score is the logarithm of the predictive density. It is proper: none is better, on average, than that
# of the true distribution. A setting of the scheme would be one level deeper, as in
# ``model__inference__inner_scale``.

grid = {"model__n_layers": [1, 2], "model__kernel": ["squared_exponential", "matern32"]}
folds = KFold(3, shuffle=True, random_state=0)
search = GridSearchCV(pipeline, grid, scoring=log_predictive_density_scorer, cv=folds)
search.fit(X_train, y_train)
print("best:", search.best_params_)

# %%
# Some folds are harder than others for all models, so the picture shows gains over the mean of all
# candidates, fold by fold.

results = pd.DataFrame(search.cv_results_)
scores = results[[f"split{i}_test_score" for i in range(3)]].to_numpy()
gain = scores - scores.mean(axis=0)
labels = [
    f"{kernel}\n{n_layers} layer{'s'[: n_layers - 1]}"
    for kernel, n_layers in zip(results["param_model__kernel"], results["param_model__n_layers"])
]
fig, ax = plt.subplots(figsize=(7.5, 4), layout="constrained")
ax.axhline(0.0, color="black", lw=1, ls=":")
ax.plot(gain, "o", color="C0", alpha=0.4)
ax.plot(gain.mean(axis=1), "D", color="C1", ms=9)
ax.plot([], [], "o", color="C0", alpha=0.4, label="single folds")
ax.plot([], [], "D", color="C1", label="mean")
ax.set(xticks=range(4), xticklabels=labels, xlim=(-0.5, 3.5))
ax.set(xlabel="candidate", ylabel="gain in log-density per row")
ax.legend()
plt.show()

# %%
# Predictions of the pipeline
# ---------------------------
# A pipeline hands ``return_std`` through to its last step; a search does not, so ask its ``best_estimator_``.
# What only the last step knows, such as ``predict_interval``, wants transformed rows.

best = search.best_estimator_
mean, std = best.predict(X_test, return_std=True)
interval = best[-1].predict_interval(best[:-1].transform(X_test), coverage=0.9)
print(f"log-density on the test rows: {log_predictive_density_scorer(search, X_test, y_test):.2f}")
for i in range(3):
    print(
        f"predicted {mean[i]:.1f} +- {std[i]:.1f} miles per gallon, with 90 % from {interval[i, 0]:.1f} "
        f"to {interval[i, 1]:.1f}; true {y_test.iloc[i]:.1f}"
    )

# %%
# Cross-validation
# ----------------
# The continuous ranked probability score is in the units of the target. The scorers take other
# regressors that predict a standard deviation, too.

linear = Pipeline([("columns", columns), ("scaler", StandardScaler()), ("model", BayesianRidge())])
for name, estimator in [("best pipeline", best), ("BayesianRidge", linear)]:
    scores = -cross_val_score(estimator, X_train, y_train, scoring=crps_scorer, cv=folds)
    print(f"{name}: CRPS {scores.mean():.2f}, by folds {scores.round(2)}")
