"""README's pictures are those of the pages they come from."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("pictures", ROOT / "docs" / "pictures.py")
pictures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(pictures)


def test_readme_shows_known_pictures():
    shown = re.findall(r"image:: docs/images/(\S+)", (ROOT / "README.rst").read_text())
    assert shown
    assert set(shown) <= set(pictures.PICTURES)


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_is_as_new_as_its_page(name):
    page, _ = pictures.PICTURES[name]
    assert pictures.made_from(pictures.IMAGES / name) == pictures.digest(page), (
        f"{page} has changed; run python docs/pictures.py"
    )
