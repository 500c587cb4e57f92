"""Gaussian moments of functions at several rows together, differentiable in the rows."""

import torch

from .components import Rows
from .covariance import latent_moments
from .mixture import Mixture

_N_DRAWS = 128  #: of functions: correlations to .09
_SEED = 0  #: of the function draws that stand for members without a closed form
_TINY = 1e-300


class JointMoments:
    """Mean and covariances of the latent functions within groups of rows.

    The mixture over members and their components has the moments of one Gaussian. Correlations of members
    without closed forms are those of a fixed set of function draws, and their moments row by row are exact.
    Rows `X` (B, q, n_features) are in the user's units, and so are results.
    """

    def __init__(self, predictor):
        self._predictor, self._functions = predictor.differentiable(), {}

    @property
    def n_outputs(self):
        return self._predictor.n_outputs

    def _scale(self, like):
        scaler = self._predictor.y_scaler
        return like.new_tensor(scaler.center), like.new_tensor(scaler.scale)

    def __call__(self, X):
        """Mean (B, q, k) and covariances (B, k, q, q)."""
        predictor, shape = self._predictor, X.shape[:2]
        rows = Rows.of(X.flatten(0, 1), predictor.x_scaler)
        k, device = self.n_outputs, predictor.device

        def by_draws(i, member):
            return self._of_draws(i, member, rows, shape)

        mean, cov = latent_moments(predictor.members, rows, shape, k, device, by_draws)
        center, scale = self._scale(mean)
        return mean * scale + center, cov * scale.square()[:, None, None]

    def noise(self, X):
        """Variance of the noise (B, q, k)."""
        predictor = self._predictor
        mixture = Mixture(
            predictor.members, Rows.of(X.flatten(0, 1), predictor.x_scaler), predictor.device
        )
        _, _, noise = mixture.decomposed_moments()
        return (noise * self._scale(noise)[1]).square().unflatten(0, X.shape[:2])

    def _of_draws(self, i, member, rows, shape):
        """Moments of one member, for a standardized target, with correlations of function draws."""
        posterior, X = member.posterior(self._predictor.device), rows.X
        found = posterior.joint_given_draws(X.unflatten(0, shape))
        if found is not None:
            return _mixed(*found, posterior, member.dispersion, self.n_outputs)
        if i not in self._functions:
            generator = torch.Generator().manual_seed(_SEED + i)
            with torch.no_grad():
                self._functions[i] = posterior.functions(_N_DRAWS, generator)
        f = self._functions[i]
        mean, deviation = f(X)
        values = posterior.likelihood_of(f.components).on_link_scale(mean + deviation)
        values = values[..., : self.n_outputs].unflatten(1, shape)  # S, B, q, k
        off = values - values.mean(0)
        cov = torch.einsum("sbik,sbjk->bkij", off, off)
        alone = Mixture([member], rows, self._predictor.device).latent(self.n_outputs)
        mean, sd = (part.unflatten(0, shape) for part in alone.moments())
        ratio = sd.mT / torch.diagonal(cov, dim1=-2, dim2=-1).clamp_min(_TINY).sqrt()
        return mean, ratio[..., None] * cov * ratio[..., None, :]


def _mixed(weights, means, cov, posterior, dispersion, k):
    """Mean (B, q, k) and covariances (B, k, q, q) of a mixture of Gaussians with a common covariance."""
    means = posterior.likelihood_of().on_link_scale(means[..., :k])
    mean = torch.einsum("s,sbqk->bqk", weights, means)
    between = torch.einsum("s,sbik,sbjk->bkij", weights, means - mean, means - mean)
    return mean, between + dispersion**2 * cov[:k].transpose(0, 1)
