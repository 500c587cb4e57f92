"""Steps of stochastic gradient Hamiltonian Monte Carlo (Chen et al., 2014)."""

import torch

_TINY = 1e-16


def adaptive_step(theta, state, grad, noise, n_rows, step_size, friction, adapt):
    """One scale-adapted step (Springenberg et al., 2016, with the constants of Havasi et al., 2018).

    By the memory ``xi``, mean ``g`` and mean square ``g2`` of gradients. While the mass adapts,
    chains have no invariant distribution.
    """
    mass = 1.0 / (state["g2"].clamp_min(_TINY).sqrt() + _TINY)
    injected = (2.0 * friction * step_size**2 / n_rows * mass).clamp_min(_TINY).sqrt()
    p = (1.0 - friction) * state["p"] - step_size**2 * mass * grad + injected * noise
    new = {**state, "p": p}
    if adapt:
        xi, g, g2 = state["xi"], state["g"], state["g2"]
        r = 1.0 / (xi + 1.0)
        new["xi"] = 1.0 + xi * (1.0 - g.square() / (g2 + _TINY))
        new["g"], new["g2"] = torch.lerp(g, grad, r), torch.lerp(g2, grad.square(), r)
    return theta + p, new


def preconditioned_step(theta, p, grad, root, noise, step_size, friction, gradient_noise=0.0):
    r"""One step in coordinates ``z`` with ``theta = root z``, in which curvatures are near one.

    .. math:: p \leftarrow (1 - \alpha) p - \kappa \nabla_z + N(0, 2 \alpha \kappa - \kappa^2 s^2)

    with the squared step :math:`\kappa`, the friction :math:`\alpha`, and the variance :math:`s^2`
    that minibatches add to the gradient of `z`, where it is known.
    """
    injected = 2.0 * friction * step_size - step_size**2 * gradient_noise
    injected = torch.as_tensor(injected, dtype=p.dtype, device=p.device).clamp_min(0.0)
    p = (1.0 - friction) * p - step_size * to_z(grad, root) + injected.sqrt() * noise
    return theta + (root @ p.movedim(2, 1)[..., None])[..., 0].movedim(1, 2), p


def to_z(grad, root):
    """Gradients with respect to ``z`` from those with respect to ``theta = root z``."""
    return (root.mT @ grad.movedim(2, 1)[..., None])[..., 0].movedim(1, 2)


def autocorrelation_time(step_size, friction):
    """Steps between independent draws in a direction of curvature one (exact for Gaussians)."""
    return 2.0 * friction / step_size * (1.0 - step_size / (2.0 * (2.0 - friction)))


def fresh(theta):
    """The state of :func:`adaptive_step` before the first step."""
    state = {name: torch.ones_like(theta) for name in ("xi", "g", "g2")}
    return {"p": torch.zeros_like(theta), **state}


def fisher_information(A, score, weight):
    """Fisher information ``A diag(w_d) A^T`` of units by the squares of their scores at rows."""
    w = (weight[:, None] * score.square()).mT.to(A.dtype)  # C, D, B
    w = w.mean(0, keepdim=True) if len(A) == 1 else w
    return sum(((a * w_a[:, None]) @ a.T).double() for a, w_a in zip(A, w)) / len(A)


def draw_targets(likelihood, f, y, generator):
    """Draws of targets given functions (C, B, n_latents), with the logarithms of exposures that follow `y`."""
    offset = y[:, f.shape[-1] :].expand(len(f), -1, -1)
    f = f + offset if offset.shape[-1] else f
    drawn = likelihood.sample(f.flatten(0, 1), generator).view(*f.shape[:2], -1)
    return torch.cat([drawn.to(y), offset], -1)
