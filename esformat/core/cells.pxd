# cython: language_level=3
"""Cells for the values of variables, and the assembly of rows from them."""

from libc.string cimport memcpy

from esformat.core.template_columns cimport Column

cdef enum:
    MISSING = -1  # a row refers to a value that does not exist


cdef struct Piece:  # a literal, and the cells of the slot after it
    char* literal
    Py_ssize_t bytes
    unsigned char** texts
    int* sizes


cdef struct Work:  # memory of one call
    long long* seen  # by code, rows that are not counted in `place` yet
    long long* place  # for each variable, its next value
    int* touched  # codes with rows in `seen`
    int* cell  # for each variable, the first cell of its values
    int* slot  # the same for each slot
    int* sizes  # of each cell
    long long* numbers
    long long* chosen  # rows of a run, counted from its first
    unsigned char** texts  # of each cell
    Piece* pieces
    unsigned char* cells


cdef inline void copy_some(unsigned char* to, const char* source, Py_ssize_t size) noexcept nogil:
    """Copy `size` bytes; up to 32 bytes from both places may be read and written."""
    if size <= 16:
        memcpy(to, source, 16)
    elif size <= 32:
        memcpy(to, source, 32)
    else:
        memcpy(to, source, size)


cdef Py_ssize_t write_enum(
    const long long* numbers, Py_ssize_t n, int* edges, Py_ssize_t count, unsigned char* values, int* sizes,
    unsigned char** texts
) noexcept nogil
cdef Py_ssize_t write_enum_bits(
    const Column* column, Py_ssize_t first, Py_ssize_t n, int* edges, Py_ssize_t count, unsigned char* values,
    int* sizes, unsigned char** texts
) noexcept nogil
cdef Py_ssize_t join_short(
    bint wide, Work* work, char* text, int* steps, Py_ssize_t slots, Py_ssize_t n, int* offsets, unsigned char* out,
    Py_ssize_t at
) noexcept nogil
cdef void join_any(
    Work* work, char* text, int* steps, Py_ssize_t slots, Py_ssize_t n, int* offsets, unsigned char* out, Py_ssize_t at
) noexcept nogil
