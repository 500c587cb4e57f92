import copy
import hashlib
import os
import warnings

import numpy as np
import pytest
import torch

from skdgp.fitting import target_maps
from skdgp.gp.kernels import as_kernel
from skdgp.gp.likelihoods import Gaussian
from skdgp.inference import DSVI
from skdgp.inference.base import Architecture
from skdgp.preprocessing import warping

# In processes that tests start, threads that wait sleep: there are fewer cores than processes.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# They hold no doctests, and share a name: collected as modules, several folders cannot be tested together.
collect_ignore_glob = ["*/conftest.py"]


@pytest.fixture(autouse=True, scope="module")
def few_draws_of_hidden_functions(request):
    """Where estimators are asked for what does not depend on them: members train with two draws of theirs."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.parent.name in ("estimators", "inspection", "mixture", "preprocessing"):
            patch.setattr("skdgp.inference.collapsed._MOST_DRAWS", 2)
        yield


def _remembered(function):
    """A pure function of arrays, computed once for equal arguments under the same settings of its caller."""
    known = {}

    def call(*args):
        settings = (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.get_num_threads(),
            torch.get_default_dtype(),
            np.geterr(),
            warnings.filters,
        )
        digest = hashlib.sha256(repr(settings).encode())
        for part in map(np.asarray, args):
            digest.update(repr((part.shape, part.dtype.str)).encode() + part.tobytes())
        key = digest.digest()
        if key not in known:
            known[key] = function(*args)
        return copy.deepcopy(known[key])

    return call


@pytest.fixture(autouse=True, scope="session")
def maps_of_equal_rows_are_chosen_once():
    """A second of CPU time for each fit of the same toy data, otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((target_maps, "choose"), (warping, "curvature")):
            patch.setattr(module, name, _remembered(getattr(module, name)))
        yield


@pytest.fixture(autouse=True)
def first_interrupt(monkeypatch):
    """No test is the second one to be interrupted."""
    monkeypatch.setattr("skdgp.training.interrupts._last", -np.inf)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def no_global_randomness():
    """Fails a test in which anything reads or sets a global random state."""
    before, numpy_before = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    yield
    assert torch.equal(torch.get_rng_state(), before)
    now = np.random.get_state()  # noqa: NPY002
    assert now[2:] == numpy_before[2:]
    np.testing.assert_array_equal(now[1], numpy_before[1])


@pytest.fixture(autouse=True)
def randomness_comes_through_arguments(request):
    """In the folders of processes and schemes."""
    if {"gp", "inference"} & set(request.path.parts):
        request.getfixturevalue("no_global_randomness")


@pytest.fixture
def watch(monkeypatch):
    """Note the arguments of all calls of a method.

    Before each call comes one of `look(n, *arguments)`, n = 0, 1, ...; what that returns, if anything, is the
    result of the call.
    """

    def patch(owner, name="step", look=lambda n, *args, **kwargs: None):
        original, calls = getattr(owner, name), []

        def watched(*args, **kwargs):
            calls.append(args)
            found = look(len(calls) - 1, *args, **kwargs)
            return original(*args, **kwargs) if found is None else found

        monkeypatch.setattr(owner, name, watched)
        return calls

    return patch


@pytest.fixture
def kill(watch):
    """Let calls of a method with these numbers fail, by default as if the process were killed."""

    def at(owner, *numbers, name="step", error=None):
        def look(n, *args, **kwargs):
            if n in numbers:
                raise error or RuntimeError("killed")

        return watch(owner, name, look)

    return at


@pytest.fixture
def make_model():
    """A deep GP whose parameters have no special values."""

    def make(
        n_features=2,
        widths=(2,),
        n_latents=1,
        n_inducing=5,
        *,
        kernel="squared_exponential",
        likelihood=None,
        linear_mean=True,
        input_connected=False,
        random_q=True,
        shared_covariance=False,
        seed=0,
        scheme=None,
        **settings,
    ):
        shape = Architecture(
            n_features, widths, n_latents, n_inducing, [], linear_mean, input_connected
        )
        shape.kernels = [as_kernel(kernel).bind(n) for n in shape.layer_inputs()]
        if likelihood is None:
            likelihood = Gaussian(np.full(n_latents, 0.1))
        if scheme is None:
            scheme = DSVI(shared_covariance=shared_covariance, **settings)
        model = scheme.build(shape, likelihood)
        rng = np.random.default_rng(seed)
        with torch.no_grad():
            for layer in model.layers:
                layer.Z.copy_(torch.as_tensor(rng.standard_normal(layer.Z.shape)))
                if layer.W is not None:
                    layer.W.copy_(torch.as_tensor(rng.standard_normal(layer.W.shape)))
                if random_q:
                    layer.q.mean.copy_(torch.as_tensor(rng.standard_normal(layer.q.mean.shape)))
                    root = np.tril(0.3 * rng.standard_normal(layer.q.root.shape), -1)
                    root += 0.7 * np.eye(root.shape[-1])
                    layer.q.root.copy_(torch.as_tensor(root))
        return model

    return make
