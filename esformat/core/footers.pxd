# cython: language_level=3
"""C declarations of `footers.py` for other modules of the core."""


cdef object made_handle(type made, object offset, object length, object check)
