# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Split values into a template and the values of its variables, from which `rendering.py` restores the same bytes."""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.esformat.core.digits import number_of_hex
from cython.cimports.esformat.core.hashing import hashed
from cython.cimports.libc.string import memchr, memcmp, memcpy

from esformat.core.templates import Templates

_STRING = cython.declare(cython.int, 0)
_ENUM = cython.declare(cython.int, 1)
_INTEGER = cython.declare(cython.int, 2)
_PADDED = cython.declare(cython.int, 3)
_DECIMAL = cython.declare(cython.int, 4)
_HEX = cython.declare(cython.int, 5)
_MANY = cython.declare(cython.Py_ssize_t, 1 << 30)

_MONTHS: bytes = b"JanFebMarAprMayJunJulAugSepOctNovDec"
_MOST_DIGITS = cython.declare(cython.Py_ssize_t, 18)  # any number of this many digits fits into 64 bits


@cython.final
@cython.cclass
class Matcher:
    """Splits values by templates; the last template must match any value."""

    _held: list[bytes]
    _count: cython.Py_ssize_t
    _variables: cython.Py_ssize_t
    _text: cython.p_char
    _values: cython.p_char
    _months: cython.p_char
    _first: cython.p_int
    _slot: cython.p_int
    _literal: cython.p_int
    _value_first: cython.p_int
    _value: cython.p_int
    _kind: cython.p_int
    _parameter: cython.p_int
    _same: cython.p_int  # for each slot, the earlier slot of its template that shows the same variable, or -1
    _start: cython.p_int  # for each template, the one to try first on the next row
    _alike: cython.p_int  # for each template, how many leading literals and slots it shares with the one before
    _table: cython.p_int  # hash tables of values by their bytes: 0, or the value's number from 1
    _table_first: cython.p_int  # for each variable, where its table begins; one more
    _cells: cython.p_longlong  # for each slot of the current row: number, first byte, last byte

    def __init__(self, templates: Templates) -> None:
        """Raises ValueError if the last template does not match any value."""
        memory = templates.memory
        self._held = list(memory)
        self._count, self._variables = templates.count, templates.variables
        self._text, self._values = PyBytes_AS_STRING(memory[0]), PyBytes_AS_STRING(memory[1])
        self._first, self._slot, self._literal = _ints(memory[2]), _ints(memory[3]), _ints(memory[4])
        self._value_first, self._value = _ints(memory[5]), _ints(memory[6])
        self._kind, self._parameter = _ints(memory[7]), _ints(memory[8])
        self._months = PyBytes_AS_STRING(_MONTHS)
        last: cython.Py_ssize_t = self._count - 1
        if last < 0 or self._first[last + 1] - self._first[last] != 1:
            raise ValueError("the last template does not take any value")
        s: cython.Py_ssize_t = self._first[last]
        if self._kind[self._slot[s]] != _STRING or self._literal[s + last] != self._literal[s + last + 2]:
            raise ValueError("the last template does not take any value")
        self._compare()
        self._hash()

    @cython.cfunc
    def _compare(self) -> object:
        """Find slots and templates that are alike."""
        t: cython.Py_ssize_t
        u: cython.Py_ssize_t
        s: cython.Py_ssize_t
        e: cython.Py_ssize_t
        slots: cython.Py_ssize_t = self._first[self._count]
        widest: cython.Py_ssize_t = 0
        memory: bytes = bytes(4 * (slots + 2 * self._count))
        self._held.append(memory)
        self._same = _ints(memory)
        self._start = self._same + slots
        self._alike = self._start + self._count
        for t in range(self._count):
            widest = max(widest, self._first[t + 1] - self._first[t])
            for s in range(self._first[t], self._first[t + 1]):
                self._same[s] = -1
                for e in range(self._first[t], s):
                    if self._slot[e] == self._slot[s]:
                        self._same[s] = cython.cast(cython.int, e)
                        break
            self._alike[t] = cython.cast(cython.int, self._begin_alike(t, t - 1) if t else 0)
            self._start[t] = cython.cast(cython.int, t) if self._is_typed(t) else 0
            for u in range(t):
                if self._are_alike(t, u):
                    self._start[t] = cython.cast(cython.int, u)
                    break
        cells: bytes = bytes(24 * (widest + 1))
        self._held.append(cells)
        self._cells = cython.cast(cython.p_longlong, PyBytes_AS_STRING(cells))
        return None

    @cython.cfunc
    def _is_typed(self, t: cython.Py_ssize_t) -> cython.bint:
        """Whether a template rarely matches rows meant for others: it is not only strings, and does not end in one."""
        s: cython.Py_ssize_t = self._first[t + 1] - 1
        piece: cython.Py_ssize_t = s + t + 1
        if self._kind[self._slot[s]] == _STRING and self._literal[piece] == self._literal[piece + 1]:
            return False
        for s in range(self._first[t], self._first[t + 1]):
            if self._kind[self._slot[s]] != _STRING:
                return True
        return self._first[t] == self._first[t + 1]

    @cython.cfunc
    def _begin_alike(self, t: cython.Py_ssize_t, u: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The number of literals, each with the slot after it, that two templates share before the first difference.

        The literal after a text determines where it ends: so it must also be the same, and be last in both or neither.
        """
        i: cython.Py_ssize_t
        v: cython.Py_ssize_t
        a: cython.Py_ssize_t = self._first[t] + t
        b: cython.Py_ssize_t = self._first[u] + u
        slots: cython.Py_ssize_t = self._first[t + 1] - self._first[t]
        others: cython.Py_ssize_t = self._first[u + 1] - self._first[u]
        for i in range(min(slots, others)):
            v = self._slot[self._first[t] + i]
            if v != self._slot[self._first[u] + i] or not self._same_literal(a + i, b + i):
                return i
            if self._kind[v] > _ENUM:
                continue
            if not self._same_literal(a + i + 1, b + i + 1) or (i + 1 == slots) != (i + 1 == others):
                return i
        return min(slots, others)

    @cython.cfunc
    def _same_literal(self, a: cython.Py_ssize_t, b: cython.Py_ssize_t) -> cython.bint:
        """Whether two literals are equal."""
        size: cython.Py_ssize_t = self._literal[a + 1] - self._literal[a]
        if size != self._literal[b + 1] - self._literal[b]:
            return False
        return memcmp(self._text + self._literal[a], self._text + self._literal[b], size) == 0

    @cython.cfunc
    def _are_alike(self, t: cython.Py_ssize_t, u: cython.Py_ssize_t) -> cython.bint:
        """Whether two templates have the same literals."""
        n: cython.Py_ssize_t = self._first[t + 1] - self._first[t]
        if self._first[u + 1] - self._first[u] != n:
            return False
        i: cython.Py_ssize_t
        a: cython.Py_ssize_t = self._first[t] + t
        b: cython.Py_ssize_t = self._first[u] + u
        for i in range(n + 1):
            if self._literal[a + i + 1] - self._literal[a + i] != self._literal[b + i + 1] - self._literal[b + i]:
                return False
        size: cython.Py_ssize_t = self._literal[a + n + 1] - self._literal[a]
        return memcmp(self._text + self._literal[a], self._text + self._literal[b], size) == 0

    @cython.cfunc
    def _hash(self) -> object:
        """Fill the hash tables of values."""
        v: cython.Py_ssize_t
        e: cython.Py_ssize_t
        size: cython.Py_ssize_t
        total: cython.Py_ssize_t = 0
        sizes: list[int] = []
        for v in range(self._variables):
            size = 1
            while size < 2 * (self._value_first[v + 1] - self._value_first[v]):
                size *= 2
            sizes.append(size)
            total += size
        memory: bytes = bytes(4 * (total + self._variables + 1))
        self._held.append(memory)
        self._table_first = _ints(memory)
        self._table = self._table_first + self._variables + 1
        total = 0
        for v in range(self._variables):
            self._table_first[v] = cython.cast(cython.int, total)
            size = sizes[v]
            for e in range(self._value_first[v], self._value_first[v + 1]):
                self._place(v, e, total, size)
            total += size
        self._table_first[self._variables] = cython.cast(cython.int, total)
        return None

    @cython.cfunc
    def _place(
        self, v: cython.Py_ssize_t, e: cython.Py_ssize_t, first: cython.Py_ssize_t, size: cython.Py_ssize_t
    ) -> object:
        begin: cython.p_char = self._values + self._value[e]
        at: cython.ulonglong = hashed(begin, self._value[e + 1] - self._value[e])
        while self._table[first + (at & (size - 1))]:  # twice as many places as values, so one is free
            at += 1
        self._table[first + (at & (size - 1))] = cython.cast(cython.int, e - self._value_first[v] + 1)
        return None

    def match(
        self,
        data: cython.const[cython.uchar][::1],
        edges: cython.const[cython.longlong][::1],
        valid: cython.const[cython.uchar][::1],
        codes: cython.longlong[::1],
        numbers: cython.longlong[::1],
        lengths: cython.longlong[::1],
        counts: cython.longlong[::1],
    ) -> None:
        """Split each value data[edges[i]:edges[i + 1]]: codes[i] becomes its template, counted from 1.

        valid: one byte for each value, 0 for null, whose code is 0; or empty. The values of variable v are stored in
        numbers[v * n:], with n the number of rows, and their number in counts[v]. For strings, these are the positions
        where they begin in `data`, with their lengths in `lengths` at the same places.

        Raises ValueError for arrays of other sizes, and if an edge is outside of `data`.
        """
        n: cython.Py_ssize_t = codes.shape[0]
        v: cython.Py_ssize_t
        if edges.shape[0] != n + 1 or (valid.shape[0] and valid.shape[0] != n):
            raise ValueError("the number of edges does not fit the rows")
        if counts.shape[0] != self._variables:
            raise ValueError("the number of variables does not fit the templates")
        if n and (numbers.shape[0] // n < self._variables or lengths.shape[0] // n < self._variables):
            raise ValueError("too little room for the values of variables")
        for v in range(self._variables):
            counts[v] = 0
        i: cython.Py_ssize_t
        last: cython.Py_ssize_t = 0
        outside: cython.int = 0
        if not n:
            return
        base: cython.p_char = cython.cast(cython.p_char, cython.address(data[0])) if data.shape[0] else self._text
        with cython.nogil:
            for i in range(n):
                if valid.shape[0] and not valid[i]:
                    codes[i] = 0
                    continue
                if not 0 <= edges[i] <= edges[i + 1] <= data.shape[0]:
                    outside = 1
                    break
                last = self._match_row(base, edges[i], edges[i + 1], last)
                codes[i] = last + 1
                self._keep(last, n, cython.address(numbers[0]), cython.address(lengths[0]), cython.address(counts[0]))
        if outside:
            raise ValueError("the bytes of values end early")

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _keep(
        self,
        t: cython.Py_ssize_t,
        n: cython.Py_ssize_t,
        numbers: cython.p_longlong,
        lengths: cython.p_longlong,
        counts: cython.p_longlong,
    ) -> cython.void:
        """Append what was found in a row to its variables, each of which has at most one value per row."""
        s: cython.Py_ssize_t
        v: cython.Py_ssize_t
        cell: cython.p_longlong = self._cells
        for s in range(self._first[t], self._first[t + 1]):
            if self._same[s] < 0:
                v = self._slot[s]
                if self._kind[v] == _STRING:
                    numbers[v * n + counts[v]] = cell[1]
                    lengths[v * n + counts[v]] = cell[2] - cell[1]
                else:
                    numbers[v * n + counts[v]] = cell[0]
                counts[v] += 1
            cell += 3

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _match_row(
        self, data: cython.p_char, begin: cython.longlong, end: cython.longlong, last: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """The template of a value: that of the last row, or the first that matches, at the latest the one that matches
        anything.

        Adjacent templates often begin alike: what one of them matched or missed there, the next one does too.
        """
        t: cython.Py_ssize_t
        start: cython.Py_ssize_t = self._start[last]
        if start < self._count - 1 and self._matched(start, 0, data, begin, end) < 0:
            return start
        matched: cython.Py_ssize_t = 0
        alike: cython.Py_ssize_t = 0
        for t in range(self._count - 1):
            alike = min(alike, self._alike[t])
            if t == start or matched < alike:
                continue
            matched = self._matched(t, alike, data, begin, end)
            if matched < 0:
                return t
            alike = _MANY
        self._matched(self._count - 1, 0, data, begin, end)
        return self._count - 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _matched(
        self,
        t: cython.Py_ssize_t,
        known: cython.Py_ssize_t,
        data: cython.p_char,
        at: cython.longlong,
        end: cython.longlong,
    ) -> cython.Py_ssize_t:
        """The number of literals, each with the slot after it, that match the bytes [at, end); -1 if all match,
        including the last literal.

        known: this many are known to match, and their variables are in the cells; the other variables are stored there.
        """
        s: cython.Py_ssize_t
        slots: cython.Py_ssize_t = self._first[t + 1] - self._first[t]
        piece: cython.Py_ssize_t = self._first[t] + t + known
        v: cython.Py_ssize_t
        earlier: cython.p_longlong
        size: cython.longlong
        cell: cython.p_longlong = self._cells + 3 * known
        if known:
            at = cell[-1]
        for s in range(known, slots):
            size = self._literal[piece + 1] - self._literal[piece]
            if size > end - at or memcmp(data + at, self._text + self._literal[piece], size):
                return s
            at += size
            piece += 1
            v = self._slot[self._first[t] + s]
            cell[1] = at
            if self._same[self._first[t] + s] >= 0:
                earlier = self._cells + 3 * (self._same[self._first[t] + s] - self._first[t])
                size = earlier[2] - earlier[1]
                if size > end - at or memcmp(data + at, data + earlier[1], size):
                    return s
                at += size
            elif self._kind[v] <= _ENUM:
                at = self._end_of_text(data, at, end, piece, s + 1 == slots)
                if at < 0 or not self._is_value(v, data, at, cell):
                    return s
            else:
                size = _read(self._kind[v], self._parameter[v], data + at, end - at, cell, self._months)
                if size < 0:
                    return s
                at += size
            cell[2] = at
            cell += 3
        size = self._literal[piece + 1] - self._literal[piece]
        if size != end - at or memcmp(data + at, self._text + self._literal[piece], size):
            return slots
        return -1

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _end_of_text(
        self,
        data: cython.p_char,
        at: cython.longlong,
        end: cython.longlong,
        following: cython.Py_ssize_t,
        is_last: cython.bint,
    ) -> cython.longlong:
        """The end of the text at `at`, before the literal that follows; -1 if that literal is missing."""
        size: cython.longlong = self._literal[following + 1] - self._literal[following]
        if is_last:
            return end - size if size <= end - at else -1
        if not size:
            return -1
        literal: cython.p_char = self._text + self._literal[following]
        found: cython.p_char
        while size <= end - at:
            found = cython.cast(cython.p_char, memchr(data + at, literal[0], end - at - size + 1))
            if found == cython.NULL:
                return -1
            at = found - data
            if memcmp(found, literal, size) == 0:
                return at
            at += 1
        return -1

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_value(
        self, v: cython.Py_ssize_t, data: cython.p_char, end: cython.longlong, cell: cython.p_longlong
    ) -> cython.bint:
        """Whether data[cell[1]:end] is a value of an enumeration, whose number is stored in the cell; any string is."""
        if self._kind[v] == _STRING:
            return True
        size: cython.longlong = end - cell[1]
        text: cython.p_char = data + cell[1]
        first: cython.Py_ssize_t = self._table_first[v]
        places: cython.Py_ssize_t = self._table_first[v + 1] - first
        at: cython.ulonglong = hashed(text, size)
        entry: cython.int = self._table[first + (at & (places - 1))]
        e: cython.Py_ssize_t
        while entry:
            e = self._value_first[v] + entry - 1
            if self._value[e + 1] - self._value[e] == size and not memcmp(self._values + self._value[e], text, size):
                cell[0] = entry - 1
                return True
            at += 1
            entry = self._table[first + (at & (places - 1))]
        return False


@cython.cfunc
def _ints(memory: bytes) -> cython.p_int:
    return cython.cast(cython.p_int, PyBytes_AS_STRING(memory))


# ------------------------------------------------------------ reading numbers


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _read(
    kind: cython.int,
    parameter: cython.int,
    text: cython.p_char,
    size: cython.longlong,
    number: cython.p_longlong,
    months: cython.p_char,
) -> cython.longlong:
    """The number of leading bytes of a text that its kind writes for a number; -1 for none."""
    if kind == _PADDED:
        return _read_padded(parameter, text, size, number)
    if kind == _HEX:
        return _read_hex(parameter, text, size, number)
    if kind in (_INTEGER, _DECIMAL):
        return _read_decimal(parameter, text, size, number)
    return _read_date(parameter, text, size, number, months)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _read_padded(
    digits: cython.Py_ssize_t, text: cython.p_char, size: cython.longlong, number: cython.p_longlong
) -> cython.longlong:
    """Read exactly `digits` digits."""
    i: cython.Py_ssize_t
    made: cython.longlong = 0
    if digits > size:
        return -1
    for i in range(digits):
        if not 48 <= text[i] <= 57:
            return -1
        made = 10 * made + text[i] - 48
    number[0] = made
    return digits


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _read_hex(
    digits: cython.Py_ssize_t, text: cython.p_char, size: cython.longlong, number: cython.p_longlong
) -> cython.longlong:
    """Read exactly `digits` lower-case hexadecimal digits, eight at a time."""
    at: cython.Py_ssize_t = digits & 7
    word: cython.ulonglong = 0x3030303030303030
    made: cython.ulonglong = 0
    part: cython.longlong
    if digits > size:
        return -1
    if at:
        memcpy(cython.cast(cython.p_char, cython.address(word)) + 8 - at, text, at)
        part = number_of_hex(word)
        if part < 0:
            return -1
        made = part
    while at < digits:
        memcpy(cython.address(word), text + at, 8)
        part = number_of_hex(word)
        if part < 0:
            return -1
        made = made << 32 | cython.cast(cython.ulonglong, part)
        at += 8
    number[0] = cython.cast(cython.longlong, made)
    return digits


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _read_decimal(
    scale: cython.Py_ssize_t, text: cython.p_char, size: cython.longlong, number: cython.p_longlong
) -> cython.longlong:
    """Read an integer or, if `scale` is not 0, a decimal with `scale` digits after the point, as JSON writes them."""
    at: cython.longlong = 0
    made: cython.longlong = 0
    fraction: cython.longlong = 0
    sign: cython.longlong = 0
    if size and text[0] == 45:
        sign = at = 1
    first: cython.longlong = at
    while at < size and 48 <= text[at] <= 57:
        if at - first >= _MOST_DIGITS:
            return -1
        made = 10 * made + text[at] - 48
        at += 1
    if at == first or (text[first] == 48 and at - first > 1):
        return -1
    if scale:
        if at - first + scale > _MOST_DIGITS or at >= size or text[at] != 46:
            return -1
        at += 1
        if _read_padded(scale, text + at, size - at, cython.address(fraction)) < 0:
            return -1
        at += scale
        while scale > 0:
            scale -= 1
            made *= 10
        made += fraction
    if sign and not made:
        return -1
    number[0] = -made if sign else made
    return at


# ------------------------------------------------------------ reading dates


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _read_date(
    form: cython.int, text: cython.p_char, size: cython.longlong, number: cython.p_longlong, months: cython.p_char
) -> cython.longlong:
    """Read a date in one of the forms, as a number of its units since 1970."""
    year: cython.longlong = 0
    month: cython.longlong = 0
    day: cython.longlong = 0
    at: cython.longlong = 10
    if form == 9:
        if size < 12 or text[2] != 47 or text[6] != 47:
            return -1
        while month < 12 and memcmp(months + 3 * month, text + 3, 3):
            month += 1
        month += 1
        if _read_padded(2, text, 2, cython.address(day)) < 0 or _read_padded(4, text + 7, 4, cython.address(year)) < 0:
            return -1
        at = 11
    else:
        if size < 10 or text[4] != 45 or text[7] != 45:
            return -1
        if (
            _read_padded(4, text, 4, cython.address(year)) < 0
            or _read_padded(2, text + 5, 2, cython.address(month)) < 0
            or _read_padded(2, text + 8, 2, cython.address(day)) < 0
        ):
            return -1
    if not 1 <= month <= 12 or not 1 <= day <= _month_days(year, month) or year < 1:
        return -1
    days: cython.longlong = _days(year, month, day)
    if form == 0:
        number[0] = days
        return at
    if at >= size or text[at] != (58 if form == 9 else 84 if form < 5 else 32):
        return -1
    taken: cython.longlong = _read_time(form, text + at + 1, size - at - 1, days, number)
    return -1 if taken < 0 else at + 1 + taken


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _month_days(year: cython.longlong, month: cython.longlong) -> cython.longlong:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _days(year: cython.longlong, month: cython.longlong, day: cython.longlong) -> cython.longlong:
    """Days since 1970-01-01, counting from March in eras of 400 years; `year` is at least 1."""
    if month <= 2:
        year -= 1
        month += 9
    else:
        month -= 3
    era: cython.longlong = year // 400
    of_era: cython.longlong = year - 400 * era
    of_year: cython.longlong = (153 * month + 2) // 5 + day - 1
    return 146097 * era + 365 * of_era + of_era // 4 - of_era // 100 + of_year - 719468


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _read_time(
    form: cython.int,
    text: cython.p_char,
    size: cython.longlong,
    days: cython.longlong,
    number: cython.p_longlong,
) -> cython.longlong:
    """Read a time of day; `number` becomes the number of the form's units since 1970."""
    hour: cython.longlong = 0
    minute: cython.longlong = 0
    second: cython.longlong = 0
    fraction: cython.longlong = 0
    if size < 5 or text[2] != 58:
        return -1
    if _read_padded(2, text, 2, cython.address(hour)) < 0 or _read_padded(2, text + 3, 2, cython.address(minute)) < 0:
        return -1
    if hour > 23 or minute > 59:
        return -1
    number[0] = 1440 * days + 60 * hour + minute
    if form == 1 or form == 5:
        return 5
    if size < 8 or text[5] != 58 or _read_padded(2, text + 6, 2, cython.address(second)) < 0 or second > 59:
        return -1
    number[0] = 60 * number[0] + second
    digits: cython.Py_ssize_t = 3 if form == 3 or form == 7 else 6 if form == 4 or form == 8 else 0
    if not digits:
        return 8
    if size < 9 + digits or text[8] != 46 or _read_padded(digits, text + 9, digits, cython.address(fraction)) < 0:
        return -1
    number[0] = (1_000 if digits == 3 else 1_000_000) * number[0] + fraction
    return 9 + digits


def gathered(
    data: cython.const[cython.uchar][::1],
    begins: cython.const[cython.longlong][::1],
    lengths: cython.const[cython.longlong][::1],
) -> bytes:
    """The pieces data[begins[i]:begins[i] + lengths[i]], concatenated. Raises ValueError for one out of bounds."""
    n: cython.Py_ssize_t = begins.shape[0]
    i: cython.Py_ssize_t
    total: cython.longlong = 0
    if lengths.shape[0] != n:
        raise ValueError("the numbers of lengths and places differ")
    for i in range(n):
        if not 0 <= begins[i] <= data.shape[0] or not 0 <= lengths[i] <= data.shape[0] - begins[i]:
            raise ValueError("the bytes of values end early")
        total += lengths[i]
    made: bytes = PyBytes_FromStringAndSize(cython.NULL, total)
    out: cython.p_char = PyBytes_AS_STRING(made)
    with cython.nogil:
        for i in range(n):
            if lengths[i]:
                memcpy(out, cython.address(data[begins[i]]), lengths[i])
                out += lengths[i]
    return made
