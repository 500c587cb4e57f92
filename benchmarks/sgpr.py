"""How soon the collapsed bound of SparseGPRegressor is as high as that of GPyTorch's SGPR.

Both start from the same numbers, with the same inducing inputs, which stay where they are, and work
in float64 on one thread. GPyTorch takes steps of Adam or of torch's L-BFGS; skdgp its own.
"""

import statistics
import time
from functools import partial

import numpy as np
import torch

from skdgp.gp.kernels import SquaredExponential
from skdgp.gp.likelihoods import Gaussian
from skdgp.inference import VFE
from skdgp.inference.base import Architecture, Batch

from . import arguments, data, models, rst

CLOSE = 1e-4  #: relative difference of bounds that is none
N_STEPS = {"skdgp": 200, "GPyTorch, L-BFGS": 50, "GPyTorch, Adam": 100}
OPTIMIZERS = {"lbfgs": "GPyTorch, L-BFGS", "adam": "GPyTorch, Adam"}
RATE = 0.1  #: of Adam: with 0.01 it takes far longer
VARIANCE, NOISE = 1.0, 0.05


def add_arguments(parser):
    """Set, rows, inducing points, and the number of steps for trials."""
    parser.add_argument("--set", dest="name", default="power", help="default: %(default)s")
    parser.add_argument("--inducing", type=int, default=500, help="default: %(default)s")
    parser.add_argument("--rows", type=int, help="how many of them; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--optimizers", type=arguments.names, default=["lbfgs", "adam"], help="of GPyTorch"
    )
    parser.add_argument("--data", help="folder of the data; default: $SKDGP_DATA")
    arguments.add_max_iter(parser)


def run(options):
    """Print the bounds at the start, the time of one evaluation, and the time to the goal."""
    from .models.scaling import Standardized, centers

    models.require(["gpytorch"])
    torch.set_num_threads(1)
    with data.load(data.folder(options.data), f"uci/{options.name}.npz") as archive:
        X, y = archive["X"], archive["y"]
    if options.rows is not None:
        chosen = np.random.default_rng(options.seed).permutation(len(X))[: options.rows]
        X, y = X[chosen], y[chosen]
    scaled = Standardized(X, y)
    units = len(y) * np.log(y.std())  # between bounds for the scaled target and for the target
    problem = scaled.X, scaled.y, centers(scaled.X, options.inducing, options.seed)
    arguments.check_known(options.optimizers, OPTIMIZERS, "optimizers")
    contenders = {"skdgp": lambda: Ours(*problem)}
    for key in options.optimizers:
        contenders[OPTIMIZERS[key]] = partial(Theirs, *problem, key)
    one, other = Ours(*problem), Theirs(*problem, "lbfgs")
    seconds, bounds = [[], []], [[], []]
    for _ in range(5):  # by turns
        for i, model in enumerate((one, other)):
            start = time.perf_counter()
            bounds[i].append(model.evaluate() - units)
            seconds[i].append(time.perf_counter() - start)
    gap = abs(bounds[0][0] - bounds[1][0]) / abs(bounds[1][0])
    ours, theirs = (statistics.median(part[1:]) for part in seconds)
    print(f"{options.name}: {len(y)} rows, {len(problem[2])} inducing points")
    print(f"bound at the start: {bounds[0][0]:.3f}, GPyTorch {bounds[1][0]:.3f} ({gap:.1e})")
    print(f"value and gradient: {ours:.3f} s, GPyTorch {theirs:.3f} s (ratio {theirs / ours:.1f})")
    curves = {}
    for name, make in contenders.items():
        curves[name] = curve(make(), options.max_iter or N_STEPS[name], units)
        seconds, bound = curves[name][-1]
        print(f"{name}: {bound:.3f} after {len(curves[name])} steps, {seconds:.1f} s", flush=True)
    print()
    print(table(curves))


def curve(model, n_steps, units):
    """Pairs of seconds and the highest bound so far, for each step."""
    points, best, start = [], -np.inf, time.perf_counter()
    for _ in range(n_steps):
        best = max(best, model.step() - units)
        points.append((time.perf_counter() - start, best))
        if model.converged:
            break
    return points


def table(curves):
    """Times until the bounds come close to the best bound of GPyTorch."""
    goal = max(points[-1][1] for name, points in curves.items() if name != "skdgp")
    goal -= CLOSE * abs(goal)
    times = {
        name: next((s for s, bound in points if bound >= goal), None)
        for name, points in curves.items()
    }
    ours = times["skdgp"]
    rows = [
        [
            name,
            f"{curves[name][-1][1]:.2f}",
            len(curves[name]),
            rst.NOTHING if seconds is None else f"{seconds:.1f}",
            rst.NOTHING if None in (seconds, ours) else f"{seconds / ours:.1f}",
        ]
        for name, seconds in times.items()
    ]
    return rst.table(["", "bound", "steps", f"to {goal:.1f} (s)", "ratio"], rows)


class Ours:
    """The model that SparseGPRegressor trains."""

    def __init__(self, X, y, Z):
        n, d = X.shape
        kernel = SquaredExponential(lengthscale=np.sqrt(d), variance=VARIANCE).bind(d)
        shape = Architecture(d, (), 1, len(Z), [kernel], True, False)
        self._model = VFE().build(shape, Gaussian(np.array([NOISE])))
        with torch.no_grad():
            self._model.layers[0].Z.copy_(torch.as_tensor(Z))
        rows = (torch.tensor(part) for part in (X, y[:, None], np.ones(n)))
        self._batch = Batch(*rows, 1.0, float(n))

    def evaluate(self):
        for parameter in self._model.parameters():
            parameter.grad = None
        return self._model.bound(self._batch)

    def step(self):
        return -self._model.step(self._batch, None) * self._batch.total

    @property
    def converged(self):
        return self._model.finished


class Theirs:
    """SGPR as in GPyTorch's documentation, with zero mean and one lengthscale for each input."""

    converged = False

    def __init__(self, X, y, Z, optimizer):
        import gpytorch
        from gpytorch.kernels import InducingPointKernel, RBFKernel, ScaleKernel

        X, y, Z = (torch.tensor(part) for part in (X, y, Z))

        class SGPR(gpytorch.models.ExactGP):
            def __init__(self, likelihood):
                super().__init__(X, y, likelihood)
                base = ScaleKernel(RBFKernel(ard_num_dims=X.shape[1]))
                base.outputscale = VARIANCE
                base.base_kernel.lengthscale = X.shape[1] ** 0.5
                self.mean = gpytorch.means.ZeroMean()
                self.kernel = InducingPointKernel(base, Z.clone(), likelihood)
                self.kernel.inducing_points.requires_grad_(False)

            def forward(self, X):
                return gpytorch.distributions.MultivariateNormal(self.mean(X), self.kernel(X))

        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        self._model, self._X, self._y = SGPR(likelihood).double().train(), X, y
        likelihood.noise = NOISE
        self._objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, self._model)
        trained = [p for p in self._model.parameters() if p.requires_grad]
        if optimizer == "adam":
            self._optimizer = torch.optim.Adam(trained, lr=RATE)
        else:  # one iteration for each step
            self._optimizer = torch.optim.LBFGS(
                trained, max_iter=1, max_eval=25, history_size=20, line_search_fn="strong_wolfe"
            )

    def evaluate(self):
        self._optimizer.zero_grad()
        loss = -self._objective(self._model(self._X), self._y)
        loss.backward()
        self._loss = loss
        return -float(loss.detach()) * len(self._y)

    def step(self):
        def closure():
            self.evaluate()
            return self._loss

        return -float(self._optimizer.step(closure).detach()) * len(self._y)
