# cython: language_level=3
"""What other modules of the core take from the end of a segment."""


cdef object made_handle(type made, object offset, object length, object check)
