# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Count rows by combinations of codes, and find the earliest and latest time of each combination.

The place of a combination: that of the codes as digits, the last column's the lowest, each in the base of its column's
number of codes.
"""

from collections.abc import Sequence
from typing import Any

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING
from cython.cimports.libc.string import memset

from esformat.errors import CorruptSegmentError

MOST_COUNTED_COLUMNS = 16
MOST_COMBINATIONS = 1 << 13
"""Maximum number of combinations of the values of all columns, whether or not an event has them."""
_MOST_COLUMNS = cython.declare(cython.Py_ssize_t, MOST_COUNTED_COLUMNS)
_MOST_PLACES = cython.declare(cython.Py_ssize_t, MOST_COMBINATIONS)
_TOGETHER = cython.declare(cython.Py_ssize_t, 256)  # rows

Columns = cython.struct(
    count=cython.Py_ssize_t,
    short=cython.p_const_uchar[16],  # the codes of a column as bytes, or
    long=cython.pointer(cython.const[cython.longlong])[16],  # as int64
    sizes=cython.longlong[16],  # how many codes a column has
)

Times = cython.struct(
    low=cython.longlong,  # the smallest of a block, and the largest
    high=cython.longlong,
    earliest=cython.pointer(cython.const[cython.longlong]),  # of each combination; NULL if times are not wanted
    latest=cython.pointer(cython.const[cython.longlong]),
    beyond=cython.bint,
)


@cython.cfunc
@cython.exceptval(-1)
def _open(
    columns: cython.pointer(Columns),
    rows: cython.Py_ssize_t,
    codes: Sequence[Any],
    sizes: Sequence[int],
    combinations: cython.Py_ssize_t,
) -> cython.int:
    """Raises ValueError unless each column has a code for each row, and there is a place for each combination."""
    short: cython.const[cython.uchar][::1]
    long: cython.const[cython.longlong][::1]
    k: cython.Py_ssize_t
    places: cython.longlong = 1
    columns.count = len(codes)
    if columns.count > _MOST_COLUMNS or columns.count != len(sizes) or not 0 < combinations <= _MOST_PLACES:
        raise ValueError("the number of columns does not fit")
    for k in range(columns.count):
        columns.sizes[k] = sizes[k]
        if not 0 < columns.sizes[k] <= combinations or len(codes[k]) != rows:
            raise ValueError("the lengths do not fit")
        places *= columns.sizes[k]  # at most the combinations, below, times as many: no overflow
        if places > combinations:
            raise ValueError("the lengths do not fit")
        columns.short[k], columns.long[k] = cython.NULL, cython.NULL
        if rows and memoryview(codes[k]).itemsize == 1:
            short = codes[k]
            columns.short[k] = cython.address(short[0])
        elif rows:
            long = codes[k]
            columns.long[k] = cython.address(long[0])
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _find_places(
    columns: cython.pointer(Columns), first: cython.Py_ssize_t, rows: cython.Py_ssize_t, places: cython.p_uint
) -> cython.bint:
    """Write the places of the combinations of some rows, column by column, so that compilers process several rows at a
    time; False if a column does not have a code.
    """
    i: cython.Py_ssize_t
    k: cython.Py_ssize_t
    size: cython.uint
    above: cython.ulonglong = 0
    short: cython.p_const_uchar
    long: cython.pointer(cython.const[cython.longlong])
    memset(places, 0, rows * cython.sizeof(cython.uint))
    for k in range(columns.count):
        size = cython.cast(cython.uint, columns.sizes[k])
        if columns.short[k] != cython.NULL:
            short = columns.short[k] + first
            for i in range(rows):
                above |= short[i] >= size
                places[i] = places[i] * size + short[i]
        else:
            long = columns.long[k] + first
            for i in range(rows):
                above |= cython.cast(cython.ulonglong, long[i]) >= size
                places[i] = places[i] * size + cython.cast(cython.uint, long[i])
    return above == 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _count(
    columns: cython.pointer(Columns),
    first: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    counts: cython.p_longlong,
    others: cython.p_longlong,
    times: cython.pointer(Times),
) -> cython.bint:
    """Count rows [first, end), and find out whether a time may be beyond those of its combination; False if a column
    does not have a code.

    others: counts of every second row, because adding to the number that was just written takes longer.
    """
    places = cython.declare(cython.uint[256])
    i: cython.Py_ssize_t
    some: cython.Py_ssize_t
    while first < end:
        some = min(end - first, _TOGETHER)
        if not _find_places(columns, first, some, places):
            return False
        for i in range(0, some - 1, 2):
            counts[places[i]] += 1
            others[places[i + 1]] += 1
        if some & 1:
            counts[places[some - 1]] += 1
        if times.earliest != cython.NULL and not times.beyond:
            for i in range(some):
                times.beyond |= (times.low < times.earliest[places[i]]) | (times.high > times.latest[places[i]])
        first += some
    return True


@cython.cfunc
@cython.exceptval(-1)
def _check_starts(starts: cython.const[cython.longlong][::1], rows: cython.Py_ssize_t) -> cython.int:
    """Raise ValueError unless there are blocks that begin one after another, the first with row 0."""
    block: cython.Py_ssize_t
    last: cython.longlong = 0
    for block in range(starts.shape[0]):
        if not last <= starts[block] <= (rows if block else 0):
            raise ValueError("the starts of blocks do not fit")
        last = starts[block]
    if not starts.shape[0]:
        raise ValueError("the lengths do not fit")
    return 0


def count_codes(
    rows: cython.Py_ssize_t,
    codes: Sequence[Any],
    sizes: Sequence[int],
    counts: cython.longlong[::1],
    blocks: Any = None,
    lows: Any = None,
    highs: Any = None,
) -> list[int]:
    """Add the number of rows with each combination of codes to `counts`.

    codes: for each of at most MOST_COUNTED_COLUMNS columns, the codes of all rows, as bytes or int64. sizes: how many
    codes each column has. blocks: the first row of each block, its smallest time and its largest, in arrays of int64.
    lows, highs: the earliest and the latest time of each combination that is known. Returns the numbers of blocks with
    a row that may be earlier or later than these; none without `blocks`. Raises ValueError if lengths do not fit;
    CorruptSegmentError for other codes.
    """
    columns = cython.declare(Columns)
    _open(cython.address(columns), rows, codes, sizes, counts.shape[0])
    size: cython.Py_ssize_t = counts.shape[0]
    number: cython.Py_ssize_t = 1
    times = cython.declare(Times)
    times.earliest = cython.NULL
    if blocks is not None:
        starts: cython.const[cython.longlong][::1] = blocks[0]
        least: cython.const[cython.longlong][::1] = blocks[1]
        most: cython.const[cython.longlong][::1] = blocks[2]
        earliest: cython.const[cython.longlong][::1] = lows
        latest: cython.const[cython.longlong][::1] = highs
        number = starts.shape[0]
        _check_starts(starts, rows)
        if least.shape[0] != number or most.shape[0] != number or earliest.shape[0] != size or latest.shape[0] != size:
            raise ValueError("the lengths do not fit")
        times.earliest, times.latest = cython.address(earliest[0]), cython.address(latest[0])
    memory: bytes = bytes(8 * size)
    others: cython.p_longlong = cython.cast(cython.p_longlong, PyBytes_AS_STRING(memory))
    block: cython.Py_ssize_t
    first: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t
    fit: cython.bint
    found: list[int] = []
    for block in range(number):
        end = starts[block + 1] if block + 1 < number else rows
        times.beyond = False
        if times.earliest != cython.NULL:
            times.low, times.high = least[block], most[block]
        with cython.nogil:
            fit = _count(cython.address(columns), first, end, cython.address(counts[0]), others, cython.address(times))
        if not fit:
            raise CorruptSegmentError("a code has no value in the column's dictionary")
        if times.beyond:
            found.append(block)
        first = end
    for block in range(size):
        counts[block] += others[block]
    return found


def extend_times(
    codes: Sequence[Any],
    sizes: Sequence[int],
    times: cython.const[cython.longlong][::1],
    lows: cython.longlong[::1],
    highs: cython.longlong[::1],
) -> None:
    """Lower the earliest time of combinations, and raise the latest, to those of some rows.

    codes, sizes, errors: as in `count_codes`. times: one for each row.
    """
    columns = cython.declare(Columns)
    _open(cython.address(columns), times.shape[0], codes, sizes, lows.shape[0])
    if highs.shape[0] != lows.shape[0]:
        raise ValueError("the lengths do not fit")
    places = cython.declare(cython.uint[256])
    i: cython.Py_ssize_t
    first: cython.Py_ssize_t = 0
    some: cython.Py_ssize_t
    fit: cython.bint = True
    with cython.nogil:
        while first < times.shape[0]:
            some = min(times.shape[0] - first, _TOGETHER)
            fit = _find_places(cython.address(columns), first, some, places)
            if not fit:
                break
            for i in range(some):
                if times[first + i] < lows[places[i]]:
                    lows[places[i]] = times[first + i]
                if times[first + i] > highs[places[i]]:
                    highs[places[i]] = times[first + i]
            first += some
    if not fit:
        raise CorruptSegmentError("a code has no value in the column's dictionary")
