# cython: language_level=3
"""Shelves of caches as the modules of the core see them in C."""


cdef class Shelf:
    cdef readonly dict values
    cdef readonly set used
    cdef public long long held
    cdef public Py_ssize_t count
    cdef object _find(self, object key)
