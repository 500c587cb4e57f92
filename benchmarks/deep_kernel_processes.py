"""Deep kernel processes: models, published numbers and paired differences of Aitchison et al. (2021).

Table 1 has three layers, 100 inducing points, and 20 splits (5 of protein); here one to five of them, with at
most five minutes a fit on small sets and fifteen on large ones. Table 2 has the digits of MNIST.
"""

import numpy as np

SMALL = ("boston", "concrete", "energy", "wine_red", "yacht")
LARGE = ("kin8nm", "naval", "power", "protein")
KERNELS = {"relu": "arc_cosine", "se": "squared_exponential"}
#: of all splits that are run, and seconds of a fit
BUDGETS = {**dict.fromkeys(SMALL, (5, 300)), **dict.fromkeys(LARGE, (1, 900)), "mnist": (1, 1200)}
SCHEMES = {
    "diwp": "DeepInverseWishart(n_draws=4)",
    "nngp": "NNGP(exact=False)",
    "global": "GlobalInducing(n_draws=4)",
    "dsvi": "DSVI()",
}

# Table 1; signs that the print lost are put back. Each line: DGP, NNGP and DIWP with ReLU kernels, then with
# squared exponential ones, where the DGP column is mostly that of a constant prediction.
_TABLE_1 = """
boston   -3.44 -2.46 -2.40 -3.63 -2.48 -2.40
concrete -3.20 -3.13 -3.04 -4.22 -3.13 -3.08
energy   -0.90 -0.71 -0.71 -3.73 -0.70 -0.70
kin8nm    1.05  1.10  1.09 -0.09  1.04  1.01
naval     2.80  5.74  5.95  2.80  5.96  5.92
power    -2.85 -2.83 -2.81 -2.84 -2.80 -2.78
protein  -2.80 -2.88 -2.81 -3.23 -2.88 -2.74
wine_red -1.18 -0.96 -0.95 -1.22 -0.96 -1.00
yacht    -2.45 -0.77 -0.64 -4.12 -0.50 -0.39
"""
#: Table 2, MNIST with ReLU kernels: accuracy, log-density and bound of each image
MNIST = {
    "global": (0.965, -0.130, -0.301),
    "nngp": (0.965, -0.134, -0.268),
    "diwp": (0.977, -0.089, -0.198),
}


def models(seconds, kernels=KERNELS, estimator="DeepGPRegressor", likelihood="gaussian"):
    """Expressions of all estimators, as the command line takes them: ``NAME=ESTIMATOR(SETTINGS)``."""
    settings = f"3, n_inducing=100, likelihood={likelihood!r}, max_time={seconds}, inference="
    return [
        f"{scheme}-{name}={estimator}({settings}{made}, kernel={kernel!r})"
        for name, kernel in kernels.items()
        if name in KERNELS
        for scheme, made in SCHEMES.items()
    ]


def digits():
    """Those for MNIST: ReLU kernels, and no scaling of pixels."""
    made = models(BUDGETS["mnist"][1], {"relu": "arc_cosine"}, "DeepGPClassifier", "softmax")
    return [model.replace("3, ", "3, standardize=False, ", 1) for model in made]


def published():
    """Test log-densities by set and model."""
    numbers = {}
    for line in _TABLE_1.strip().splitlines():
        name, *row = line.split()
        keys = [f"{scheme}-{k}" for k in KERNELS for scheme in ("global", "nngp", "diwp")]
        numbers[name] = dict(zip(keys, map(float, row)))
    return numbers


def paired(cells, column="log_density"):
    """Differences to DIWP of the same kernel, split by split, with their standard errors.

    Parameters
    ----------
    cells : iterable of dict
        With `set`, `split`, `seed`, `model` and the column.

    Returns
    -------
    rows : list of lists
        Set, model, its mean, the published one, DIWP less the model, standard error, number of splits.
    """
    found = {}
    for cell in cells:
        key = cell["set"], cell["model"]
        found.setdefault(key, {})[cell["split"], cell["seed"]] = cell[column]
    rows, numbers = [], published()
    for (name, model), own in sorted(found.items()):
        reference = found.get((name, f"diwp-{model.rpartition('-')[2]}"), {})
        both = sorted(set(own) & set(reference))
        gap = np.array([reference[key] - own[key] for key in both])
        error = gap.std(ddof=1) / len(gap) ** 0.5 if len(gap) > 1 else np.nan
        mean = gap.mean() if len(gap) else np.nan
        known = numbers.get(name, {}).get(model, np.nan)
        rows.append([name, model, np.mean(list(own.values())), known, mean, error, len(gap)])
    return rows


def reached(rows, slack=0.0):
    """Sets on which the better of both kernels has DIWP's published log-density at least, less the slack."""
    best, known = {}, {}
    for name, model, mean, number, *_ in rows:
        if model.startswith("diwp-"):
            best[name] = max(best.get(name, -np.inf), mean)
            known[name] = max(known.get(name, -np.inf), number)
    return [name for name in best if best[name] >= known[name] - slack]
