"""The layers of a deep Gaussian process."""

from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import Bunch, check_random_state, check_scalar, resample

from .._scoring import column_names
from ..gp.frozen import FrozenLayer
from ..gp.layer import SparseLayer
from ..gp.units import UnitsLayer
from ..inference.random_features.features import FeatureLayer
from ..linalg import cholesky
from ..random import normal
from ._plotting import Display, axis_of_dates, check_can_plot, line_style
from ._responses import heaviest, target_name, unwrap_deep_gp
from ._slices import in_units, slice_along

_WHAT = "the posteriors of layers at inducing inputs"
_ROWS = 1000  #: rows that are pushed through the layers
_FEATURES = 1024  #: random features of a function draw
_AT_ONCE = 64  #: functions; more take much memory


@dataclass(eq=False, repr=False)
class LayersDisplay(Display):
    """The functions of each layer of a deep Gaussian process, and its inducing points.

    One panel for each layer shows the outputs of its units, mean and two standard deviations, along
    a line through the inputs *of this layer*: the first layer along a feature of the data, with the
    others at typical values; later layers along their input if there is one, else along the first
    principal direction of their inputs, through the center of these. The inputs of later layers
    are the rows of the data, pushed through the means of the layers before; ticks at the bottom
    tell where they are. Inducing points are dots at the posterior means of the units. They are
    projected to the line, and lie on the curves only if the layer has one input. It is best made by
    :meth:`from_estimator`.

    Parameters
    ----------
    layers : list of Bunch
        For each layer `x` (n_points,), `mean` and `std` (n_points, n_units), `functions`
        (n_functions, n_points, n_units), `inducing_x` (n_inducing,), `inducing_mean` (n_inducing,
        n_units), `rows_x` (n_rows,), `one_input`: whether the layer has one input, `units`: the
        numbers of the units that are shown, and the labels `x_label`, `y_label`, `unit_labels`.
    name : str, optional
        Name of the model, for the titles.

    Attributes
    ----------
    lines_ : list of list of matplotlib Line2D
        Means, for each layer and unit that is shown.
    bands_ : list of list of matplotlib PolyCollection
    function_lines_ : list of list of matplotlib Line2D
        Draws, for each layer, unit by unit.
    inducing_points_ : list of list of matplotlib PathCollection
    ticks_ : list of matplotlib Line2D
        The rows, for each layer.
    axes_ : ndarray of matplotlib Axes, of shape (n_layers,)
    figure_ : matplotlib Figure

    See Also
    --------
    PredictiveDisplay : What the layers predict together.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import DeepGPRegressor
    >>> from skdgp.inspection import LayersDisplay
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> y = (X[:, 0] > 0.5).astype(float)
    >>> model = DeepGPRegressor(n_layers=3, inference="dsvi", max_iter=50, random_state=0).fit(X, y)
    >>> display = LayersDisplay.from_estimator(model, X)
    >>> len(display.axes_)
    3
    """

    layers: list
    _: KW_ONLY
    name: str | None = None

    @property
    def _n_panels(self):
        return len(self.layers)

    @property
    def _figure(self):
        return {"figsize": (max(4.8, 3.8 * len(self.layers)), 3.6)}

    def _plot(self, axes, name, kwargs):
        self.lines_, self.bands_, self.function_lines_ = [], [], []
        self.inducing_points_, self.ticks_ = [], []
        for i, (layer, ax) in enumerate(zip(self.layers, axes), start=1):
            self._plot_layer(layer, ax, kwargs)
            n_units = layer.mean.shape[1]
            title = f"Layer {i}" if name is None else f"{name}, layer {i}"
            if len(layer.units) < n_units:
                title += f" ({len(layer.units)} of {n_units} units)"
            ax.set(title=title, xlabel=layer.x_label, ylabel=layer.y_label)

    def _plot_layer(self, layer, ax, kwargs):
        lines, bands, functions, points = [], [], [], []
        size, edge = (12, 0.4) if layer.one_input else (6, 0.0)  # a cloud is not to hide the curves
        for unit in layer.units:
            mean, std = layer.mean[:, unit], layer.std[:, unit]
            style = line_style(kwargs, label=layer.unit_labels[unit], zorder=3)
            lines += ax.plot(layer.x, mean, **style)
            color = lines[-1].get_color()
            ends = mean - 2 * std, mean + 2 * std
            bands.append(ax.fill_between(layer.x, *ends, color=color, alpha=0.2, linewidth=0))
            draws = layer.functions[:, :, unit].T
            functions += ax.plot(layer.x, draws, color=color, linewidth=0.6, alpha=0.6)
            style = {"s": size, "color": color, "edgecolor": "black", "linewidth": edge}
            at = layer.inducing_x, layer.inducing_mean[:, unit]
            points.append(ax.scatter(*at, alpha=0.6, zorder=4, **style))
        at, low = layer.rows_x, np.full(len(layer.rows_x), 0.02)
        style = {"color": "black", "alpha": 0.3, "transform": ax.get_xaxis_transform()}
        self.ticks_ += ax.plot(at, low, "|", **style)
        axis_of_dates(ax, layer.x)
        if len(layer.units) > 1:
            ax.legend(fontsize="small")
        self.lines_.append(lines)
        self.bands_.append(bands)
        self.function_lines_.append(functions)
        self.inducing_points_.append(points)

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: ArrayLike,
        *,
        feature: int | str = 0,
        feature_range: tuple[float, float] | None = None,
        n_points: int = 200,
        n_functions: int = 5,
        max_units: int = 4,
        random_state: int | np.random.RandomState | None = 0,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the layers of a fitted deep Gaussian process.

        Parameters
        ----------
        estimator : fitted estimator of skdgp, pipeline or search
            In a pipeline, the features are those that reach the last step.
        X : array-like or DataFrame of shape (n_samples, n_features)
            Rows at which the layers are evaluated; at most 1,000 of them are drawn.
        feature : int or str, default=0
            Position or name of the feature along which the first layer is shown.
        feature_range : tuple of (float, float), default=None
            Where the feature starts and ends; None for its range in `X`.
        n_points : int, default=200
            Number of points along each line.
        n_functions : int, default=5
            Number of draws of each layer's functions, without the noise between layers.
        max_units : int, default=4
            Number of units that a panel shows at most: those whose means vary most along
            the line.
        random_state : int, RandomState instance or None, default=0
            Determines the draws and the rows.
        name : str, default=None
            Name in the titles.
        ax, **kwargs
            Passed to :meth:`plot`.

        Returns
        -------
        display : LayersDisplay

        Raises
        ------
        NotFittedError, ValueError
            If the estimator is not fitted or none of skdgp, or an argument makes no sense.

        Notes
        -----
        The first layer's line is in the units of the feature, the outputs of hidden layers are in
        those of the standardized inputs. The last layer is in the units of the target if there is
        one latent function for each target. Of a mixture, the member with the largest weight is shown that
        has inducing inputs, a deep one before a shallow one.
        """
        check_can_plot(cls, kwargs)
        check_scalar(n_functions, "n_functions", Integral, min_val=0)
        check_scalar(max_units, "max_units", Integral, min_val=1)
        rng = check_random_state(random_state)
        model, X = unwrap_deep_gp(estimator, X, cls.__name__)
        line = slice_along(X, feature, n_points, feature_range, column_names(estimator))
        X = model._check_X(X)
        if len(X) > _ROWS:
            X = resample(X, replace=False, n_samples=_ROWS, random_state=rng)
        scale = model._x_scaler.transform
        with model._threads():
            deep = [member for member in model.members_ if member.architecture.widths]
            if not any(_has_moments(member.model()) for member in deep):
                deep = model.members_
            member, inner = heaviest(deep, _has_moments, cls.__name__, _WHAT)
            layers = _panels(
                inner.layers,
                torch.as_tensor(scale(X)),
                torch.as_tensor(scale(model._check_X(line.rows))),
                n_functions,
                torch.Generator().manual_seed(int(rng.randint(2**31 - 1))),
                max_units,
            )
        _describe_first(layers[0], model, member, X, line)
        _describe_last(layers[-1], model, member)
        return cls(layers, name=name).plot(ax, **kwargs)


def _has_moments(model):
    layers = model.layers
    return len(layers) > 0 and all(
        isinstance(x, (SparseLayer, UnitsLayer, FeatureLayer)) for x in layers
    )


def _whitened(layer, n, generator):
    """Draws (n, M, D) of the whitened inducing variables, where the layer does not make them itself."""
    if not isinstance(layer, SparseLayer) or layer.q.root is not None:
        return None
    mean, excess = layer.q.moments()
    root = cholesky(torch.eye(excess.shape[-1]).to(excess) + excess)
    eps = normal((n, *excess.shape[:2]), generator, excess)
    return mean + (root @ eps[..., None])[..., 0].mT


@torch.no_grad()
def _panels(layers, X, line, n_functions, generator, max_units):
    """The panel of each layer of a Stack, in standardized units, along a `line` for the first."""
    panels, H = [], X
    for layer in layers:
        panel, Z = Bunch(), layer.Z
        if panels:
            H = layers.inputs(H, X)
            line, panel = _principal_line(H, Z, len(line))
            if panel.one_input:
                panel.x_label = f"h0 of layer {len(panels)}"
        mean, var = layer.moments(line)
        draws = [torch.zeros(0, *mean.shape)]
        for first in range(0, n_functions, _AT_ONCE):
            n = min(_AT_ONCE, n_functions - first)
            # without what variances need: coupled layers have no covariances of their own
            still = layer.frozen(*(FrozenLayer,) * isinstance(layer, (SparseLayer, UnitsLayer)))
            f = still.functions(n, _FEATURES, generator, _whitened(layer, n, generator))
            draws.append(sum(f(line.expand(n, *line.shape))))
        panel.update(
            mean=mean.numpy(),
            std=var.clamp_min(0.0).sqrt().numpy(),
            functions=torch.cat(draws).numpy(),
            inducing_mean=layer.moments(Z)[0].numpy(),
            y_label="output",
            units=np.sort(np.argsort(-mean.numpy().std(0), kind="stable")[:max_units]),
            unit_labels=[f"h{i}" for i in range(layer.n_outputs)],
        )
        panels.append(panel)
        H = layer.moments(H)[0]
    return panels


def _principal_line(H, Z, n_points):
    """A line of `n_points` through the inputs `H` of a layer, where they vary most, and its panel.

    The coordinates on it, of its points, `H` and `Z`, are the input itself if there is one, else
    the distance from the center of `H`.
    """
    one_input = H.shape[1] == 1
    if one_input:
        center, direction = torch.zeros_like(H[0]), torch.ones_like(H[0])
    else:
        center = H.mean(0)
        direction = torch.linalg.svd(H - center, full_matrices=False)[2][0]
        direction = direction * direction[direction.abs().argmax()].sign()  # has none of its own
    rows_x, inducing_x = (H - center) @ direction, (Z - center) @ direction
    x = torch.cat([rows_x, inducing_x])
    low, high = float(x.min()), float(x.max())
    margin = 0.05 * (high - low) if high - low > 1e-6 else 1.0  # all may fall on one point
    x = torch.linspace(low - margin, high + margin, n_points, dtype=H.dtype)
    return center + x[:, None] * direction, Bunch(
        x=x.numpy(),
        rows_x=rows_x.numpy(),
        inducing_x=inducing_x.numpy(),
        one_input=one_input,
        x_label="first principal direction of the inputs",
    )


def _describe_first(layer, model, member, X, line):
    """The line of the first layer, in units of the feature."""
    kind = list(model.column_kinds_.values())[line.position]
    inducing = model._x_scaler.inverse_transform(member.inducing_inputs_[0])
    encoder = model._x_scaler.encoder
    own = line.position if encoder is None else np.flatnonzero(encoder.sources == line.position)[0]
    layer.update(
        x=line.grid,
        rows_x=in_units(X[:, line.position], kind),
        inducing_x=in_units(inducing[:, own], kind),
        one_input=X.shape[1] == 1,
        x_label=line.name,
    )


def _describe_last(layer, model, member):
    """Units and labels of the last layer."""
    n_latents, scaler, classes = layer.mean.shape[1], model._y_scaler, is_classifier(model)
    means = slice(len(scaler.scale))  # those latents that the dispersion factor concerns
    layer.std[:, means] *= member.dispersion
    layer.functions[..., means] *= member.dispersion
    layer.functions[..., means] += (1.0 - member.dispersion) * layer.mean[:, means]
    layer.y_label = "latent function"
    layer.unit_labels = [f"f{i}" for i in range(n_latents)]
    if classes and n_latents == len(model.classes_):
        layer.unit_labels = [str(label) for label in model.classes_]
    if n_latents == 1 and not classes:
        name, (mapped,) = target_name(model), scaler.names
        name = name if mapped is None else f"{name} ({mapped})"
        layer.y_label += "" if name == "y" else f" of {name}"
    if n_latents == len(scaler.scale):
        link = member.likelihood_.on_link_scale
        for key in ("mean", "functions", "inducing_mean"):
            f = link(torch.from_numpy(layer[key])).numpy()
            layer[key] = f * scaler.scale + scaler.center
        layer.std = layer.std * scaler.scale
