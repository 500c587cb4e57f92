"""How far approximations are from a posterior, and how likely the data are under it."""

import math

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.special import expit, ndtri

_LEVELS = (np.arange(200) + 0.5) / 200.0  #: of quantiles
_COVERAGE = 0.9  #: of the reference's intervals
_POINTS = 2000  #: that stand for a mixture


def compare_posteriors(reference, models, X, inside=None):
    """How far the predictive distributions of models are from those of a reference.

    Compare what has the same kernels, noise and mean functions: then only inference differs. All figures are
    of latent functions, and taken over rows; a reference with several chains gives their errors by the
    jackknife, one chain at a time. A row named ``"reference"`` compares halves of its chains: the
    resolution of the table.

    Parameters
    ----------
    reference : Posterior
        Of a sampler with several chains.
    models : dict of str to Posterior
    X : array-like of shape (n_rows, n_features)
        Rows as the posteriors see them.
    inside : array-like of bool of shape (n_rows,), optional
        Which rows are among the data. The figures are then taken of these and of the others, too.

    Returns
    -------
    comparison : PosteriorComparison

    Examples
    --------
    >>> from skdgp.model_selection.posteriors import PosteriorComparison
    >>> print(PosteriorComparison({"dsvi": {"all": {"mean": (0.2, 0.01)}}}))
    model        rows          mean
    dsvi         all     0.200(10)
    """
    X = torch.as_tensor(np.asarray(X, dtype=np.float64))
    groups = {"all": np.ones(len(X), dtype=bool)}
    if inside is not None:
        inside = np.asarray(inside, dtype=bool)
        groups.update(inside=inside, outside=~inside)
    chains = reference.n_chains
    whole = _components(reference, X)
    parts = np.array_split(np.arange(len(whole[0])), chains)
    halves = parts[: chains // 2], parts[chains // 2 :]
    table = {}
    if chains > 1:
        a, b = (_take(whole, np.concatenate(half)) for half in halves)
        figures = _figures(_Mixture(a), _Mixture(b))
        table["reference"] = {
            g: {name: (_over(v, rows, name), math.nan) for name, v in figures.items()}
            for g, rows in groups.items()
        }
    without = [
        _Mixture(_take(whole, np.concatenate(parts[:c] + parts[c + 1 :])))
        for c in range(chains)
        if chains > 1
    ]
    whole = _Mixture(whole)
    for name, model in models.items():
        other = _Mixture(_components(model, X))
        figures, others = _figures(whole, other), [_figures(w, other) for w in without]
        table[name] = {}
        for g, rows in groups.items():
            values = {}
            for figure, v in figures.items():
                left = np.array([_over(o[figure], rows, figure) for o in others])
                error = math.sqrt((chains - 1) * left.var()) if len(left) else math.nan
                values[figure] = _over(v, rows, figure), error
            table[name][g] = values
    return PosteriorComparison(table)


class PosteriorComparison:
    """A table that prints; `table` maps model, group of rows and figure to value and Monte Carlo error.

    The figures: ``mean`` and ``sd``, root mean squares over rows of the differences of means and of standard
    deviations, in standard deviations of the reference; ``wasserstein``, the same of 2-Wasserstein
    distances; ``coverage``, the probability that 90 % intervals of the reference have under the model.
    """

    def __init__(self, table):
        self.table = table

    def __repr__(self):
        lines = []
        for model, groups in self.table.items():
            for group, figures in groups.items():
                if not lines:
                    lines.append(
                        f"{'model':12s} {'rows':8s}" + "".join(f"{f:>10s}" for f in figures)
                    )
                cells = (_with_error(*pair) for pair in figures.values())
                lines.append(f"{model:12s} {group:8s}" + "".join(f"{c:>10s}" for c in cells))
        return "\n".join(line.rstrip() for line in lines)


def _with_error(value, error):
    """A number with three decimals, and the error of these in parentheses."""
    return f"{value:.3f}" + ("" if math.isnan(error) else f"({round(1000 * error):d})")


def _components(posterior, X):
    log_weights, mean, var = posterior.latent(X)
    weights = log_weights.exp().numpy(force=True)
    return weights, mean.numpy(force=True), var.sqrt().numpy(force=True)


def _take(components, i):
    weights, mean, sd = components
    return weights[i] / weights[i].sum(), mean[i], sd[i]


class _Mixture:
    """Moments, quantiles and points of Gaussian mixtures, one for each row and latent function."""

    def __init__(self, components):
        weights, mean, sd = components
        self.mean = np.tensordot(weights, mean, 1)
        self.sd = np.sqrt(np.tensordot(weights, sd**2 + (mean - self.mean) ** 2, 1))
        n = max(5, _POINTS // len(weights))
        z = ndtri((np.arange(n) + 0.5) / n)
        points = (mean[:, None] + sd[:, None] * z[:, None, None]).reshape(-1, *self.mean.shape)
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


def log_marginal_likelihood(posterior):
    r"""Log marginal likelihood from the states of tempered chains.

    Thermodynamic integration, :math:`\log p(y) = \int_0^1 E_\beta[\log p(y \mid f)] \, d\beta`, over the powers
    of the likelihood that tempering has. Each step between neighboring powers is taken by Bennett's
    acceptance ratio (Bennett, 1976), which has no error of a quadrature rule, not even in the
    last step, to the prior.

    Parameters
    ----------
    posterior : Posterior
        Of :class:`~skdgp.inference.EllipticalSlice`, with states that were kept.

    Returns
    -------
    value, error : float
        In nats, given the hyperparameters if they are fixed; the standard error is from differences of chains.

    Raises
    ------
    ValueError
        If there are no such states.

    References
    ----------
    C. Bennett (1976). Efficient estimation of free energy differences from Monte Carlo data. Journal
    of Computational Physics 22.
    """
    levels = getattr(posterior, "log_likelihoods", None)
    if levels is None:
        raise ValueError(
            "The log marginal likelihood needs states of tempered chains; use EllipticalSlice with "
            "n_tempering of 2 or more, and let it keep some."
        )
    powers, levels = posterior.powers.numpy(force=True), levels.numpy(force=True)
    value = _bennett(levels.reshape(-1, len(powers)), powers)
    chains = [_bennett(chain, powers) for chain in levels]
    return value, float(np.std(chains, ddof=1) / math.sqrt(len(chains))) if len(
        chains
    ) > 1 else math.nan


def _bennett(levels, powers):
    """Sum of log ratios of normalizers from draws (n, T) of log-likelihoods at decreasing powers."""
    total = 0.0
    for t, step in enumerate(powers[:-1] - powers[1:]):
        above, below = step * levels[:, t], step * levels[:, t + 1]

        def excess(c, above=above, below=below):
            return expit(below - c).sum() - expit(c - above).sum()

        finite = np.concatenate([above, below])
        finite = finite[np.isfinite(finite)]
        total += brentq(excess, finite.min() - 50.0, finite.max() + 50.0)
    return total
