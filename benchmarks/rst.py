"""Tables in reStructuredText."""

NOTHING = "\N{EN DASH}"  #: in place of a number that there is not


def table(head, rows):
    """A simple table; all cells but the first of a row are aligned to the right."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(2, *map(len, column)) for column in zip(head, *rows)]
    rule = "  ".join("=" * width for width in widths)

    def line(cells):
        first, *rest = cells
        parts = [(first or "..").ljust(widths[0])] + [c.rjust(w) for c, w in zip(rest, widths[1:])]
        return "  ".join(parts).rstrip()

    return "\n".join([rule, line(head), rule, *map(line, rows), rule])


def heading(text, mark="-"):
    """A heading."""
    return f"{text}\n{mark * len(text)}\n"
