# cython: language_level=3
"""C declarations of cache shelves for the modules of the core."""


cdef class Shelf:
    cdef readonly dict values
    cdef readonly set used
    cdef public long long held
    cdef public Py_ssize_t count
    cdef object _find(self, object key)
