"""Configuration of Sphinx."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import matplotlib

import skdgp

matplotlib.use("Agg")
sys.path.insert(0, str(Path(__file__).parent))

project = "skdgp"
author = copyright = "the skdgp developers"
version = release = skdgp.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "constants",
]
templates_path = ["templates"]
exclude_patterns = ["_build", "templates"]
default_role = "literal"
autosummary_generate = True
numpydoc_show_class_members = False
autodoc_mock_imports = ["botorch", "gpytorch", "linear_operator"]  # of the extra [botorch]
numpydoc_class_members_toctree = False
# labels and glossary terms of scikit-learn in inherited docstrings
suppress_warnings = ["ref.term", "ref.ref", "config.cache"]

if os.environ.get("SKDGP_DOCS_ONLINE"):  # links to other projects need the network
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "numpy": ("https://numpy.org/doc/stable", None),
        "sklearn": ("https://scikit-learn.org/stable", None),
        "torch": ("https://pytorch.org/docs/stable", None),
    }
    intersphinx_timeout = 5

html_theme = "pydata_sphinx_theme"
html_title = "skdgp"
html_theme_options = {
    "show_prev_next": False,
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
}
html_show_sourcelink = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    # pages that need an extra which is not installed are shown, and do not run
    "filename_pattern": "plot_" if find_spec("botorch") else "plot_(?!botorch)",
    "doc_module": ("skdgp",),
    "backreferences_dir": "generated/backreferences",
    "reference_url": {"skdgp": None},
    "abort_on_example_error": True,
    "reset_modules": ("matplotlib",),
    "remove_config_comments": True,
    "show_memory": False,
    "subsection_order": ["../examples/start", "../examples/understand", "../examples/advanced"],
    "within_subsection_order": "FileNameSortKey",
    "thumbnail_size": (480, 320),
}
