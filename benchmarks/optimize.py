"""Which run next: minima of black boxes by qLogEI, and active learning by ALM.

Every model starts from the same 10 runs of a seed and chooses 30 more, one after another, by BoTorch's
optimize_acqf. With --active, 15 runs follow the first 15, each at the largest variance among 300 candidates.
Needs BoTorch: pip install 'skdgp[botorch]'.
"""

import time
import warnings
from itertools import product
from pathlib import Path

import numpy as np
from scipy.stats import qmc

from benchmarks import cells, rst, runs

_N_FIRST, _N_MORE = 10, 30
_N_ACTIVE = 15  #: first runs of active learning, and runs that follow
_N_CANDIDATES, _N_TEST = 300, 1000
REFERENCE = "single-task-gp"
_EXACT = {"n_layers": 1, "inference": "exact"}
MODELS = {
    "exact": _EXACT,
    "without-noise": {**_EXACT, "noise": "none"},
    "default": {},
    REFERENCE: None,
}


def step(X):
    """The step of the thesis, with a bowl on its low side."""
    x = 2.0 * X - 1.0
    return np.where(x[:, 0] > 0.0, -1.0, 1.0) + 0.5 * np.square(x - [0.4, -0.3]).sum(1)


def cliff(X):
    """The same step, whose low side is lowest at a hundredth of the range from the cliff."""
    x = 2.0 * X - 1.0
    return np.where(x[:, 0] > 0.0, -1.0, 1.0) + 0.5 * np.square(x - [0.02, -0.3]).sum(1)


def isolated(X):
    """Ripples where most of the first runs are, and the minimum among isolated ones."""
    ripples = 0.3 * np.sin(25.0 * X[:, 0]) / (1.0 + np.exp((X[:, 0] - 0.35) / 0.02))
    return ripples - np.exp(-15.0 * np.square(X - [0.7, 0.6]).sum(1))


def well(X):
    """A narrow well beside the middle of a wide bowl."""
    depth = np.exp(-np.square(X - [0.8, 0.25]).sum(1) / (2.0 * 0.07**2))
    return (1.0 - depth) * np.square(X - 0.5).sum(1) - depth


def cosines(X):
    """Waves of two frequencies beside a plateau (Sauer et al., 2023)."""
    x = X[:, 0]
    waves = [np.cos(12.0 * np.pi * x), np.cos(6.0 * np.pi * x)]
    return 1.35 * np.select([x < 1.0 / 3.0, x > 2.0 / 3.0], waves, 1.0)


def exponential(X):
    """A hill and a valley in the corner of a plain (Gramacy and Lee, 2008)."""
    x = 6.0 * X - 2.0
    return x[:, 0] * np.exp(-np.square(x).sum(1))


def schaffer(X):
    """Rings that grow steeper towards the edge (Schaffer's fourth function)."""
    x = 4.0 * X - 2.0
    a, b = np.abs(x[:, 0] ** 2 - x[:, 1] ** 2), np.square(x).sum(1)
    return 0.5 + (np.cos(np.sin(a)) ** 2 - 0.5) / (1.0 + 0.001 * b) ** 2


OWN = {"step": step, "isolated": isolated, "well": well, "cliff": cliff}
OF_BOTORCH = {"branin": ("Branin", {}), "hartmann6": ("Hartmann", {"dim": 6}),
              "ackley5": ("Ackley", {"dim": 5, "bounds": [(-5.0, 10.0)] * 5}),
              "michalewicz5": ("Michalewicz", {"dim": 5})}  # fmt: skip
ACTIVE = {"cosines": (1, cosines), "exponential": (2, exponential), "schaffer": (2, schaffer)}


def problem(name):
    """A function on the unit cube, its number of inputs and its minimum."""
    if name in OWN:
        return OWN[name], 2, -1.0
    import torch
    from botorch import test_functions

    kind, settings = OF_BOTORCH[name]
    function = getattr(test_functions, kind)(**settings)
    low, high = function.bounds.double().numpy()

    def evaluate(X):
        return function(torch.as_tensor(low + (high - low) * X)).double().numpy()

    return evaluate, function.dim, function.optimal_value


def first_runs(name, d, seed):
    """Inputs of the first runs, which fill the cube; eight of ten lie in a third of it for isolated ones."""
    X = qmc.LatinHypercube(d, rng=np.random.default_rng(seed)).random(_N_FIRST)
    if name == "isolated":
        X[:8, 0] /= 3.0
    return X


def estimator(model, X, y, seed):
    """A fitted estimator of skdgp, with targets as they are."""
    from skdgp import DeepGPRegressor

    return DeepGPRegressor(**MODELS[model], target_transform=None, random_state=seed).fit(X, y)


def stationary(X, y):
    """BoTorch's SingleTaskGP, which is a stationary Gaussian process."""
    import torch
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from gpytorch.mlls import ExactMarginalLogLikelihood

    found = SingleTaskGP(torch.as_tensor(X), torch.as_tensor(y)[:, None])
    fit_gpytorch_mll(ExactMarginalLogLikelihood(found.likelihood, found))
    return found


def fitted(model, X, y, seed):
    """A model of BoTorch."""
    if model == REFERENCE:
        return stationary(X, y)
    from skdgp.integrations.botorch import as_model

    return as_model(estimator(model, X, y, seed))


def proposal(model, best, d):
    """The row with the largest expected improvement."""
    import torch
    from botorch.acquisition.logei import qLogExpectedImprovement
    from botorch.optim import optimize_acqf
    from botorch.sampling import SobolQMCNormalSampler

    sampler = SobolQMCNormalSampler(torch.Size([128]), seed=0)
    acquisition = qLogExpectedImprovement(model, best_f=best, sampler=sampler)
    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, d)
    options = {"maxiter": 50}
    x, _ = optimize_acqf(acquisition, bounds, q=1, num_restarts=4, raw_samples=128, options=options)
    return x.numpy()


def quiet(compute):
    """The function without warnings, of which a fit of ten rows has many."""

    def quietly(cell):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return compute(cell)

    return quietly


@quiet
def optimized(cell):
    """Regrets after the first runs and after each further one, and CPU seconds of a proposal."""
    import torch

    function, d, lowest = problem(cell["set"])
    X = first_runs(cell["set"], d, cell["seed"])
    y = -function(X)
    torch.manual_seed(cell["seed"])  # of the starts of optimize_acqf
    seconds, fits = 0.0, 0.0
    for _ in range(_N_MORE):
        start = time.process_time()
        model = fitted(cell["model"], X, y, cell["seed"])
        fits += time.process_time() - start
        x = proposal(model, y.max(), d)
        seconds += time.process_time() - start
        X, y = np.concatenate([X, x]), np.append(y, -function(x))
    best = np.maximum.accumulate(y)[_N_FIRST - 1 :]
    of_each = {"seconds": seconds / _N_MORE, "fit_seconds": fits / _N_MORE}
    return {"regrets": list(-best - lowest), "regret": -best[-1] - lowest, **of_each}


def mean_and_variance(model, X, y, seed, X_test, candidates):
    """Predicted means of test rows, and variances of the function at candidates."""
    import torch

    if model != REFERENCE:
        from skdgp.acquisition import alm

        found = estimator(model, X, y, seed)
        return found.predict(X_test), alm(found, candidates)
    found = stationary(X, y)
    with torch.no_grad():
        rows = [torch.as_tensor(part)[:, None] for part in (X_test, candidates)]
        mean, var = found.posterior(rows[0]).mean, found.posterior(rows[1]).variance
    return mean.numpy().ravel(), var.numpy().ravel()


@quiet
def learned(cell):
    """RMSE after the first runs and after each further one, in deviations of the function."""
    d, function = ACTIVE[cell["set"]]
    rng = np.random.default_rng(cell["seed"])
    sizes = _N_ACTIVE, _N_CANDIDATES, _N_TEST
    X, candidates, X_test = (qmc.LatinHypercube(d, rng=rng).random(n) for n in sizes)
    y, truth, errors, start = function(X), function(X_test), [], time.process_time()
    for _ in range(_N_ACTIVE + 1):
        mean, var = mean_and_variance(cell["model"], X, y, cell["seed"], X_test, candidates)
        errors.append(float(np.sqrt(np.mean(np.square(mean - truth))) / truth.std()))
        if len(X) < 2 * _N_ACTIVE:
            x = candidates[[var.argmax()]]
            X, y = np.concatenate([X, x]), np.append(y, function(x))
    seconds = (time.process_time() - start) / (_N_ACTIVE + 1)
    return {"errors": errors, "error": errors[-1], "seconds": seconds}


def add_arguments(parser):
    """Functions, seeds, models and output."""
    parser.add_argument("--active", action="store_true", help="active learning by ALM")
    parser.add_argument("--sets", type=runs.names, help="functions; default: all")
    parser.add_argument("--seeds", type=runs.numbers, default="0,1,2", help="default: %(default)s")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/optimize.json")
    parser.add_argument("--print", action="store_true", help="only print what is there")


def run(options):
    """Compute all cells that are not there yet, and print the table."""
    known = ACTIVE if options.active else {**OF_BOTORCH, **OWN}
    sets = options.sets or list(known)
    runs.check_known(sets, known, "functions")
    path = options.out or runs.RESULTS / f"{'active' if options.active else 'optimize'}.json"
    if not options.print:
        todo = [
            {"set": name, "split": 0, "seed": seed, "model": model}
            for seed in options.seeds
            for name in sets
            for model in options.models
        ]
        cells.fill(path, todo, learned if options.active else optimized)
    found = [cell for cell in cells.read(path).values() if cell["set"] in sets]
    print(report(found, "error" if options.active else "regret"))


def report(found, what):
    """A line for each function and model: the median, how often less than the reference, and seconds."""
    lines, sets = [], dict.fromkeys([*OF_BOTORCH, *OWN, *ACTIVE])
    of = {(c["set"], c["model"], c["seed"]): c for c in found}
    for name, model in product(sets, MODELS):
        mine = {seed: c for (s, m, seed), c in of.items() if (s, m) == (name, model)}
        if not mine:
            continue
        values = np.array([c[what] for c in mine.values()])
        pairs = [(c[what], of[name, REFERENCE, seed][what]) for seed, c in mine.items()
                 if (name, REFERENCE, seed) in of]  # fmt: skip
        log = np.log10(np.maximum(np.array(pairs), 1e-6))
        ratio = rst.NOTHING
        if model != REFERENCE and len(log) > 1:
            off = log[:, 0] - log[:, 1]
            ratio = f"{off.mean():+.2f} ± {off.std(ddof=1) / len(off) ** 0.5:.2f}"
        seconds = np.median([c["seconds"] for c in mine.values()])
        numbers = f"{np.median(values):.3g}", f"{values.max():.3g}", ratio, f"{seconds:.2g}"
        lines.append((name, model, len(values), *numbers))
    head = (
        "function",
        "model",
        "seeds",
        f"median {what}",
        "largest",
        "log10 to reference",
        "seconds",
    )
    return rst.table(head, lines)
