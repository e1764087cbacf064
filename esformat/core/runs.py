# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Which run of the directory each row of some data blocks belongs to."""

import array as arrays
from typing import Any

import cython
from cython.cimports.cpython import array

_LONGS = cython.declare(array.array, arrays.array("q"))


def run_starts(
    edges: cython.const[cython.longlong][::1],
    origins: cython.const[cython.longlong][::1],
    counts: cython.const[cython.longlong][::1],
    bases: cython.const[cython.longlong][::1],
) -> tuple[Any, Any, Any]:
    """Where runs and blocks begin in rows of several blocks, counted from the first block's first row.

    edges: the runs' first rows in the segment, ascending, and the row after the last. origins, counts: each block's
    first row there, ascending, and how many it has; bases: a number of each block. Gives arrays of int64: the places,
    ascending; the run that begins or goes on at each; the number of the block it is in. Raises ValueError where a block
    has rows outside of the runs.
    """
    blocks: cython.Py_ssize_t = origins.shape[0]
    last_edge: cython.Py_ssize_t = edges.shape[0] - 1
    if counts.shape[0] != blocks or bases.shape[0] != blocks:
        raise ValueError("blocks have different numbers of facts")
    most: cython.Py_ssize_t = max(last_edge, 0) + blocks  # each run is left once, but for those that blocks share
    starts: array.array = array.clone(_LONGS, most, False)
    runs: array.array = array.clone(_LONGS, most, False)
    numbers: array.array = array.clone(_LONGS, most, False)
    place: cython.p_longlong = starts.data.as_longlongs
    run: cython.p_longlong = runs.data.as_longlongs
    number: cython.p_longlong = numbers.data.as_longlongs
    made: cython.Py_ssize_t = 0
    e: cython.Py_ssize_t = 0
    k: cython.Py_ssize_t
    row: cython.longlong = 0
    end: cython.longlong
    inside: cython.bint = True
    with cython.nogil:
        for k in range(blocks):
            end = origins[k] + counts[k]
            while e < last_edge and edges[e + 1] <= origins[k]:
                e += 1
            inside = e < last_edge and edges[e] <= origins[k] and end <= edges[last_edge] and counts[k] > 0
            if not inside:
                break
            place[made], run[made], number[made] = row, e, bases[k]
            made += 1
            while edges[e + 1] < end and made < most:  # e + 1 is at most the last edge, which no block's end is above
                e += 1
                place[made], run[made], number[made] = row + edges[e] - origins[k], e, bases[k]
                made += 1
            row += counts[k]
    if not inside:
        raise ValueError("a block has rows outside of the runs")
    array.resize(starts, made)
    array.resize(runs, made)
    array.resize(numbers, made)
    return starts, runs, numbers


def runs_at(
    starts: cython.const[cython.longlong][::1],
    runs: cython.const[cython.longlong][::1],
    places: cython.const[cython.longlong][::1],
) -> Any:
    """The run at each of ascending places, as an array of int64. Raises ValueError where there is none.

    starts: the places at which runs begin, ascending from 0 on.
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
