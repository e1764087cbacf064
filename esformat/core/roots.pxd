# cython: language_level=3
"""C declarations of the directory root for the modules of the core."""

from cpython cimport array

from esformat.core.keys cimport Keys
from esformat.core.packs cimport PackHead


cdef class Entries:
    cdef readonly Keys first_keys
    cdef readonly array.array rows
    cdef readonly array.array blocks
    cdef Py_ssize_t _count
    cdef object _body
    cdef object _offset
    cdef object _name
    cdef object _handle_class
    cdef bytes _heads
    cdef list _decoded
    cdef array.array _highs
    cdef PackHead* _head(self, Py_ssize_t column) noexcept
    cdef array.array _numbers(self, Py_ssize_t column, object plain)
    cdef array.array _sums(self, Py_ssize_t column, long long first, object plain)
    cdef array.array _column(self, Py_ssize_t column)
    cdef long long _number(self, const unsigned char* data, Py_ssize_t column, Py_ssize_t entry) noexcept
    cdef object _contradiction(self)
    cdef Py_ssize_t _entry_of(self, long long row) noexcept
    cdef void _holders(self, bytes key, Py_ssize_t* first, Py_ssize_t* last) noexcept
    cdef object _place(self, Py_ssize_t entry)
    cdef object _times(self, Py_ssize_t entry)


cdef class Root:
    cdef readonly long long events
    cdef readonly long long data_blocks
    cdef list _pages
    cdef Entries _top
    cdef Py_ssize_t _count
    cdef bint _paged
    cdef object _read
    cdef dict _of_all
    cdef Entries _page(self, Py_ssize_t number)
    cdef Entries _read_pages(self, Py_ssize_t first, Py_ssize_t last)
    cdef Entries _of_leaf(self, Py_ssize_t leaf, Py_ssize_t* entry)
    cdef int _leaves_of(self, bytes space, Py_ssize_t* first, Py_ssize_t* last) except? -1
