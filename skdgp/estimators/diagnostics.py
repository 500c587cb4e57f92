"""Whether a fitted model is worse than it should be, and why."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from .._warnings import warn
from ..gp.likelihoods import Gaussian
from ..inference.chains import LARGEST_RHAT, LEAST_SIZE, rank_rhat, sample_sizes
from ..predictive.mixture import Mixture
from ..training.init import accepts
from ..training.pathologies import PathologyWarning, findings, noise_finding, too_few_finding
from ..training.reference import Reference
from .parameters import settable

ROWS = 1000  #: rows that are looked at
_REFERENCE_ROWS = 500
_FEWEST_ROWS = 30
_FEWEST_STEPS = 100
_SEVERE = 0.4  #: share of the reference's gain over a constant that only pathological models miss
_SEVERE_IF_BLAMED = 0.25  #: the same where an extreme figure is to blame
_LITTLE = 0.1  #: nats per row of gain over a constant, below which the reference is of no use
_CHAIN_ROWS = 20  #: at which chains are compared
_FEWEST_STATES = 10  #: of a chain, below which R-hat tells little
_BEYOND = 2.0  #: how much further from the middle than training rows chains are compared, too
_LIGHT = 0.1  #: weight of a row below which it hardly counts


@dataclass
class Report:
    """The state of one model of a mixture."""

    #: The share of the reference's gain over a constant that the model misses: the gap of their log densities,
    #: less two standard errors, over the gap between the reference and a constant prediction
    missed: float | None
    findings: list

    @property
    def severe(self):
        """Whether predictions suffer."""
        return self.missed is not None and self.missed > limit([self])

    @property
    def causes(self):
        """The suspicious figures."""
        return [finding for finding in self.findings if finding.flagged]


def limit(reports):
    """The share of a reference's gain that pathological models miss; less if there is a clear cause."""
    found = [finding for report in reports for finding in report.findings]
    return _SEVERE_IF_BLAMED if any(finding.blamed for finding in found) else _SEVERE


class Diagnostics:
    """Comparison of members' predictions with a simple reference, at scaled rows `X` and targets `y`.

    The parameters of the `estimator` decide what the reports advise; None is for no reports.
    """

    def __init__(self, members, X, y, device, estimator=None):
        rng = np.random.default_rng(0)
        table = np.unique(np.column_stack([X, y]), axis=0)  # repeated rows would be remembered
        table = table[rng.permutation(len(table))[:ROWS]]
        self.members, self.device, self.estimator = members, device, estimator
        self.X, self.y = table[:, : X.shape[1]], table[:, X.shape[1] :]
        self.X_ref, self.y_ref = self.X[:_REFERENCE_ROWS], self.y[:_REFERENCE_ROWS]
        self.reference = self._expected = None
        if len(self.X) >= _FEWEST_ROWS and np.ptp(self.y_ref) > 0.0:
            self.reference, self._expected, self._constant = _reference(
                members[0].likelihood, self.X_ref, self.y_ref
            )

    @cached_property
    def missed(self):
        """Return the share that the mixture misses; None if the rows are too few or too noisy."""
        return self._missed(self.members)

    def _missed(self, members):
        if self.reference is None or (self._expected - self._constant).mean() < _LITTLE:
            return None
        log_p = Mixture(members, self.X_ref, self.device).log_prob(self.y_ref)
        gap = self._expected - log_p.numpy(force=True)
        gap = np.clip(gap, -20.0, 20.0)  # single rows do not decide
        behind = gap.mean() - 2.0 * gap.std() / np.sqrt(len(gap))
        return float(behind / (self._expected - self._constant).mean())

    def reports(self):
        """A report on each member."""
        return [self._report(member) for member in self.members]

    def _report(self, member):
        X, may = torch.as_tensor(self.X, device=self.device), advisable(self.estimator, member)
        found = findings(member.posterior(self.device), X, may)
        if self.reference is not None:
            if found:  # there are inducing points
                found.append(too_few_finding(member.architecture.n_inducing, self.reference, may))
            found = _noise(member, self.X_ref, self.y_ref, self.device, self.reference, may) + found
        missed = self._missed([member]) if len(self.members) > 1 else self.missed
        return Report(missed, found)


def _reference(likelihood, X, y):
    """A simple model of the rows, its leave-one-out log-densities, and that of a constant."""
    if likelihood.scales_target or (not likelihood.is_class and (y < 0.0).any()):
        reference = Reference(X, y)
        return reference, reference.log_density, reference.constant
    if not likelihood.is_class:  # counts
        counts = likelihood.at_one_exposure(y)
        log, offset = np.log1p(counts), y[:, counts.shape[1] :]
        log_slope = counts.shape[1] * (offset.mean(0) - offset).sum(1) - log.sum(1)
        reference = Reference(X, log)
        return reference, reference.log_density + log_slope, reference.constant + log_slope
    own = (y == np.unique(y)).astype(float)
    reference = Reference(X, own)
    scores = np.clip(reference.mean, 0.02, None)
    expected = np.log((own * scores).sum(1) / scores.sum(1))
    return reference, expected, np.log(own @ own.mean(0))


def _noise(member, X, y, device, reference, may):
    if not member.likelihood.scales_target:
        return []
    posterior = member.posterior(device)
    with torch.no_grad():
        log_weights, mean, var = posterior.latent(torch.as_tensor(X, device=device))
        noise = posterior.likelihood.moments(mean, torch.zeros_like(var))[1].mean(1)
        noise = (log_weights.exp() @ noise).cpu().numpy()
    return [noise_finding(float(np.mean(noise / np.maximum(y.var(0), 1e-12))), reference, may)]


def advisable(estimator, member):
    """Settings that may help, of :data:`~skdgp.training.pathologies.SETTINGS`, and that can be changed."""
    names = settable(estimator, member.scheme)
    for name, best in (("mean", "linear"), ("input_connected", True)):
        if getattr(estimator, name) == best:
            names.discard(name)
    if not member.architecture.widths:
        names -= {"mean", "input_connected", "width", "n_layers"}
    if type(member.likelihood) is not Gaussian:
        names.discard("likelihood")
    if "inner_scale" in member.scheme.get_params() and estimator.inference != "auto":
        names.add("inner_scale")
    if "init" in names and isinstance(estimator.init, str):
        (allowed,) = (
            part for part in estimator._parameter_constraints["init"] if hasattr(part, "options")
        )
        starts = {name for name in ("greedy", "kmeans") if name in allowed.options} - {
            estimator.init
        }
        if not (member.architecture.widths and accepts(member.build(), "greedy")):
            starts.discard("greedy")
        names |= starts
    return names


def warn_of_pathologies(estimator, data, settled):
    """One warning if the predictions of a trained estimator suffer from what can be named.

    Not after few steps, unless training was `settled`: it converged, or made all steps of a default.
    """
    if estimator.n_iter_ < _FEWEST_STEPS and not settled:
        return
    X, y, _ = data.sample(ROWS, np.random.RandomState(0))
    diagnostics = Diagnostics(estimator.members_, X, y, estimator.device_, estimator)
    missed = diagnostics.missed
    if missed is None or missed <= _SEVERE_IF_BLAMED:
        return
    reports = diagnostics.reports()
    if missed <= limit(reports):
        return
    causes = {cause.name: cause for report in reports for cause in report.causes}
    named = "; ".join(
        f"{name} ({cause.advice})" if cause.advice else name for name, cause in causes.items()
    )
    warn(
        f"The model misses {min(missed, 1.0):.0%} of what a simple reference gains over a constant. "
        f"Signs: {named or 'none inside the model; more steps may help'}. "
        "skdgp.inspection.diagnose(model, X, y) tells more.",
        PathologyWarning,
    )


def warn_if_not_learned(members, table, device):
    """One warning if the model does not fit rows that lie where none were before."""
    X, y, _ = table.sample(ROWS, np.random.RandomState(0))
    diagnostics = Diagnostics(members, X, y, device)
    if diagnostics.missed is not None and diagnostics.missed > limit([]):
        warn(
            "Rows of this chunk lie far from those before, and the model has not learned them in one pass; "
            "mix the rows, so that each chunk comes from the whole range, or pass this chunk again.",
            UserWarning,
        )


def warn_of_chains(estimator, data):
    """One warning if chains disagree, or are too short, as by ``mcmc_diagnostics(model, X).ok``."""
    posterior = estimator.members_[0].posterior(estimator.device_)
    if posterior.n_chains == 0 or len(posterior.inflation) < _FEWEST_STATES * posterior.n_chains:
        return
    X, _, _ = data.sample(_CHAIN_ROWS, np.random.RandomState(0))
    rows = np.concatenate([X, X.mean(0) + _BEYOND * (X - X.mean(0))])
    mean = posterior.latent(torch.as_tensor(rows, device=estimator.device_)).mean
    states = mean.unflatten(0, (posterior.n_chains, -1)).numpy(force=True)
    rhat = np.nanmax(rank_rhat(states), initial=1.0)
    size = np.nanmin(sample_sizes(states), initial=np.inf)
    if rhat > LARGEST_RHAT or size < LEAST_SIZE:
        warn(
            f"The chains have not sampled their predictions well, with an R-hat of {rhat:.2f} (at most "
            f"{LARGEST_RHAT} is good) and states worth {size:.0f} independent draws (at least {LEAST_SIZE:.0f} "
            "are); raise max_iter and n_samples, or see skdgp.inspection.mcmc_diagnostics(model, X).",
            ConvergenceWarning,
        )


def warn_if_light(weights):
    """One warning if no rows count for much; light rows beside others that count do no harm."""
    typical = weights @ (weights / weights.sum())
    if typical < _LIGHT:
        warn(
            f"Weights count rows, and those that matter count as {typical:.2g} of a row each, so that little "
            "more than the prior is left. Where only the ratios of weights mean something, scale them to a "
            "mean of one: sample_weight / sample_weight.mean().",
            UserWarning,
        )
