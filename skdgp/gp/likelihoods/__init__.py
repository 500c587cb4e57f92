"""Likelihoods: distributions of targets given latent function values."""

from .base import Likelihood
from .classification import Bernoulli, ClassLikelihood, RobustMax, Softmax
from .counts import Poisson
from .from_distribution import DistributionLikelihood
from .gaussian import Gaussian, HeteroscedasticGaussian
from .negative_binomial import NegativeBinomial
from .ordinal import Ordinal
from .student_t import HeteroscedasticStudentT, StudentT

REGRESSION = {
    "gaussian": Gaussian,
    "heteroscedastic": HeteroscedasticGaussian,
    "student_t": StudentT,
    "heteroscedastic_student_t": HeteroscedasticStudentT,
    "poisson": Poisson,
    "negative_binomial": NegativeBinomial,
}
CLASSIFICATION = {
    "probit": Bernoulli,
    "logit": lambda: Bernoulli(link="logit"),
    "softmax": Softmax,
    "robustmax": RobustMax,
    "ordinal": Ordinal,
}

__all__ = [
    "Bernoulli",
    "ClassLikelihood",
    "DistributionLikelihood",
    "Gaussian",
    "HeteroscedasticGaussian",
    "HeteroscedasticStudentT",
    "Likelihood",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "RobustMax",
    "Softmax",
    "StudentT",
    "CLASSIFICATION",
    "REGRESSION",
    "as_likelihood",
]


def as_likelihood(likelihood: str | Likelihood, by_name: dict) -> Likelihood:
    """A likelihood object from its name among those `by_name`; objects pass through."""
    if isinstance(likelihood, str):
        if likelihood not in by_name:
            raise ValueError(
                f"Unknown likelihood {likelihood!r} for this estimator; the names are {sorted(by_name)} "
                "and 'auto'."
            )
        return by_name[likelihood]()
    is_class = next(iter(by_name.values()))().is_class
    if not isinstance(likelihood, Likelihood) or likelihood.is_class != is_class:
        raise ValueError(
            f"{likelihood!r} is not a likelihood for this estimator; the names are {sorted(by_name)}, and "
            f"objects are those of skdgp.gp.likelihoods for {'classes' if is_class else 'numbers'}."
        )
    return likelihood
