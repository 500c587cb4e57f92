"""Whether the chains of a sampler agree on what they predict; needs ArviZ."""

from dataclasses import dataclass

import numpy as np

from .._scoring import latent_mixture
from ..inference.chains import LARGEST_RHAT, LEAST_SIZE


@dataclass(frozen=True)
class ChainDiagnostics:
    """What :func:`mcmc_diagnostics` finds, for each row and latent function: arrays of shape (n_rows, k).

    Attributes
    ----------
    rhat : ndarray
        Rank-normalized split R-hat: one where chains agree.
    ess_bulk, ess_tail : ndarray
        How many independent draws the states are worth, for means and for 90 % intervals.
    """

    rhat: np.ndarray
    ess_bulk: np.ndarray
    ess_tail: np.ndarray

    @property
    def ok(self):
        """Whether R-hat is at most 1.05 and both sizes are at least 400, everywhere."""
        sizes = min(self.ess_bulk.min(), self.ess_tail.min())
        return bool(self.rhat.max() <= LARGEST_RHAT and sizes >= LEAST_SIZE)

    def __str__(self):
        return (
            f"R-hat up to {self.rhat.max():.3f}; effective sample sizes from {self.ess_bulk.min():.0f} "
            f"(bulk) and {self.ess_tail.min():.0f} (tails)"
        )


def mcmc_diagnostics(estimator, X):
    """Whether the chains of a sampler agree on functions (Vehtari et al., 2021).

    Hidden layers have several foldings that mean the same, so chains are compared by what they predict,
    the latent functions at rows.

    Parameters
    ----------
    estimator : fitted estimator of skdgp, pipeline or search
        With ``inference="sghmc"`` or ``"ess"``.
    X : array-like of shape (n_rows, n_features)
        Rows to look at; twenty are enough. Take some where there are no data.

    Returns
    -------
    diagnostics : ChainDiagnostics

    Raises
    ------
    ImportError
        If ArviZ is not installed.
    ValueError
        If the estimator is no sampler, or a chain has kept fewer than four states.

    References
    ----------
    A. Vehtari, A. Gelman, D. Simpson, B. Carpenter and P.-C. Buerkner (2021). Rank-normalization, folding, and
    localization: an improved R-hat for assessing convergence of MCMC. Bayesian Analysis 16.
    """
    az, means = _arviz(), _means(estimator, X, "mcmc_diagnostics")
    if means.shape[1] < 4:
        raise ValueError("Each chain must have kept at least four states; sample for longer.")
    data = az.convert_to_dataset({"f": means})
    found = az.rhat(data), az.ess(data, method="bulk"), az.ess(data, method="tail")
    return ChainDiagnostics(*(np.asarray(part["f"]) for part in found))


def to_arviz(estimator, X):
    """The states that a sampler has kept as ArviZ's ``InferenceData``, for its trace and rank plots.

    Parameters
    ----------
    estimator : fitted estimator of skdgp, pipeline or search
        With ``inference="sghmc"`` or ``"ess"``.
    X : array-like of shape (n_rows, n_features)

    Returns
    -------
    data : arviz.InferenceData
        Its group ``posterior`` has ``f`` (chain, draw, row, latent): means of the latent functions under each
        state, in units of the target.

    Raises
    ------
    ImportError
        If ArviZ is not installed.
    ValueError
        If the estimator is no sampler.
    """
    means = _means(estimator, X, "to_arviz")
    return _arviz().from_dict(posterior={"f": means}, dims={"f": ["row", "latent"]})


def _means(estimator, X, caller):
    """Means of the latent functions under each state, (n_chains, n_draws, n_rows, k)."""
    mixture = latent_mixture(estimator, X, caller)
    if mixture.n_chains == 0:
        raise ValueError(
            f"{caller} is for samplers, inference='sghmc' or 'ess'; this model has no chains."
        )
    return mixture.mean.reshape(mixture.n_chains, -1, *mixture.mean.shape[1:])


def _arviz():
    try:
        import arviz
    except ImportError as error:
        raise ImportError(
            "Diagnostics of chains need ArviZ; install it with: pip install 'skdgp[mcmc]'."
        ) from error
    return arviz
