"""Predictions of a mixture for rows, and of targets, in the user's units."""

import numpy as np
import torch

from .._warnings import warn
from ..preprocessing.constant_columns import changed_constant_columns
from .components import Rows, effects
from .functions import draw
from .mixture import Predictive, rows_at_once

_N_DRAWS = 512  #: for covariances without a closed form: correlations to .04


def warn_of_changed(X, x_scaler, names):
    """Warn of columns that were constant in training and have other values now, by names if there are some."""
    changed = changed_constant_columns(X, x_scaler)
    if changed:
        listed = [str(j if names is None else names[j]) for j in changed[:5]]
        columns = ", ".join(listed) + ", ..." * (len(changed) > 5)
        warn(
            f"Columns {columns} of X were constant in fit, and have other values now. Means do not "
            "depend on them, and error bars are wider; leave out columns that do not matter.",
            UserWarning,
        )


class Predictor:
    """The mixture of some members on a device, with the scaling of inputs and targets."""

    def __init__(self, members, x_scaler, y_scaler, device):
        self.members, self.device = members, device
        self.x_scaler, self.y_scaler = x_scaler, y_scaler

    def rows(self, X, method, *others, offset=None, **settings):
        """A method of :class:`~skdgp.mixture.predictive.Predictive`, applied to some rows at a time."""
        results, size = None, rows_at_once(self.members, self.device)
        for first in range(0, len(X), size):
            x, *rest = (array[first : first + size] for array in (X, *others))
            own = None if offset is None else offset[first : first + size]
            rows = Rows.seen(x, self.x_scaler, own)
            predictive = Predictive(self.members, rows, self.device, self.y_scaler)
            parts = getattr(predictive, method)(*rest, **settings)
            several = isinstance(parts, tuple)
            parts = parts if several else (parts,)
            # arrays made beforehand: small ones amid large ones that come and go waste memory
            results = results or [np.empty((len(X), *part.shape[1:])) for part in parts]
            for result, part in zip(results, parts):
                result[first : first + len(x)] = part
        return tuple(results) if several else results[0]

    def draw(self, X, n, seed, what, mean=None, offset=None, members=None):
        """Draws (n, n_rows, k), see :func:`~skdgp.mixture.functions.draw`."""
        rows = Rows.seen(X, self.x_scaler, offset)
        return draw(members or self.members, rows, n, seed, what, self.device, mean)

    def unmapped(self, X, z, latent=False):
        """Targets in the user's units of standardized ones (..., n, k), which end where distributions do."""
        scaler = self.y_scaler
        if scaler.maps is not None:
            outside = (z < scaler.low) | (z > scaler.high)
            some = outside.any((*range(z.ndim - 2), -1))
            if some.any():
                low, high = self.rows(X[some], "mapped_ends", latent=latent)
                z[..., some, :] = np.clip(z[..., some, :], low, high)
        return scaler.inverse(z)

    def covariance(self, X, std, latent=False, offset=None):
        """Covariances (n, n, k) of targets or latent functions with standard deviations `std` (n, k)."""
        scaler, k = self.y_scaler, std.shape[1]
        if scaler.maps is not None:  # correlations are those of draws
            draws = self.draw(X, _N_DRAWS, 0, "latent" if latent else "y")[..., :k]
            cov = _covariance_of(self.unmapped(X, draws, latent) / np.maximum(std, 1e-300))[1]
            explained = std**2
        elif latent or all(member.likelihood.scales_target for member in self.members):
            cov = self._latent_covariance(X, k)  # E[y | f] is f
            explained = self.rows(X, "target_moments", latent=True)[1] ** 2
        else:
            cov = _covariance_of(self.draw(X, _N_DRAWS, 0, "mean", offset=offset))[1]
            explained = np.einsum("iik->ik", cov) * scaler.scale**2
        if scaler.maps is None:
            cov *= scaler.scale**2
        diagonal = np.einsum("iik->ik", cov)  # a view
        scale = np.sqrt(np.minimum(explained, std**2) / np.maximum(diagonal, 1e-300))
        cov *= scale[:, None] * scale[None]
        diagonal[...] = std**2
        return cov

    def _latent_covariance(self, X, k):
        """Covariances (n, n, k) of latents, for a standardized target: closed forms where there are some."""
        seen = Rows.seen(X, self.x_scaler)
        x = torch.as_tensor(seen.X, device=self.device)
        total = sum(member.mixture_weight for member in self.members)
        weights, means, within = [], [], 0.0
        for i, member in enumerate(self.members):
            weight, posterior = member.mixture_weight / total, member.posterior(self.device)
            cov = posterior.covariance(x)
            if cov is None:
                draws = self.draw(X, _N_DRAWS, i, "latent", members=[member])[..., :k]
                own, cov = (
                    torch.as_tensor(part, device=x.device) for part in _covariance_of(draws)
                )
                weights.append(x.new_full((1,), weight)), means.append(own[None])
                within = within + weight * cov.permute(2, 0, 1)
                continue
            log_weights, mean, _ = posterior.latent(x)
            shares = log_weights.exp()
            cov = cov[:k]
            if seen.columns:
                changes = torch.as_tensor(seen.columns.covariance()).to(cov)
                cov = cov + (shares @ posterior.inflation.to(shares)) * changes
            if seen.versions is not None:  # equal rows have the same unknown cells, as in draws
                center, deviation = (part[:, :k] for part in effects(posterior, x, seen.versions))
                rows = seen.versions.rows
                _, which = x[rows].unique(dim=0, return_inverse=True)
                products = torch.einsum("ik,jk->kij", deviation, deviation)
                mean, cov = mean.clone(), cov.clone()
                mean[:, rows, :k] += center
                cov[:, rows[:, None], rows] += products * (which[:, None] == which)
            within = within + weight * member.dispersion**2 * cov
            weights.append(weight * shares), means.append(mean[..., :k])
        weights, means = torch.cat(weights), torch.cat(means)  # of all components
        off = means - torch.einsum("s,sik->ik", weights, means)
        between = torch.einsum("sik,sjk->kij", weights[:, None, None] * off, off)
        return (within + between).permute(1, 2, 0).cpu().numpy()


def _covariance_of(draws):
    """Mean (n, k) and covariances (n, n, k) of draws (n_draws, n, k)."""
    mean = draws.mean(0)
    off = draws - mean
    return mean, np.einsum("sik,sjk->ijk", off, off) / len(draws)
