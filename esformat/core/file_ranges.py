# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Read many parts of a file, and release the interpreter's lock once for all of them.

Each call of `os.preadv` releases it, and then waits for it among all other threads. This is the only module of the core
that calls the system.
"""

from typing import Any

import cython
from cython.cimports.posix.unistd import pread


def read_ranges(descriptor: cython.int, ranges: Any, out: Any) -> int:
    """Read ranges of a file, one after another, into a writable buffer; return how many are complete.

    ranges: the offset and the length of each, in an array of int64. Stops at a range that could not be read whole, for
    whatever reason: the caller reads it again to find out. Raises ValueError if the buffer is too short.
    """
    view: cython.uchar[::1] = out
    places: cython.const[cython.longlong][::1] = ranges
    free: cython.Py_ssize_t = view.shape[0]
    count: cython.Py_ssize_t = places.shape[0] // 2
    i: cython.Py_ssize_t
    for i in range(count):
        if not 0 <= places[2 * i + 1] <= free:
            raise ValueError("the buffer is too short for the ranges")
        free -= cython.cast(cython.Py_ssize_t, places[2 * i + 1])
    if view.shape[0] == 0:
        return count
    to: cython.p_uchar = cython.address(view[0])
    length: cython.Py_ssize_t
    got: cython.Py_ssize_t
    read: cython.Py_ssize_t
    done: cython.Py_ssize_t = 0
    with cython.nogil:
        for i in range(count):
            length = cython.cast(cython.Py_ssize_t, places[2 * i + 1])
            got = 0
            while got < length:
                read = pread(descriptor, to + got, length - got, places[2 * i] + got)
                if read <= 0:
                    break
                got += read
            if got < length:
                break
            to += length
            done += 1
    return done
