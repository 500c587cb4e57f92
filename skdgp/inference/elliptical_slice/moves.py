"""Moves of many chains at once: elliptical slices, slices of one number, swaps, and flips of signs."""

import math

import torch

#: proposals of a state that are evaluated together, where that takes less than one by one
MOST_AHEAD = 8


def never():
    """Whether time is over: it has no limit."""
    return False


def elliptical_slice(
    v, log_lik, evaluate, nu, uniform, power, most_ahead=MOST_AHEAD, is_late=never
):
    r"""One elliptical slice step (Murray et al., 2010) of states v (S, ...), a priori ``N(0, I)``.

    Proposals are :math:`v \cos\vartheta + \nu \sin\vartheta`; brackets of the angle shrink to the
    present state. No step size, and nothing is rejected. ``evaluate(proposals, i)`` gives the
    log-likelihoods for the states with indices `i`, which may repeat, minus infinity where a state
    is impossible; ``uniform(k)`` gives `k` draws from the unit interval. Of a state `most_ahead`
    proposals are evaluated together at most. Once ``is_late()``, states without an accepted proposal stay.
    """
    threshold = power * log_lik + uniform(len(v)).log()
    angle = 2.0 * math.pi * uniform(len(v))
    low, high = angle - 2.0 * math.pi, angle.clone()
    v, log_lik, i = v.clone(), log_lik.clone(), torch.arange(len(v), device=v.device)
    old, ahead = v.clone(), min(2, most_ahead)
    while len(i) and not is_late():
        # proposals that follow if all before them are rejected do not depend on their likelihoods: a few
        # of them are evaluated together, and the first that is accepted counts
        angles, width = [], high[i] - low[i]
        for _ in range(ahead):
            theta = angle[i]
            angles.append(theta)
            below = theta < 0.0
            low[i] = torch.where(below, theta, low[i])
            high[i] = torch.where(below, high[i], theta)
            angle[i] = low[i] + (high[i] - low[i]) * uniform(len(i))
        theta, who = torch.stack(angles, 1), i.repeat_interleave(ahead)
        a = theta.view(-1, *(1,) * (v.ndim - 1))
        proposals = old[who] * a.cos() + nu[who] * a.sin()
        value = evaluate(proposals, who).view(-1, ahead)
        # a bracket of no width is the present state, independent of rounding
        accepted = (power[i, None] * value > threshold[i, None]) | (width < 1e-12)[:, None]
        first, done = accepted.long().argmax(1), accepted.any(1)
        place = torch.arange(len(i), device=v.device) * ahead + first
        v[i[done]], log_lik[i[done]] = proposals[place[done]], value.flatten()[place[done]]
        i, ahead = i[~done], min(2 * ahead, most_ahead)
    return v, log_lik


def slice_step(x, evaluate, uniform, start, width=2.0, is_late=never):
    """One slice step with stepping out (Neal, 2003) of x (S,); the last one evaluated is taken.

    Once ``is_late()``, numbers without an accepted proposal stay.
    """
    S, everyone = len(x), torch.arange(len(x), device=x.device)
    threshold = start + uniform(S).log()
    low = x - width * uniform(S)
    ends, i = torch.cat([low, low + width]), torch.arange(2 * S, device=x.device)  # of both sides
    while len(i) and not is_late():
        i = i[evaluate(ends[i], i % S) > threshold[i % S]]
        ends[i] += torch.where(i < S, -width, width).to(ends)
    low, high = ends.view(2, S)
    new, i = x.clone(), everyone
    while len(i) and not is_late():
        z = low[i] + (high[i] - low[i]) * uniform(len(i))
        accepted = (evaluate(z, i) > threshold[i]) | (high[i] - low[i] < 1e-12)
        new[i[accepted]] = z[accepted]
        i, z = i[~accepted], z[~accepted]
        below = z < x[i]
        low[i[below]], high[i[~below]] = z[below], z[~below]
    return new


def swaps(log_lik, powers, uniform, odd):
    """Swap states of neighboring levels: the order (n_chains, T) of them (Swendsen and Wang, 1986)."""
    C, T = log_lik.shape
    order = torch.arange(T, device=log_lik.device).repeat(C, 1)
    a = torch.arange(odd, max(T - 1, odd), 2, device=log_lik.device)
    log_ratio = (powers[a] - powers[a + 1]) * (log_lik[:, a + 1] - log_lik[:, a])
    change = uniform(C * len(a)).view(C, -1).log() < log_ratio
    order[:, a] += change.long()
    order[:, a + 1] -= change.long()
    return order
