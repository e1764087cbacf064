# cython: language_level=3
"""C declarations of leaves for the modules of the core."""

from cpython cimport array

from esformat.core.keys cimport Keys


cdef class Leaf:
    cdef readonly Keys spaces
    cdef readonly Keys groupings
    cdef readonly array.array run_rows
    cdef readonly array.array block_rows
    cdef readonly array.array block_offsets
    cdef readonly array.array block_checks
    cdef readonly array.array block_min
    cdef readonly array.array block_max
    cdef readonly Py_ssize_t block_count
    cdef object _body
    cdef Py_ssize_t _keys_at
    cdef Py_ssize_t _keys_end
    cdef readonly long long first_row
    cdef readonly long long last_row
    cdef readonly long long first_block
    cdef readonly bint has_groupings
    cdef readonly long long size_bytes
    cdef readonly long long least_block_bytes
    cdef readonly long long most_block_bytes
    cdef Py_ssize_t _read_blocks(
        self, object body, const unsigned char[::1] view, Py_ssize_t at, long long data_offset, object plain
    )
    cdef Py_ssize_t _block_of(self, long long row) noexcept
    cdef Py_ssize_t _run_of(self, long long row) noexcept
