# cython: language_level=3
"""C declarations of `digits.py` for the other modules of the core, and functions that need C constants."""

cdef enum:
    CELL_BYTES = 32  # room for the text of any number, and for bytes copied after it

cdef Py_ssize_t write_number(int kind, int parameter, long long number, unsigned char* to) noexcept nogil

cdef bint write_numbers(
    int kind, int parameter, const long long* numbers, Py_ssize_t count, unsigned char* cells, int* sizes,
    unsigned char** texts,
) noexcept nogil


cdef inline unsigned long long eight_hex_digits(unsigned long long number) noexcept nogil:
    """The eight hexadecimal digits of the low 32 bits, as characters, the first one in the lowest byte."""
    cdef unsigned long long spread = ((number >> 16) & 0xFFFFULL) | ((number & 0xFFFFULL) << 32)
    spread = ((spread >> 8) & 0x000000FF000000FFULL) | ((spread & 0x000000FF000000FFULL) << 16)
    spread = ((spread >> 4) & 0x000F000F000F000FULL) | ((spread & 0x000F000F000F000FULL) << 8)
    return spread + 0x3030303030303030ULL + (((spread + 0x0606060606060606ULL) >> 4) & 0x0101010101010101ULL) * 39


cdef inline unsigned long long highest_first(unsigned long long number) noexcept nogil:
    """The bytes of a number in reverse order."""
    number = number >> 32 | number << 32
    number = (number >> 16 & 0x0000FFFF0000FFFFULL) | (number & 0x0000FFFF0000FFFFULL) << 16
    return (number >> 8 & 0x00FF00FF00FF00FFULL) | (number & 0x00FF00FF00FF00FFULL) << 8


cdef inline long long number_of_hex(unsigned long long characters) noexcept nogil:
    """The number of eight hexadecimal digits, the first one in the lowest byte; -1 if a character is not one."""
    cdef unsigned long long letters = (characters >> 6) & 0x0101010101010101ULL
    cdef unsigned long long digits = (characters & 0x0F0F0F0F0F0F0F0FULL) + 9 * letters  # 9 to 24 of letters
    cdef unsigned long long above_9 = ((digits + 0x0606060606060606ULL) >> 4) & 0x0101010101010101ULL
    if digits + 39 * letters + 0x3030303030303030ULL != characters or above_9 != letters:
        return -1
    if digits & 0x1010101010101010ULL:
        return -1
    digits = (digits << 4 | digits >> 8) & 0x00FF00FF00FF00FFULL
    digits = (digits << 8 | digits >> 16) & 0x0000FFFF0000FFFFULL
    return (digits << 16 | digits >> 32) & 0xFFFFFFFFULL
