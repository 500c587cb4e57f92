"""Probabilities of classes are neither 0 nor 1."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from skdgp import DeepGPClassifier
from skdgp.predictive.categorical import LEAST, Categorical

X = np.linspace(-1.0, 1.0, 40)[:, None]
RANKS = np.arange(40) // 2


@pytest.mark.parametrize(
    ("likelihood", "inference", "y"),
    [
        ("probit", "vecchia", X[:, 0] > 0),
        ("softmax", "dsvi", X[:, 0] > 0),
        ("logit", "vfe", X[:, 0] > 0),
        ("ordinal", "exact", RANKS),
    ],
)
def test_rows_that_count_for_many_leave_other_classes_possible(likelihood, inference, y):
    settings = {"likelihood": likelihood, "inference": inference, "max_iter": 30}
    model = DeepGPClassifier(1, random_state=0, **settings).fit(X, y, np.full(40, 1e10))
    proba = model.predict_proba([*X, [30.0]])
    assert (proba > 0.0).all() and (proba < 1.0).all()
    assert_allclose(proba.sum(1), 1.0, rtol=1e-12)
    wrong = model.log_predictive_density(X, np.roll(y, 20))
    assert (wrong > 1.001 * np.log(LEAST)).all()


def test_other_probabilities_stay():
    class Base:
        def log_probabilities(self):
            return torch.tensor([[0.3, 0.7], [1.0, 0.0]], dtype=torch.float64).log()

    found = Categorical(Base()).probabilities()
    assert_allclose(found[0], [0.3, 0.7], rtol=1e-14)
    assert_allclose(found[1], [1.0 - LEAST, LEAST], rtol=1e-14)
