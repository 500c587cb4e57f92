"""Times of training, on one thread.

--part step      a training step: ours, GPyTorch's, GPflux's (--gpflux PYTHON), and the bare products that
                 cannot be spared; random features beside a plain torch network
       schemes   a step of every scheme: how it grows with inducing points, batch, layers and width
       race      how soon ours is as good as GPyTorch's deep Gaussian process at its end
       sparse    the collapsed bound of SparseGPRegressor beside GPyTorch's SGPR
       rows      memory and time for each row with random features, up to ten million rows

Contenders take turns, so that other work on the machine hits all alike. Two checkouts are compared by two
runs with --checkout.
"""

import time

import numpy as np
import torch

from . import arguments, data, models, race, rows, rst, steps
from .steps import DTYPES, Shape

SHAPES = {
    "2 layers": Shape(),
    "3 layers": Shape(widths=(8, 8)),
    "5 layers": Shape(widths=(8, 8, 8, 8)),
    "2 layers, batch 10,000": Shape(batch=10_000),
    "784 - 30 - 10": Shape(1000, 784, (30,), 10),
}
_BASE = Shape(512, 8, (5, 5), 1, 128)
GROWTH = (
    _BASE,
    *(_BASE._replace(n_inducing=n) for n in (32, 64, 256)),
    _BASE._replace(batch=2048),
    *(_BASE._replace(widths=w) for w in ((5,), (5, 5, 5), (2, 2), (8, 8))),
)
N_FREQUENCIES = 100
CLOSE = 1e-4  #: relative difference of bounds that is none


def add_arguments(parser):
    """The part, shapes, steps, peers; and for the race sets and output."""
    parts = {"step": step, "schemes": schemes, "race": race.run, "sparse": sparse, "rows": rows.run}
    parser.add_argument("--part", choices=parts, default="step", help="default: %(default)s")
    parser.add_argument("--shapes", type=arguments.numbers, help="numbers of shapes, from 0")
    parser.add_argument("--steps", type=int, default=30, help="timed ones; default: %(default)s")
    parser.add_argument("--gpflux", metavar="PYTHON", help="an interpreter that has GPflux")
    parser.add_argument("--rows", type=arguments.numbers, default="100000,10000000")
    race.add_arguments(parser)
    parser.set_defaults(parts=parts)


def run(options):
    """Run one part."""
    torch.set_num_threads(1)
    options.parts[options.part](options)


def _chosen(options, shapes):
    shapes = list(shapes)
    return shapes if options.shapes is None else [shapes[i] for i in options.shapes]


def step(options):
    """Print medians and ratios."""
    from skdgp.inference import DSVI, RandomFeatures

    models.require(["gpytorch"])
    schemes = {
        "shared": DSVI(shared_covariance=True),
        "separate": DSVI(shared_covariance=False),
        "features": RandomFeatures(n_features=N_FREQUENCIES),
        "learned": RandomFeatures(n_features=N_FREQUENCIES, frequencies="variational"),
    }
    table = []
    for name in _chosen(options, SHAPES):
        shape, made = SHAPES[name], {}
        for dtype, kind in DTYPES.items():
            made["floor", dtype] = steps.floor(shape, kind)
            made["GPyTorch", dtype] = steps.gpytorch(shape, kind)
            made["network", dtype] = steps.network(shape, kind, N_FREQUENCIES)
            if options.gpflux:
                made["GPflux", dtype] = steps.gpflux(shape, kind, options.gpflux)
            for key, scheme in schemes.items():
                made[key, dtype] = steps.step_of(scheme, shape, kind)
        medians = steps.measure(made, options.steps)
        for dtype in DTYPES:
            found = {key: 1e3 * ms for (key, kind), ms in medians.items() if kind == dtype}
            texts = [f"{found[key]:.2f}" if key in found else rst.NOTHING for key in _STEP]
            ratios = [
                f"{found[a] / found[b]:.2f}" if a in found else rst.NOTHING for a, b in _RATIOS
            ]
            table.append([name, dtype, *texts, *ratios])
    head = ["ms of a step", "dtype", *_STEP, *(f"{a} / {b}" for a, b in _RATIOS)]
    print(rst.table(head, table))


_STEP = ("floor", "shared", "separate", "GPyTorch", "GPflux", "network", "features", "learned")
_RATIOS = (
    ("shared", "floor"),
    ("separate", "floor"),
    ("GPyTorch", "shared"),
    ("GPflux", "separate"),
    ("features", "network"),
    ("learned", "network"),
)


def schemes(options):
    """Print how the steps of all schemes grow."""
    from skdgp.inference import AEP, DSVI, RandomFeatures, StructuredVI

    made = {
        "dsvi": DSVI(shared_covariance=False),
        "aep": AEP(),
        "rff": RandomFeatures(),
        **{
            name: StructuredVI(name, n_warmup=0)
            for name in ("mean-field", "stripes-and-arrow", "full")
        },
    }
    table = []
    for shape in _chosen(options, GROWTH):
        contenders = {
            name: steps.step_of(scheme, shape, torch.float64) for name, scheme in made.items()
        }
        medians = steps.measure(contenders, options.steps)
        table.append([str(shape), *(f"{1e3 * medians[name]:.1f}" for name in made)])
    print(rst.table(["ms of a step", *made], table))


def sparse(options):
    """Print the bound that both reach, and the seconds to it, from the same inducing inputs."""
    from skdgp import SparseGPRegressor

    models.require(["gpytorch"])
    split = data.uci_split(data.folder(options.data), options.sets[0], 0)
    X, y = split.X_train, split.y_train
    n_inducing, n_steps = 500 if options.max_iter is None else 50, options.max_iter or 200
    start = time.perf_counter()
    model = SparseGPRegressor(n_inducing=n_inducing, max_iter=n_steps, random_state=0).fit(X, y)
    ours = time.perf_counter() - start, float(model.lower_bound_)
    curve = sgpr(X, y, n_inducing, options.max_iter or 50)
    goal = ours[1] - CLOSE * abs(ours[1])
    reached = next((f"{s:.1f}" for s, bound in curve if bound >= goal), "never")
    table = [
        ["SparseGPRegressor", f"{ours[1]:.2f}", f"{ours[0]:.1f}", f"{ours[0]:.1f}"],
        ["GPyTorch, L-BFGS", f"{curve[-1][1]:.2f}", f"{curve[-1][0]:.1f}", reached],
    ]
    print(rst.table(["", "bound", "at its end (s)", f"to {goal:.1f} (s)"], table))


def sgpr(X, y, n_inducing, n_steps):
    """Pairs of seconds and the best bound so far, of GPyTorch's SGPR in float64, in the target's units."""
    import gpytorch
    from gpytorch.kernels import InducingPointKernel, RBFKernel, ScaleKernel

    start = time.perf_counter()
    scaled = models.Standardized(X, y)
    parts = scaled.X, scaled.y, models.centers(scaled.X, n_inducing, 0)
    X, y_scaled, Z = (torch.tensor(part) for part in parts)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.05

    class SGPR(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(X, y_scaled, likelihood)
            base = ScaleKernel(RBFKernel(ard_num_dims=X.shape[1]))
            base.base_kernel.lengthscale = X.shape[1] ** 0.5
            self.mean = gpytorch.means.ZeroMean()
            self.kernel = InducingPointKernel(base, Z, likelihood)
            self.kernel.inducing_points.requires_grad_(False)

        def forward(self, X):
            return gpytorch.distributions.MultivariateNormal(self.mean(X), self.kernel(X))

    model = SGPR().double().train()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.LBFGS(
        trained, max_iter=1, max_eval=25, history_size=20, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        loss = -objective(model(X), y_scaled)
        loss.backward()
        return loss

    curve, best, units = [], -np.inf, len(y) * np.log(y.std())
    for _ in range(n_steps):
        best = max(best, -float(optimizer.step(closure).detach()) * len(y) - units)
        curve.append((time.perf_counter() - start, best))
    return curve
