"""Factors by which gaps still change noise that depends on the input."""

import numpy as np
import torch

from ..gp.likelihoods import HeteroscedasticGaussian, HeteroscedasticStudentT
from ..predictive.mixture import Mixture, rows_at_once

_ROWS = 3000  #: training rows that are looked at
_SPREAD = 0.5  #: standard deviation of the power, a priori
_POWERS = 51  #: that are compared
_LEAST = 1e-6  #: smallest error, relative to its deviation, that is told from none


def learn_gaps(member, table, device):
    r"""Learn by how much gaps still change the noise of a member, from errors at training rows.

    Let :math:`\rho_i` be the noise of a row relative to the mean of training, by what its gaps hide (see
    :class:`~skdgp.preprocessing.missing_values.Donors`). Constant noise is multiplied by it. Noise that depends
    on the input is larger around filled cells already. With variances :math:`v_i` of the member, it is
    multiplied by :math:`c \rho_i^p`. The power `p` between 0 and 1 maximizes the density of errors under
    Laplace distributions, which outliers do not move, with variances in proportion to :math:`v_i \rho_i^p`,
    and has a Gaussian prior around 1. The factor `c` keeps the mean variance.
    """
    member.gaps = None
    encoder, likelihood = table.x_scaler.encoder, member.likelihood
    if not isinstance(likelihood, (HeteroscedasticGaussian, HeteroscedasticStudentT)):
        return member
    if encoder is None or not encoder.has_gaps:
        return member
    n = len(table)
    rows = np.sort(np.random.default_rng(0).permutation(n)[:_ROWS])
    ratio = encoder.noise(table.X[rows])
    part = table.part(rows)
    X, y, weights = part.take(slice(None))
    mean, var = _moments(member, X, device)
    k = ratio.shape[1]
    sizes, share = np.abs(y[:, :k] - mean) / np.sqrt(var), weights / weights.sum()
    powers = np.linspace(0.0, 1.0, _POWERS)[:, None, None]
    loss = len(rows) * (
        np.log(np.einsum("i,pik->pk", share, sizes / ratio ** (0.5 * powers)) + _LEAST)
        + 0.5 * powers[:, 0] * (share @ np.log(ratio))
    )
    loss += np.square((powers[:, 0] - 1.0) / _SPREAD)
    power = powers[loss.argmin(0), 0, 0]
    factor = (share @ var) / (share @ (var * ratio**power))
    if np.isfinite(factor).all() and (factor > 0.0).all():
        member.gaps = power, factor
    return member


@torch.no_grad()
def _moments(member, X, device):
    """Means and variances (n, k) of targets."""
    size = rows_at_once([member], device)
    found = [Mixture([member], X[i : i + size], device).moments() for i in range(0, len(X), size)]
    mean, std = (torch.cat(part).numpy(force=True) for part in zip(*found))
    return mean, np.square(std)
