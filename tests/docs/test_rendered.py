"""What Sphinx builds without a warning may still be wrong: the pages themselves are looked at."""

import importlib
import inspect
import re
from html.parser import HTMLParser

import pytest

import skdgp

PACKAGES = [
    "skdgp",
    "skdgp.fitting",
    "skdgp.predictive",
    "skdgp.inference",
    "skdgp.gp.kernels",
    "skdgp.gp.likelihoods",
    "skdgp.training",
    "skdgp.exceptions",
    "skdgp.inspection",
    "skdgp.model_selection",
    "skdgp.metrics",
    "skdgp.datasets",
]
REGRESSION = [
    "fit",
    "predict",
    "predict_dist",
    "predict_interval",
    "predict_quantiles",
    "predict_cdf",
    "predict_var",
    "sample_y",
    "log_predictive_density",
    "score",
]
FIDELITIES = ["fit", "predict", "predict_interval", "log_predictive_density", "score"]
CLASSIFICATION = ["fit", "predict", "predict_proba", "predict_log_proba", "sample_y", "score"]


class Tables(HTMLParser):
    """Rows of all tables of a page, and how many lists stand inside of cells."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.lists, self._cell = [], 0, None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        if tag == "table":
            self.tables.append([])
        elif tag == "tr" and self.tables:
            self.tables[-1].append([])
        elif tag in ("td", "th") and self.tables:
            self._cell = []
        elif tag in ("ol", "ul") and self._cell is not None:
            self.lists += 1

    def handle_data(self, data):
        if self._cell is not None:
            self._cell.append(data)

    def handle_endtag(self, tag):
        if tag in ("td", "th") and self._cell is not None:
            self.tables[-1][-1].append("".join(self._cell).strip())
            self._cell = None


def complaints(text):
    """What is wrong with the tables of a page."""
    page = Tables(text)
    found = ["a list inside of a table cell"] * page.lists
    for rows in page.tables:
        header = rows[0]
        found += [f"a header that says nothing: {header}"] * ("." in header or not any(header))
        empty = [row for row in rows[1:] if row and not row[0]]
        found += [f"a row without a first cell: {row}" for row in empty]
    return found


def written_pages(html):
    """Pages written by hand: no source code, no search, no API entries, no gallery."""
    for page in sorted(html.rglob("*.html")):
        name = page.relative_to(html).as_posix()
        if not name.startswith(
            ("_", "generated", "auto_examples", "genindex", "search", "py-modindex")
        ):
            yield name, page.read_text()


def test_tables_say_what_was_written(html):
    wrong = {name: found for name, text in written_pages(html) if (found := complaints(text))}
    assert not wrong
    assert sum(len(Tables(text).tables) for _, text in written_pages(html)) > 25


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ("<tr><th>a</th><th>b</th></tr><tr><td></td><td>text</td></tr>", "without a first cell"),
        ("<tr><th>a</th></tr><tr><td><ol><li>)</li></ol></td></tr>", "a list inside"),
        ("<tr><th>.</th><th>b</th></tr><tr><td>c</td><td>d</td></tr>", "header that says nothing"),
    ],
)
def test_a_broken_table_is_found(table, complaint):
    assert complaint in complaints(f"<table>{table}</table>")[0]
    assert not complaints("<table><tr><th>a</th></tr><tr><td>2014</td></tr></table>")


def test_markup_is_not_left_in_the_text(html):
    for name, text in written_pages(html):
        words = re.sub(r"<(pre|code|script|style)\b.*?</\1>", "", text, flags=re.DOTALL)
        assert not re.search(
            r":(?:ref|doc|class|func|meth):|``|\.\. (?:image|code-block|math)::", words
        ), name


def public_things():
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing) or (inspect.isfunction(thing) and not name.startswith("as_")):
                yield package, name


def test_every_public_thing_has_a_page(html):
    pages = {path.stem for path in (html / "generated").glob("*.html")}
    known = {page.rpartition(".")[2] for page in pages}
    assert not [f"{package}.{name}" for package, name in public_things() if name not in known]


@pytest.mark.parametrize("name", [name for name in skdgp.__all__ if name[0].isupper()])
def test_estimators_have_an_entry_for_each_method(html, name):
    text = (html / "generated" / f"skdgp.{name}.html").read_text()
    methods = CLASSIFICATION if "Classifier" in name else REGRESSION
    methods = FIDELITIES if name == "MultiFidelityRegressor" else methods
    assert not [method for method in methods if f'id="skdgp.{name}.{method}"' not in text]
