# cython: language_level=3
"""C declarations of keys for the modules of the core."""

from cpython cimport array


cdef class Keys:
    cdef readonly array.array edges
    cdef readonly bytes data
    cdef Py_ssize_t _count
    cdef Py_ssize_t _bound(self, bytes key, bint behind) noexcept
    cpdef bint descend(self)
    cdef int _order(self, Py_ssize_t place, bytes key) noexcept
    cdef void _places(self, bytes key, Py_ssize_t* first, Py_ssize_t* last) noexcept


cpdef bytes to_key(object key)
