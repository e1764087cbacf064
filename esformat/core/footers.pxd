# cython: language_level=3
"""C declarations of `footers.py` for other modules of the core."""


cdef object new_handle(type handle_class, object offset, object length, object check)
