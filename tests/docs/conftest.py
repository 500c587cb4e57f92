import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def html(tmp_path_factory):
    """The rendered documentation: that of SKDGP_HTML, or a fresh build without running the gallery."""
    if os.environ.get("SKDGP_HTML"):
        return Path(os.environ["SKDGP_HTML"])
    for name in ("sphinx_gallery", "numpydoc", "pydata_sphinx_theme"):
        pytest.importorskip(name)
    root = tmp_path_factory.mktemp("docs")  # a copy: a build writes beside its sources
    built = shutil.ignore_patterns("_build", "auto_examples", "generated")
    for folder in ("docs", "examples"):
        shutil.copytree(ROOT / folder, root / folder, ignore=built)
    for file in ROOT.glob("*.rst"):
        shutil.copy(file, root)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    command += ["-D", "plot_gallery=0", root / "docs", root / "html"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return root / "html"
