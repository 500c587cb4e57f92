import numpy as np
import pytest
import torch
from toys import architecture

from skdgp.gp.likelihoods import Gaussian
from skdgp.inference import StructuredVI


@pytest.fixture
def make_structured():
    """A structured deep GP whose parameters have no special values."""

    def make(
        widths=(2, 2),
        coupling="stripes-and-arrow",
        n_latents=1,
        n_inducing=4,
        *,
        kernel="squared_exponential",
        likelihood=None,
        linear_mean=True,
        input_connected=False,
        random_q=True,
        **settings,
    ):
        shape = {"linear_mean": linear_mean, "connected": input_connected}
        shape = architecture(widths, n_latents, n_inducing, kernel, **shape)
        likelihood = Gaussian(np.full(n_latents, 0.1)) if likelihood is None else likelihood
        settings = {"n_warmup": 0, "inner_noise": 0.05, **settings}
        model, rng = (
            StructuredVI(coupling, **settings).build(shape, likelihood),
            np.random.default_rng(0),
        )
        q, T = model.q, len(model.q.mean)
        with torch.no_grad():
            for layer in model.layers:
                for part in (layer.Z, layer.W):
                    if part is not None:
                        part.copy_(torch.as_tensor(rng.standard_normal(part.shape)))
            if random_q:
                q.mean.copy_(torch.as_tensor(rng.standard_normal(q.mean.shape)))
                root = 0.3 * rng.standard_normal(q.root.shape)
                root[:T] = np.tril(root[:T], -1) + 0.7 * np.eye(n_inducing)
                q.root.copy_(torch.as_tensor(root))
        return model

    return make


@pytest.fixture
def set_root():
    """Write a dense factor into the blocks of a posterior."""

    def set_to(q, C):
        T, M = q.mean.shape
        blocks = torch.as_tensor(C).view(T, M, T, M).permute(0, 2, 1, 3)
        rows, columns = np.nonzero(q.slots >= 0)
        with torch.no_grad():
            q.root[q.slots[rows, columns]] = blocks[rows, columns]

    return set_to
