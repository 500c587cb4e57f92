import numpy as np
import pytest
import torch

from skdgp.gp.kernels import as_kernel
from skdgp.gp.likelihoods import Gaussian
from skdgp.inference import StructuredVI
from skdgp.inference.base import Architecture


def fill(layers, rng):
    """Inducing inputs and mean functions without special values."""
    for layer in layers:
        layer.Z.copy_(torch.as_tensor(rng.standard_normal(layer.Z.shape)))
        if layer.W is not None:
            layer.W.copy_(torch.as_tensor(rng.standard_normal(layer.W.shape)))


@pytest.fixture
def make_structured():
    """A structured deep GP whose parameters have no special values."""

    def make(
        widths=(2, 2),
        coupling="stripes-and-arrow",
        n_latents=1,
        n_inducing=4,
        *,
        n_features=2,
        kernel="squared_exponential",
        likelihood=None,
        linear_mean=True,
        input_connected=False,
        random_q=True,
        seed=0,
        n_warmup=0,
        inner_noise=0.05,
        **settings,
    ):
        shape = Architecture(
            n_features, widths, n_latents, n_inducing, [], linear_mean, input_connected
        )
        shape.kernels = [as_kernel(kernel).bind(n) for n in shape.layer_inputs()]
        if likelihood is None:
            likelihood = Gaussian(np.full(n_latents, 0.1))
        settings = {"n_warmup": n_warmup, "inner_noise": inner_noise, **settings}
        model = StructuredVI(coupling, **settings).build(shape, likelihood)
        rng = np.random.default_rng(seed)
        with torch.no_grad():
            fill(model.layers, rng)
            if random_q:
                q = model.q
                q.mean.copy_(torch.as_tensor(rng.standard_normal(q.mean.shape)))
                root = 0.3 * rng.standard_normal(q.root.shape)
                T = len(q.mean)
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
