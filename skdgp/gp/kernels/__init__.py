"""Covariance functions.

A kernel object holds plain hyperparameters. ``kernel(X, Z)`` is the matrix of covariances,
``kernel.diag(X)`` its diagonal, ``kernel.features(n, ...)`` a random feature map whose inner
products estimate it. ``kernel.from_gram(G)`` is the matrix of covariances of rows whose inner products are `G`.
"""

from .anova import Anova
from .base import BY_NAME, Kernel, Product, Sum, as_kernel
from .columns import OnColumns
from .indicator import Indicator
from .inner import ArcCosine, Linear
from .periodic import Periodic
from .random_walk import RandomWalk
from .stationary import Matern, RationalQuadratic, SquaredExponential, Stationary
from .warped import Warped

BY_NAME.update(
    anova=Anova,
    squared_exponential=SquaredExponential,
    rbf=SquaredExponential,
    matern12=lambda: Matern(nu=0.5),
    matern32=lambda: Matern(nu=1.5),
    matern52=lambda: Matern(nu=2.5),
    rational_quadratic=RationalQuadratic,
    arc_cosine=ArcCosine,
    linear=Linear,
)

__all__ = [
    "Anova",
    "ArcCosine",
    "Indicator",
    "Kernel",
    "Linear",
    "Matern",
    "OnColumns",
    "Periodic",
    "Product",
    "RandomWalk",
    "RationalQuadratic",
    "SquaredExponential",
    "Stationary",
    "Sum",
    "Warped",
    "as_kernel",
]
