"""The optimizer, against torch's own class."""

import subprocess
import sys

import pytest
import torch

from skdgp.optim.adam import Adam
from skdgp.random import normal

pytestmark = pytest.mark.usefixtures("no_global_randomness")


def parameters():
    generator = torch.Generator().manual_seed(0)
    double = torch.zeros((), dtype=torch.float64)
    shapes = ((3, 2), (4,), ())
    values = [normal(shape, generator, double) for shape in shapes]
    values[1] = values[1].float()
    return [torch.nn.Parameter(value) for value in values]


def descend(step, parameters, n_steps, first=0):
    for i in range(first, first + n_steps):
        for p in parameters:
            p.grad = None
        loss = sum((p.double() - k).cos().sum() for k, p in enumerate(parameters))
        loss.backward()
        if i % 3 == 1:
            parameters[2].grad = None  # as if it took no part
        step(0.1 / (1 + i))
    return [p.detach().clone() for p in parameters]


def ours(parameters):
    return Adam([(parameters[:2], 1.0), (parameters[2:], 6.0)])


def test_steps_are_those_of_the_class():
    plain = parameters()
    optimizer = torch.optim.Adam(
        [{"params": plain[:2], "factor": 1.0}, {"params": plain[2:], "factor": 6.0}]
    )

    def step(learning_rate):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * group["factor"]
        optimizer.step()

    expected = descend(step, plain, 20)
    found = parameters()
    torch.testing.assert_close(descend(ours(found).step, found, 20), expected)


def test_what_is_remembered_goes_on_elsewhere():
    at_once = parameters()
    expected = descend(ours(at_once).step, at_once, 9)
    first = parameters()
    optimizer = ours(first)
    second = [torch.nn.Parameter(value) for value in descend(optimizer.step, first, 4)]
    again = ours(second)
    for i, slot in enumerate(optimizer.slots):
        for name, value in slot.items():
            again.remember(i, name, value.clone())
    assert all(map(torch.equal, descend(again.step, second, 5, first=4), expected))


def test_a_fit_does_not_wait_for_the_compiler():
    script = (
        "import sys, numpy as np\n"
        "from skdgp import DeepGPRegressor\n"
        "X = np.arange(9.0)[:, None]\n"
        "DeepGPRegressor(inference='dsvi', max_iter=2).fit(X, X[:, 0])\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True)
