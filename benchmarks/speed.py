"""Times of training, on one thread.

--part step      a training step: ours, GPyTorch's, and the bare products that cannot be spared; random
                 features beside a plain torch network
       schemes   a step of every scheme: how it grows with inducing points, batch, layers and width
       rows      memory and time for each row with random features, up to ten million rows

Contenders take turns, so that other work on the machine hits all alike. Two checkouts are compared by two
runs with --checkout.
"""

import torch

from . import arguments, models, rows, rst, steps
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
    Shape(),
)
N_FREQUENCIES = 100


def add_arguments(parser):
    """The part, shapes, steps, peers."""
    parts = {"step": step, "schemes": schemes, "rows": rows.run}
    parser.add_argument("--part", choices=parts, default="step", help="default: %(default)s")
    parser.add_argument("--shapes", type=arguments.numbers, help="numbers of shapes, from 0")
    parser.add_argument("--steps", type=int, default=30, help="timed ones; default: %(default)s")
    parser.add_argument("--rows", type=arguments.numbers, default="100000,10000000")
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
            for key, scheme in schemes.items():
                made[key, dtype] = steps.step_of(scheme, shape, kind)
        medians = steps.measure(made, options.steps)
        for dtype in DTYPES:
            found = {key: 1e3 * ms for (key, kind), ms in medians.items() if kind == dtype}
            texts = [f"{found[key]:.2f}" for key in _STEP]
            ratios = [f"{found[a] / found[b]:.2f}" for a, b in _RATIOS]
            table.append([name, dtype, *texts, *ratios])
    head = ["ms of a step", "dtype", *_STEP, *(f"{a} / {b}" for a, b in _RATIOS)]
    print(rst.table(head, table))


_STEP = ("floor", "shared", "separate", "GPyTorch", "network", "features", "learned")
_RATIOS = (
    ("shared", "floor"),
    ("separate", "floor"),
    ("GPyTorch", "shared"),
    ("features", "network"),
    ("learned", "network"),
)


def schemes(options):
    """Print how the steps of all schemes grow."""
    from skdgp.inference import AEP, DSVI, SGHMC, DeepInverseWishart, RandomFeatures, StructuredVI

    made = {
        "default": DSVI(),
        "sghmc": SGHMC(n_learn=0),
        "dsvi": DSVI(shared_covariance=False),
        "aep": AEP(),
        "rff": RandomFeatures(),
        "diwp": DeepInverseWishart(),
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
