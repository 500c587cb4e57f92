"""Two million deformed digits, learned by random features from a memory map.

Each row is one of the 60,000 training digits, moved by an affine map and an elastic field (Simard et al.,
2003), as the 8.1 million of Loosli et al. (2007), on which Cutajar et al. (2017) report 99.11 %. The first
60,000 are as they were::

    python benchmarks/deformed.py DATA [ROWS] [STEPS] [SECONDS]
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import data

CHUNK, SIDE = 10_000, 28
TURN, GROWTH, SHIFT = 0.2, 0.12, 0.06  #: radians; shares; half widths of a picture (.8 pixels)
#: pixels over which the field is smooth; half widths (deviation of .75 pixels)
SMOOTH, WAVE = 4.0, 0.055


def deformed(images, rng):
    """Pictures (n, 28, 28) by affine maps and elastic fields of their own, read off between pixels."""
    n = len(images)
    turn, *shear = rng.uniform(-TURN, TURN, (3, n)) * [[1.0], [0.5], [0.5]]
    grow = np.exp(rng.uniform(-GROWTH, GROWTH, (2, n)))
    c, s = np.cos(turn), np.sin(turn)
    maps = np.array([[c * grow[0], -s + shear[0], rng.normal(0.0, SHIFT, n)],
                     [s + shear[1], c * grow[1], rng.normal(0.0, SHIFT, n)]])  # fmt: skip
    theta = torch.tensor(maps.transpose(2, 0, 1), dtype=torch.float32)
    places = torch.arange(SIDE) - torch.arange(SIDE)[:, None]
    smooth = torch.exp(-0.5 * (places / SMOOTH) ** 2)
    smooth = smooth / smooth.norm(dim=1, keepdim=True)  # keeps variances
    noise = torch.tensor(rng.standard_normal((n, 2, SIDE, SIDE), dtype=np.float32))
    field = WAVE * (smooth @ noise @ smooth.T).permute(0, 2, 3, 1)
    grid = torch.nn.functional.affine_grid(theta, (n, 1, SIDE, SIDE), align_corners=False)
    whole = torch.as_tensor(images, dtype=torch.float32)[:, None]
    return torch.nn.functional.grid_sample(whole, grid + field, align_corners=False)[:, 0].numpy()


def write(root, n_rows, file):
    """Memory map of `n_rows` pictures, scaled as by :func:`benchmarks.data.mnist`, and their digits."""
    with data.load(root, "mnist.npz") as archive:
        images, y = archive["X_train"].reshape(-1, SIDE, SIDE), archive["y_train"].astype(int)
    flat = images.reshape(len(images), -1).astype(np.float32)
    center, scale = flat.mean(0), np.sqrt(flat.var(0).mean())
    rng = np.random.default_rng(0)
    source = np.arange(n_rows) % len(y)
    X = np.memmap(file, np.float32, "w+", shape=(n_rows, SIDE**2))
    for at in range(0, n_rows, CHUNK):
        rows = source[at : at + CHUNK]
        pictures = images[rows] if at < len(y) else deformed(images[rows], rng)
        X[at : at + CHUNK] = (pictures.reshape(len(rows), -1) - center) / scale
    X.flush()
    return X, y[source]


def main(root, n_rows=2_000_000, n_steps=8_000, max_time=None):
    from skdgp import DeepGPClassifier
    from skdgp.inference import RandomFeatures

    _, _, X_test, y_test, *_ = data.mnist(root)
    with tempfile.TemporaryFile() as file:
        began = time.process_time()
        X, y = write(root, n_rows, file)
        print(f"{n_rows} rows made in {time.process_time() - began:.0f} CPU seconds", flush=True)
        model = DeepGPClassifier(
            2, width=50, inference=RandomFeatures(500, "variational"), max_iter=n_steps, learning_rate=0.01,
            batch_size=1000, dtype="float32", standardize=False, n_threads=1, random_state=0, max_time=max_time,
        )  # fmt: skip
        began = time.process_time()
        model.fit(X, y)
        seconds = time.process_time() - began
    p = np.concatenate([model.predict_proba(part) for part in np.array_split(X_test, 20)])
    of_truth = p[np.arange(len(p)), np.searchsorted(model.classes_, y_test)]
    accuracy = np.mean(model.classes_[p.argmax(1)] == y_test)
    status = Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"{model.n_iter_} steps in {seconds:.0f} CPU seconds: accuracy {accuracy:.4f}, log-density "
        f"{np.log(of_truth).mean():.4f}; anonymous memory {int(status) // 1024} MB, with the map's "
        f"pages at most {peak // 1024} MB",
        flush=True,
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], *map(int, sys.argv[2:]))
