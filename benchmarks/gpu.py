"""A graphics processor beside the CPU: one prepared script of at most five minutes.

Step times of the schemes, a default fit at 10,000 and 50,000 rows, predictions per second, and agreement of
predictions with the CPU to 1e-5. Without a GPU all runs on the CPU, with fewer rows and a sentence. Parts
are dropped, with a sentence, when --seconds are used up.
"""

import copy
import time
from itertools import product

import numpy as np
import torch

from benchmarks import predict, rst, steps
from benchmarks.steps import Shape

BATCHES, INDUCING = (1000, 10_000), (100, 500)
ROWS = (10_000, 50_000)


def run(options):
    """Print all tables."""
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    rows, shapes = options.rows or ROWS, (BATCHES, INDUCING)
    if device == "cpu":
        print("There is no GPU: everything runs on the CPU, and smaller.")
        rows, shapes = options.rows or (2000,), ((1000,), (100,))
    else:
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    start = time.perf_counter()
    print("\nSteps\n")
    step_times(device, shapes, options.steps, start + 0.4 * options.seconds)
    print("\nFits and predictions\n")
    fits(device, rows, start + options.seconds)


def _out_of_time(end, what):
    if time.perf_counter() < end:
        return False
    print(f"No time was left for {what}.")
    return True


def step_times(device, shapes, n_steps, end):
    """Milliseconds of a step of each scheme, in both precisions; on the CPU last, which takes longest."""
    from skdgp import inference

    schemes = {
        "dsvi": inference.DSVI(),
        "rff": inference.RandomFeatures(),
        "structured": inference.StructuredVI(n_warmup=0),
        "aep": inference.AEP(),
        "diwp": inference.DeepInverseWishart(),
        "nngp": inference.NNGP(exact=False),
        "global": inference.GlobalInducing(),
        "sghmc": inference.SGHMC(),
    }
    columns = list(product(dict.fromkeys([device, "cpu"]), steps.DTYPES))
    rows = list(
        product((Shape(batch=b, n_inducing=m) for b in shapes[0] for m in shapes[1]), schemes)
    )
    found = {}
    for (where, dtype), (shape, name) in product(columns, rows):
        if _out_of_time(end, f"steps from {name} on, {shape}, {dtype}, {where}"):
            break
        ms = _step_time(schemes[name], shape, steps.DTYPES[dtype], where, n_steps)
        found[name, shape, where, dtype] = ms
    lines = [[n, str(s), *(found.get((n, s, *c), rst.NOTHING) for c in columns)] for s, n in rows]
    print(rst.table(["scheme", "shape", *(f"{d}, {t} (ms)" for d, t in columns)], lines))


def _step_time(scheme, shape, dtype, device, n_steps):
    try:
        step = steps.step_of(scheme, shape, dtype, device)
        if device == "cpu":  # the large ones take seconds
            n_steps = min(n_steps, 2)
        step()
        wait = torch.cuda.synchronize if device != "cpu" else lambda: None
        wait()
        start = time.perf_counter()
        for _ in range(n_steps):
            step()
        wait()
    except Exception as error:
        return f"{type(error).__name__}"
    return f"{1e3 * (time.perf_counter() - start) / n_steps:.1f}"


def fits(device, sizes, end):
    """Seconds of a default fit, predicted rows a second, and differences to the CPU's predictions."""
    from skdgp import DeepGPRegressor

    X, y = predict.rows(max(sizes) + 10_000)
    new, y_new = X[-10_000:], y[-10_000:]
    lines = []
    for n in sizes:
        if _out_of_time(end, f"a fit of {n:,} rows"):
            break
        left = max(10.0, 0.5 * (end - time.perf_counter()))
        start = time.perf_counter()
        model = DeepGPRegressor(device=device, max_time=left, random_state=0).fit(X[:n], y[:n])
        seconds = time.perf_counter() - start
        model.predict(new[:100])
        start = time.perf_counter()
        mean, std = model.predict(new, return_std=True)
        density = model.log_predictive_density(new, y_new)
        rate = len(new) / (time.perf_counter() - start)
        on_cpu = copy.deepcopy(model).set_params(device="cpu")
        few = slice(0, 1000)
        mean_cpu, std_cpu = on_cpu.predict(new[few], return_std=True)
        gaps = np.abs(mean[few] - mean_cpu) / std_cpu, np.abs(std[few] / std_cpu - 1.0)
        gap = max(part.max() for part in gaps)
        row = [f"{n:,}", f"{seconds:.1f}", f"{density.mean():.3f}", f"{rate:,.0f}", f"{gap:.1e}"]
        lines.append([*row, "yes" if gap <= 1e-5 else "NO"])
    head = ["rows", "fit (s)", "log-density", "rows a second", "from the CPU", "within 1e-5"]
    print(rst.table(head, lines))
