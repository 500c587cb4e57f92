"""Pages of the gallery print what they mean to, and nothing else."""

import ast
import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PAGES = sorted(EXAMPLES.rglob("plot_*.py"))
MEANT = {"print", "plt.show", "diagnose"}  #: calls whose output a page shows


def last_expression(cell):
    """The call with which a cell ends, if its value would be printed."""
    body = ast.parse(cell).body
    if not body or not isinstance(body[-1], ast.Expr) or isinstance(body[-1].value, ast.Constant):
        return None
    value = body[-1].value
    return ast.unparse(value.func) if isinstance(value, ast.Call) else ast.unparse(value)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_cell_ends_with_an_object(page):
    cells = re.split(r"^# %%.*$", page.read_text(), flags=re.MULTILINE)
    shown = [last_expression(cell) for cell in cells]
    assert not [name for name in shown if name and name not in MEANT]


def test_every_page_is_in_a_group():
    assert {page.parent.name for page in PAGES} == {"start", "understand", "advanced"}
    assert all((page.parent / "README.rst").exists() for page in PAGES)
