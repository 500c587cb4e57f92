"""Limited-memory BFGS, one iteration at a time."""

import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

STEPS = 30  #: iterations of a search for hyperparameters
_ARMIJO = 1e-4  #: rounding: share of the predicted decrease that a step must bring
_HALVINGS = 12  #: rounding: of a step that does not, before the search ends


class LBFGS:
    """Minimizes a smooth function of one flat vector (Nocedal and Wright, 2006, algorithm 7.5).

    No component of a step exceeds `largest`. An iteration that lowers the value by less than `tol`,
    relative to the larger of 1 and its size, is the last.
    """

    def __init__(self, memory=20, largest=2.0, tol=1e-8):
        self.memory, self.largest, self.tol = memory, largest, tol
        self.x = self.g = None
        self.f = 0.0
        self.pairs = []
        self.converged = False

    def start(self, x, evaluate):
        """Evaluate the start; `evaluate` maps x to a float and a gradient."""
        self.x = x
        self.f, self.g = evaluate(x)

    def step(self, evaluate):
        """One iteration, or nothing once the search has converged."""
        while not self.converged:
            d = self._direction()
            slope = float(self.g @ d)
            size = min(1.0, self.largest / float(d.abs().max().clamp_min(1e-300)))
            if not self.pairs:
                size = min(size, 1.0 / max(float(self.g.norm()), 1e-300))
            for _ in range(_HALVINGS):
                x = self.x + size * d
                f, g = evaluate(x)
                if f <= self.f + _ARMIJO * size * slope and bool(torch.isfinite(g).all()):
                    return self._accept(x, f, g)
                size *= 0.5
            self.converged = not self.pairs
            self.pairs = []  # once more, along the gradient

    def _accept(self, x, f, g):
        self.converged = self.f - f < self.tol * max(1.0, abs(f))
        s, y = x - self.x, g - self.g
        if float(s @ y) > 1e-10 * float(y @ y):
            self.pairs = [*self.pairs, (s, y)][-self.memory :]
        self.x, self.f, self.g = x, f, g

    def _direction(self):
        d, factors = -self.g, []
        for s, y in reversed(self.pairs):
            a = (s @ d) / (s @ y)
            factors.append(a)
            d = d - a * y
        if self.pairs:
            s, y = self.pairs[-1]
            d = d * ((s @ y) / (y @ y))
        for (s, y), a in zip(self.pairs, reversed(factors)):
            d = d + (a - (y @ d) / (s @ y)) * s
        return d

    def state(self):
        """Plain arrays, from which :meth:`load` goes on."""
        if self.x is None:
            return {}
        numbers = torch.tensor([self.f, self.converged], dtype=torch.float64)
        arrays = {"x": self.x, "g": self.g, "numbers": numbers}
        if self.pairs:
            arrays["s"] = torch.stack([s for s, _ in self.pairs])
            arrays["y"] = torch.stack([y for _, y in self.pairs])
        return {name: array.cpu().numpy().copy() for name, array in arrays.items()}

    def load(self, arrays, like):
        """The inverse of :meth:`state`; tensors go where `like` is."""
        arrays = {name: torch.tensor(array).to(like.device) for name, array in arrays.items()}
        self.x, self.g = arrays.get("x"), arrays.get("g")
        self.f, self.converged = 0.0, False
        if "numbers" in arrays:
            self.f, self.converged = float(arrays["numbers"][0]), bool(arrays["numbers"][1])
        # rows of a matrix may be aligned otherwise, and then sums round otherwise
        pairs = zip(arrays["s"], arrays["y"]) if "s" in arrays else ()
        self.pairs = [(s.clone(), y.clone()) for s, y in pairs]


def of_parameters(loss, parameters):
    """Value and gradient of ``loss()``, a tensor of shape (), as a function of a vector of its parameters."""

    def evaluate(x):
        vector_to_parameters(x, parameters)
        with torch.enable_grad():
            value = loss()
            gradients = torch.autograd.grad(value, parameters)
        return float(value.detach()), torch.cat([g.flatten() for g in gradients])

    return evaluate


def minimize(evaluate, parameters, n_steps, tol):
    """Search for the least value; the parameters end where the search ends, also by an error."""
    search = LBFGS(tol=tol)
    try:
        search.start(parameters_to_vector(parameters).detach().clone(), evaluate)
        for _ in range(n_steps):
            search.step(evaluate)
    finally:
        vector_to_parameters(search.x, parameters)
    return search
