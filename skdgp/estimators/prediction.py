"""Predictions of a mixture for rows in the user's units."""

import numpy as np
import torch

from .._warnings import warn
from ..mixture.functions import draw
from ..mixture.predictive import Predictive, rows_at_once
from ..mixture.versions import effects
from ..preprocessing.constant_columns import ConstantColumns, changed_constant_columns

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
    """The mixture of some members on a device, with the scaling of their inputs."""

    def __init__(self, members, x_scaler, device):
        self.members, self.x_scaler, self.device = members, x_scaler, device

    def rows(self, X, method, *others, offset=None, **settings):
        """A method of :class:`~skdgp.mixture.predictive.Predictive`, applied to some rows at a time.

        An `offset` (n_rows, 1) is added to latent functions.
        """
        results, size = None, rows_at_once(self.members, self.device)
        for first in range(0, len(X), size):
            x, *rest = (array[first : first + size] for array in (X, *others))
            own = None if offset is None else offset[first : first + size]
            inputs, columns, versions, noise = self._seen(x)
            given = columns, versions, own, noise
            predictive = Predictive(self.members, inputs, self.device, *given)
            parts = getattr(predictive, method)(*rest, **settings)
            several = isinstance(parts, tuple)
            parts = parts if several else (parts,)
            # arrays made beforehand: small ones amid large ones that come and go waste memory
            results = results or [np.empty((len(X), *part.shape[1:])) for part in parts]
            for result, part in zip(results, parts):
                result[first : first + len(x)] = part
        return tuple(results) if several else results[0]

    def draw(self, X, n, seed, what, mean=None, offset=None):
        """Draws (n, n_rows, k), see :func:`~skdgp.mixture.functions.draw`."""
        X, columns, versions, noise = self._seen(X)
        given = columns, versions, mean, offset, noise
        return draw(self.members, X, n, seed, what, self.device, *given)

    def _seen(self, X):
        """Scaled rows, and what makes them differ from those of training."""
        scaler = self.x_scaler
        noise = None if scaler.encoder is None else scaler.encoder.noise(X)
        return scaler.transform(X), ConstantColumns(X, scaler), scaler.versions(X), noise

    def covariance(self, X, k):
        """Covariances (n, n, k) of the first `k` latents of the mixture.

        Closed forms for members that have them, draws for the rest. In units of the standardized target.
        """
        columns, versions = ConstantColumns(X, self.x_scaler), self.x_scaler.versions(X)
        x = torch.as_tensor(self.x_scaler.transform(X), device=self.device)
        total = sum(member.mixture_weight for member in self.members)
        weights, means, within = [], [], 0.0
        for i, member in enumerate(self.members):
            weight, posterior = member.mixture_weight / total, member.posterior(self.device)
            cov = posterior.covariance(x)
            if cov is None:
                own, cov = self._of_draws(X, i, k)
                weights.append(x.new_full((1,), weight)), means.append(own[None])
                within = within + weight * cov
                continue
            log_weights, mean, _ = posterior.latent(x)
            shares = log_weights.exp()
            cov = cov[:k]
            if columns:
                changes = torch.as_tensor(columns.covariance()).to(cov)
                cov = cov + (shares @ posterior.inflation.to(shares)) * changes
            if versions is not None:  # equal rows have the same unknown cells, as in draws
                center, deviation = (part[:, :k] for part in effects(posterior, x, versions))
                rows = versions.rows
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

    def covariance_of_means(self, X, offset=None):
        """Covariances (n, n, k) of the target's means, from draws."""
        draws = self.draw(X, _N_DRAWS, 0, "mean", offset=offset)
        draws -= draws.mean(0)
        return np.einsum("sik,sjk->ijk", draws, draws) / len(draws)

    def mapped_covariance(self, X, std, scaler, latent):
        """Covariances (n, n, k) of targets before their map, or of latent functions.

        In the user's units; correlations are those of draws, `std` (n, k) the standard deviations.
        """
        draws = self.draw(X, _N_DRAWS, 0, "latent" if latent else "y")[..., : std.shape[1]]
        draws = self.unmapped(X, draws, scaler, latent) / np.maximum(std, 1e-300)
        draws -= draws.mean(0)
        cov = np.einsum("sik,sjk->ijk", draws, draws) / len(draws)
        diagonal = np.einsum("iik->ik", cov)  # a view
        scale = std / np.sqrt(np.maximum(diagonal, 1e-300))
        cov *= scale[:, None] * scale[None]
        diagonal[...] = np.square(std)
        return cov

    def unmapped(self, X, z, scaler, latent=False):
        """Targets in the user's units of standardized ones (..., n, k), which end where distributions do."""
        if scaler.maps is not None:
            outside = (z < scaler.low) | (z > scaler.high)
            some = outside.any((*range(z.ndim - 2), -1))
            if some.any():
                low, high = self.rows(X[some], "mapped_ends", scaler=scaler, latent=latent)
                z[..., some, :] = np.clip(z[..., some, :], low, high)
        return scaler.inverse(z)

    def _of_draws(self, X, i, k):
        """Mean (n, k) and covariance (k, n, n) of draws from one member."""
        alone = Predictor([self.members[i]], self.x_scaler, self.device)
        draws = torch.as_tensor(alone.draw(X, _N_DRAWS, i, "latent")[..., :k], device=self.device)
        mean = draws.mean(0)
        off = draws - mean
        return mean, torch.einsum("sik,sjk->kij", off, off) / len(draws)


def covariance_of_rows(model, X, var, latent, offset):
    """Covariance of the rows, whose diagonal is the variance of the mixture."""
    k = model._n_outputs
    given = latent or all(member.likelihood.scales_target for member in model.members_)
    with model._predictor() as predictor:
        if model._y_scaler.maps is not None:
            cov = predictor.mapped_covariance(X, np.sqrt(var), model._y_scaler, latent)
            return cov[..., 0] if model._y_ndim == 1 else cov
        if given:  # E[y | f] is f
            cov = predictor.covariance(X, k)
        else:
            cov = predictor.covariance_of_means(X, offset)
    cov *= model._y_scaler.scale**2
    diagonal = np.einsum("iik->ik", cov)  # a view
    # of the variance, by the function
    explained = model._moments(X, latent=True)[1] ** 2 if given else diagonal.copy()
    scale = np.sqrt(np.minimum(explained, var) / np.maximum(diagonal, 1e-300))
    cov *= scale[:, None] * scale[None]
    diagonal[...] = var
    return cov[..., 0] if model._y_ndim == 1 else cov
