"""Make the pictures of README.rst from pages of the gallery: ``python docs/pictures.py``.

Each picture keeps a digest of its page, by which a test sees that it is out of date.
"""

import hashlib
import os
import runpy
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
PICTURES = {"layers.png": ("examples/understand/plot_layers.py", 1)}  #: page, number of the figure


def digest(page):
    """Digest of a page's source."""
    return hashlib.sha256((ROOT / page).read_bytes()).hexdigest()


def made_from(picture):
    """Digest of the page that a picture was made from, or None."""
    key = b"tEXtSource\x00"
    data = picture.read_bytes()
    start = data.find(key)
    return None if start < 0 else data[start + len(key) :][:64].decode("latin-1")


def make(name):
    """Run the page of a picture, and save it."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    page, number = PICTURES[name]
    plt.close("all")
    runpy.run_path(str(ROOT / page))
    plt.figure(number).savefig(IMAGES / name, dpi=110, metadata={"Source": digest(page)})


if __name__ == "__main__":
    for name in PICTURES:
        make(name)
        print(IMAGES / name)
