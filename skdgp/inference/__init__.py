"""Inference schemes: one file or folder for each scheme of the literature."""

from .aep import AEP
from .base import Scheme
from .collapsed import CollapsedVI
from .deep_kernel_process import NNGP, DeepInverseWishart, GlobalInducing
from .dsvi import DSVI
from .elliptical_slice import EllipticalSlice
from .exact import Exact
from .random_features import RandomFeatures
from .sghmc import SGHMC
from .sparse import VFE, PowerEP
from .structured import StructuredVI
from .vecchia import Vecchia

SCHEMES = {
    "aep": AEP,
    "collapsed": CollapsedVI,
    "diwp": DeepInverseWishart,
    "dsvi": DSVI,
    "ess": EllipticalSlice,
    "exact": Exact,
    "global": GlobalInducing,
    "nngp": NNGP,
    "pep": PowerEP,
    "rff": RandomFeatures,
    "sghmc": SGHMC,
    "structured": StructuredVI,
    "vecchia": Vecchia,
    "vfe": VFE,
}

__all__ = [
    "AEP",
    "DSVI",
    "NNGP",
    "SCHEMES",
    "SGHMC",
    "CollapsedVI",
    "DeepInverseWishart",
    "EllipticalSlice",
    "Exact",
    "GlobalInducing",
    "PowerEP",
    "RandomFeatures",
    "VFE",
    "Scheme",
    "StructuredVI",
    "Vecchia",
    "as_scheme",
]


def as_scheme(inference):
    """A scheme object from its name; objects pass through."""
    if isinstance(inference, Scheme):
        return inference
    if isinstance(inference, str):
        if inference not in SCHEMES:
            raise ValueError(
                f"Unknown inference {inference!r}; the names are {sorted(SCHEMES)} and 'auto'."
            )
        return SCHEMES[inference]()
    raise TypeError(
        f"inference must be a string or an object of skdgp.inference; got {inference!r}."
    )
