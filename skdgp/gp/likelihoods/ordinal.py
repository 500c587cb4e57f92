"""Classes in an order."""

import numpy as np
import torch
from scipy.special import ndtri

from ..kernels.base import tensor_like
from .classification import POWER_NODES, ClassLikelihood

_NONE = 1e8  #: the threshold below the lowest class, and the one above the highest
_FAR = 1e3  #: standard deviations beyond which nothing is left
_TINY = 1e-12
_START = 1.5  #: standard deviation of a latent function and its noise, from which thresholds start


class Ordinal(ClassLikelihood):
    r"""Classes in an order, such as grades: thresholds on one latent function (ordered probit).

    .. math:: P(y \le r \mid f) = \Phi(t_r - f), \qquad t_1 < t_2 < \dots < t_{C - 1}

    for the rank `r` of the class (McCullagh, 1980; Chu and Ghahramani, 2005). A class far from the most
    probable one is less probable than one close by. The thresholds are learned, and start at the shares of the
    classes.

    Parameters
    ----------
    order : list of labels or None, default=None
        All labels, from the lowest to the highest. None takes that of an ordered categorical target of pandas,
        or of labels that are numbers; others need it. Columns of probabilities are in the order of `classes_`
        anyway, which is sorted.
    odds : float or None, default=None
        The exponential of the lowest threshold :math:`t_1`. None starts from the shares of the classes.
    gap : array of shape (n_classes - 2,) or None, default=None
        The differences of neighboring thresholds, likewise.
    trainable : bool or list of str, default=True
        Whether training changes the thresholds.

    References
    ----------
    P. McCullagh (1980). Regression models for ordinal data. Journal of the Royal Statistical Society B 42.

    W. Chu and Z. Ghahramani (2005). Gaussian processes for ordinal regression. Journal of Machine Learning
    Research 6.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import DeepGPClassifier
    >>> from skdgp.gp.likelihoods import Ordinal
    >>> X = np.linspace(0, 1, 60)[:, None]
    >>> y = np.array(["low", "mid", "high"])[np.digitize(X[:, 0], [0.3, 0.6])]
    >>> likelihood = Ordinal(order=["low", "mid", "high"])
    >>> model = DeepGPClassifier(1, inference="exact", likelihood=likelihood, random_state=0).fit(X, y)
    >>> model.predict([[0.1], [0.9]]).tolist()
    ['low', 'high']
    """

    log_concave = one_function = True
    n_power_nodes = POWER_NODES
    _positive = {"odds": 0.0, "gap": 0.0}
    ranks = None  #: (n_classes,), places in the order of the sorted labels

    def __init__(self, order=None, odds=None, gap=None, trainable=True):
        self.order = order
        self.odds = odds
        self.gap = gap
        self.trainable = trainable

    def for_labels(self, labels, order=None):
        """This likelihood for sorted labels, whose order is the given one, that of the user, or their own.

        Raises
        ------
        ValueError
            If the order is not known, or has other labels.
        """
        order, labels = order if self.order is None else self.order, np.asarray(labels)
        if order is None:
            if labels.dtype.kind not in "biuf":
                raise ValueError(
                    "Ordinal needs the order of labels that are no numbers: pass all of "
                    f"{labels.tolist()} as likelihood=Ordinal(order=[...]), from the lowest to the highest, or "
                    "y as an ordered categorical of pandas."
                )
            return self.with_values(ranks=np.arange(len(labels)))
        places = {label: i for i, label in enumerate(order)}
        lacking = [label for label in labels.tolist() if label not in places]
        if lacking or len(places) < len(order):
            what = f"lacks {lacking}" if lacking else "has a label twice"
            raise ValueError(f"order of Ordinal {what}; got {list(order)!r}.")
        found = np.array([places[label] for label in labels.tolist()])
        return self.with_values(ranks=found.argsort().argsort())

    def check_n_classes(self, n_classes):
        self.trained()  # which refuses settings that are none
        if self.gap is not None and np.shape(self.gap) != (n_classes - 2,):
            raise ValueError(
                f"gap of Ordinal has shape {np.shape(self.gap)}, but {n_classes} classes have "
                f"{n_classes - 1} thresholds, with {n_classes - 2} differences."
            )

    def bind(self, y, weights, scale):
        self = self.resolved()
        n_classes = len(self.ranks)
        counts = np.bincount(self.ranks[y[:, 0].astype(int)], weights, n_classes) + 1.0
        thresholds = _START * ndtri((counts.cumsum() / counts.sum())[:-1])
        odds, gap = np.exp(thresholds[0]), np.diff(thresholds)
        odds = odds if self.odds is None else np.asarray(self.odds, dtype=np.float64)
        gap = gap if self.gap is None else np.asarray(self.gap, dtype=np.float64)
        return self.with_values(odds=odds, gap=gap)

    def _ends(self, y, like):
        """Thresholds below and above classes (..., 1)."""
        odds, gap = tensor_like(self.odds, like), tensor_like(self.gap, like)
        none = gap.new_zeros(*gap.shape[:-1], 1)  # leading dimensions are states of a chain
        inner = odds.log() + torch.cat([none, gap.cumsum(-1)], -1)
        rank = torch.as_tensor(self.ranks, device=like.device)[y[..., 0].long()]
        chosen = torch.nn.functional.one_hot(rank, len(self.ranks)).to(like)
        low, high = torch.cat([none - _NONE, inner], -1), torch.cat([inner, none + _NONE], -1)
        return tuple((chosen * end).sum(-1, keepdim=True) for end in (low, high))

    def _log_share(self, y, m, sd):
        """``log P(y)`` for a latent value that is normal with mean `m`, and `sd`, noise included."""
        low, high = (((end - m) / sd).clamp(-_FAR, _FAR) for end in self._ends(y, m))
        # differences of distribution functions are those of the tails on the side where both are small
        turned = low > -high
        near, far = torch.where(turned, -low, high), torch.where(turned, -high, low)
        log_near, log_far = torch.special.log_ndtr(near), torch.special.log_ndtr(far)
        return log_near + torch.log1p(-torch.exp((log_far - log_near).clamp_max(-_TINY)))

    def log_density(self, y, f):
        return self._log_share(y, f, torch.ones_like(f))

    def log_partition(self, y, m, v, alpha=1.0):
        if alpha == 1.0:
            return self._log_share(y, m, (1.0 + v).sqrt()).sum(-1)
        return super().log_partition(y, m, v, alpha)

    def log_probabilities(self, m, v):
        classes = range(len(self.ranks))
        each = [self.log_partition(torch.full_like(m, c), m, v) for c in classes]
        return torch.stack(each, -1)
