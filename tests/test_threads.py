"""Limits on threads, whoever else has some."""

import threading

from threadpoolctl import threadpool_info, threadpool_limits

from skdgp import SparseGPRegressor
from skdgp._threads import _Limits, at_most


class Library:
    """One that has threads."""

    def __init__(self, num_threads):
        self.num_threads = num_threads

    def set_num_threads(self, n):
        self.num_threads = n


def numbers():
    return [library["num_threads"] for library in threadpool_info()]


def test_limits_end_in_any_order():
    libraries, limits = [Library(8), Library(6)], _Limits()
    found = [limits.enter(libraries, n) for n in (4, 3, 2)]
    assert [library.num_threads for library in libraries] == [2, 2]
    limits.leave(libraries, found[1])  # in the middle
    assert [library.num_threads for library in libraries] == [2, 2]
    limits.leave(libraries, found[0])
    assert [library.num_threads for library in libraries] == [2, 2]
    limits.leave(libraries, found[2])
    assert [library.num_threads for library in libraries] == [8, 6]
    assert not limits.in_force
    outer, inner = (limits.enter(libraries, n) for n in (4, 1))
    limits.leave(libraries, inner)
    assert [library.num_threads for library in libraries] == [4, 4]
    limits.leave(libraries, outer)
    assert [library.num_threads for library in libraries] == [8, 6]


def test_threads_that_overlap():
    """The first one ends first: it must not keep the limit of the second one in force."""
    with threadpool_limits(2):
        before = numbers()
        inside, outside = threading.Event(), threading.Event()

        def second():
            with at_most(1):
                inside.set()
                outside.wait(60)
            numbers_of_second.append(numbers())

        numbers_of_second, thread = [], threading.Thread(target=second)
        with at_most(1):
            assert set(numbers()) == {1}
            thread.start()
            inside.wait(60)
        outside.set()
        thread.join()
        assert numbers() == before
        assert len(numbers_of_second) == 1


def test_fits_leave_threads_as_they_were(monkeypatch):
    X, y, inside = [[0.0], [1.0], [2.0]], [0.0, 1.0, 0.5], []
    monkeypatch.setattr("skdgp._threads.mark_work", lambda: inside.append(set(numbers())))
    with threadpool_limits(2):
        before = numbers()
        model = SparseGPRegressor(max_iter=2, n_inducing=2, n_threads=1).fit(X, y)
        model.predict(X)
        assert inside and all(found == {1} for found in inside)
        assert numbers() == before
