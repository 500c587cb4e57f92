import csv
import sys
from pathlib import Path

import numpy as np
import pytest

import skdgp.datasets
from skdgp.datasets import load_cars

TABLE = Path(skdgp.datasets.__file__).parent / "data" / "cars.csv"


def test_arrays_are_numbers_that_a_regressor_takes():
    X, y = load_cars(return_X_y=True)
    assert X.shape == (398, 9) and y.shape == (398,)
    assert X.dtype == y.dtype == np.float64
    assert np.isfinite(X).all() and np.isfinite(y).all()
    # published ranges: miles per gallon, and years 1970 to 1982
    assert y.min() == 9.0 and y.max() == 46.6
    assert X[:, 5].min() == 70 and X[:, 5].max() == 82


def test_each_column_is_that_of_the_file():
    cars = load_cars()
    with TABLE.open() as file:
        rows = list(csv.DictReader(file))
    for name, column in zip(cars.feature_names, cars.data.T):
        if name.startswith("origin_"):
            expected = [float(row["origin"] == name.removeprefix("origin_")) for row in rows]
        else:
            expected = [float(row[name]) if row[name] else 93.5 for row in rows]
        np.testing.assert_array_equal(column, expected, err_msg=name)
    np.testing.assert_array_equal(cars.target, [float(row["mpg"]) for row in rows])
    assert sum(row["horsepower"] == "" for row in rows) == 6
    np.testing.assert_array_equal(cars.data[:, 6:].sum(1), 1.0)
    assert len(cars.car_names) == 398 and cars.car_names[0] == "chevrolet chevelle malibu"


def test_bunch_says_what_it_is():
    cars = load_cars()
    assert cars.frame is None and cars.target_names == ["mpg"]
    assert "CC BY 4.0" in cars.DESCR and "Quinlan" in cars.DESCR
    assert all(name in cars.DESCR for name in cars.feature_names)
    cars.data[:] = 0.0
    assert load_cars().data.max() > 5000  # each call gives arrays of its own


def test_frames_hold_what_is_in_the_file():
    pd = pytest.importorskip("pandas")
    arrays, frames = load_cars(), load_cars(as_frame=True)
    expected = pd.read_csv(TABLE)
    assert frames.feature_names == [*arrays.feature_names[:6], "origin"]
    for name in frames.feature_names[:6]:
        np.testing.assert_array_equal(frames.data[name], expected[name])
    assert frames.data["origin"].dtype == "category"
    assert frames.data["origin"].tolist() == expected["origin"].tolist()
    assert frames.data.isna().sum().sum() == 6
    np.testing.assert_array_equal(frames.target, arrays.target)
    assert frames.target.name == "mpg"
    assert list(frames.frame) == [*frames.feature_names, "mpg"]
    X, y = load_cars(return_X_y=True, as_frame=True)
    pd.testing.assert_frame_equal(X, frames.data)
    pd.testing.assert_series_equal(y, frames.target)


def test_without_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert load_cars().data.shape == (398, 9)
    with pytest.raises(ImportError, match="needs pandas; install it"):
        load_cars(as_frame=True)
