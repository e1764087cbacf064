# cython: language_level=3
"""C declarations of nodes of templates for the modules of the core."""

from libc.string cimport memcpy

cdef enum:
    TEMPLATES_HEAD = 8  # the head of a node of templates, the lowest byte first

cdef enum:
    FEW_CODES = 64  # with fewer templates, counts are stored at every MARK_ROWS rows
    MARK_ROWS = 256

cdef enum:  # kinds of variables, as `format/templates.py` numbers them
    STRING = 0
    ENUM = 1

cdef enum:  # forms of columns
    ABSENT = 0
    BITS = 1
    NUMBERS = 2
    TEXTS = 3


cdef struct Column:  # where the values of a variable are
    int form
    Py_ssize_t at  # where in the body their node or pack begins
    Py_ssize_t count  # of values, beginning with number `first` of the node
    Py_ssize_t first
    const unsigned char* stored  # bits, or texts
    Py_ssize_t size  # bytes of them
    const long long* numbers  # or edges of texts
    Py_ssize_t bits
    Py_ssize_t whole
    long long base


cdef class TemplateColumns:
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t end
    cdef readonly bint has_nulls
    cdef readonly list others
    cdef list _held  # memory to which the pointers below refer
    cdef object _templates
    cdef unsigned short* _codes  # of each row
    cdef unsigned int* _before  # for each MARK_ROWS rows, the rows of each code up to there
    cdef Column* _columns
    cdef Py_ssize_t _count
    cdef Py_ssize_t _variables
    cdef long long _most_bytes  # of all rows, excluding their strings
    cdef int* _first  # these as in `Templates`
    cdef char* _text
    cdef char* _values
    cdef int* _value
    cdef int* _step
    cdef int* _kind
    cdef int* _parameter
    cdef int* _value_first
    cdef int* _own_first
    cdef int* _own
    cdef int* _longest
    cdef int* _literal_bytes
    cdef int* _row_bytes
    cdef int* _short
    cdef int* _times
    cdef object _take_templates(self, object templates)
    cdef object _share(self, object others, object templates)
    cdef object _take_codes(self, const long long[::1] codes)
    cdef object _count_values(self, Py_ssize_t most_slots)
    cdef object _mark(self, long long* of)
    cdef object _find_columns(self, const unsigned char[::1] body, Py_ssize_t at)
    cdef int _check_rows(self, Py_ssize_t low, Py_ssize_t high) except? -1
    cdef long long _shown(self, Py_ssize_t variable, long long* of)


cdef inline Py_ssize_t end_of_run(const unsigned short* codes, Py_ssize_t low, Py_ssize_t high) noexcept nogil:
    """The end of the rows from `low` on, at most `high`, that have the code of row `low`: usually many."""
    cdef Py_ssize_t i = low + 1
    cdef unsigned long long word
    cdef unsigned long long alike = codes[low] * 0x0001000100010001ULL  # four copies
    while i + 4 <= high:
        memcpy(&word, codes + i, 8)
        if word != alike:
            break
        i += 4
    while i < high and codes[i] == codes[low]:
        i += 1
    return i


cdef inline void add_up(const unsigned short* codes, Py_ssize_t low, Py_ssize_t high, long long* of) noexcept nogil:
    """Add the number of rows of each code in [low, high)."""
    cdef Py_ssize_t i = low
    cdef Py_ssize_t begin
    while i < high:
        begin = i
        i = end_of_run(codes, i, high)
        of[codes[begin]] += i - begin
