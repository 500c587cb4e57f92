"""Measures of the pathologies of deep Gaussian processes.

The first four are those of Pascual Diaz (2017), section 4.2.1; collapsed layers are those of Duvenaud
et al. (2014).
"""

from dataclasses import dataclass

import numpy as np
import torch

from ..gp.frozen import FrozenLayer

_TOGETHER = 0.99  #: correlation of inducing inputs that are as good as one
_FAR = np.exp(-4.5)  #: correlation at three lengthscales
_UNUSED = 0.01  #: change of the next layer's correlations that is none
_FAINT = 0.05  #: variance of a unit's mean, relative to its uncertainty, that is none
_ROWS = 200  #: rows that are shuffled to measure the effect of a unit


#: settings that advice may name, and shapes that it may be about
SETTINGS = frozenset(
    "greedy kmeans likelihood learning_rate mean input_connected width n_layers n_inducing inner_scale".split()
)


class PathologyWarning(UserWarning):
    """Warning that a model predicts worse than a simple reference, with the reason."""


@dataclass
class Finding:
    """One figure of one layer, or of a whole model."""

    name: str  #: of the pathology
    layer: int | None  #: from 1; None for the whole model
    measure: str  #: name of the measured quantity
    value: float
    threshold: float  #: beyond which the figure is suspicious
    advice: str
    extreme: float = np.inf  #: beyond which it is to blame if predictions suffer a little

    @property
    def flagged(self):
        """Whether the figure is suspicious."""
        return bool(self.value > self.threshold)

    @property
    def blamed(self):
        """Whether the figure is extreme."""
        return bool(self.value > self.extreme)


def _advice(settable, *options):
    """Sentences of those options (setting, sentence) that can be followed; a setting of None always can."""
    return "; ".join(text for setting, text in options if setting is None or setting in settable)


def _starts(settable):
    """The starts of inducing inputs that can be advised, as an option."""
    names = [repr(name) for name in ("greedy", "kmeans") if name in settable]
    return (None, f"start with init={' or '.join(names)}") if names else ("", "")


def noise_finding(noise, reference, settable=SETTINGS):
    """Data explained by noise, given its mean variance relative to that of the target.

    Here and below, advice names what is `settable`, a set of names.
    """
    share = noise / max(reference.mse, 1e-6) if noise > 0.05 else 0.0
    return Finding(
        "data explained by noise",
        None,
        "variance of the noise / error of a simple reference (0 below a 20th of the target's)",
        float(share),
        1.5,
        _advice(
            settable,
            ("greedy", "start with init='greedy'"),
            ("likelihood", "start with less noise (likelihood=Gaussian(variance=...))"),
            (None, "more steps"),
        ),
    )


def too_few_finding(n_inducing, reference, settable=SETTINGS):
    """Fewer inducing points than a simple reference has effective parameters."""
    more = int(2 * np.ceil(reference.n_effective))
    return Finding(
        "too few inducing points",
        None,
        "effective parameters of a simple reference / inducing points of a layer",
        reference.n_effective / n_inducing,
        1.0,
        _advice(settable, ("n_inducing", f"set n_inducing to {more} or more")),
        extreme=10.0,
    )


@torch.no_grad()
def findings(posterior, X, settable=SETTINGS):
    """Figures of the layers of a posterior at rows `X` (n, d), if all have inducing inputs."""
    layers, X, found = posterior.layers, X.to(torch.float64), []

    def visit(i, layer, H):
        hidden, connected = i < len(layers) - 1, layers.input_connected
        mean, var = layer.moments(H)
        use = _use(layers, i + 1, mean, X) if hidden else None
        found.extend(_inducing(layer, H, i + 1, settable))
        if i == 0 and all(part.q_root is not None for part in layer.parts()):
            found.append(_uncertain(layer, H, mean, use, settable))
        if hidden:
            found.append(_dead(mean, var, use, i + 1, settable))
            if X.shape[1] > 1:
                found.append(_collapsed(H if i == 0 else X, mean, connected, i + 1, settable))
        return mean

    parts = [part for layer in layers for part in layer.parts()]
    if parts and all(isinstance(part, FrozenLayer) for part in parts):
        layers.walk(X, visit)
    return found


def _correlation(kernel, A, B):
    scale = kernel.diag(A).sqrt()[:, None] * kernel.diag(B).sqrt()
    return kernel(A, B) / scale.clamp_min(1e-300)


def _inducing(layer, H, number, settable):
    """Clumped inducing inputs, and those away from the rows; means over units that have their own."""
    shares = []
    for part in layer.parts():
        kernel, Z = part.kernel, part.Z
        among = _correlation(kernel, Z, Z).fill_diagonal_(0.0).amax(1)
        A, k_ff = part.whitened(H)
        rest = float(((k_ff - A.square().sum(0)) / k_ff.clamp_min(1e-300)).quantile(0.95))
        clumped = float((among > _TOGETHER).double().mean())
        away = float((_correlation(kernel, Z, H).amax(1) < _FAR).double().mean())
        # duplicates do no harm where nothing is left over
        shares.append((min(clumped, rest), away))
    clumped, away = np.mean(shares, 0).tolist()
    return [
        Finding(
            "clumped inducing inputs",
            number,
            "share of inducing inputs at the place of another, or variance that all leave over at "
            "5 % of the rows, whichever is less",
            clumped,
            0.1,
            _advice(settable, _starts(settable), (None, "start with a shorter lengthscale")),
            extreme=0.2,
        ),
        Finding(
            "inducing inputs away from the data",
            number,
            "share of inducing inputs that are uncorrelated with all rows",
            away,
            0.25,
            _advice(settable, _starts(settable), ("learning_rate", "a smaller learning_rate")),
            extreme=0.5,
        ),
    ]


def _uncertain(layer, H, mean, use, settable):
    """Inflated variance of the posterior at inducing points."""
    noise = []
    for part in layer.parts():
        A, _ = part.whitened(H)
        of_part = (part.q_root.mT @ A).square().sum(1).mean(1)
        noise.append(part.scaled(of_part, of_part)[1].expand(part.n_outputs))
    noise = torch.cat(noise)
    shares = noise / (noise + mean.var(0, correction=0)).clamp_min(1e-300)
    weights = torch.ones_like(shares) if use is None else use
    value = max(float((weights * shares).sum() / weights.sum().clamp_min(1e-12)), 0.0)
    return Finding(
        "inflated posterior variance",
        1,
        "share of uncertainty at inducing points in the variance that units hand on",
        value,
        0.5,
        _advice(
            settable,
            ("greedy", "start with init='greedy'"),
            ("inner_scale", "set inner_scale=1e-5 of the scheme"),
            (None, "more steps"),
        ),
    )


def _use(layers, i, mean, X):
    """Return the mean change of a layer's correlations if a unit's rows are shuffled, for each unit."""
    mean = mean[:_ROWS]
    H, kernels = layers.inputs(mean, X[:_ROWS]), [part.kernel for part in layers[i].parts()]
    changes = []
    for d in range(mean.shape[1]):
        shuffled = H.clone()
        shuffled[:, d] = H[:, d].roll(len(H) // 2 + 1)
        same = [torch.diagonal(_correlation(kernel, H, shuffled)).mean() for kernel in kernels]
        changes.append(1.0 - torch.stack(same).mean())
    return torch.stack(changes)


def _dead(mean, var, use, number, settable):
    faint = mean.var(0, correction=0) < _FAINT * var.mean(0)
    return Finding(
        "dead hidden units",
        number,
        "share of units that are noise, or that the next layer does not look at",
        float((faint | (use < _UNUSED)).double().mean()),
        0.99,
        _advice(
            settable,
            ("mean", "mean='linear'"),
            ("n_layers", "a smaller n_layers"),
            ("width", "a smaller width"),
            ("greedy", "init='greedy'"),
        ),
    )


def _effective_dimension(H):
    """Participation ratio of the principal variances, between 1 and the number of columns."""
    values = torch.linalg.svdvals(H - H.mean(0)).square()
    return float(values.sum().square() / values.square().sum().clamp_min(1e-300))


def _collapsed(X, mean, connected, number, settable):
    """All inputs on one line, or on fewer than there are."""
    lost = 1.0 - (_effective_dimension(mean) - 1.0) / max(_effective_dimension(X) - 1.0, 1e-12)
    return Finding(
        "collapsed layer",
        number,
        "share of the directions of the inputs that are lost",
        0.0 if connected else min(max(lost, 0.0), 1.0),
        0.9,
        _advice(
            settable,
            ("mean", "mean='linear'"),
            ("input_connected", "input_connected=True"),
            ("width", "a larger width"),
            ("n_layers", "a smaller n_layers"),
        ),
    )
