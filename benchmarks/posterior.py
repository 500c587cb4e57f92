"""The atlas: how far approximations are from the posterior that they approximate, on twelve small problems.

Kernels and noise are those of the simulation or of a DSVI fit, and the same for all. The reference is
elliptical slice sampling with tempering; figures are of the latent functions, in standard deviations of the
reference, inside the box of the training rows and outside. Its log marginal likelihood, by thermodynamic
integration over the powers, tells the gaps of lower bounds and of energies.
"""

import time
import warnings
from functools import partial

import numpy as np

from . import arguments, cells, data, rst

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
#: Steps of those whose default is another: what the time allows; the docs tell what more of them change.
STEPS = {
    "dsvi": 1000, "structured": 300, "global": 400, "aep": 400, "rff": 1200, "sghmc": 1500,
    "slices": 1000,
}  # fmt: skip
_N_INDUCING = 50
_MOST_ROWS, _WIDTH = 80, 2  #: rows of a set, and units of its hidden layer
_N_TEST, _BEYOND = 200, 0.5  #: test rows, and how far they go beyond the training rows
_N_DRAWS = 128  #: from hidden layers, for each prediction
_FIGURES = "mean", "sd", "wasserstein", "coverage"


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
    arguments.add_cells(parser, PROBLEMS, "posterior.json", splits="0", what="--problems")
    parser.add_argument(
        "--schemes", type=arguments.names, default=list(SCHEMES),
        help=f"default: all but slices with neighbors, {','.join(SLICES)}",
    )  # fmt: skip
    parser.add_argument("--steps", type=int, help="of the reference; default: by the rows")
    parser.set_defaults(models=["atlas"])


def run(options):
    """Compute what is missing, problem by problem, and print the tables."""
    path = arguments.out(options)
    if not options.print:
        root = data.folder(options.data)
        todo = arguments.todo(options)
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
            inference=inference.DSVI(inner_noise=0.0), likelihood=likelihood,
            width=min(X.shape[1], _WIDTH), max_iter=n_trial, **common,
        )  # fmt: skip
        model = freeze_hyperparameters(first.fit(X, y))
    models, found = {}, {}

    def fit(label, scheme, **settings):
        started = time.process_time()
        made = Estimator(inference=scheme, **settings, **common, **model)
        found[label] = {}
        try:
            models[label] = made.fit(X, y)
            bound = getattr(made, "lower_bound_", None)
            if bound is None and label.startswith(
                ("aep", "collapsed")
            ):  # their losses are no estimates
                bound = -len(y) * (made.loss_curve_[-1] + float(np.log(made._y_scaler.scale).sum()))
            found[label] = {"bound": bound, "seconds": time.process_time() - started}
        except Exception as error:
            found[label] = {"failed": f"{type(error).__name__}: {error}"}

    n_steps = n_steps or (6000 if len(y) <= 60 and X.shape[1] == 1 else 3000)
    fit("reference", inference.EllipticalSlice(hyperparameters="fixed"), max_iter=n_steps)
    for scheme in schemes:
        steps = STEPS.get(scheme.partition("-")[0])
        own = scheme.startswith(("rff", "collapsed", "slices"))
        settings = {} if own else {"n_inducing": _N_INDUCING}
        expression = eval((SCHEMES | SLICES)[scheme], vars(inference))
        fit(scheme, expression, max_iter=n_trial or steps, **settings)
    reference = models.pop("reference")
    for label, groups in compare_posteriors(reference, models, Xs, inside).table.items():
        found[label]["figures"] = groups
    evidence, error = log_marginal_likelihood(reference)
    found["reference"] |= {"evidence": evidence, "error": error, "steps": n_steps}
    for label in ["reference", *(label for label in models if label in SLICES)]:
        rhat, ess, ok = None, None, False
        try:
            checked = mcmc_diagnostics(models.get(label, reference), Xs[:: _N_TEST // 20])
            rhat, ess, ok = float(checked.rhat.max()), float(checked.ess_bulk.min()), checked.ok
        except (ImportError, ValueError):
            pass
        found[label] |= {"rhat": rhat, "ess": ess, "ok": ok}
    return {"found": found, "n_train": len(y), "n_features": X.shape[1]}


def report(all_cells):
    """Means over problems; distances and gaps of each problem; and what is known of the references."""
    problems = {cell["set"]: cell for cell in all_cells}
    problems = {name: problems[name] for name in PROBLEMS if name in problems}
    columns = [(g, f) for g in ("inside", "outside") for f in _FIGURES]
    means, distances, references = [], [], []
    for label in ["reference", *SCHEMES, *SLICES]:
        figures, gaps, seconds, cells_of = [], [], [], []
        for cell in problems.values():
            own, evidence = cell["found"].get(label, {}), cell["found"]["reference"]["evidence"]
            bound = own.get("bound")
            if "figures" not in own:
                cells_of.append(rst.NOTHING)
                continue
            gap = np.nan if bound is None else evidence - bound
            if cell["found"]["reference"].get("ok"):
                figures.append([own["figures"][g][f][0] for g, f in columns])
                gaps.append(gap)
                seconds.append(own["seconds"])
            distance = [own["figures"][g]["wasserstein"][0] for g in ("inside", "outside")]
            cells_of.append(
                "{:.2f}, {:.2f}".format(*distance) + f"; {gap:.1f}".replace("; nan", "")
            )
        if figures:
            numbers = [*np.nanmean(figures, 0), np.median(gaps)]
            means.append([label, len(figures), *map(_text, numbers), f"{np.mean(seconds):.0f}"])
        if set(cells_of) != {rst.NOTHING}:
            distances.append([label, *cells_of])
    for name, cell in problems.items():
        r = cell["found"]["reference"]
        rhat = np.nan if r["rhat"] is None else r["rhat"]
        failed = [label for label, own in cell["found"].items() if "failed" in own]
        numbers = [f"{r['evidence']:.1f} ({r['error']:.1f})", r["steps"], f"{rhat:.3f}"]
        doubt = "" if r.get("ok") else "dropped"
        sizes = cell["n_train"], cell["n_features"]
        references.append([name, *sizes, *numbers, doubt, " ".join(failed)])
    head = [f"{f} {g[:-4]}" for g, f in columns]
    tables = [
        (["mean of problems", "n", *head, "median gap", "CPU s"], means),
        (["Wasserstein in, out; gap", *problems], distances),
        (["problem", "rows", "columns", "log p(y)", "steps", "R-hat", "", "failed"], references),
    ]
    return "\n\n".join(rst.table(*one) for one in tables)


def _text(x):
    return rst.NOTHING if np.isnan(x) else f"{x:.2f}"
