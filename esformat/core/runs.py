# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The runs to which rows belong."""

import array as arrays
from typing import Any

import cython
from cython.cimports.cpython import array

_LONGS = cython.declare(array.array, arrays.array("q"))


def runs_at(
    starts: cython.const[cython.longlong][::1],
    runs: cython.const[cython.longlong][::1],
    places: cython.const[cython.longlong][::1],
) -> Any:
    """The run at each of ascending places, as an array of int64. Raises ValueError for a place before the first run.

    starts: the places at which runs begin, ascending from 0.
    """
    count: cython.Py_ssize_t = starts.shape[0]
    if not count or count != runs.shape[0] or (places.shape[0] and places[0] < starts[0]):
        raise ValueError("a row is outside of the runs")
    found: array.array = array.clone(_LONGS, places.shape[0], False)
    out: cython.p_longlong = found.data.as_longlongs
    at: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    with cython.nogil:
        for i in range(places.shape[0]):
            while at + 1 < count and starts[at + 1] <= places[i]:
                at += 1
            out[i] = runs[at]
    return found
