"""Memory that fit needs for data that do not fit into memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

#: rows of the memory map; fewer where disk or time are short
N_ROWS = int(float(os.environ.get("SKDGP_MEMORY_ROWS", "3e6")))
N_FEATURES = 20

SCRIPT = """
import json, sys, threading, time
import numpy as np
from skdgp import DeepGPClassifier, DeepGPRegressor

def anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) / 1024.0

peak = 0.0
def watch():
    global peak
    while True:
        peak = max(peak, anonymous())
        time.sleep(0.002)

threading.Thread(target=watch, daemon=True).start()
X = np.memmap("X", np.float32, "r").reshape(-1, 20)
y = np.fromfile("y")  # in memory, as float64
start = anonymous()
model = DeepGPRegressor(max_iter=10, n_inducing=20, batch_size=1000, random_state=0)
model.fit(X, y)
fit, peak = peak, 0.0
std = model.predict(X[:50_000], return_std=True)[1]
print(json.dumps({"start": start, "fit": fit, "predict": peak, "center": model._x_scaler.center.tolist(),
    "scale": model._x_scaler.scale.tolist(), "finite": bool(np.isfinite(std).all()), "total": model._n_rows}))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc")
def test_memory_map_of_many_rows(tmp_path):
    """Three million rows of 20 float32 columns, 230 MB on disk, take less than 160 MB more memory."""
    block = np.random.default_rng(0).standard_normal((100_000, N_FEATURES), np.float32) + 3.0
    X = np.memmap(tmp_path / "X", np.float32, "w+", shape=(N_ROWS, N_FEATURES))
    y = np.memmap(tmp_path / "y", np.float64, "w+", shape=N_ROWS)
    for first in range(0, N_ROWS, len(block)):
        rows = slice(first, min(first + len(block), N_ROWS))
        X[rows] = block[: rows.stop - rows.start]
        y[rows] = np.sin(X[rows, 0])
    X.flush()
    y.flush()
    del X, y
    try:
        result = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            cwd=tmp_path,
            check=True,
            timeout=300,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    finally:
        for name in ("X", "y"):
            (tmp_path / name).unlink()
    seen = json.loads(result.stdout)
    print(f"anonymous memory in MB: {seen['start']:.0f}, {seen['fit']:.0f}, {seen['predict']:.0f}")
    limit = seen["start"] + 0.7 * N_ROWS * N_FEATURES * 4 / 2**20  # no copy of all rows
    assert seen["start"] < seen["fit"] < limit and seen["predict"] < limit
    assert seen["finite"] and seen["total"] == N_ROWS
    if N_ROWS % len(block) == 0:  # every row counts
        np.testing.assert_allclose(seen["center"], block.mean(0, np.float64), atol=1e-6)
        np.testing.assert_allclose(seen["scale"], block.std(0, dtype=np.float64), rtol=1e-3)
