# cython: language_level=3
"""A batch in Arrow's C data interface, and the state for walking over its columns while writing its message."""

from cpython.buffer cimport Py_buffer
from libc.stdint cimport int64_t

cdef struct ArrowArray:
    int64_t length
    int64_t null_count  # -1: not counted
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    const void** buffers
    ArrowArray** children
    ArrowArray* dictionary
    void (*release)(ArrowArray*) noexcept
    void* private_data


cdef struct Walk:
    const long long* column  # the facts of the next column
    long long* found  # its nulls, and the bytes of its texts or the rows of its lists
    unsigned char* node
    unsigned char* buffer
    unsigned char* body
    long long at  # bytes of the body so far


cdef struct FlatColumn:
    ArrowArray array  # a column without parts, whose buffers are held here
    const void* buffers[3]
    Py_buffer views[3]
    bint taken[3]
    bint held  # whether `_hold` was called for it
