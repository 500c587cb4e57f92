"""What the nearest unique inputs say of rows, by small covariance matrices."""

from typing import NamedTuple

import torch

from ..gp.kernels import Kernel
from ..linalg import cholesky

_LEAST_VARIANCE = 1e-12
_LEAST_REST = 1e-12  #: of the weight of a unique input, without a row of it
_SEVERAL = 2  #: outputs, beyond which it pays to look for those that are alike
_BEYOND_TARGETS = (
    1e200  #: variance of a row of targets, more than they explain, whose root has no meaning
)
_NUGGET = 1e-10  #: of the kernel's variance, beside the noise


class NearRows(NamedTuple):
    """A Gaussian process that sees some unique inputs alone.

    Attributes
    ----------
    kernel : Kernel
    Z : tensor of shape (P, n_features)
        Unique inputs.
    y : tensor of shape (P, n_outputs)
    weight : tensor of shape (P,)
    observed : object
        What the process sees of them, see :class:`GaussianTargets`.
    """

    kernel: Kernel
    Z: torch.Tensor
    y: torch.Tensor
    weight: torch.Tensor
    observed: object

    def say(self, X, nearest, held=None):
        """What the neighbors say of rows, for unit scale.

        Parameters
        ----------
        X : tensor of shape (n, n_features)
        nearest : ndarray of shape (n, k)
        held : pair of tensors of shape (n, k, n_outputs) and (n, k), optional
            Targets and weights of the neighbors, if not all that their unique inputs hold.

        Returns
        -------
        mean, sd : tensors of shape (n, n_outputs)
            Of targets that count once.
        L : tensor of shape (n, n_outputs, k + 1, k + 1)
            Cholesky factors of the covariances of the neighbors and, last, the row.
        z : tensor of shape (n, n_outputs, k)
            Whitened targets of the neighbors.
        """
        points = torch.cat([self.Z[nearest], X[:, None]], 1)
        held = (self.y[nearest], self.weight[nearest]) if held is None else held
        y, noise = self.observed.targets(*held)
        own = self.observed.noise.expand(len(X), -1)
        K = self.kernel.within(points)[:, None]
        # with a free scale only the ratio of noise and kernel counts, and may vanish
        noise = torch.cat([noise, own[..., None]], -1)
        noise = noise + _NUGGET * torch.diagonal(K, dim1=-2, dim2=-1)
        L = cholesky(K + torch.diag_embed(noise), _LEAST_VARIANCE)
        z = whitened(L, y.mT)
        return (L[..., -1, :-1] * z).sum(-1), L[..., -1, -1], L, z

    @torch.no_grad()
    def moments(self, X, nearest):
        """Mean, sd and z of :meth:`say`, from fewer and from single factorizations.

        With a last row of targets a factor whitens them. Outputs whose neighbors all have the same target and
        noise, as classes that none of them is of, share the factor of one that has ones in their place.
        """
        (n, k), n_outputs = nearest.shape, self.y.shape[1]
        y, noise = self.observed.targets(self.y[nearest], self.weight[nearest])
        own = self.observed.noise.expand(n, -1)
        noise = torch.cat([noise.expand(n, -1, -1), own[..., None]], -1).flatten(0, 1)
        y = y.mT.flatten(0, 1)  # one after the other, all outputs of all rows
        which = place = torch.arange(len(y), device=X.device)
        level = y.new_ones(len(y))
        if k and n_outputs > _SEVERAL:
            even = (y == y[:, :1]).all(1)
            first = even.view(n, -1).int().argmax(1) + n_outputs * torch.arange(n, device=X.device)
            first = first.repeat_interleave(n_outputs)
            even &= (noise == noise[first]).all(1)
            which = torch.nonzero(~even | (place == first))[:, 0]
            place = torch.empty_like(place)
            place[which] = torch.arange(len(which), device=X.device)
            place = torch.where(even, place[first], place)
            level = torch.where(even, y[:, 0], 1.0)
            y, noise = torch.where(even[:, None], 1.0, y)[which], noise[which]
        K = self.kernel.within(torch.cat([self.Z[nearest], X[:, None]], 1))
        system = K.new_empty(len(y), k + 2, k + 2)  # the upper triangle counts
        system[:, :-1, :-1] = K if n_outputs == 1 else K[which // n_outputs]
        # with a free scale only the ratio of noise and kernel counts, and may vanish
        diagonal = torch.diagonal(system, dim1=-2, dim2=-1)
        diagonal[:, :-1].mul_(1.0 + _NUGGET).add_(noise).add_(_LEAST_VARIANCE)
        system[:, :k, -1], system[:, k, -1], diagonal[:, -1] = y, 0.0, _BEYOND_TARGETS
        L, info = torch.linalg.cholesky_ex(system.mT)
        if info.any():
            mean, sd, _, z = self.say(X, nearest)
            return mean, sd, z
        z = L[:, -1, :k]
        mean, sd = (L[:, -2, :k] * z).sum(-1), L[:, -2, -2]
        mean, z = level * mean[place], level[:, None] * z[place]
        return tuple(part.unflatten(0, (n, n_outputs)) for part in (mean, sd[place], z))

    def without(self, rows, chosen, search):
        """Each chosen training row given all others that are near.

        Returns
        -------
        y, mean, sd : tensors of shape (n, n_outputs)
        z : tensor of shape (n, n_outputs, k)
            As from :meth:`say`.
        """
        X, y, weight, index, _ = (part[chosen] for part in rows[:5])
        nearest = search.of_rows(rows, chosen)
        # a unique input that holds other targets stays, without one count of the row
        own = torch.as_tensor(nearest, device=X.device) == index[:, None]
        own = own * weight.clamp_max(1.0)[:, None]
        total, y_near = self.weight[nearest], self.y[nearest]
        rest = (total - own).clamp_min(_LEAST_REST * total)
        y_near = y_near + (own / rest)[..., None] * (y_near - y[:, None])
        mean, sd, _, z = self.say(X, nearest, (y_near, rest))
        return y, mean, sd, z


def whitened(L, y):
    """Values at the neighbors, shape (..., k), as standard normal ones."""
    return torch.linalg.solve_triangular(L[..., :-1, :-1], y[..., None], upper=False)[..., 0]


class GaussianTargets:
    """Targets with Gaussian noise.

    Parameters
    ----------
    variance : tensor of shape (n_outputs,)

    Attributes
    ----------
    noise : tensor of shape (n_outputs,)
        Variance of a target that counts once, beside the latent function.
    """

    def __init__(self, variance):
        self.noise = variance

    def targets(self, y, weight):
        """What the process sees of unique inputs, (n, P, n_outputs), and variances (n, n_outputs, P)."""
        return y, self.noise[:, None] / weight[:, None]

    def latents(self, mean, var):
        """Moments of the latent functions from those of the process."""
        return mean, (var - self.noise).clamp_min(_LEAST_VARIANCE)

    def values(self, mean, deviation):
        """The same for means and deviations of draws."""
        return mean, deviation


def size_of_row(n_outputs, n_neighbors):
    """Size of the covariance matrices of a row and its neighbors."""
    return (n_neighbors + 1) ** 2 * n_outputs
