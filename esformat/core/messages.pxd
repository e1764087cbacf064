# cython: language_level=3
"""A batch in memory, as Arrow's C data interface gives it; what writes its message walks over its columns with."""

from libc.stdint cimport int64_t

cdef struct ArrowArray:
    int64_t length
    int64_t null_count  # -1: nobody has counted
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
    long long at  # how far the body is
