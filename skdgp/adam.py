"""The optimizer of everything that has no closed form."""

import torch
from torch.optim.adam import adam


class Adam:
    """Adam (Kingma and Ba, 2015), by torch's function of this name.

    The class :class:`torch.optim.Adam` does the same, but imports torch's compiler, which costs
    every process two seconds.

    Parameters
    ----------
    groups : sequence of pairs
        Parameters, and the factor of their step size.

    Attributes
    ----------
    slots : list of dict
        What is remembered of each parameter, in the order of the groups; empty until its first step.
    """

    def __init__(self, groups):
        self._groups = [(list(parameters), factor) for parameters, factor in groups]
        self._parameters = [p for parameters, _ in self._groups for p in parameters]
        self.slots = [{} for _ in self._parameters]

    @torch.no_grad()
    def step(self, learning_rate):
        """Move the parameters that have gradients."""
        slots = iter(self.slots)
        for parameters, factor in self._groups:
            moved = [(p, next(slots)) for p in parameters]
            moved = [(p, slot) for p, slot in moved if p.grad is not None]
            for p, slot in moved:
                if not slot:
                    slot["step"] = torch.zeros((), dtype=torch.float32, device=p.device)
                    slot["exp_avg"], slot["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
            if moved:
                adam(
                    [p for p, _ in moved],
                    [p.grad for p, _ in moved],
                    *([slot[name] for _, slot in moved] for name in ("exp_avg", "exp_avg_sq")),
                    [],
                    [slot["step"] for _, slot in moved],
                    fused=True,
                    amsgrad=False,
                    beta1=0.9,
                    beta2=0.999,
                    lr=learning_rate * factor,
                    weight_decay=0.0,
                    eps=1e-8,
                    maximize=False,
                )

    def remember(self, i, name, value):
        """Set one of the numbers of the `i`-th slot, as it was once found there."""
        p = self._parameters[i]
        self.slots[i][name] = value.to(p.device) if name == "step" else value.to(p)
