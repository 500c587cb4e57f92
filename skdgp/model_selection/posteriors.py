"""Distances of approximations from a posterior, and the likelihood of the data under it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import expit, ndtri
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from .._scoring import LatentMixture, latent_mixture, take_apart
from ..inference import EllipticalSlice
from ..preprocessing.scaling import Scaling

_LEVELS = (np.arange(200) + 0.5) / 200.0  #: of quantiles
_COVERAGE = 0.9  #: of the reference's intervals
_POINTS = 2000  #: that stand for a mixture
_FEW = 50  #: points of a component, whose tails end at 2.3 standard deviations
_GOLDEN = 0.5 * (5.0**0.5 - 1.0)  #: multiples of it are spread evenly between whole numbers
_IMPOSSIBLE = -1e299  #: log-likelihoods below it are of states without one
_ABOVE = 1e-13  #: relative to a floor, which rounding in other units does not reach
_WIDE = 50.0  #: nats beyond all log-likelihoods, between which a free energy is looked for


def freeze_hyperparameters(estimator: Any) -> dict[str, Any]:
    """Arguments that give other schemes the model of a fitted estimator, with the same hyperparameters.

    Kernels, noise, the scaling of inputs and the map and scaling of targets are those of the fitted model,
    and stay. So the posterior of all such models is the same, and only inference differs. A scheme whose
    posterior follows from hyperparameters alone (``"exact"``, ``"nngp"`` with all rows, and ``"vfe"`` and
    ``"pep"`` with the same inducing inputs) gives the same predictions again, if it is fitted on
    the same rows. The others find a posterior anew, by their own steps, draws and inducing inputs. Settings of
    a scheme, as `inner_noise`, are not among the arguments; ``"vecchia"`` learns which rows are neighbors, and
    its local scale, again.

    Parameters
    ----------
    estimator : fitted estimator of skdgp, pipeline or search
        With a single model.

    Returns
    -------
    settings : dict
        Arguments of the constructor of :class:`~skdgp.DeepGPRegressor` or
        :class:`~skdgp.DeepGPClassifier`: `n_layers`, `width`, `kernel`, `likelihood`, `mean`,
        `input_connected`, `standardize` and, for regressors, `target_transform`. With another
        `target_transform` than "auto", targets are treated as this says.

    Raises
    ------
    ValueError
        If the estimator is a mixture of several models, or has learned of its prior what no argument can
        hold: samples of hyperparameters, random Gram matrices, frequencies, or kernels or
        variances of single units.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import DeepGPRegressor
    >>> from skdgp.model_selection import freeze_hyperparameters
    >>> X = np.linspace(0, 1, 20)[:, None]
    >>> y = np.sin(6 * X[:, 0])
    >>> first = DeepGPRegressor(inference="dsvi", likelihood="gaussian", max_iter=5).fit(X, y)
    >>> settings = freeze_hyperparameters(first)
    >>> model = DeepGPRegressor(inference="aep", max_iter=5, **settings).fit(X, y)
    >>> bool(np.isclose(model.likelihood_.variance, first.likelihood_.variance)[0])
    True
    """
    model, _ = take_apart(estimator)
    check_is_fitted(model)
    if "members_" not in vars(model):
        raise ValueError(
            f"freeze_hyperparameters is for estimators of skdgp; got {type(model).__name__}."
        )
    if len(model.members_) > 1 or model._atoms is not None:
        raise ValueError(
            "freeze_hyperparameters needs a single model; name a scheme, as in inference='dsvi'."
        )
    (member,) = model.members_
    shape = member.architecture
    beyond = member.scheme.beyond_hyperparameters(shape, member.likelihood)
    if beyond is not None:
        raise ValueError(
            f"{type(member.scheme).__name__} has learned {beyond}, which no other model can be given; "
            "freeze a model of another scheme, as 'dsvi'."
        )
    settings = {
        "n_layers": len(shape.widths) + 1,
        "width": None if model.width is None else shape.widths,
        "kernel": [_frozen(kernel).with_values(is_bound=True) for kernel in model.kernels_],
        "likelihood": _frozen(_above_floors(member.likelihood_).in_units(model._y_scaler.scale)),
        "mean": "linear" if shape.linear_mean else "zero",
        "input_connected": shape.input_connected,
        "standardize": Scaling(model._x_scaler, model._y_scaler, model._reader),
    }
    return settings if is_classifier(model) else {**settings, "target_transform": "auto"}


def _frozen(component: Any) -> Any:
    """A kernel or likelihood that is not trained."""
    values = {name: _frozen(getattr(component, name)) for name in component._parts}
    if component._positive:
        values["trainable"] = False
    return component.with_values(**values)


def _above_floors(likelihood: Any) -> Any:
    """A likelihood whose hyperparameters exceed their floors, however they were rounded."""
    floors = likelihood._positive.items()
    return likelihood.with_values(
        **{name: np.maximum(getattr(likelihood, name), (1.0 + _ABOVE) * a) for name, a in floors}
    )


def compare_posteriors(
    reference: Any, models: Mapping[str, Any], X: ArrayLike, inside: ArrayLike | None = None
) -> PosteriorComparison:
    """Compare the predictive distributions of models with those of a reference.

    Compare what has the same kernels, noise and mean functions, see :func:`freeze_hyperparameters`: then only
    inference differs. All figures are of latent functions, and taken over rows; a reference with several
    chains gives their errors by the jackknife, one chain at a time. A row named ``"reference"`` compares
    halves of its chains: the resolution of the table.

    Parameters
    ----------
    reference : fitted estimator of skdgp
        Of a sampler with several chains.
    models : dict of str to fitted estimator of skdgp
    X : array-like of shape (n_rows, n_features)
    inside : array-like of bool of shape (n_rows,), optional
        Which rows are among the data. The figures are then taken of these and of the others, too.

    Returns
    -------
    comparison : PosteriorComparison
        Prints as a table. Its attribute `table` maps model, group of rows and figure to value and error.

    Raises
    ------
    ValueError
        If something is no fitted estimator of skdgp.

    Examples
    --------
    >>> from skdgp.model_selection.posteriors import PosteriorComparison
    >>> print(PosteriorComparison({"dsvi": {"all": {"mean": (0.2, 0.01)}}}))
    model             rows             mean
    dsvi              all         0.200(10)
    """
    whole = latent_mixture(reference, X, "compare_posteriors")
    given = {name: latent_mixture(m, X, "compare_posteriors") for name, m in models.items()}
    groups = {"all": np.ones(whole.mean.shape[1], dtype=bool)}
    if inside is not None:
        among = np.asarray(inside, dtype=bool)
        groups.update(inside=among, outside=~among)
    return compared(whole, given, groups)


def compared(
    whole: LatentMixture, models: Mapping[str, LatentMixture], groups: Mapping[str, np.ndarray]
) -> PosteriorComparison:
    """Compare the latent mixtures of models with that of the reference, over groups of rows."""
    chains = np.split(np.arange(len(whole.weights)), max(1, whole.n_chains))
    table: dict[str, dict[str, dict[str, tuple[float, float]]]] = {}
    without: list[_Mixture] = []
    if len(chains) > 1:
        half = len(chains) // 2
        first, second = (
            _Mixture(whole, np.concatenate(part)) for part in (chains[:half], chains[half:])
        )
        table["reference"] = _row(_figures(first, second), [], groups)
        without = [
            _Mixture(whole, np.concatenate(chains[:c] + chains[c + 1 :]))
            for c in range(len(chains))
        ]
    everything = _Mixture(whole)
    for name, model in models.items():
        other = _Mixture(model)
        figures = _figures(everything, other)
        table[name] = _row(figures, [_figures(part, other) for part in without], groups)
    return PosteriorComparison(table)


def _row(figures, without, groups):
    """Values and errors for each group of rows; `without` has the figures without each chain."""
    row = {}
    for group, rows in groups.items():
        row[group] = {}
        for name, values in figures.items():
            left = np.array([_over(part[name], rows, name) for part in without])
            error = math.sqrt((len(left) - 1) * left.var()) if len(left) else math.nan
            row[group][name] = _over(values, rows, name), error
    return row


class PosteriorComparison:
    """A table that prints; `table` maps model, group of rows and figure to value and Monte Carlo error.

    The figures: ``mean`` and ``sd``, root mean squares over rows of the differences of means and of standard
    deviations, in standard deviations of the reference; ``wasserstein``, the same of 2-Wasserstein
    distances; ``coverage``, the probability that 90 % intervals of the reference have under the model.
    """

    def __init__(self, table: dict[str, dict[str, dict[str, tuple[float, float]]]]) -> None:
        self.table = table

    def __repr__(self) -> str:
        lines: list[str] = []
        for model, groups in self.table.items():
            for group, figures in groups.items():
                if not lines:
                    head = "".join(f"{name:>13s}" for name in figures)
                    lines.append(f"{'model':17s} {'rows':8s}{head}")
                cells = "".join(f"{_with_error(*pair):>13s}" for pair in figures.values())
                lines.append(f"{model:17s} {group:8s}{cells}")
        return "\n".join(line.rstrip() for line in lines)


def _with_error(value: float, error: float) -> str:
    """A number with three decimals, and the error of these in parentheses."""
    return f"{value:.3f}" + ("" if math.isnan(error) else f"({round(1000 * error):d})")


class _Mixture:
    """Moments, quantiles and points of Gaussian mixtures, one for each row and latent function."""

    def __init__(self, mixture, components=slice(None)):
        weights, mean, sd = (part[components] for part in mixture[:3])
        weights = weights / weights.sum()
        self.mean = np.tensordot(weights, mean, 1)
        self.sd = np.sqrt(np.tensordot(weights, sd**2 + (mean - self.mean) ** 2, 1))
        n = max(5, _POINTS // len(weights))
        # where each component has few points, they differ, so that equal components fill each other's gaps
        place = (0.5 + (n < _FEW) * _GOLDEN * np.arange(len(weights))) % 1.0
        z = ndtri((np.arange(n) + place[:, None]) / n)
        points = (mean[:, None] + sd[:, None] * z[..., None, None]).reshape(-1, *self.mean.shape)
        weights, order = np.repeat(weights / n, n), points.argsort(0)
        self.points = np.take_along_axis(points, order, 0)
        self.levels = weights[order].cumsum(0) - 0.5 * weights[order]

    def quantiles(self, levels):
        flat = zip(*(a.reshape(len(a), -1).T for a in (self.levels, self.points)))
        values = np.stack([np.interp(levels, *pair) for pair in flat], -1)
        return values.reshape(len(levels), *self.mean.shape)

    def cdf(self, values):
        flat = zip(values.ravel(), *(a.reshape(len(a), -1).T for a in (self.points, self.levels)))
        found = [np.interp(x, points, levels, 0.0, 1.0) for x, points, levels in flat]
        return np.reshape(found, values.shape)


def _figures(reference, other):
    """Figures of every row and latent function."""
    low, high = reference.quantiles([0.5 - _COVERAGE / 2.0, 0.5 + _COVERAGE / 2.0])
    squares = (reference.quantiles(_LEVELS) - other.quantiles(_LEVELS)) ** 2
    return {
        "mean": (other.mean - reference.mean) / reference.sd,
        "sd": other.sd / reference.sd - 1.0,
        "wasserstein": np.sqrt(squares.mean(0)) / reference.sd,
        "coverage": other.cdf(high) - other.cdf(low),
    }


def _over(values, rows, figure):
    if figure == "coverage":
        return float(values[rows].mean())
    return float(np.sqrt((values[rows] ** 2).mean()))


def log_marginal_likelihood(estimator: Any) -> tuple[float, float]:
    r"""Log marginal likelihood of the training targets, from the states of tempered chains.

    Thermodynamic integration, :math:`\log p(y) = \int_0^1 E_\beta[\log p(y \mid f)] \, d\beta`, over the powers
    of the likelihood that tempering has. Each step between neighboring powers is taken by Bennett's
    acceptance ratio (Bennett, 1976), which has no error of a quadrature rule, not even in the
    last step, to the prior.

    Parameters
    ----------
    estimator : fitted estimator of skdgp, pipeline or search
        With ``inference="ess"``, and states that were kept.

    Returns
    -------
    value, error : float
        In nats, for densities in units of the target, as ``lower_bound_``; given the hyperparameters if these
        are fixed. The standard error is from differences of chains.

    Raises
    ------
    ValueError
        If there are no such states.

    References
    ----------
    C. Bennett (1976). Efficient estimation of free energy differences from Monte Carlo data. Journal
    of Computational Physics 22.
    """
    model, _ = take_apart(estimator)
    check_is_fitted(model)
    levels = None
    if len(model.members_) == 1 and isinstance(model.members_[0].scheme, EllipticalSlice):
        posterior = model.members_[0].posterior()
        levels = posterior.log_likelihoods
    if levels is None:
        raise ValueError(
            "The log marginal likelihood needs states that tempered chains have kept; use inference='ess', "
            "and let it come to the end of its burn-in."
        )
    value, error = free_energy(levels.numpy(force=True), posterior.powers.numpy(force=True))
    return value + model._n_rows * model._log_jacobian, error


def free_energy(levels: np.ndarray, powers: np.ndarray) -> tuple[float, float]:
    """Log of the ratio of normalizers at the first and last power, and its standard error.

    `levels` (n_chains, n_draws, T) are log-likelihoods of draws at each of the decreasing `powers`.
    """
    value = _bennett(levels.reshape(-1, len(powers)), powers)
    if len(levels) == 1:
        return value, math.nan
    of_chains = [_bennett(chain, powers) for chain in levels]
    return value, float(np.std(of_chains, ddof=1) / math.sqrt(len(of_chains)))


def _bennett(levels, powers):
    """Sum of log ratios of normalizers from draws (n, T) of log-likelihoods."""
    total = 0.0
    for t, step in enumerate(powers[:-1] - powers[1:]):
        above, below = step * levels[:, t], step * levels[:, t + 1]

        def excess(c, above=above, below=below):
            return expit(below - c).sum() - expit(c - above).sum()

        possible = np.concatenate([above, below])
        possible = possible[possible > step * _IMPOSSIBLE]
        total += brentq(excess, possible.min() - _WIDE, possible.max() + _WIDE)
    return total
