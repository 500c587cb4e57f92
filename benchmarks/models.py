"""The models that are compared: ours by name or expression, and peers with settings that do them justice.

A model is fitted by :func:`fit`, which gives a function from rows to a distribution (an array of
probabilities for classes). Peers are imported when they are needed.
"""

import re
from functools import partial
from importlib.util import find_spec
from typing import NamedTuple
from unittest import mock

import numpy as np
from sklearn.base import is_classifier
from sklearn.cluster import KMeans
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import cross_val_predict, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.data import as_text
from benchmarks.distributions import LEVELS, Mixture, Ours, Quantiles

MOST_TREES = 2000
PATIENCE = 50
HELD_OUT = 0.1
#: for hyperparameters of the exact Gaussian process; all rows are conditioned on
_EXACT_ROWS = 1000
_ARD_COLUMNS = 30  #: beyond which it has one lengthscale
_CLASS_ROWS, _CLASS_COLUMNS = 600, 15  #: most of the exact one for classes; more take minutes


class Standardized:
    """Training rows with mean 0 and variance 1, and the way back; constant columns become zero."""

    def __init__(self, X, y):
        self.inputs = StandardScaler().fit(X).transform
        self._mean, self._scale = y.mean(), y.std()
        self.X, self.y = self.inputs(X), (y - self._mean) / self._scale

    def mixture(self, means, variances):
        """A distribution in the target's units."""
        return Mixture(means * self._scale + self._mean, variances * self._scale**2)


def centers(X, n_centers, seed, most_rows=10_000):
    """At most `n_centers` points that represent the rows, by k-means."""
    rng = np.random.RandomState(seed)
    X = np.unique(X, axis=0)
    if len(X) > most_rows:
        X = X[rng.choice(len(X), most_rows, replace=False)]
    if len(X) <= n_centers:
        return X
    return KMeans(n_centers, n_init=1, max_iter=30, random_state=rng).fit(X).cluster_centers_


# Regression. Each takes rows, a seed and a number of steps or trees, and gives a function of rows.


def _exact_gp(X, y, seed, max_iter):
    """Squared exponential with a lengthscale for each input, and noise, by the marginal likelihood."""
    scaled = Standardized(X, y)
    kernel = ConstantKernel(1.0) * RBF(
        np.full(X.shape[1] if X.shape[1] <= _ARD_COLUMNS else 1, 0.7 * X.shape[1] ** 0.5),
        (1e-2, 1e4),
    ) + WhiteKernel(0.1, (1e-6, 1e1))
    few = np.random.RandomState(seed).permutation(len(y))[:_EXACT_ROWS]
    model = GaussianProcessRegressor(kernel, random_state=seed).fit(scaled.X[few], scaled.y[few])
    if len(few) < len(y):
        model = GaussianProcessRegressor(model.kernel_, optimizer=None).fit(scaled.X, scaled.y)

    def predict(X):
        mean, std = model.predict(scaled.inputs(X), return_std=True)
        return scaled.mixture(mean, std**2)

    return predict


def _ngboost(X, y, seed, max_iter):
    from ngboost import NGBRegressor

    X, X_val, y, y_val = train_test_split(X, y, test_size=HELD_OUT, random_state=seed)
    model = NGBRegressor(n_estimators=max_iter or MOST_TREES, random_state=seed, verbose=False)
    model.fit(X, y, X_val, y_val, early_stopping_rounds=PATIENCE)
    best = model.best_val_loss_itr + 1

    def predict(X):
        found = model.pred_dist(X, max_iter=best)
        return Mixture(found.loc, found.scale**2)

    return predict


def _catboost_fit(make, X, y, seed, max_iter, **settings):
    """CatBoost that finds its number of trees on a tenth; without that it is far too sure of itself.

    It encodes categories of data frames itself; their gaps are one more level.
    """
    levels = [] if isinstance(X, np.ndarray) else list(X.columns[X.dtypes == "category"])
    if levels:
        settings["cat_features"] = levels
        X = as_text(X, levels)
    X, X_val, y, y_val = train_test_split(
        X, y, test_size=HELD_OUT, random_state=seed, stratify=y if y.dtype.kind == "i" else None
    )
    model = make(
        iterations=max_iter or MOST_TREES,
        random_seed=seed,
        thread_count=1,
        allow_writing_files=False,
        verbose=False,
        **settings,
    )
    model.fit(X, y, eval_set=(X_val, y_val), early_stopping_rounds=PATIENCE)
    return lambda method, X: getattr(model, method)(as_text(X, levels) if levels else X)


def _catboost(X, y, seed, max_iter):
    from catboost import CatBoostRegressor

    settings = {"loss_function": "RMSEWithUncertainty"}
    model = _catboost_fit(CatBoostRegressor, X, y, seed, max_iter, **settings)

    def predict(X):
        mean, variance = model("predict", X).T
        return Mixture(mean, np.maximum(variance, 1e-300))

    return predict


def _catboost_quantiles(X, y, seed, max_iter):
    from catboost import CatBoostRegressor

    settings = {"loss_function": "MultiQuantile:alpha=" + ",".join(f"{p:.2f}" for p in LEVELS)}
    model = _catboost_fit(CatBoostRegressor, X, y, seed, max_iter, **settings)
    return lambda X_new: Quantiles(model("predict", X_new), y)


def _quantile_forest(X, y, seed, max_iter):
    from quantile_forest import RandomForestQuantileRegressor

    model = RandomForestQuantileRegressor(
        max_iter or 500, min_samples_leaf=5, max_features=1 / 3, random_state=seed
    ).fit(X, y)

    def predict(X):
        values = model.predict(X, quantiles=list(LEVELS))
        return Quantiles(values, y, model.predict(X, quantiles="mean"))

    return predict


def _hgb(X, y, seed, max_iter):
    """Means by boosted trees; variances by small ones from squared residuals of rows left out.

    Without bounds the latter run away on some tables.
    """

    def trees(**settings):
        return HistGradientBoostingRegressor(
            max_iter=max_iter or MOST_TREES,
            early_stopping=True,
            validation_fraction=HELD_OUT,
            n_iter_no_change=PATIENCE,
            random_state=seed,
            **settings,
        )

    squares = (y - cross_val_predict(trees(), X, y, cv=3)) ** 2
    low, high = 0.05 * squares.mean(), 20.0 * squares.mean()
    mean, variance = trees().fit(X, y), trees(loss="gamma", max_leaf_nodes=8, learning_rate=0.05)
    variance.fit(X, np.clip(squares, 0.2 * low, None))
    return lambda X: Mixture(mean.predict(X), np.clip(variance.predict(X), low, high))


def _gpytorch(X, y, seed, max_iter, **settings):
    from benchmarks import gpytorch_peers

    return gpytorch_peers.fit(X, y, seed, max_iter, **settings)


_MEMBERS = {
    "deep": lambda plan: plan.n_layers > 1 and "DSVI" in repr(plan.scheme),
    "anova": lambda plan: "Anova" in repr(plan.kernel),
}


def _without(member, X, y, seed, max_iter):
    """The default without one of its members, whose time others may take."""
    import skdgp
    from skdgp.fitting import plan as recipe

    whole = recipe.affordable

    def affordable(plans, *others):
        return whole([plan for plan in plans if not _MEMBERS[member](plan)], *others)

    with mock.patch.object(recipe, "affordable", affordable):
        model = skdgp.DeepGPRegressor(random_state=seed, max_iter=max_iter).fit(X, y)
    return partial(Ours, model)


# Classification. Targets are 0, 1, ...; predictions are arrays of probabilities.


def _hgb_classes(X, y, seed, max_iter):
    model = HistGradientBoostingClassifier(
        max_iter=max_iter or MOST_TREES,
        learning_rate=0.05,
        early_stopping=True,
        n_iter_no_change=PATIENCE,
        random_state=seed,
    )
    return model.fit(X, y).predict_proba


def _forest(X, y, seed, max_iter):
    model = RandomForestClassifier(max_iter or 500, min_samples_leaf=2, random_state=seed)
    return model.fit(X, y).predict_proba


def _logistic(X, y, seed, max_iter):
    model = LogisticRegressionCV(Cs=10, scoring="neg_log_loss", max_iter=max_iter or 5000)
    return make_pipeline(StandardScaler(), model).fit(X, y).predict_proba


def _exact_gp_classes(X, y, seed, max_iter):
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1]))
    model = GaussianProcessClassifier(kernel, random_state=seed)
    return make_pipeline(StandardScaler(), model).fit(X, y).predict_proba


def _catboost_classes(X, y, seed, max_iter):
    from catboost import CatBoostClassifier

    return partial(_catboost_fit(CatBoostClassifier, X, y, seed, max_iter), "predict_proba")


class Peer(NamedTuple):
    """How a peer is fitted, and what it needs."""

    regression: object = None
    classes: object = None
    package: str = None  #: to import, beside those that skdgp needs


PEERS = {
    "catboost": Peer(_catboost, _catboost_classes, "catboost"),
    "catboost-quantiles": Peer(_catboost_quantiles, None, "catboost"),
    "ngboost": Peer(_ngboost, None, "ngboost"),
    "quantile-forest": Peer(_quantile_forest, None, "quantile_forest"),
    "hgb": Peer(_hgb, _hgb_classes),
    "forest": Peer(None, _forest),
    "logistic": Peer(None, _logistic),
    "exact-gp": Peer(_exact_gp, _exact_gp_classes),
    "gpytorch": Peer(_gpytorch, None, "gpytorch"),
    "gpytorch-shared": Peer(partial(_gpytorch, shared=True), None, "gpytorch"),
    "svgp-100": Peer(partial(_gpytorch, n_hidden=0, n_inducing=100), None, "gpytorch"),
    "svgp-500": Peer(partial(_gpytorch, n_hidden=0, n_inducing=500), None, "gpytorch"),
    **{f"without-{member}": Peer(partial(_without, member)) for member in _MEMBERS},
}
HELP = (
    f"of {', '.join(PEERS)}, auto (our default), our schemes (exact, dsvi, ...), or expressions such as "
    '"DeepGPRegressor(n_layers=1)" or "shallow=DeepGPRegressor(n_layers=1)"'
)


_SHALLOW = ("exact", "vecchia", "vfe", "pep")  #: our schemes without hidden layers
_NAMED = re.compile(r"(?:([\w.-]+)=)?(.*)", re.DOTALL)


def estimator(name, classes, seed, max_iter=None):
    """Our estimator of a name or an expression; None if it is for the other task."""
    import skdgp
    from skdgp import inference

    expression = _NAMED.fullmatch(name)[2]
    if "(" not in expression:
        make = skdgp.DeepGPClassifier if classes else skdgp.DeepGPRegressor
        model = make(1 if expression in _SHALLOW else 2, inference=expression)
    else:
        known = {"np": np, "skdgp": skdgp}
        for module in (inference, skdgp):
            known.update({key: getattr(module, key) for key in module.__all__})
        model = eval(expression, known)  # the caller's own command line
        if is_classifier(model) != classes:
            return None
    settings = model.get_params()
    if "random_state" in settings:
        model.set_params(random_state=seed)
    if max_iter is not None and "max_iter" in settings:
        model.set_params(max_iter=max_iter)
    return model


def short(name):
    """The name under which results are kept: ``a`` of ``a=expression``."""
    label, expression = _NAMED.fullmatch(name).groups()
    return label or expression


def suits(name, shape, classes):
    """Whether a model can be asked for rows of this shape."""
    if name not in PEERS:
        return estimator(name, classes, 0) is not None
    if name == "exact-gp" and classes:
        return shape[0] <= _CLASS_ROWS and shape[1] <= _CLASS_COLUMNS
    return (PEERS[name].classes if classes else PEERS[name].regression) is not None


def fit(name, X, y, *, classes=False, seed=0, max_iter=None):
    """Fit a model; a function from rows to a distribution, or to probabilities."""
    if name in PEERS:
        return (PEERS[name].classes if classes else PEERS[name].regression)(X, y, seed, max_iter)
    model = estimator(name, classes, seed, max_iter).fit(X, y)
    predict = partial(model.predict_proba) if classes else partial(Ours, model)
    predict.bound = getattr(model, "lower_bound_", None)
    return predict


def require(names):
    """Exit with one sentence if a package is missing, or a name unknown."""
    packages = {PEERS[name].package for name in names if name in PEERS} - {None}
    missing = sorted(package for package in packages if find_spec(package) is None)
    if missing:
        raise SystemExit(
            f"Not installed: {', '.join(missing)}; pip install -e '.[bench]' installs all peers, and --models "
            "leaves some out."
        )
    from skdgp.inference import SCHEMES

    unknown = [n for n in names if n not in (*PEERS, *SCHEMES, "auto") and "(" not in n]
    if unknown:
        raise SystemExit(f"Unknown models: {', '.join(unknown)}. Give some {HELP}.")
