"""A directive that lists the constants of modules: their names, their values, and the comments beside them."""

import ast
from importlib.util import find_spec
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive, directives
from docutils.statemachine import StringList

#: kinds of constants that decide nothing of the default; their comments begin with the kind and a colon
LIMITS = ("memory", "time", "max_time", "rounding", "calendar", "option")


def constants(module):
    """Name, code, kind and comment of each constant of a module, in the order of its source.

    The kind is one of LIMITS, or empty.
    """
    source = Path(find_spec(module).origin).read_text()
    lines, found = source.splitlines(), []
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and _holds_numbers(node.value):
            names = ast.unparse(node.targets[0]).strip("()").split(", ")
            name = ", ".join(one.removeprefix("_") for one in names)
            if name.isupper():
                kind, _, comment = _comment(lines, node).partition(": ")
                if kind not in LIMITS:
                    kind, comment = "", _comment(lines, node)
                found.append((name, ast.unparse(node.value), kind, comment))
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
    """``.. constants:: MODULE ...`` is a table of the constants of modules of skdgp that decide something.

    With the option ``:limits:`` it is a table of the others.
    """

    required_arguments, final_argument_whitespace = 1, True
    option_spec = {"limits": directives.flag}

    def run(self):
        limits = "limits" in self.options
        rows = [("constant", "value", *["kind"] * limits, "comment")]
        for module in self.arguments[0].split():
            for name, value, kind, comment in constants(f"skdgp.{module}"):
                if bool(kind) == limits:
                    row = f"``{module}.{name}``", f"``{value}``", *[kind] * limits, comment
                    rows.append(row)
        widths = "30 20 10 40" if limits else "30 20 50"
        lines = [".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", ""]
        for first, *others in rows:
            lines += [f"   * - {first}", *(f"     - {other}" for other in others)]
        parent = nodes.Element()
        self.state.nested_parse(StringList(lines), self.content_offset, parent)
        return parent.children


def setup(app):
    app.add_directive("constants", Constants)
    return {"parallel_read_safe": True}
