"""A directive that lists the constants of modules: their names, their values, and the comments beside them."""

import ast
from importlib.util import find_spec
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList


def constants(module):
    """Name, code and comment of each constant of a module, in the order of its source."""
    source = Path(find_spec(module).origin).read_text()
    lines, found = source.splitlines(), []
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and _holds_numbers(node.value):
            names = ast.unparse(node.targets[0]).strip("()").split(", ")
            name = ", ".join(one.removeprefix("_") for one in names)
            if name.isupper():
                found.append((name, ast.unparse(node.value), _comment(lines, node)))
    return found


def _holds_numbers(value):
    """Whether an expression is made of numbers alone."""
    kinds = (ast.BinOp, ast.UnaryOp, ast.Constant, ast.Tuple, ast.List, ast.operator, ast.unaryop)
    parts = [part for part in ast.walk(value) if not isinstance(part, ast.Load)]
    numbers = [part.value for part in parts if isinstance(part, ast.Constant)]
    return all(isinstance(part, kinds) for part in parts) and all(
        isinstance(number, (int, float)) for number in numbers
    )


def _comment(lines, node):
    """The comment ``#:`` beside a constant, or above it."""
    _, beside, text = lines[node.end_lineno - 1].partition("#:")
    if beside:
        return text.strip()
    above, i = [], node.lineno - 2
    while lines[i].startswith("#:"):
        above.insert(0, lines[i].removeprefix("#:").strip())
        i -= 1
    return " ".join(above)


class Constants(Directive):
    """``.. constants:: MODULE ...`` is a table of the constants of modules of skdgp."""

    required_arguments, final_argument_whitespace = 1, True

    def run(self):
        rows = [
            (module, *constant)
            for module in self.arguments[0].split()
            for constant in constants(f"skdgp.{module}")
        ]
        lines = [".. list-table::", "   :header-rows: 1", "   :widths: 30 20 50", ""]
        for name, value, comment in [
            ("constant", "value", "comment"),
            *[(f"``{m}.{name}``", f"``{value}``", comment) for m, name, value, comment in rows],
        ]:
            lines += [f"   * - {name}", f"     - {value}", f"     - {comment}"]
        parent = nodes.Element()
        self.state.nested_parse(StringList(lines), self.content_offset, parent)
        return parent.children


def setup(app):
    app.add_directive("constants", Constants)
    return {"parallel_read_safe": True}
