"""Levels of categories: which cells are the same level, and their order."""

import datetime
from collections import Counter

import numpy as np

from .notations import number

UNSEEN = -1.0  #: code of a level that was not in training
#: of codes among inputs: so small that they are nothing beside others, and exact in single precision, too
UNIT = 2.0**-30


def level_of(value):
    """A level as a plain Python object; 1 and 1.0 are the same, and dates and times are text."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (datetime.date, datetime.time, datetime.timedelta)):
        return str(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def in_order(levels):
    """Levels in an order that depends on their values alone."""
    return sorted(levels, key=lambda level: (isinstance(level, str), level))


def positions(levels):
    """A function from a level to its code, -1 for others.

    The number 1 and texts such as 1 and 1.0 are the same level if only one of them is there.
    """
    exact = {level: float(i) for i, level in enumerate(levels)}
    meant = [_meaning(level) for level in levels]
    once = Counter(meant)
    alike = {one: exact[level] for one, level in zip(meant, levels) if once[one] == 1}

    def find(level):
        code = exact.get(level)
        return alike.get(_meaning(level), UNSEEN) if code is None else code

    return find


def _meaning(level):
    """The number that a level is or says, else its text."""
    if isinstance(level, str):
        said = number(level)
        return level if np.isnan(said) else said
    return str(level) if isinstance(level, bool) else level
