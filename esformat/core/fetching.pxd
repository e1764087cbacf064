# cython: language_level=3
"""Have the processor fetch memory before it is needed."""

cdef extern from *:
    void fetch_early "__builtin_prefetch" (const void* place) noexcept nogil
