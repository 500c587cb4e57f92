"""Whether the chains of a sampler agree on what they predict; needs ArviZ."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from .._scoring import latent_mixture, take_apart
from ..estimators.exposures import exposed_rows
from ..inference.chains import LARGEST_RHAT, LEAST_SIZE
from ..random import normal


@dataclass(frozen=True)
class ChainDiagnostics:
    """Result of :func:`mcmc_diagnostics` by row and latent function: arrays of shape (n_rows, k).

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
    def ok(self) -> bool:
        """Whether R-hat is at most 1.05 and both sizes are at least 400, everywhere."""
        sizes = min(self.ess_bulk.min(), self.ess_tail.min())
        return bool(self.rhat.max() <= LARGEST_RHAT and sizes >= LEAST_SIZE)

    def __str__(self):
        return (
            f"R-hat up to {self.rhat.max():.3f}; effective sample sizes from {self.ess_bulk.min():.0f} "
            f"(bulk) and {self.ess_tail.min():.0f} (tails)"
        )


def mcmc_diagnostics(estimator: BaseEstimator, X: ArrayLike) -> ChainDiagnostics:
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
    az, mixture = _arviz(), _mixture(estimator, X, "mcmc_diagnostics")
    means = mixture.mean.reshape(mixture.n_chains, -1, *mixture.mean.shape[1:])
    if means.shape[1] < 4:
        raise ValueError("Each chain must have kept at least four states; sample for longer.")
    data = az.convert_to_dataset({"f": means})
    found = az.rhat(data), az.ess(data, method="bulk"), az.ess(data, method="tail")
    return ChainDiagnostics(*(np.asarray(part["f"]) for part in found))


def to_arviz(
    estimator: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike | None = None,
    random_state: int | np.random.RandomState | None = 0,
    *,
    exposure: ArrayLike | None = None,
) -> Any:
    """The states that a sampler has kept as ArviZ's ``InferenceData``, for its plots and comparisons.

    Parameters
    ----------
    estimator : fitted estimator of skdgp, pipeline or search
        With ``inference="sghmc"`` or ``"ess"``.
    X : array-like of shape (n_rows, n_features)
    y : array-like of shape (n_rows,) or (n_rows, n_outputs), optional
        Targets, for the log likelihood.
    random_state : int, default=0
        Seed of the predictive draws.
    exposure : array-like of shape (n_rows,), optional
        Of counts, as in ``predict``; one of each by default. Latent functions are those of one.

    Returns
    -------
    data : arviz.InferenceData
        ``posterior`` has ``f`` (chain, draw, row, latent), means of the latent functions under each state in
        units of the target, and those hyperparameters that were sampled, in standardized units.
        ``posterior_predictive`` has a draw of ``y`` (chain, draw, row, output) from each state, of
        classes their positions in ``classes_``. With `y`, ``log_likelihood`` has the log density of each row
        under each state, in units of the target, and ``observed_data`` the targets. For ``arviz.loo``
        (PSIS-LOO), give training rows, of ``"sghmc"`` or of ``"ess"`` under noise that is not Gaussian: with
        Gaussian noise the last layer of ``"ess"`` is integrated out, and rows depend on each other given a
        state.

    Raises
    ------
    ImportError
        If ArviZ is not installed.
    ValueError
        If the estimator is no sampler, or has no rates for exposures.
    """
    az, mixture = _arviz(), _mixture(estimator, X, "to_arviz")
    groups = {"posterior": {"f": mixture.mean}, "posterior_predictive": {}, "log_likelihood": {}}
    if mixture.posterior is not None:
        groups["posterior"].update(
            (name, value.numpy(force=True))
            for name, value in mixture.posterior.hyperparameters.items()
        )
        model, rows = take_apart(estimator, X)
        groups["posterior_predictive"], groups["log_likelihood"] = _of_targets(
            model, rows, y, mixture.posterior, random_state, exposure
        )
    by_chain = {
        group: {
            name: np.reshape(part, (mixture.n_chains, -1, *np.shape(part)[1:]))
            for name, part in parts.items()
        }
        for group, parts in groups.items()
        if parts
    }
    observed = None if y is None else {"y": np.asarray(y)}
    return az.from_dict(**by_chain, observed_data=observed, dims={"f": ["row", "latent"]})


def _of_targets(model, X, y, posterior, seed, exposure):
    """A draw of targets from each state, and log densities of given ones."""
    rows, offset = exposed_rows(model, X, exposure, "warn" if y is None else "raise")
    rows = model._x_scaler.transform(rows)
    _, mean, var = posterior.latent(torch.as_tensor(rows, device=model._prediction_device()))
    if offset is not None:
        mean = mean + torch.as_tensor(offset).to(mean)
    likelihood, scaler = posterior.likelihood_of().for_prediction(1), model._y_scaler
    generator = torch.Generator().manual_seed(seed)
    f = mean + var.sqrt() * normal(mean.shape, generator, mean)
    draws = scaler.inverse(likelihood.sample(f, generator).numpy(force=True))
    if y is None:
        return {"y": draws}, {}
    y = model._check_y(X, y)
    targets = torch.as_tensor(scaler.transform(y)).to(mean)
    log_density = likelihood.log_partition(targets, mean, var).numpy(force=True)
    return {"y": draws}, {"y": log_density + scaler.log_jacobian(y)}


def _mixture(estimator, X, caller):
    mixture = latent_mixture(estimator, X, caller)
    if mixture.n_chains == 0:
        raise ValueError(
            f"{caller} is for samplers, inference='sghmc' or 'ess'; this model has no chains."
        )
    return mixture


def _arviz():
    try:
        import arviz
    except ImportError as error:
        raise ImportError(
            "Diagnostics of chains need ArviZ; install it with: pip install 'skdgp[mcmc]'."
        ) from error
    return arviz
