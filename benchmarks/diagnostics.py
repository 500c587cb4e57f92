"""Whether the warnings of ``fit`` are right: healthy fits, and fits that are spoilt on purpose."""

import warnings
from functools import partial

import numpy as np
from sklearn import datasets

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.datasets import make_deep_gp, make_mountain_car, make_piecewise_linear, make_step
from skdgp.gp.kernels import SquaredExponential
from skdgp.gp.likelihoods import Gaussian
from skdgp.inference import DSVI
from skdgp.inspection import PathologyWarning, diagnose

from . import arguments, data, rst

_STILL = {"max_iter": 100, "learning_rate": 1e-9, "inference": DSVI(natural_step=1e-9)}


def add_arguments(parser):
    """Which fits, and for how long."""
    arguments.add_data(parser)
    parser.add_argument("--max-iter", type=int, default=300, help="default: %(default)s")
    parser.add_argument(
        "--rows", type=int, default=800, help="rows of the larger sets; default: %(default)s"
    )
    parser.add_argument("--only", default="", help="fits whose names contain this")


def run(options):
    """Fit, and print who raised a warning."""
    sets = {**_toys(), **_real(data.folder(options.data), options.rows)}
    fits = [("healthy", fit) for fit in _healthy(sets)] + [("spoilt", fit) for fit in _spoilt(sets)]
    lines, false, missed = [], 0, 0
    for truth, (name, (X, y), make) in fits:
        if options.only not in name:
            continue
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = make(options.max_iter, X, y).fit(X, y)
        warned = any(issubclass(one.category, PathologyWarning) for one in caught)
        found = diagnose(model, X, y)
        causes = sorted({cause.name for report in found.reports for cause in report.causes})
        false += warned and truth == "healthy"
        missed += not warned and truth == "spoilt"
        verdict = "right" if warned == (truth == "spoilt") else "WRONG"
        share = rst.NOTHING if found.missed is None else f"{found.missed:.2f}"
        says = "warns" if warned else "silent"
        lines.append([name, truth, says, verdict, share, ", ".join(causes) or rst.NOTHING])
        print(*lines[-1], sep="; ", flush=True)
    print(rst.table(["fit", "truth", "fit", "", "missed", "suspicious figures"], lines))
    print(f"{false} false warnings and {missed} misses in {len(lines)} fits")


def _toys():
    X, y, _ = make_deep_gp(
        300, lengthscales=[3.0, 0.3], noise=0.1, return_hidden=True, random_state=1
    )
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((200, 2)), rng.standard_normal(200)
    plane = rng.uniform(-1, 1, (400, 2))
    waves = np.sin(6 * plane[:, 0]) * np.cos(5 * plane[:, 1]) + 0.1 * rng.standard_normal(400)
    line = np.linspace(0, 1, 200)[:, None]
    return {
        "step": make_step(60, random_state=0),
        "piecewise": make_piecewise_linear(100, random_state=0),
        "draw": (X, y),
        "mountain car": make_mountain_car(400, random_state=0),
        "friedman": datasets.make_friedman1(300, noise=1.0, random_state=0),
        "noise": noise,
        "waves": (plane, waves),
        "sine": (line, np.sin(20 * line[:, 0])),
        "moons": datasets.make_moons(200, noise=0.2, random_state=0),
        "counts": (line, rng.poisson(np.exp(2 + np.sin(9 * line[:, 0])))),
    }


def _real(root, n_rows):
    found = {"diabetes": datasets.load_diabetes(return_X_y=True)}
    for name in ("boston", "concrete", "energy", "power", "naval", "wine_red"):
        split = data.uci_split(root, name, 0)
        found[name] = split.X_train[:n_rows], split.y_train[:n_rows]
    for load in (datasets.load_iris, datasets.load_breast_cancer, datasets.load_digits):
        X, y = load(return_X_y=True)
        found[load.__name__[5:]] = X[:600], y[:600]
    return found


def _regressor(max_iter, X, y, **settings):
    return DeepGPRegressor(random_state=0).set_params(
        **{"inference": "dsvi", "max_iter": max_iter, **settings}
    )


def _classifier(max_iter, X, y, **settings):
    settings = {"inference": "dsvi", "max_iter": max_iter, **settings}
    return DeepGPClassifier(random_state=0, **settings)


def _healthy(sets):
    real = ("diabetes", "boston", "concrete", "energy", "power", "naval", "wine_red")
    toys = ("step", "piecewise", "draw", "mountain car", "friedman", "noise", "waves", "sine")
    for name in (*real, *toys):
        yield f"{name}, dsvi", sets[name], _regressor
    for name in ("diabetes", "boston", "wine_red", "draw", "step"):
        yield f"{name}, default", sets[name], partial(_regressor, inference="auto")
    for name in ("diabetes", "concrete", "waves"):
        yield f"{name}, 3 layers", sets[name], partial(_regressor, n_layers=3)
    for name in ("boston", "draw"):
        yield f"{name}, greedy", sets[name], partial(_regressor, init="greedy")
    yield "counts, dsvi", sets["counts"], partial(_regressor, likelihood="poisson")
    for name in ("iris", "breast_cancer", "digits", "moons"):
        yield f"{name}, dsvi", sets[name], _classifier


def _spoilt(sets):
    for name in ("draw", "waves", "boston", "sine", "energy"):
        noise = Gaussian(variance=float(np.var(sets[name][1])), trainable=False)
        yield f"{name}, loud noise", sets[name], partial(_regressor, likelihood=noise)
    for name in ("draw", "waves", "friedman", "energy"):
        yield f"{name}, two inducing points", sets[name], partial(_regressor, n_inducing=2)
    for name in ("draw", "waves", "sine", "boston"):
        yield f"{name}, clumped", sets[name], partial(_broken, change=_clump)
    for name in ("draw", "waves", "concrete", "sine"):
        yield f"{name}, inducing inputs away", sets[name], partial(_broken, change=_shift)
    for name in ("draw", "waves", "energy", "sine"):
        yield f"{name}, inflated posterior", sets[name], partial(_broken, change=_inflate)
    for name in ("waves", "friedman", "concrete"):
        settings = {"n_layers": 6, "width": 1, "mean": "zero"}
        yield f"{name}, collapsed", sets[name], partial(_regressor, **settings)
    for name in ("draw", "waves"):
        long = SquaredExponential(lengthscale=100.0, trainable=False)
        yield f"{name}, long lengthscales", sets[name], partial(_regressor, kernel=long)
    for name in ("draw", "boston"):
        yield f"{name}, hardly trained", sets[name], _untrained
    for name in ("moons", "breast_cancer"):
        yield f"{name}, inducing inputs away", sets[name], partial(_broken, change=_shift)


def _untrained(max_iter, X, y):
    return DeepGPRegressor(random_state=0, **_STILL)


def _broken(max_iter, X, y, change):
    """A model that starts where a healthy one was spoilt, and hardly moves."""
    healthy = _classifier if len(np.unique(y)) == 2 else _regressor
    model = healthy(max_iter, X, y, n_inducing=50).fit(X, y)
    change(model.members_[0].arrays)
    model.members_[0].release()
    return type(model)(n_inducing=50, init=model, random_state=0, **_STILL)


def _clump(arrays):
    center = arrays["layers.0.Z"].mean(0)
    arrays["layers.0.Z"] = center + 0.02 * (arrays["layers.0.Z"] - center)


def _shift(arrays):
    arrays["layers.0.Z"] = arrays["layers.0.Z"] + 50.0


def _inflate(arrays):
    root, variance = "layers.0.q.root", "layers.0.kernel.log_variance"
    arrays[root] = arrays[root] + 3.0 * np.eye(arrays[root].shape[-1])
    arrays[variance] = np.maximum(arrays[variance], 0.0)
