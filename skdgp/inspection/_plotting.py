"""What all displays need of matplotlib, which is imported no earlier than here."""

try:
    from sklearn.utils._optional_dependencies import check_matplotlib_support
except ImportError:  # a private corner of scikit-learn

    def check_matplotlib_support(caller_name):
        """Raise ImportError if matplotlib is not installed."""
        try:
            import matplotlib  # noqa: F401
        except ImportError as error:
            raise ImportError(
                f"{caller_name} requires matplotlib. You can install matplotlib with "
                "`pip install matplotlib`"
            ) from error


def axes_or_new(ax, display):
    """The axes to plot on."""
    check_matplotlib_support(f"{type(display).__name__}.plot")
    import matplotlib.pyplot as plt

    return plt.subplots()[1] if ax is None else ax


def line_style(kwargs, **defaults):
    """Defaults of a line, overruled by what the user gives under any of matplotlib's names."""
    from matplotlib import cbook, lines

    return {**defaults, **cbook.normalize_kwargs(kwargs, lines.Line2D)}
