"""The optimizer of everything that has no closed form."""

import torch


class Adam:
    """Adam (Kingma and Ba, 2015) of groups of parameters with the factors of their step sizes.

    The class :class:`torch.optim.Adam` does the same, but imports torch's compiler, which costs
    every process two seconds, and sorts and checks at every step for longer than small models
    compute.
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
            kinds = {}  # what is moved by one call is alike
            for p, slot in zip(parameters, slots):
                if p.grad is None:
                    continue
                if not slot:
                    slot["step"] = torch.zeros((), dtype=torch.float32, device=p.device)
                    slot["exp_avg"], slot["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
                gradient = p.grad
                if gradient.stride() != p.stride():  # which one call on a GPU does not take
                    gradient = torch.empty_like(p).copy_(gradient)
                row = p, gradient, slot["exp_avg"], slot["exp_avg_sq"], slot["step"]
                kinds.setdefault((p.dtype, p.device), []).append(row)
            for rows in kinds.values():
                moved, gradients, means, squares, steps = map(list, zip(*rows))
                torch._foreach_add_(steps, 1)
                torch._fused_adam_(
                    moved, gradients, means, squares, [], steps,
                    lr=learning_rate * factor, beta1=0.9, beta2=0.999, eps=1e-8,
                    weight_decay=0.0, amsgrad=False, maximize=False,
                )  # fmt: skip

    def forget(self, parameters):
        """Begin anew with the parameters of these ids."""
        for p, slot in zip(self._parameters, self.slots):
            if id(p) in parameters:
                slot.clear()

    def remember(self, i, name, value):
        """Set one of the tensors of the `i`-th slot, as it was once found there."""
        p = self._parameters[i]
        self.slots[i][name] = value.to(p.device) if name == "step" else value.to(p)
