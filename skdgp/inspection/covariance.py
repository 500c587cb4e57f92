"""The posterior covariance of a deep Gaussian process."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator

from ..gp.layer import SparseLayer
from ..gp.units import UnitsLayer
from ..linalg import cholesky
from ._plotting import Display, check_can_plot
from ._responses import heaviest, member_name, unwrap_deep_gp

KINDS = ("correlation", "covariance")


@dataclass(eq=False, repr=False)
class CovarianceDisplay(Display):
    """Posterior covariance of the inducing outputs of all layers.

    One block for each pair of units; within a block, the inducing points follow the first principal
    direction of the inducing inputs of their layer. Blocks off the diagonal tell which units have been
    coupled by the posterior. It is best made by :meth:`from_estimator`.

    Parameters
    ----------
    covariance : ndarray of shape (n_units, n_inducing, n_units, n_inducing)
        Hidden units layer by layer, then the latent functions of the last layer.
    labels : list of str
        Names of the units.
    first_units : list of int
        The number of the first unit of each layer.
    kind : {"correlation", "covariance"}, default="correlation"
        What is plotted.
    name : str, optional
        Name of the model, for the title.

    Attributes
    ----------
    strength : ndarray of shape (n_units, n_units)
        Root mean square of the correlations in each block.
    image_ : matplotlib AxesImage
    colorbar_ : matplotlib Colorbar
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    See Also
    --------
    LayersDisplay : Each layer by itself.

    References
    ----------
    J. Lindinger, D. Reeb, C. Lippert and B. Rakitsch (2020). Beyond the mean-field: structured deep
    Gaussian processes improve the predictive uncertainties. Advances in Neural Information
    Processing Systems 33, figure 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import DeepGPRegressor
    >>> from skdgp.inspection import CovarianceDisplay
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> y = (X[:, 0] > 0.5).astype(float)
    >>> model = DeepGPRegressor(inference="structured", max_iter=100, n_inducing=10, random_state=0)
    >>> display = CovarianceDisplay.from_estimator(model.fit(X, y))
    >>> display.strength.shape
    (3, 3)

    These are the hidden unit, the function, and the size of the noise.
    """

    covariance: np.ndarray
    labels: list
    first_units: list
    _: KW_ONLY
    kind: str = "correlation"
    name: str | None = None

    @property
    def correlation(self) -> np.ndarray:
        """Correlations, of the shape of `covariance`."""
        std = np.sqrt(np.einsum("amam->am", self.covariance))
        return self.covariance / (std[:, :, None, None] * std)

    @property
    def strength(self) -> np.ndarray:
        """Root mean square of the correlations in each block."""
        return np.sqrt(np.square(self.correlation).mean((1, 3)))

    def _plot(self, ax, name, kwargs):
        n_units, n_inducing, *_ = self.covariance.shape
        values = getattr(self, self.kind).reshape(n_units * n_inducing, -1)
        off = values[~np.kron(np.eye(n_units, dtype=bool), np.ones((n_inducing,) * 2, dtype=bool))]
        limit = 1.0
        if self.kind == "covariance":
            limit = np.abs(off).max(initial=0.0) or np.abs(values).max()
        style = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit, "interpolation": "none", **kwargs}
        self.image_ = ax.imshow(values, **style)
        self.colorbar_ = ax.figure.colorbar(self.image_, ax=ax, label=self.kind)
        for unit in range(1, n_units):
            between = unit in self.first_units
            line = {"color": "black", "linewidth": 1.0 if between else 0.3}
            ax.axhline(unit * n_inducing - 0.5, **line)
            ax.axvline(unit * n_inducing - 0.5, **line)
        ticks = (np.arange(n_units) + 0.5) * n_inducing - 0.5
        ax.set_xticks(ticks, self.labels, rotation=90)
        ax.set_yticks(ticks, self.labels)
        ax.tick_params(length=0, labelsize="small")
        if name is not None:
            ax.set_title(name)

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        *,
        kind: str = "correlation",
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the posterior covariance of a fitted deep Gaussian process.

        Parameters
        ----------
        estimator : fitted estimator of skdgp, pipeline or search
            Of a mixture, the member with the largest weight that has inducing inputs is shown.
        kind : {"correlation", "covariance"}, default="correlation"
            What is plotted. The colors of the covariance are scaled to the largest entry that
            couples two units.
        name : str, default=None
            Name in the title; None for that of the member of a mixture.
        ax, **kwargs
            Passed to :meth:`plot`.

        Returns
        -------
        display : CovarianceDisplay

        Raises
        ------
        NotFittedError, ValueError
            If the estimator is not fitted or none of skdgp, or `kind` is unknown.

        Notes
        -----
        The inducing outputs of hidden layers are in units of the standardized inputs, those of the
        last one in units of the standardized target.
        """
        check_can_plot(cls, kwargs, "imshow")
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}; got {kind!r}.")
        model, _ = unwrap_deep_gp(estimator, None, cls.__name__)
        with model._threads():
            what = "the posterior at inducing inputs"
            member, shown = heaviest(model.members_, _has_posterior, cls.__name__, what)
            covariance, labels, first_units = _of_model(shown)
        if name is None and len(model.members_) > 1:
            name = member_name(model, member)
        return cls(covariance, labels, first_units, kind=kind, name=name).plot(ax, **kwargs)


def _has_posterior(model):
    return len(model.layers) > 0 and all(
        isinstance(x, (SparseLayer, UnitsLayer)) for x in model.layers
    )


@torch.no_grad()
def _of_model(model):
    """Covariance, names of the units, and the first unit of each layer."""
    layers, M = model.layers, len(model.layers[0].parts()[0].Z)
    together = getattr(model, "q", None)
    if together is None:
        parts = [part for layer in layers for part in layer.parts()]
        roots = [part.q.root.double().expand(part.n_outputs, -1, -1) for part in parts]
        C = torch.block_diag(*(root for stack in roots for root in stack))
    else:
        C = together.dense_root()
    T, first = len(C) // M, np.cumsum([0, *(layer.n_outputs for layer in layers)])[:-1]
    C = C.view(T, M, T * M)
    rows, labels = [], []
    for i, (layer, start) in enumerate(zip(layers, first), start=1):
        letter, unit = "f" if layer is layers[-1] else "h", start
        for part in layer.parts():
            Z = part.Z
            L, off = cholesky(part.kernel()(Z, Z), part.jitter), Z - Z.mean(0)
            direction = torch.linalg.svd(off, full_matrices=False)[2][0]
            order = torch.argsort(off @ direction, stable=True)
            scales = part.scales()
            for scale in torch.ones(part.n_outputs) if scales is None else scales:
                rows.append(scale * (L @ C[unit])[order])  # of u = m(Z) + scale L v
                labels.append(f"{letter}{unit - start}, layer {i}")
                unit += 1
    root = torch.cat(rows)
    return (root @ root.T).view(T, M, T, M).numpy(), labels, list(first)
