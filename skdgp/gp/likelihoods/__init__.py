"""Likelihoods: distributions of targets given latent function values."""

from .base import Likelihood
from .classification import Bernoulli, ClassLikelihood, RobustMax, Softmax
from .counts import NegativeBinomial, Poisson
from .gaussian import Gaussian, HeteroscedasticGaussian
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
    kinds = tuple(kind for kind in by_name.values() if isinstance(kind, type))
    if not isinstance(likelihood, kinds):
        raise ValueError(
            f"{likelihood!r} is not a likelihood for this estimator; the names are {sorted(by_name)}."
        )
    return likelihood
