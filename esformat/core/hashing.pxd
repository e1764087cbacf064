# cython: language_level=3
"""A hash of texts for tables in memory; it is not part of the format."""

from libc.string cimport memcpy


cdef inline unsigned long long hashed(const char* text, long long size) noexcept nogil:
    """Hash some bytes, eight at a time."""
    cdef unsigned long long made = <unsigned long long>size
    cdef unsigned long long word = 0
    while size >= 8:
        memcpy(&word, text, 8)
        made = (made ^ word) * 0x9E3779B97F4A7C15ULL
        made ^= made >> 29
        text += 8
        size -= 8
    word = 0
    while size > 0:
        size -= 1
        word = (word << 8) | <unsigned char>text[size]
    made = (made ^ word) * 0x9E3779B97F4A7C15ULL
    return made ^ (made >> 32)
