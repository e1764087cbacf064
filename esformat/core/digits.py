# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Numbers and dates as the text that a slot of a template shows: section 9 of `spec/format.md`, in C.

`digits.pxd` declares the functions that other modules of the core call.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING
from cython.cimports.esformat.core.digits import CELL_BYTES, eight_hex_digits, highest_first
from cython.cimports.libc.string import memcpy

_PADDED = cython.declare(cython.int, 3)
_HEX = cython.declare(cython.int, 5)
_INTEGER = cython.declare(cython.int, 2)
_DATE = cython.declare(cython.int, 6)

_pairs: bytes = b"".join(b"%02d" % number for number in range(100))
_hex_digits: bytes = b"0123456789abcdef"
_threes: bytes = b"".join(b"%-3d%c" % (number, len(str(number))) for number in range(1000)) + bytes(CELL_BYTES)
_months: bytes = b"JanFebMarAprMayJunJulAugSepOctNovDec"
_PAIRS = cython.declare(cython.p_char, PyBytes_AS_STRING(_pairs))
_THREES = cython.declare(cython.p_char, PyBytes_AS_STRING(_threes))  # digits and their number, four bytes each
_HEX_DIGITS = cython.declare(cython.p_char, PyBytes_AS_STRING(_hex_digits))
_MONTHS = cython.declare(cython.p_char, PyBytes_AS_STRING(_months))
_LONG_HEX = cython.declare(cython.int, 16)
_FIRST_DAY = cython.declare(cython.longlong, -719162)  # 0001-01-01
_LAST_DAY = cython.declare(cython.longlong, 2932896)  # 9999-12-31


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _padded(number: cython.ulonglong, digits: cython.Py_ssize_t, to: cython.p_uchar) -> cython.void:
    """Write the lowest `digits` decimal digits of a number."""
    while digits > 1:
        digits -= 2
        memcpy(to + digits, _PAIRS + 2 * (number % 100), 2)
        number //= 100
    if digits:
        to[0] = 48 + cython.cast(cython.uchar, number % 10)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _digits(number: cython.ulonglong) -> cython.Py_ssize_t:
    """The number of decimal digits of a number."""
    digits: cython.Py_ssize_t = 1
    while number >= 1000:
        number //= 1000
        digits += 3
    if number >= 100:
        return digits + 2
    if number >= 10:
        return digits + 1
    return digits


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def write_number(
    kind: cython.int, parameter: cython.int, number: cython.longlong, to: cython.p_uchar
) -> cython.Py_ssize_t:
    """Write a number as its kind requires, at most 28 bytes; -1 if that is impossible."""
    if kind == _HEX:
        return _write_hex(parameter, cython.cast(cython.ulonglong, number), to)
    if kind == _DATE:
        return _write_date(parameter, number, to)
    rest: cython.ulonglong = cython.cast(cython.ulonglong, number)
    digits: cython.Py_ssize_t
    if kind == _PADDED:
        if number < 0 or _digits(rest) > parameter:
            return -1
        _padded(rest, parameter, to)
        return parameter
    sign: cython.Py_ssize_t = 0
    if number < 0:
        rest = 0 - rest
        to[0] = 45
        sign = 1
    if kind == _INTEGER:
        if rest < 1000:
            memcpy(to + sign, _THREES + 4 * rest, 4)
            return sign + to[sign + 3]
        digits = _digits(rest)
        _padded(rest, digits, to + sign)
        return sign + digits
    scale: cython.Py_ssize_t = parameter
    unit: cython.ulonglong = _power(scale)
    digits = _digits(rest // unit)
    _padded(rest // unit, digits, to + sign)
    to[sign + digits] = 46
    _padded(rest % unit, scale, to + sign + digits + 1)
    return sign + digits + 1 + scale


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def write_numbers(
    kind: cython.int,
    parameter: cython.int,
    numbers: cython.pointer(cython.const[cython.longlong]),
    count: cython.Py_ssize_t,
    cells: cython.p_uchar,
    sizes: cython.p_int,
    texts: cython.pointer(cython.p_uchar),
) -> cython.bint:
    """Write numbers of one kind, or point to existing text: stores the address and the size of each text. 32 bytes may
    be read from each address. cells: 32 bytes for each number, for texts that must be written. Returns False if a
    number cannot be written.
    """
    i: cython.Py_ssize_t
    size: cython.Py_ssize_t
    number: cython.ulonglong
    if kind == _HEX and parameter == _LONG_HEX:
        for i in range(count):
            sizes[i] = 16
        for i in range(count):
            texts[i] = cells + 16 * i
        _write_long_hex(numbers, count, cells + (CELL_BYTES - 8) * count, cells)
        return True
    threes: cython.p_uchar = cython.cast(cython.p_uchar, _THREES)
    for i in range(count):
        number = cython.cast(cython.ulonglong, numbers[i])
        if kind == _INTEGER and number < 1000:
            texts[i] = threes + 4 * number
            sizes[i] = threes[4 * number + 3]
        else:
            texts[i] = cells + CELL_BYTES * i
            size = write_number(kind, parameter, numbers[i], texts[i])
            if size < 0:
                return False
            sizes[i] = cython.cast(cython.int, size)
    return True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _write_long_hex(
    numbers: cython.pointer(cython.const[cython.longlong]),
    count: cython.Py_ssize_t,
    swapped: cython.p_uchar,
    out: cython.p_uchar,
) -> cython.void:
    """Write all 16 digits of each number, one number after another. swapped: eight bytes for each, outside of `out`.

    Uses loops over bytes, which compilers turn into operations on 16 bytes at a time.
    """
    i: cython.Py_ssize_t
    word = cython.declare(cython.ulonglong)
    high: cython.schar  # signed: compilers compare several of these with one instruction
    low: cython.schar
    for i in range(count):
        word = highest_first(cython.cast(cython.ulonglong, numbers[i]))
        memcpy(swapped + 8 * i, cython.address(word), 8)
    for i in range(8 * count):
        high, low = cython.cast(cython.schar, swapped[i] >> 4), cython.cast(cython.schar, swapped[i] & 15)
        out[2 * i] = cython.cast(cython.uchar, high + 48 + (39 if high > 9 else 0))
        out[2 * i + 1] = cython.cast(cython.uchar, low + 48 + (39 if low > 9 else 0))


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _power(exponent: cython.Py_ssize_t) -> cython.ulonglong:
    """A power of ten up to 10^18."""
    made: cython.ulonglong = 1
    while exponent > 0:
        made *= 10
        exponent -= 1
    return made


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _write_hex(digits: cython.Py_ssize_t, number: cython.ulonglong, to: cython.p_uchar) -> cython.Py_ssize_t:
    """Write `digits` hexadecimal digits, eight at a time from the end; bytes before `to` are not touched."""
    word: cython.ulonglong
    if digits < 16 and number >> (4 * digits):
        return -1
    left: cython.Py_ssize_t = digits
    while left >= 8:
        left -= 8
        word = eight_hex_digits(number)
        memcpy(to + left, cython.address(word), 8)
        number >>= 32
    while left > 0:
        left -= 1
        to[left] = _HEX_DIGITS[number & 15]
        number >>= 4
    return digits


# ------------------------------------------------------------ dates


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _per_day(form: cython.int) -> cython.longlong:
    """Units of a form per day."""
    if form == 0:
        return 1
    if form == 1 or form == 5:
        return 1440
    if form == 3 or form == 7:
        return 86_400_000
    if form == 4 or form == 8:
        return 86_400_000_000
    return 86_400


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _write_date(form: cython.int, number: cython.longlong, to: cython.p_uchar) -> cython.Py_ssize_t:
    """Write a date of the years 1 to 9999; -1 for others. Counts days from March in eras of 400 years."""
    per_day: cython.longlong = _per_day(form)
    day: cython.longlong = number // per_day  # C division: towards 0
    rest: cython.longlong = number - day * per_day
    if rest < 0:
        rest += per_day
        day -= 1
    if not _FIRST_DAY <= day <= _LAST_DAY:
        return -1
    day += 719468  # days since 0000-03-01; never negative here
    era: cython.longlong = day // 146097
    of_era: cython.longlong = day - 146097 * era
    year: cython.longlong = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year: cython.longlong = of_era - (365 * year + year // 4 - year // 100)
    month: cython.longlong = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year += 400 * era + (1 if month <= 2 else 0)
    at: cython.Py_ssize_t = 10
    if form == 9:  # the format of web server logs
        _padded(day, 2, to)
        to[2] = to[6] = 47
        memcpy(to + 3, _MONTHS + 3 * (month - 1), 3)
        _padded(year, 4, to + 7)
        at = 11
    else:
        _padded(year, 4, to)
        to[4] = to[7] = 45
        _padded(month, 2, to + 5)
        _padded(day, 2, to + 8)
    if form == 0:
        return at
    to[at] = 58 if form == 9 else 84 if form < 5 else 32
    return at + 1 + _write_time(form, rest, to + at + 1)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _write_time(form: cython.int, rest: cython.longlong, to: cython.p_uchar) -> cython.Py_ssize_t:
    """Write the time of day, given in units of a form."""
    fraction: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t = 8
    if form == 1 or form == 5:
        rest *= 60
        size = 5
    elif form == 3 or form == 7:
        fraction = 3
    elif form == 4 or form == 8:
        fraction = 6
    unit: cython.ulonglong = _power(fraction)
    seconds: cython.longlong = rest // unit
    _padded(seconds // 3600, 2, to)
    to[2] = 58
    _padded(seconds // 60 % 60, 2, to + 3)
    if size == 5:
        return 5
    to[5] = 58
    _padded(seconds % 60, 2, to + 6)
    if not fraction:
        return 8
    to[8] = 46
    _padded(rest % unit, fraction, to + 9)
    return 9 + fraction
