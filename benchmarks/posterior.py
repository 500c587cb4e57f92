"""How far approximations are from the posterior that they approximate, on small problems.

Kernels and noise are those of a DSVI fit, and the same for all. The reference is elliptical slice sampling
with tempering; figures are of the latent function, in standard deviations of the reference, inside the box
of the training rows and outside. The log marginal likelihood of the reference stands beside the lower bounds.
"""

import time
import warnings

import numpy as np

from . import rst

SCHEMES = {  # those that are to be compared, and their settings
    "dsvi": {},
    "structured": {},
    "aep": {},
    "rff": {"max_iter": 1500},
    "collapsed": {},
    "sghmc": {},
}
_N_TEST, _BEYOND = 200, 0.5  #: test rows, and how far they go beyond the training rows


def foldings(rng):
    """The function of a function of Cutajar et al. (2017, figure 2)."""
    X = rng.uniform(-3.0, 3.0, (50, 1))
    H = 2.0 * X[:, 0] * np.exp(-(X[:, 0] ** 2))
    return X, 2.0 * H * np.exp(-(H**2)) + 0.1 * rng.standard_normal(50)


def step(rng):
    """A step, with little noise."""
    X = rng.uniform(-1.0, 1.0, (40, 1))
    return X, np.sign(X[:, 0]) + 0.05 * rng.standard_normal(40)


def deep(rng):
    """A draw of a deep Gaussian process that varies slowly in places and fast in others."""
    from skdgp.datasets import make_deep_gp

    return make_deep_gp(80, lengthscales=(3.0, 0.5), random_state=int(rng.integers(2**31)))


def wedge(rng):
    """A step along a slanted line."""
    X = rng.uniform(-1.0, 1.0, (80, 2))
    return X, np.sign(X[:, 0] + 0.5 * X[:, 1]) + 0.05 * rng.standard_normal(80)


PROBLEMS = {"foldings": foldings, "step": step, "deep": deep, "wedge": wedge}


def add_arguments(parser):
    """Problems, schemes and the length of the reference."""
    parser.add_argument("--problems", default=",".join(PROBLEMS), help="default: %(default)s")
    parser.add_argument("--schemes", default=",".join(SCHEMES), help="default: %(default)s")
    parser.add_argument("--steps", type=int, help="of the reference; default: the scheme's")
    parser.add_argument("--max-iter", type=int, help="of the others; default: each scheme's")
    parser.add_argument("--seed", type=int, default=0)


def run(options):
    """Print a table for each problem."""
    warnings.simplefilter("ignore")
    for name in options.problems.split(","):
        print(rst.heading(name))
        print(rst.table(*compared(name, options)), flush=True)
        print()


def compared(name, options):
    """Head and rows of the table of a problem."""
    from skdgp import DeepGPRegressor
    from skdgp.inference import EllipticalSlice
    from skdgp.model_selection import (
        compare_posteriors,
        freeze_hyperparameters,
        log_marginal_likelihood,
    )

    rng = np.random.default_rng(options.seed)
    X, y = PROBLEMS[name](rng)
    low, high = X.min(0), X.max(0)
    margin = _BEYOND * (high - low)
    Xs = rng.uniform(low - margin, high + margin, (_N_TEST, X.shape[1]))
    inside = ((low <= Xs) & (Xs <= high)).all(1)
    common = {"random_state": options.seed}
    first = DeepGPRegressor(inference="dsvi", likelihood="gaussian", **common).fit(X, y)
    common.update(freeze_hyperparameters(first))
    models, seconds = {}, {}

    def fit(label, inference, **settings):
        started = time.process_time()
        models[label] = DeepGPRegressor(inference=inference, **settings, **common).fit(X, y)
        seconds[label] = f"{time.process_time() - started:.0f}"

    fit("reference", EllipticalSlice(hyperparameters="fixed"), max_iter=options.steps)
    for scheme in options.schemes.split(","):
        settings = SCHEMES[scheme]
        fit(
            scheme,
            scheme,
            **(settings | {"max_iter": options.max_iter or settings.get("max_iter")}),
        )
    reference = models.pop("reference")
    table = compare_posteriors(reference, models, Xs, inside).table
    evidence, error = log_marginal_likelihood(reference)
    rows = []
    for label, groups in table.items():
        bound = getattr(models.get(label), "lower_bound_", None)
        bound = rst.NOTHING if bound is None else f"{bound:.1f}"
        bound = f"{evidence:.1f} ({error:.1f})" if label == "reference" else bound
        cells = [f"{groups[g][f][0]:.2f}" for g in ("inside", "outside") for f in _FIGURES]
        rows.append([label, *cells, bound, seconds[label]])
    head = [f"{f} {where}" for where in ("in", "out") for f in _FIGURES]
    return ["", *head, "log p(y)", "CPU s"], rows


_FIGURES = "mean", "sd", "wasserstein", "coverage"
