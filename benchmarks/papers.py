"""The published protocols: what papers report, and what ours reaches with their settings.

--paper dsvi        depths 1 to 5 with Gaussian noise, 100 inducing points and separate covariances
        aep         two layers of two units by expectation propagation (Ashman et al.)
        structured  mean field, stripes and arrow, full, with early stopping, on random splits and away
                    from the data (Lindinger et al., 2020)
        rff         random features on MNIST and EEG (Cutajar et al., 2017)
        dkp         deep kernel processes with three layers, rectified linear (relu) and squared
                    exponential (se) kernels (Aitchison et al., 2021), beside a deep GP of that shape
        sghmc       the chain of Havasi et al. (2018)

Published numbers stand beside ours; of the splits that all have, ours are means of those that were run.
"""

import json
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import data, models, rst, runs, structured, table

#: numbers that papers report, means over 20 splits (5 of protein), and where
PUBLISHED = json.loads((Path(__file__).parent / "results" / "published.json").read_text())
UCI = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine_red")

_NO_MAP = "likelihood='gaussian', target_transform=None"
#: published densities are of models whose columns and targets are standardized, and no more
_GAUSSIAN = f"{_NO_MAP}, standardize=True"


def _ours(name, settings, estimator="DeepGPRegressor"):
    return f"{name}={estimator}({settings})"


#: settings of Ashman et al. (report on Salimbeni and Deisenroth, 2017), sections 4 and 5.1
_DSVI = (
    "DSVI(shared_covariance=False, inner_scale=1e-5, natural_gradient='none'), "
    "kernel=skdgp.gp.kernels.SquaredExponential(lengthscale=1.0), max_iter=20000"
)
_DSVI_MODEL = "n_inducing=100, batch_size=10000, learning_rate=0.01, n_predict_draws=100"


def _dsvi(name, inference=_DSVI):
    """A model named by depth, as published or from another start."""
    depth = name.split("-")[1]
    return _ours(name, f"{depth}, inference={inference}, {_DSVI_MODEL}, {_GAUSSIAN}")


#: from other starts, which are compared after as many steps as take minutes
_OURS, _SHALLOW = "DSVI(), max_iter=1000", "DSVI(n_shallow=300, inner_variance=1e-4), max_iter=1000"
#: the same start, with natural steps of the last layer and our lengthscales
_START = _ours(
    "dsvi-2-start",
    "2, inference=DSVI(shared_covariance=False, inner_scale=1e-5, inner_variance=1.0), max_iter=1000, "
    f"n_inducing=100, batch_size=10000, learning_rate=0.01, {_GAUSSIAN}",
)
_AEP = f"2, width=2, n_inducing=100, {_GAUSSIAN}, inference="
_RFF = (
    "{}, width={}, inference=RandomFeatures(n_features=500, frequencies='variational'), "
    "max_iter=5000, learning_rate=0.01, dtype='float32', standardize=False"
)
_SGHMC = f"2, n_inducing=100, {_GAUSSIAN}, batch_size=10000, inference='sghmc'"
_DKP = "3, n_inducing=100, max_iter={}, kernel='{}', inference={}"
_KERNELS = {"relu": "arc_cosine", "se": "squared_exponential"}
_PROCESSES = {
    "diwp": "DeepInverseWishart(), learning_rate=0.02",
    "nngp": "NNGP(exact=False), learning_rate=0.02",
    "global": "GlobalInducing(), learning_rate=0.02",
    "dsvi": "DSVI()",
}


def _process(name, kernel):
    settings = _DKP.format(1500, _KERNELS[kernel], _PROCESSES[name])
    return _ours(f"{name}-{kernel}", f"{settings}, {_NO_MAP}")


def _digits(name):
    settings = _DKP.format(600, "arc_cosine", _PROCESSES[name])
    return _ours(
        f"{name}-digits", f"{settings}, batch_size=2000, standardize=False", "DeepGPClassifier"
    )


#: sets and models of each paper, all of them expressions of our estimators
PAPERS = {
    "dsvi": (
        (*UCI, "yacht"),
        [_dsvi(f"dsvi-{depth}") for depth in (1, 2, 3, 4, 5)]
        + [_START, *(_dsvi(f"dsvi-{depth}-ours", _OURS) for depth in (1, 2, 3))]
        + [_dsvi("dsvi-2-shallow", _SHALLOW)],
    ),
    "aep": (
        ("boston", "concrete", "energy", "power", "wine_red"),
        [
            _ours("aep-0.5", f"{_AEP}AEP(alpha=0.5)"),
            _ours("aep-1", f"{_AEP}AEP(alpha=1.0)"),
            _ours("dsvi", f"{_AEP}DSVI(inner_scale=1e-5, inner_variance=1.0)"),
        ],
    ),
    "structured": (structured.SETS, structured.MODELS),
    "rff": (
        ("mnist", "eeg"),
        [_ours(f"rff-{n}", _RFF.format(n, 50), "DeepGPClassifier") for n in (1, 2, 3)]
        + [_ours("auto", "", "DeepGPClassifier")],
    ),
    "dkp": (
        (*UCI, "yacht", "mnist"),
        [_process(name, kernel) for kernel in _KERNELS for name in _PROCESSES]
        + [_digits(name) for name in _PROCESSES],
    ),
    "sghmc": (UCI, [_ours("sghmc-2", _SGHMC)]),
}


def add_arguments(parser):
    """The paper; its sets, splits and models; data and output."""
    parser.add_argument("--paper", choices=PAPERS, required=True)
    runs.add_arguments(parser, (), "", ())
    parser.set_defaults(sets=None, models=None, splits=None, out=None)


def run(options):
    """Compute all cells that are not there yet, and print them beside the published numbers."""
    sets, known = PAPERS[options.paper]
    named = {models.short(model): model for model in known}
    options.default_models = list(named.values())
    options.models = [named.get(model, model) for model in options.models or named]
    options.sets = options.sets or list(sets)
    runs.check_known(options.sets, sets, "sets")
    options.out = options.out or runs.RESULTS / f"{options.paper}.json"
    if options.paper == "structured":
        return structured.run(options)
    beside = partial(published, paper=options.paper)
    runs.run(options, split_of, reference=models.short(options.models[0]), extra=beside)


def split_of(root, name, number):
    """One split of a set; MNIST has one."""
    if name == "mnist":
        return data.mnist(root) if number == 0 else None
    return data.eeg_fold(root, number) if name == "eeg" else data.uci_split(root, name, number)


def published(all_cells, paper):
    """Ours beside the paper's, set by set, with the standard error of ours over splits."""
    results, rows = table.by_split(all_cells), []
    columns = {"rff": ("accuracy",), "dkp": ("log_density", "elbo")}.get(
        paper, ("log_density", "rmse")
    )
    reported = PUBLISHED[paper]["numbers"]
    for name in sorted(set(results) & set(reported)):
        for model, numbers in reported[name].items():
            splits = results[name].get(model, {})
            row = [name, model, len(splits)]
            for column in columns:
                own = [v[column] for v in splits.values() if column in v]
                error = np.std(own, ddof=1) / len(own) ** 0.5 if len(own) > 1 else np.nan
                row += [f"{np.mean(own):.3f}" if own else rst.NOTHING, f"{error:.3f}"]
                row.append(numbers.get(column, rst.NOTHING))
            rows.append(row)
    if not rows:
        return "Nothing of what is there has a published number."
    titles = {"log_density": "log-density", "rmse": "RMSE", "elbo": "bound"}
    head = [part for c in columns for part in (titles.get(c, c), "s.e.", "published")]
    body = rst.table(["set", "model", "splits", *head], rows)
    return f"Beside the numbers of {PUBLISHED[paper]['source']}:\n\n{body}"
