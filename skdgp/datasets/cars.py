"""Fuel consumption of cars: the one data set that comes with the package."""

from __future__ import annotations

import csv
from importlib.resources import files
from typing import Any

import numpy as np
from sklearn.utils import Bunch

_NUMBERS = ["cylinders", "displacement", "horsepower", "weight", "acceleration", "model_year"]
_ORIGINS = ["europe", "japan", "usa"]
_DESCR = """\
Fuel consumption of cars (Auto MPG)

398 cars of the model years 1970 to 1982. The target is the fuel economy in miles per US gallon.

cylinders       number of cylinders, 3 to 8
displacement    of the engine, in cubic inches
horsepower      of the engine; unknown for six cars, which have the median of the others, 93.5, in arrays
weight          in pounds
acceleration    seconds from 0 to 60 miles per hour
model_year      last two digits of the year
origin          where the car was made; in arrays origin_europe, origin_japan, origin_usa,
                1 where it was made, else 0

Source: R. Quinlan (1993), Auto MPG, UCI Machine Learning Repository,
https://doi.org/10.24432/C5859H, licensed under CC BY 4.0; from the StatLib library of Carnegie
Mellon University.
"""


def load_cars(*, return_X_y: bool = False, as_frame: bool = False) -> Any:
    """Load the fuel consumption of 398 cars (Auto MPG).

    The task is to predict miles per gallon from what a car is. The answer matters: economy falls with
    weight along a curve, its scatter grows where cars are economical, and a few columns act together.

    In arrays all columns are numbers, so that every regressor takes them as they are: the country of origin
    is three columns of zeros and ones, and the six cars of unknown horsepower have the median of the
    others, 93.5. A frame holds what is in the file: the origin is a category, and the six cells are missing.

    Parameters
    ----------
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a `Bunch`.
    as_frame : bool, default=False
        Return pandas objects. Needs pandas.

    Returns
    -------
    data : Bunch
        With `data`, an ndarray of shape (398, 9) or DataFrame of shape (398, 7), and `target`, miles per US
        gallon, 9 to 46.6; the `frame` of both with ``as_frame=True``, else None; `feature_names`,
        `target_names`, `car_names` (make and model) and `DESCR` (columns and source).
    (data, target) : tuple
        With ``return_X_y=True``.

    Raises
    ------
    ImportError
        If `as_frame` is True and pandas is not installed.

    References
    ----------
    .. [1] R. Quinlan (1993). Auto MPG. UCI Machine Learning Repository,
       https://doi.org/10.24432/C5859H, licensed under CC BY 4.0.

    Examples
    --------
    >>> from skdgp.datasets import load_cars
    >>> X, y = load_cars(return_X_y=True)
    >>> X.shape, y.shape
    ((398, 9), (398,))
    >>> load_cars().feature_names[:4]
    ['cylinders', 'displacement', 'horsepower', 'weight']
    """
    with (files("skdgp.datasets") / "data" / "cars.csv").open(encoding="utf-8") as file:
        cars = list(csv.DictReader(file))
    known = np.array([[float(car[name] or "nan") for name in _NUMBERS] for car in cars])
    origin = np.array([[car["origin"]] for car in cars])
    target, frame = np.array([float(car["mpg"]) for car in cars]), None
    if as_frame:
        try:
            import pandas
        except ImportError as error:
            raise ImportError("load_cars(as_frame=True) needs pandas; install it.") from error
        names = [*_NUMBERS, "origin"]
        frame = pandas.DataFrame(known, columns=_NUMBERS)
        frame["origin"] = pandas.Categorical(origin[:, 0], categories=_ORIGINS)
        frame["mpg"] = target
        data, target = frame[names], frame["mpg"]
    else:
        names = _NUMBERS + [f"origin_{origin}" for origin in _ORIGINS]
        filled = np.where(np.isnan(known), np.nanmedian(known, axis=0), known)
        data = np.hstack([filled, origin == np.array(_ORIGINS)])
    if return_X_y:
        return data, target
    return Bunch(
        data=data,
        target=target,
        frame=frame,
        feature_names=names,
        target_names=["mpg"],
        car_names=np.array([car["name"] for car in cars]),
        DESCR=_DESCR,
    )
