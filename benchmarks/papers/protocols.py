"""What the papers did, as rows of their tables: a set, a model, its settings here, and how many splits.

Inputs and targets are standardized, and no more: no warps and no maps. Where our scheme needs fewer steps than
the paper's to converge, a row has fewer, and its text on the page says so.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.papers import tables
from benchmarks.papers.thesis import PROBLEMS

PUBLISHED = json.loads((Path(__file__).parent / "published.json").read_text())
#: rows of the UCI sets; nine tenths of them train
SIZES = {
    "boston": 506, "energy": 768, "concrete": 1030, "wine_red": 1599, "yacht": 308, "kin8nm": 8192,
    "power": 9568, "naval": 11_934, "protein": 45_730, "mnist": 60_000, "eeg": 14_980,
}  # fmt: skip
UCI = ("boston", "concrete", "energy", "wine_red", "kin8nm", "power", "naval", "protein")
LARGE = ("kin8nm", "power", "naval", "protein")

#: of regressions
_PLAIN = {"standardize": True, "target_transform": None, "likelihood": "gaussian"}
#: of doubly stochastic models
_DEEP = "DSVI(unit_scales=True, inner_variance=1e-3, n_restart=300)"
NO_DATA, BUDGET = "no data", "budget"  #: why a row is not run
SHARE = "share"  #: of a row that two models of other rows make


@dataclass(frozen=True)
class Row:
    """A row of a table: what is fitted how often, or why it is not."""

    set: str
    model: str
    expression: str | None = None  #: of the estimator, in the words of :mod:`benchmarks.models`
    n_splits: int = 1
    seconds: float = 0.0  #: CPU seconds of a split, for want of measured ones
    reason: str = BUDGET  #: if there is no expression

    def cell(self, split):
        """What names a cell, and how it is made."""
        named = {"set": self.set, "split": split, "seed": 0, "model": self.model}
        return {**named, "expression": self.expression}

    def has(self, cell):
        """Whether a cell belongs to this row."""
        return all(cell.get(key) == value for key, value in self.cell(cell["split"]).items())


@dataclass(frozen=True)
class Paper:
    """One paper: its rows, and what the page shows of them; its text is in the folder ``texts``."""

    name: str
    title: str
    source: str
    columns: dict  #: titles of scores, by name; the first one decides
    rows: list
    competitors: dict = field(default_factory=dict)  #: names of models that are the paper's alone
    more: Callable | None = None  #: of the cells, more text for the page


def _seconds(name, steps, batch, unit):
    """CPU seconds of a fit: 2 ms a step, and `unit` seconds for each thousand rows of a batch."""
    return steps * (2e-3 + unit * min(0.9 * SIZES[name], batch) / 1000.0)


def _call(estimator, n_layers=None, inference=None, **settings):
    """An expression: `inference` is code, and all others are values."""
    parts = [] if n_layers is None else [str(n_layers)]
    parts += [] if inference is None else [f"inference={inference}"]
    parts += [f"{name}={value!r}" for name, value in settings.items()]
    return f"{estimator}({', '.join(parts)})"


def _doubly_stochastic():
    rows = []
    common = {"n_inducing": 100, "learning_rate": 0.01}
    for name in UCI:
        # a batch of all rows, as published, where there are few; of 1,000 beyond
        batch, steps = (1000, 3000) if name in LARGE else (10_000, 2000)
        settings = {
            **common,
            "batch_size": batch,
            "max_iter": steps,
            "n_predict_draws": 100,
            **_PLAIN,
        }
        for depth, unit in ((1, 5e-3), (2, 1.2e-2), (3, 2.1e-2), (4, 3e-2), (5, 4e-2)):
            model, n_splits = "sgp-100" if depth == 1 else f"dsvi-{depth}", 3 if depth <= 3 else 1
            expression = _call("DeepGPRegressor", depth, _DEEP, **settings)
            rows.append(Row(name, model, expression, n_splits, _seconds(name, steps, batch, unit)))
        expression = _call("DeepGPRegressor", 1, _DEEP, **settings | {"n_inducing": 500})
        rows.append(Row(name, "sgp-500", expression, 1, _seconds(name, steps, batch, 3e-2)))
        settings = {**common, "width": 2, "batch_size": 50, "max_iter": 4000, **_PLAIN}
        for model, scheme in (("aep-2", "AEP(alpha=1.0)"), ("aep-2, power 0.5", "AEP()")):
            rows.append(Row(name, model, _call("DeepGPRegressor", 2, scheme, **settings), 2, 75.0))
    settings = {
        **common,
        "width": 30,
        "likelihood": "robustmax",
        "batch_size": 1000,
        "max_iter": 5000,
    }
    settings |= {"n_predict_draws": 20, "standardize": False}
    for model, depth in {
        "sgp-100": 1,
        "sgp-500": None,
        "dsvi-2": 2,
        "dsvi-3": 3,
        "aep-2": None,
    }.items():
        expression = None if depth is None else _call("DeepGPClassifier", depth, _DEEP, **settings)
        rows.append(Row("mnist", model, expression, 1, 1500.0))
    for name in ("rectangles", "year"):
        rows += [Row(name, m, reason=NO_DATA) for m in PUBLISHED["dsvi"][name] if m != "pbp"]
    return rows


def _structured():
    rows = []
    couplings = {"mean-field-3": "mean-field", "star-3": "stripes-and-arrow", "full-3": "full"}
    shallow = {"n_inducing": 64, "train_inducing": True, "max_iter": 300, **_PLAIN}
    early = {"batch_size": 512, "max_iter": 3000, "early_stopping": True, "n_iter_no_change": 5}
    early = {"width": 5, "n_inducing": 64, **early, **_PLAIN}
    for name, kind in ((name, kind) for kind in ("random", "projection") for name in UCI):
        data_set, large = f"{name}-{kind}", name in LARGE
        n = (0.9 if kind == "random" else 0.5) * SIZES[name]
        rows.append(Row(data_set, "sgp", _call("SparseGPRegressor", **shallow), 3, 2.0 + n / 400.0))
        for (model, coupling), seconds in zip(couplings.items(), (20.0, 35.0, 45.0)):
            if model != "full-3" or (kind == "projection" and not large):
                scheme = f"StructuredVI({coupling!r})"
                rows.append(
                    Row(data_set, model, _call("DeepGPRegressor", 3, scheme, **early), 3, seconds)
                )
        chains = {
            "width": 5,
            "n_inducing": 64,
            "batch_size": 1000 if large else 10_000,
            "max_iter": 2000,
        }
        expression = _call("DeepGPRegressor", 2, "SGHMC()", **chains, **_PLAIN)
        rows.append(Row(data_set, "sghmc-2", expression, 3, 60.0))
        rows += [Row(data_set, m) for m in ("sghmc-1", "sghmc-3", "mean-field-2", "star-2")]
        if kind == "projection":
            for pair in ("star-over-mean-field", "star-over-sghmc", "full-over-mean-field"):
                reason = BUDGET if large and pair.startswith("full") else SHARE
                rows.append(Row(data_set, pair, reason=reason))
    return rows


def _random_features():
    rows = []
    scheme = "RandomFeatures(n_features={}, frequencies='variational')"
    settings = {"width": 3, "batch_size": 200, "max_iter": 8000, "learning_rate": 0.01}
    settings |= {"n_predict_draws": 100}
    classes = {"standardize": False}
    for name, estimator, more in (
        ("power", "DeepGPRegressor", _PLAIN),
        ("protein", "DeepGPRegressor", _PLAIN),
        ("eeg", "DeepGPClassifier", classes),
    ):
        expression = _call(estimator, 2, scheme.format(100), **settings, **more)
        rows.append(Row(name, "rff-2", expression, 3, 40.0))
    rows.append(Row("spam", "rff-2", reason=NO_DATA))
    settings = {"width": 40, "batch_size": 1000, "max_iter": 5000, "learning_rate": 0.01}
    for depth in (1, 2, 3):
        more = {**settings, "dtype": "float32", **classes}
        expression = _call("DeepGPClassifier", depth, scheme.format(500), **more)
        rows.append(Row("mnist", f"rff-{depth}", expression, 1, 600.0))
    rows.append(Row("mnist-8m", "rff-2", reason=NO_DATA))
    return rows


def _deep_kernel_processes():
    rows = []
    settings = {"n_inducing": 100, "batch_size": 1000, "n_predict_draws": 100}
    schemes = {
        "global": "GlobalInducing()",
        "nngp": "NNGP(exact=False)",
        "diwp": "DeepInverseWishart()",
    }
    few = {"max_iter": 2000, "learning_rate": 0.02}
    for name in (*UCI, "yacht"):
        for short, kernel in {"relu": "arc_cosine", "se": "squared_exponential"}.items():
            for (model, scheme), seconds in zip(schemes.items(), (60.0, 40.0, 110.0)):
                expression = _call(
                    "DeepGPRegressor", 3, scheme, kernel=kernel, **settings, **few, **_PLAIN
                )
                n_splits = 1 if name in LARGE else 2
                rows.append(Row(name, f"{model}-{short}", expression, n_splits, seconds))
    many = {"max_iter": 8000, "learning_rate": 0.01, "standardize": False}
    for model, scheme in schemes.items():
        expression = _call("DeepGPClassifier", 3, scheme, kernel="arc_cosine", **settings, **many)
        rows.append(
            Row("mnist", f"{model}-digits", None if model == "global" else expression, 1, 7200.0)
        )
        rows.append(Row("cifar-10", f"{model}-digits", reason=NO_DATA))
    return rows


#: lengthscales of both layers, the first in deviations of inputs that fill an interval evenly
_LENGTHS = {"long-short": (1.73, 0.05), "short-long": (0.0346, 1.0)}
_WIDTHS = {
    "1-1": (1, 1),
    "3-2": (3, 2),
    "3-2-2": (3, 2, 2),
}  #: of hidden layers; else one of two units
_SHALLOW = ("exact", "vfe", "fitc")


def _of_thesis(model, n_inducing):
    """The estimator of a name such as ``aep-3-2`` or ``dsvi-greedy``."""
    if model in _SHALLOW:
        sparse = {"method": model, "train_inducing": True, "n_inducing": n_inducing}
        return _call(
            "SparseGPRegressor", **({} if model == "exact" else sparse), max_iter=300, **_PLAIN
        )
    scheme, _, start = model.partition("-")
    widths = _WIDTHS.get(start, (2,))
    settings = {"width": widths, "n_inducing": n_inducing, "max_iter": 1500, **_PLAIN}
    if start == "greedy":
        settings |= {"max_iter": 1000, "init": "greedy"}  # whose first round makes 500 steps more
    expression = _call("DeepGPRegressor", len(widths) + 1, repr(scheme), **settings)
    if start in _LENGTHS:
        kernels = (f"skdgp.gp.kernels.SquaredExponential(lengthscale={x})" for x in _LENGTHS[start])
        expression = f"{expression[:-1]}, kernel=[{', '.join(kernels)}])"
    return expression


def _thesis():
    deep = ("aep-greedy", "aep-kmeans", "dsvi-greedy", "dsvi-kmeans")
    asked = {name: ("exact", "vfe", *deep) for name in PROBLEMS if name.startswith("draws")}
    for name in ("draws-1000", "draws-50"):
        asked[name] = (*_SHALLOW, *deep, "aep-long-short", "aep-short-long")
    asked |= {name: ("exact", "aep-2") for name in PROBLEMS if not name.startswith("draws")}
    asked["step"] = ("exact", "aep-2", "aep-1-1", "aep-3-2", "aep-3-2-2")
    rows = []
    for name in PROBLEMS:
        n_inducing = PROBLEMS[name].n_inducing
        for model in asked[name]:
            seconds = 1.0 if model in _SHALLOW else 10.0 + 0.4 * n_inducing
            rows.append(Row(name, model, _of_thesis(model, n_inducing), 3, seconds))
    return rows


def _papers():
    return {
        paper.name: paper
        for paper in (
            Paper(
                "dsvi",
                "Doubly stochastic variational inference, and expectation propagation",
                "Ashman et al. (report)",
                {"log_density": "log density", "rmse": "RMSE", "accuracy": "accuracy"},
                _doubly_stochastic(),
                {"pbp": "PBP, a Bayesian network"},
                more=tables.depth_gains,
            ),
            Paper(
                "structured",
                "Coupled posteriors, and a sampler",
                "Lindinger et al. (2020)",
                {"log_density": "log density", "share": "share"},
                _structured(),
            ),
            Paper(
                "rff",
                "Random features",
                "Cutajar et al. (2017)",
                {
                    "accuracy": "accuracy",
                    "standardized": "standardized log density",
                    "log_density": "log density",
                },
                _random_features(),
                {"dgp-ep": "DGP-EP (Bui et al., 2016)"},
                more=tables.asynchronous,
            ),
            Paper(
                "dkp",
                "Deep kernel processes",
                "Aitchison et al. (2021)",
                {"log_density": "log density", "accuracy": "accuracy", "elbo": "bound by row"},
                _deep_kernel_processes(),
            ),
            Paper(
                "thesis",
                "Step functions, and starts",
                "Pascual Diaz (2017)",
                {"mnlpp": "neg. log density", "mse": "squared error", "sample_mnlpp": "by samples"},
                _thesis(),
            ),
        )
    }


PAPERS = _papers()
