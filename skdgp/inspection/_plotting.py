"""Helpers of all displays for matplotlib, which is imported no earlier than here."""

import contextlib
import re
import sys
import textwrap
import threading
from typing import Any, Self

import numpy as np

_LONGEST = 30  #: letters of a line beside a picture; longer ones leave little room for it
_MOST_LINES = 3  #: of a label
_LONGEST_TICK = 15  #: letters of the name of a tick
_LETTER, _POINTS = 0.085, 10.0  #: width in inches, half the height of a line, and size of a letter
_LEAST = 5.0  #: size of the smallest names of ticks, in points
_WRAPPER = textwrap.TextWrapper(_LONGEST)
_WRAPPER.wordsep_re = re.compile(r"(?<=[\s_./-])")  # lines end after these signs, too
_SOON = 2.0  #: seconds after which a display says what takes so long
_SMALLEST_DATA = {"plot": ([0.0], [0.0]), "barh": ([0.0], [0.0]), "imshow": ([[0.0]],)}


def check_matplotlib(caller):
    """Raise ImportError if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"{caller} requires matplotlib. You can install matplotlib with `pip install matplotlib`"
        ) from error


def check_can_plot(display, style, method="plot", caller="from_estimator"):
    """Fail before anything is computed: without matplotlib, or with a keyword that it lacks.

    The user gives `style` to a `method` of matplotlib's axes.
    """
    check_matplotlib(f"{display.__name__}.{caller}")
    from matplotlib.figure import Figure

    if style:
        getattr(Figure().subplots(), method)(*_SMALLEST_DATA[method], **style)


@contextlib.contextmanager
def message_if_slow(display, what):
    """Print on stderr what is computed if it takes longer than two seconds."""
    line = f"{display.__name__}: {what}"
    timer = threading.Timer(_SOON, print, [line], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Display:
    """Base class of displays that have the name of a model."""

    name: str | None
    _n_panels: int | None = None  #: side by side; None for a single one
    _figure: dict = {}  #: settings of a new figure

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> Self:
        """Plot the display.

        Parameters
        ----------
        ax : matplotlib Axes or array-like of these, default=None
            One for each panel; None for a new figure.
        name : str, default=None
            Name of the model in the legend or title; None for the one given before.
        **kwargs : dict
            Passed to :meth:`matplotlib.axes.Axes.plot` for the line, whose color all else takes, or to
            :meth:`matplotlib.axes.Axes.imshow` for an image.

        Returns
        -------
        display : display
            The same one.
        """
        n = self._n_panels or 1
        axes = several_axes(ax, n, self, n, **self._figure)
        self.figure_, name = axes[0].figure, self.name if name is None else name
        if self._n_panels is None:
            (self.ax_,) = axes
            self._plot(self.ax_, name, kwargs)
        else:
            self.axes_ = axes
            self._plot(axes, name, kwargs)
        return self

    def _plot(self, ax, name, kwargs):
        """Plot into one Axes, or into one for each panel."""
        raise NotImplementedError


def several_axes(ax, n, display, n_columns=1, **figure):
    """`n` axes: those of the user, or those of a new figure, which leave room for all labels."""
    check_matplotlib(f"{type(display).__name__}.plot")
    import matplotlib.pyplot as plt

    if ax is not None:
        return check_axes(ax, n)
    n_columns = min(n, n_columns)
    shape = -(-n // n_columns), n_columns
    axes = plt.subplots(*shape, squeeze=False, layout="constrained", **figure)[1].ravel()
    for axis in axes[n:]:
        axis.set_axis_off()
    return axes[:n]


def check_axes(ax, n):
    """Axes in one dimension; raises ValueError if there are not `n` of them."""
    axes = np.atleast_1d(np.asarray(ax, dtype=object)).ravel()
    if len(axes) != n:
        raise ValueError(f"ax must hold one Axes for each of the {n} panels; got {len(axes)}.")
    return axes


def line_style(kwargs, **defaults):
    """Defaults of a line, overruled by what the user gives under any of matplotlib's names."""
    from matplotlib import cbook, lines

    return {**defaults, **cbook.normalize_kwargs(kwargs, lines.Line2D)}


def plot_response(ax, x, mean, bands, labels, alphas, discrete, levels=None, **style):
    """A line with bands around it or, of a column with few values, points with error bars.

    Of `bands`, each of shape (n_points, 2), the widest comes first. Points of a category have the names of
    its `levels`, and are side by side. Returns the Line2D and a list of a PolyCollection, or a LineCollection,
    for each band.
    """
    x = np.arange(len(x)) if levels is not None else np.asarray(x)
    if discrete:
        style = {"linestyle": "none", "marker": "o", **style}
    (line,) = ax.plot(x, mean, **style)
    if discrete:
        numbers = np.asarray(ax.convert_xunits(x), dtype=np.float64)
        gap = np.diff(numbers).min(initial=np.inf) if len(x) > 1 else 1.0
        ax.set_xlim(numbers[0] - 0.5 * gap, numbers[-1] + 0.5 * gap)
        if x.dtype.kind != "M":
            _name_ticks(ax, x, [f"{value:g}" for value in x] if levels is None else levels)
    axis_of_dates(ax, x)
    color, shades = line.get_color(), []
    for i, (band, label, alpha) in enumerate(zip(bands, labels, alphas)):
        if discrete:
            width = 1.5 + 3.0 * i
            shade = ax.vlines(x, *band.T, color=color, linewidth=width, alpha=0.8, label=label)
        else:
            shade = ax.fill_between(x, *band.T, color=color, alpha=alpha, linewidth=0, label=label)
        shades.append(shade)
    return line, shades


def plot_intervals(ax, x, mean, intervals, coverage, discrete=False, **style):
    """A mean with central intervals (n_coverage, n_points, 2), the widest behind.

    It returns the same as :func:`plot_response`.
    """
    wide_first = np.argsort(coverage)[::-1]
    bands = [intervals[i] for i in wide_first]
    labels = [f"{100 * coverage[i]:g}% interval" for i in wide_first]
    alphas = np.linspace(0.18, 0.45, len(wide_first))
    line, shades = plot_response(ax, x, mean, bands, labels, alphas, discrete, **style)
    return line, [shades[i] for i in np.argsort(wide_first)]


def _name_ticks(ax, x, names):
    """Ticks with names, upright and small where they are dense; the densest have none."""
    low, high = ax.get_xlim()
    at = (x - low) / (high - low) * ax.get_window_extent().width / ax.figure.dpi
    names, gap = list(map(_short, names)), np.diff(at).min(initial=np.inf)
    sizes = _LETTER * np.array(list(map(len, names)))
    upright = (np.diff(at) < 0.5 * (sizes[1:] + sizes[:-1]) + _LETTER).any()
    points = (
        float(np.clip(_POINTS * gap / (2.0 * _LETTER), _LEAST, _POINTS)) if upright else _POINTS
    )
    shown, last, needed = [], -np.inf, 2.0 * _LETTER * points / _POINTS if upright else 0.0
    for i in range(len(x)):
        if at[i] - last >= 0.999 * needed:
            shown, last = [*shown, i], at[i]
    style = {"rotation": 90, "fontsize": points} if upright else {}
    ax.set_xticks(x[shown], [names[i] for i in shown], **style)


def _short(name):
    """A name with its beginning and end, if it is long."""
    half = (_LONGEST_TICK - 1) // 2
    return name if len(name) <= _LONGEST_TICK else f"{name[:half]}…{name[-half:]}"


def axis_of_dates(ax, x):
    """Ticks that have room, if the values `x` along an axis are dates."""
    if np.asarray(x).dtype.kind == "M":
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator(minticks=3, maxticks=6)
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def in_lines(name):
    """A name in a few lines, so that it fits beside a picture."""
    lines = _WRAPPER.wrap(str(name))
    if len(lines) > _MOST_LINES:
        lines[1:-1] = ["…"]
    return "\n".join(line.strip() for line in lines)
