"""What several test files ask fitted estimators."""

import numpy as np
import torch


def latent_mixture(model, X):
    """Latent moments for each draw, in the units of the standardized target."""
    X = torch.as_tensor(model._x_scaler.transform(X))
    draws = torch.as_tensor(model.members_[0].draws)
    mean, var = (part.numpy() for part in model.members_[0].model("cpu").predictive(X, draws))
    assert np.ptp(mean, axis=0).max() > 0.05  # the draws differ
    return mean, var
