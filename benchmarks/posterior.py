"""The atlas: how far approximations are from the posterior that they approximate, on small problems.

Kernels and noise are those of the simulation or of a DSVI fit, and the same for all. The reference is
elliptical slice sampling with tempering; figures are of the latent functions, in standard deviations of the
reference, inside the box of the training rows and outside. Its log marginal likelihood, by thermodynamic
integration over the powers, tells the gaps of lower bounds and of energies. Every scheme makes its default
steps, from three seeds.
"""

import time
import warnings
from functools import partial

import numpy as np

from benchmarks import cells, data, rst, runs

SCHEMES = {  # expressions, apart from hyperparameters; noise of hidden layers is not in the model
    "dsvi": "DSVI(inner_noise=0.0)",
    **{
        f"structured-{c}": f"StructuredVI('{c}', inner_noise=0.0)"
        for c in ("mean-field", "stripes-and-arrow", "full")
    },
    "global": "GlobalInducing()",
    **{f"aep-{a:g}": f"AEP(alpha={a}, inner_noise=0.0)" for a in (1.0, 0.5, 0.001)},
    **{
        f"rff-{f}": f"RandomFeatures(frequencies='{f}')"
        for f in ("fixed", "variational", "resampled")
    },
    "collapsed": "CollapsedVI()",
    "sghmc": "SGHMC()",
}
#: On request: what the reference's approximation for more rows changes; untempered, to be done in minutes.
SLICES = {
    f"slices-{n}": f"EllipticalSlice(1, 'fixed', n_neighbors={n})" for n in (None, 10, 25, 50)
}
#: Steps of the reference: three thousand gave smallest sample sizes of 19 to 719, and 400 are asked
STEPS = {
    "foldings": 48_000, "deep-50": 12_000, "deep-60": 24_000, "step": 3000, "wedge": 12_000,
    "moons": 6000,
}  # fmt: skip
_SEEDS = 0, 1, 2  #: of the schemes
_N_INDUCING = 50
_MOST_ROWS, _WIDTH = 80, 2  #: rows of a set, and units of its hidden layer
_N_TEST, _BEYOND = 200, 0.5  #: test rows, and how far they go beyond the training rows
_N_DRAWS = 128  #: from hidden layers, for each prediction
_ABOUT = "problem", "rows", "columns", "log p(y)", "steps", "R-hat", "sample size"
_FIGURES, _GROUPS = ("mean", "sd", "wasserstein", "coverage"), ("inside", "outside")


def _given(lengthscales, variances, noise):
    """A model without mean functions whose hyperparameters are known."""
    from skdgp.gp.kernels import SquaredExponential
    from skdgp.gp.likelihoods import Gaussian

    kernels = [
        SquaredExponential(lengthscale=a, variance=v, trainable=False)
        for a, v in zip(lengthscales, variances)
    ]
    likelihood = Gaussian(variance=noise**2, trainable=False)
    return {
        "kernel": kernels, "likelihood": likelihood, "mean": "zero", "width": 1, "standardize": False
    }  # fmt: skip


def foldings(rng, root):
    """The function of a function of Cutajar et al. (2017, figure 2)."""
    X = rng.uniform(-3.0, 3.0, (50, 1))
    H = 2.0 * X[:, 0] * np.exp(-(X[:, 0] ** 2))
    y = 2.0 * H * np.exp(-(H**2)) + 0.1 * rng.standard_normal(50)
    return X, y, _given((1.0, 1.0), (0.5, 0.3), 0.1)


def deep(n_rows, lengthscales, noise, rng, root):
    """A draw of a deep Gaussian process, and its hyperparameters."""
    from skdgp.datasets import make_deep_gp

    X, y = make_deep_gp(
        n_rows, lengthscales=lengthscales, noise=noise, random_state=int(rng.integers(2**31))
    )
    return X, y, _given(lengthscales, (1.0, 1.0), noise)


def step(rng, root):
    """A step."""
    X = rng.uniform(-1.0, 1.0, (40, 1))
    return X, np.sign(X[:, 0]) + 0.1 * rng.standard_normal(40), {}


def wedge(rng, root):
    """A step along a slanted line."""
    X = rng.uniform(-1.0, 1.0, (60, 2))
    return X, np.sign(X[:, 0] + 0.5 * X[:, 1]) + 0.1 * rng.standard_normal(60), {}


def mountain_car(rng, root):
    """A function that jumps along curves."""
    from skdgp.datasets import make_mountain_car

    X, y = make_mountain_car(80, random_state=int(rng.integers(2**31)))[:2]
    return X, y, {}


def moons(rng, root):
    """Two classes."""
    from sklearn.datasets import make_moons

    return *make_moons(60, noise=0.25, random_state=int(rng.integers(2**31))), {}


def rows_of(name, rng, root):
    """Some rows of a set."""
    uci = name in data.UCI
    whole = data.uci_split(root, name, 0) if uci else data.suite_fold(root, name, 0)
    chosen = rng.permutation(len(whole.y_train))[:_MOST_ROWS]
    return whole.X_train[chosen], whole.y_train[chosen], {}


PROBLEMS = {
    "foldings": foldings,
    "deep-50": partial(deep, 50, (3.0, 0.5), 0.1),
    "deep-60": partial(deep, 60, (2.0, 1.0), 0.3),
    "deep-100": partial(deep, 100, (1.5, 0.7), 0.2),
    **{f.__name__: f for f in (step, wedge, mountain_car, moons)},
    **{name: partial(rows_of, name) for name in ("boston", "yacht", "concrete", "penguins")},
}


def add_arguments(parser):
    """Problems, schemes and the length of the reference."""
    runs.add_cells(parser, PROBLEMS, "posterior.json", splits="0", what="--problems")
    parser.add_argument(
        "--schemes", type=runs.names, default=list(SCHEMES),
        help=f"default: all but slices with neighbors, {','.join(SLICES)}",
    )  # fmt: skip
    parser.add_argument("--steps", type=int, help="of the reference; default: by the problem")
    parser.set_defaults(models=["atlas"], sets=list(STEPS))


def run(options):
    """Compute what is missing, problem by problem, and print the tables."""
    path = runs.out(options)
    if not options.print:
        root = data.folder(options.data)
        todo = runs.todo(options)
        compute = partial(evaluate, root, options.schemes, options.steps)
        cells.fill(path, todo, compute, options.n_jobs)
    print(report([c for c in cells.read(path).values() if c["set"] in options.sets]))


def looked_at(X, rng):
    """Rows near the data and beyond, and which of them are inside the box of the data."""
    low, high = X.min(0), X.max(0)
    margin = _BEYOND * (high - low)
    Xs = rng.uniform(low - margin, high + margin, (_N_TEST, X.shape[1]))
    half = _N_TEST // 2  # in many dimensions none would be inside
    spread = X.std(0) * [len(np.unique(column)) > 2 for column in X.T]  # levels stay
    near = X[rng.integers(len(X), size=half)]
    Xs[:half] = near + 0.1 * spread * rng.standard_normal((half, X.shape[1]))
    return Xs, ((low <= Xs) & (Xs <= high)).all(1)


def evaluate(root, schemes, n_steps, cell):
    """Figures of all schemes on a problem; what fails is left out, with its message."""
    from skdgp import DeepGPClassifier, DeepGPRegressor, inference
    from skdgp.inspection import mcmc_diagnostics
    from skdgp.model_selection import (
        compare_posteriors,
        freeze_hyperparameters,
        log_marginal_likelihood,
    )

    warnings.simplefilter("ignore")
    n_trial = cell.get("settings", {}).get("max_iter")
    rng = np.random.default_rng(cell["seed"])
    X, y, model = PROBLEMS[cell["set"]](rng, root)
    Xs, inside = looked_at(X, rng)
    classes = y.dtype.kind == "i"
    Estimator = DeepGPClassifier if classes else DeepGPRegressor
    common = {"random_state": cell["seed"], "n_predict_draws": _N_DRAWS}
    if not model:
        likelihood = "auto" if classes else "gaussian"
        first = Estimator(
            inference=inference.DSVI(unit_scales=False, inner_noise=0.0), likelihood=likelihood,
            width=min(X.shape[1], _WIDTH), max_iter=n_trial, **common,
        )  # fmt: skip
        model = freeze_hyperparameters(first.fit(X, y))
    models, found = {}, {}

    def fit(label, scheme, seed, **settings):
        started = time.process_time()
        made = Estimator(inference=scheme, **settings, **common | {"random_state": seed}, **model)
        run = label, seed
        try:
            models[run] = made.fit(X, y)
            bound = getattr(made, "lower_bound_", None)
            if bound is None and label.startswith(("aep", "collapsed")):  # no estimates of it
                bound = -len(y) * (made.loss_curve_[-1] + float(np.log(made._y_scaler.scale).sum()))
            found[run] = {"bound": bound, "seconds": time.process_time() - started}
        except Exception as error:
            found[run] = {"failed": f"{type(error).__name__}: {error}"}

    n_steps = n_steps or STEPS.get(cell["set"], 6000)
    sampler = inference.EllipticalSlice(hyperparameters="fixed")
    fit("reference", sampler, cell["seed"], max_iter=n_steps)
    for scheme in schemes:
        own = scheme.startswith(("rff", "collapsed", "slices"))
        settings = {} if own else {"n_inducing": _N_INDUCING}
        for seed in _SEEDS:
            made = eval((SCHEMES | SLICES)[scheme], vars(inference))
            fit(scheme, made, seed, max_iter=n_trial, **settings)
    reference = models.pop(("reference", cell["seed"]))
    about = found.pop(("reference", cell["seed"]))
    compared = compare_posteriors(reference, models, Xs, inside).table
    about["figures"] = compared.pop("reference")
    for run, groups in compared.items():
        found[run]["figures"] = groups
    about["evidence"], about["error"] = log_marginal_likelihood(reference)
    about |= {"steps": n_steps, "rhat": None, "ess": None, "ok": False}
    try:
        checked = mcmc_diagnostics(reference, Xs[:: _N_TEST // 20])
        about |= {"rhat": float(checked.rhat.max()), "ok": checked.ok}
        about["ess"] = float(min(checked.ess_bulk.min(), checked.ess_tail.min()))
    except (ImportError, ValueError):
        pass
    runs = {scheme: [found[scheme, seed] for seed in _SEEDS] for scheme in schemes}
    return {"reference": about, "found": runs, "n_train": len(y), "n_features": X.shape[1]}


def report(all_cells):
    """A table of each figure and one of the gaps, problem by problem, and what is known of the references.

    Figures are inside the range of the data and outside, with standard deviations over seeds.
    """
    problems = {cell["set"]: cell for cell in all_cells}
    problems = {name: problems[name] for name in PROBLEMS if name in problems}
    counted = {name: cell for name, cell in problems.items() if cell["reference"]["ok"]}
    tables, references = {figure: [] for figure in (*_FIGURES, "gap")}, []
    for scheme in ("reference", *SCHEMES, *SLICES):
        lines, seconds = {name: [] for name in tables}, []
        for cell in counted.values():
            runs = {"reference": [cell["reference"]], **cell["found"]}.get(scheme, ())
            runs = [run for run in runs if "figures" in run]
            seconds += [run["seconds"] for run in runs]
            for figure in _FIGURES:
                both = [[run["figures"][g][figure][0] for run in runs] for g in _GROUPS]
                lines[figure].append(", ".join(map(_over_seeds, both)) if runs else rst.NOTHING)
            bounds = [run["bound"] for run in runs if run["bound"] is not None]
            gaps = cell["reference"]["evidence"] - np.array(bounds)
            lines["gap"].append(_over_seeds(gaps) if bounds else rst.NOTHING)
        if seconds:
            for name, line in lines.items():
                more = [f"{np.mean(seconds):.0f}"] if name == "gap" else []
                tables[name].append([scheme, *line, *more])
    for name, cell in problems.items():
        r = cell["reference"]
        failed = [
            scheme for scheme, runs in cell["found"].items() if any("failed" in run for run in runs)
        ]
        numbers = [f"{r['evidence']:.2f} ({r['error']:.2f})", r["steps"]]
        numbers += [rst.NOTHING if r[key] is None else f"{r[key]:.2f}" for key in ("rhat", "ess")]
        doubt = "" if r["ok"] else "dropped"
        sizes = cell["n_train"], cell["n_features"]
        references.append([name, *sizes, *numbers, doubt, " ".join(failed)])
    heads = {name: [name, *counted, *(["CPU s"] if name == "gap" else [])] for name in tables}
    printed = [rst.table(heads[name], rows) for name, rows in tables.items()]
    return "\n\n".join([*printed, rst.table([*_ABOUT, "", "failed"], references)])


def _over_seeds(values):
    """The mean of values and, in parentheses, their standard deviation, if there are several."""
    error = f" ({np.std(values, ddof=1):.2f})" if len(values) > 1 else ""
    return f"{np.mean(values):.2f}{error}"
