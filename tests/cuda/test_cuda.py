"""GPUs, emulated: whoever has none sees what would fail there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available() or not torch.__version__.startswith("2.13."),
    reason="there is a GPU, or another torch than the emulation knows",
)


@pytest.mark.parametrize("groups", ["schemes", "mixtures states numerics"])
def test_predictions_are_those_of_the_cpu(groups):
    """In a process of its own, because torch is changed for good."""
    script = Path(__file__).with_name("scenarios.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, script, *groups.split()], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
