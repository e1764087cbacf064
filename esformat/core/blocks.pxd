# cython: language_level=3
"""C declarations of data blocks for the modules of the core."""

from cpython cimport array


cdef class Chunks:
    cdef readonly object body
    cdef readonly Py_ssize_t chunk_count
    cdef readonly Py_ssize_t row_count
    cdef readonly Py_ssize_t run_count
    cdef readonly long long base
    cdef readonly int dictionary
    cdef readonly long long offset
    cdef readonly long long size_bytes
    cdef readonly dict cached_nodes
    cdef readonly dict cached_codes
    cdef readonly dict cached_heads
    cdef readonly bint is_cut
    cdef array.array _edges
    cdef bytes _verified
    cdef bytes _heads
    cdef array.array _cached_steps
    cdef bint _times_read
    cdef public object times
    cdef public list cached_pieces
    cdef public list cached_light_pieces
    cdef array.array _steps(self, Py_ssize_t low, Py_ssize_t high, object decompressor)
    cdef Py_ssize_t _start(self, Py_ssize_t chunk) except -1
