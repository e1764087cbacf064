# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Values put together from templates and variables, and taken apart into them.

A template is literals with slots between them; a slot shows the value that a variable has in the row. `spec/format.md`
says in section 10 how each kind of variable is written out.
"""

from typing import Any

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.libc.string import memcpy

STRING, ENUM, INTEGER, PADDED, DECIMAL, HEX, DATE = range(7)
_STRING = cython.declare(cython.int, 0)
_ENUM = cython.declare(cython.int, 1)
_INTEGER = cython.declare(cython.int, 2)
_PADDED = cython.declare(cython.int, 3)
_DECIMAL = cython.declare(cython.int, 4)
_HEX = cython.declare(cython.int, 5)
_DATE = cython.declare(cython.int, 6)

DATE_FORMS = 10
_MOST = cython.declare(cython.Py_ssize_t, 0x7FFF_FFFF)
_SLACK = cython.declare(cython.Py_ssize_t, 32)  # what is copied at once, and more than any number takes
SLACK_BYTES = 32
_MISSING = cython.declare(cython.Py_ssize_t, -1)
_INVALID = cython.declare(cython.Py_ssize_t, -2)
_TOO_LONG = cython.declare(cython.Py_ssize_t, -3)

_pairs: bytes = b"".join(b"%02d" % number for number in range(100))
_hex_digits: bytes = b"0123456789abcdef"
_months: bytes = b"JanFebMarAprMayJunJulAugSepOctNovDec"
_PAIRS = cython.declare(cython.p_char, PyBytes_AS_STRING(_pairs))
_HEX_DIGITS = cython.declare(cython.p_char, PyBytes_AS_STRING(_hex_digits))
_MONTHS = cython.declare(cython.p_char, PyBytes_AS_STRING(_months))
_BYTES = cython.declare(cython.ulonglong, 0x000000FF000000FF)
_NIBBLES = cython.declare(cython.ulonglong, 0x000F000F000F000F)
_SIXES = cython.declare(cython.ulonglong, 0x0606060606060606)
_ONES = cython.declare(cython.ulonglong, 0x0101010101010101)
_ZEROS = cython.declare(cython.ulonglong, 0x3030303030303030)
_LOW = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_FIRST_DAY = cython.declare(cython.longlong, -719162)  # 0001-01-01
_LAST_DAY = cython.declare(cython.longlong, 2932896)  # 9999-12-31


@cython.cfunc
def _copied(numbers: cython.const[cython.longlong][::1]) -> bytes:
    """Numbers as the memory of an int32 array. Raises OverflowError for one that is negative or too large."""
    n: cython.Py_ssize_t = numbers.shape[0]
    i: cython.Py_ssize_t
    made: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * n + 4)
    out: cython.p_int = cython.cast(cython.p_int, PyBytes_AS_STRING(made))
    for i in range(n):
        if not 0 <= numbers[i] < _MOST:
            raise OverflowError("a number of a template is out of bounds")
        out[i] = cython.cast(cython.int, numbers[i])
    return made


@cython.cfunc
def _edges(counts: cython.const[cython.longlong][::1]) -> bytes:
    """Sums of counts, from 0 on, as the memory of an int32 array."""
    n: cython.Py_ssize_t = counts.shape[0]
    i: cython.Py_ssize_t
    total: cython.longlong = 0
    made: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * n + 4)
    out: cython.p_int = cython.cast(cython.p_int, PyBytes_AS_STRING(made))
    for i in range(n):
        out[i] = cython.cast(cython.int, total)
        if not 0 <= counts[i] < _MOST - total:
            raise OverflowError("a count of a template is out of bounds")
        total += counts[i]
    out[n] = cython.cast(cython.int, total)
    return made


@cython.cfunc
def _ints(memory: bytes) -> cython.p_int:
    return cython.cast(cython.p_int, PyBytes_AS_STRING(memory))


@cython.final
@cython.cclass
class Opened:
    """Values of variables, where `Templates.put_together` finds them. Does not change, so threads may share it."""

    _templates: object  # which the kinds of the variables are of
    _held: list  # type: ignore[type-arg]  # what the memory of the values belongs to
    _memory: bytes
    _numbers: cython.p_longlong  # of each variable, the address of its numbers
    _texts: cython.p_longlong  # … and of its bytes
    _sizes: cython.p_longlong  # how many bytes
    _left: cython.p_longlong  # how many values


@cython.final
@cython.cclass
class Templates:
    """The templates and variables of one column. Everything in it was checked and does not change."""

    count = cython.declare(cython.Py_ssize_t, visibility="readonly")  # type: int
    """Templates; a row's code is 0 for null, k for the k-th of them."""
    variables = cython.declare(cython.Py_ssize_t, visibility="readonly")  # type: int
    memory = cython.declare(list, visibility="readonly")  # type: list[bytes]
    """What `matching.py` needs: literals, values, first slots, slots, edges of literals, first values of
    variables, edges of values, kinds, parameters. Numbers are memory of int32 arrays; 32 bytes of zeros follow texts.
    """
    _first: cython.p_int  # of each template, its first slot; one more
    _slot: cython.p_int  # of each slot, its variable
    _literal: cython.p_int  # where each literal begins, and the last ends; template t's are from first[t] + t on
    _text: cython.p_char
    _literal_bytes: cython.p_int  # of each template, those of its literals
    _step: cython.p_int  # eight numbers for each literal: its place, its bytes; of the slot behind it the kind (-1 for
    # none), parameter, variable, first value and number of values
    _own_first: cython.p_int  # of each template, the first of its own variables; one more
    _own: cython.p_int  # variables, each once for a template
    _kind: cython.p_int
    _parameter: cython.p_int
    _value_first: cython.p_int  # of each variable, the first of its values; one more
    _value: cython.p_int  # where each value begins, and the last ends
    _values: cython.p_char
    _longest: cython.p_int  # of each variable, the most bytes that a value takes; 0 for strings

    def __init__(
        self,
        kinds: cython.const[cython.longlong][::1],
        parameters: cython.const[cython.longlong][::1],
        value_counts: cython.const[cython.longlong][::1],
        value_lengths: cython.const[cython.longlong][::1],
        values: bytes,
        slot_counts: cython.const[cython.longlong][::1],
        slots: cython.const[cython.longlong][::1],
        literal_lengths: cython.const[cython.longlong][::1],
        literals: bytes,
    ) -> None:
        """Raises ValueError or OverflowError where they do not fit each other."""
        v: cython.Py_ssize_t
        self.variables, self.count = kinds.shape[0], slot_counts.shape[0]
        if parameters.shape[0] != self.variables or value_counts.shape[0] != self.variables:
            raise ValueError("the variables of templates differ in number")
        padded: bytes = literals + bytes(SLACK_BYTES)
        padded_values: bytes = values + bytes(SLACK_BYTES)
        first: bytes = _edges(slot_counts)
        slot: bytes = _copied(slots)
        literal: bytes = _edges(literal_lengths)
        value_first: bytes = _edges(value_counts)
        value: bytes = _edges(value_lengths)
        kind: bytes = _copied(kinds)
        parameter: bytes = _copied(parameters)
        self.memory = [padded, padded_values, first, slot, literal, value_first, value, kind, parameter]
        self._text, self._values = PyBytes_AS_STRING(padded), PyBytes_AS_STRING(padded_values)
        self._first, self._slot, self._literal = _ints(first), _ints(slot), _ints(literal)
        self._value_first, self._value = _ints(value_first), _ints(value)
        self._kind, self._parameter = _ints(kind), _ints(parameter)
        if (
            self._first[self.count] != slots.shape[0]
            or literal_lengths.shape[0] != slots.shape[0] + self.count
            or self._literal[literal_lengths.shape[0]] != len(literals)
            or self._value_first[self.variables] != value_lengths.shape[0]
            or self._value[value_lengths.shape[0]] != len(values)
        ):
            raise ValueError("the parts of templates do not fit each other")
        for v in range(self.variables):
            if not _is_known(self._kind[v], self._parameter[v], self._value_first[v + 1] - self._value_first[v]):
                raise ValueError(f"variable {v} has kind {self._kind[v]} with parameter {self._parameter[v]}")
        self._number()

    @cython.cfunc
    def _number(self) -> object:
        """Note of each template its own variables and the bytes of its literals, of each variable its longest value."""
        t: cython.Py_ssize_t
        s: cython.Py_ssize_t
        v: cython.Py_ssize_t
        own: cython.Py_ssize_t = 0
        size: cython.Py_ssize_t = self._first[self.count]
        memory: bytes = bytes(4 * (2 * self.count + 2 + size + 2 * self.variables + 1))
        steps: bytes = bytes(32 * (size + self.count) + 4)
        self.memory += [memory, steps]
        self._step = _ints(steps)
        self._literal_bytes = _ints(memory)
        self._own_first = self._literal_bytes + self.count
        self._own = self._own_first + self.count + 1
        self._longest = self._own + size
        seen: cython.p_int = self._longest + self.variables  # the template that named it last, counted from 1
        for t in range(self.count):
            self._own_first[t] = cython.cast(cython.int, own)
            begin: cython.Py_ssize_t = self._first[t] + t
            end: cython.Py_ssize_t = self._first[t + 1] + t + 1
            self._literal_bytes[t] = self._literal[end] - self._literal[begin]
            for s in range(self._first[t], self._first[t + 1]):
                v = self._slot[s]
                if v >= self.variables:
                    raise ValueError(f"a template names variable {v} of {self.variables}")
                if seen[v] != t + 1:
                    seen[v] = cython.cast(cython.int, t + 1)
                    self._own[own] = cython.cast(cython.int, v)
                    own += 1
            self._list_steps(t, begin)
        self._own_first[self.count] = cython.cast(cython.int, own)
        for v in range(self.variables):
            self._longest[v] = _longest(self._kind[v], self._parameter[v])
            for s in range(self._value_first[v], self._value_first[v + 1]):
                self._longest[v] = max(self._longest[v], self._value[s + 1] - self._value[s])
        return None

    @cython.cfunc
    def _list_steps(self, t: cython.Py_ssize_t, begin: cython.Py_ssize_t) -> object:
        """Put down what is to be done for a template, whose literals are those from `begin` on."""
        v: cython.Py_ssize_t
        s: cython.Py_ssize_t
        step: cython.p_int = self._step + 8 * begin
        for s in range(self._first[t], self._first[t + 1] + 1):
            step[0] = self._literal[s + t]
            step[1] = self._literal[s + t + 1] - self._literal[s + t]
            step[2] = -1
            if s < self._first[t + 1]:
                v = self._slot[s]
                step[2], step[3], step[4] = self._kind[v], self._parameter[v], cython.cast(cython.int, v)
                step[5], step[6] = self._value_first[v], self._value_first[v + 1] - self._value_first[v]
            step += 8
        return None

    def kind(self, variable: cython.Py_ssize_t) -> int:
        """The kind of a variable."""
        if not 0 <= variable < self.variables:
            raise IndexError("there is no such variable")
        return self._kind[variable]

    def times(self, variable: cython.Py_ssize_t) -> int:
        """In how many slots a template shows a variable at most."""
        t: cython.Py_ssize_t
        s: cython.Py_ssize_t
        here: cython.Py_ssize_t
        most: cython.Py_ssize_t = 0
        for t in range(self.count):
            here = 0
            for s in range(self._first[t], self._first[t + 1]):
                here += self._slot[s] == variable
            most = max(most, here)
        return most

    def that_show(self, variable: cython.Py_ssize_t) -> list[int]:
        """The codes of the templates that show a variable."""
        return [t + 1 for t in range(self.count) if self._shows(t, variable)]

    @cython.cfunc
    def _shows(self, t: cython.Py_ssize_t, variable: cython.Py_ssize_t) -> cython.bint:
        """Whether a template shows a variable."""
        i: cython.Py_ssize_t
        shown: cython.bint = False
        for i in range(self._own_first[t], self._own_first[t + 1]):
            shown |= self._own[i] == variable
        return shown

    def add_counts(
        self,
        codes: cython.const[cython.longlong][::1],
        low: cython.Py_ssize_t,
        high: cython.Py_ssize_t,
        counts: cython.longlong[::1],
    ) -> int:
        """Add to `counts` how many values each variable has in rows [low, high), and give how many slots they show.

        Raises IndexError for a code without a template, ValueError for rows or counts that are not there.
        """
        if not 0 <= low <= high <= codes.shape[0] or counts.shape[0] != self.variables:
            raise ValueError("fewer rows than asked for")
        per_template: bytes = bytes(8 * (self.count + 1))
        of: cython.p_longlong = cython.cast(cython.p_longlong, PyBytes_AS_STRING(per_template))
        i: cython.Py_ssize_t
        t: cython.Py_ssize_t
        code: cython.longlong
        shown: cython.longlong = 0
        wrong: cython.int = 0
        with cython.nogil:
            for i in range(low, high):
                code = codes[i]
                if not 0 <= code <= self.count:
                    wrong = 1
                    break
                of[code] += 1
        if wrong:
            raise IndexError("a row names a template that is not there")
        for t in range(self.count):
            if of[t + 1]:
                shown += of[t + 1] * (self._first[t + 1] - self._first[t])
                for i in range(self._own_first[t], self._own_first[t + 1]):
                    counts[self._own[i]] += of[t + 1]
        return shown

    def most_bytes(
        self, codes: cython.const[cython.longlong][::1], low: cython.Py_ssize_t, high: cython.Py_ssize_t, most: int
    ) -> int:
        """What rows [low, high) can take at most without their strings, or `most` where it is more."""
        if not 0 <= low <= high <= codes.shape[0]:
            raise ValueError("fewer rows than asked for")
        i: cython.Py_ssize_t
        s: cython.Py_ssize_t
        t: cython.Py_ssize_t
        v: cython.Py_ssize_t
        memory: bytes = bytes(8 * (self.count + 1))
        of: cython.p_longlong = cython.cast(cython.p_longlong, PyBytes_AS_STRING(memory))
        limit: cython.longlong = most
        total: cython.longlong = 0
        for t in range(self.count):
            of[t + 1] = self._literal_bytes[t]
            for s in range(self._first[t], self._first[t + 1]):
                v = self._slot[s]
                of[t + 1] += self._longest[v]
        for i in range(low, high):
            if not 0 <= codes[i] <= self.count:
                raise IndexError("a row names a template that is not there")
            total += of[codes[i]]
            if total >= limit:
                return most
        return total

    def opened(self, columns: list[Any], known: Opened | None = None) -> Opened:
        """Look at the values of variables once, for many calls of `put_together`.

        columns: of each variable its values: int64 numbers, for strings a pair of edges (one more than values, the
        first one a place in the bytes) and bytes; None for those that `known` has, or nobody asks for.
        Raises ValueError, TypeError for other columns.
        """
        n: cython.Py_ssize_t = self.variables
        v: cython.Py_ssize_t
        if len(columns) != n or (known is not None and known._templates is not self):
            raise ValueError("the columns are of other templates")
        made: Opened = Opened.__new__(Opened)
        made._templates = self
        made._held = [] if known is None else [known]
        made._memory = bytes(8 * 4 * (n + 1))
        made._numbers = cython.cast(cython.p_longlong, PyBytes_AS_STRING(made._memory))
        made._texts = made._numbers + n
        made._sizes = made._texts + n
        made._left = made._sizes + n
        if known is not None:
            memcpy(made._numbers, known._numbers, 8 * 4 * n)
        for v in range(n):
            if columns[v] is not None:
                self._open(v, columns[v], made)
        return made

    def put_together(
        self,
        codes: cython.const[cython.longlong][::1],
        low: cython.Py_ssize_t,
        high: cython.Py_ssize_t,
        opened: Opened,
        firsts: cython.const[cython.longlong][::1],
        offsets: cython.int[::1],
        row: cython.Py_ssize_t,
        out: cython.uchar[::1],
        at: cython.Py_ssize_t,
    ) -> int:
        """Write rows [low, high) to out[at:], and where each begins to offsets[row:], where the last ends behind them.

        firsts: of each variable, which of its values is the first in these rows.
        `out` must have room for 32 bytes more than are written. Gives the end.
        Raises IndexError for a template or value that is not there, ValueError for one that its kind cannot hold,
        OverflowError where `out` is too small.
        """
        n: cython.Py_ssize_t = self.variables
        v: cython.Py_ssize_t
        if opened is None or opened._templates is not self or firsts.shape[0] != n:
            raise ValueError("the columns are of other templates")
        if not 0 <= low <= high <= codes.shape[0]:
            raise ValueError("fewer rows than asked for")
        if row < 0 or row > offsets.shape[0] or high - low >= offsets.shape[0] - row:
            raise ValueError("fewer places than rows")
        if not 0 <= at <= out.shape[0] - _SLACK or out.shape[0] > _MOST:
            raise OverflowError("the values take more room than there is")
        memory: bytes = PyBytes_FromStringAndSize(cython.NULL, 8 * (n + 1))
        following: cython.p_longlong = cython.cast(cython.p_longlong, PyBytes_AS_STRING(memory))
        for v in range(n):
            if firsts[v] < 0:
                raise ValueError("the first value of a variable is out of bounds")
            following[v] = firsts[v]
        end: cython.Py_ssize_t
        with cython.nogil:
            end = self._fill(
                cython.address(codes[0]) if codes.shape[0] else cython.NULL, low, high, opened._numbers, following, n,
                cython.address(offsets[row]), cython.address(out[0]), at, out.shape[0] - _SLACK,
            )  # fmt: skip
        if end == _MISSING:
            raise IndexError("a row names a template or value that is not there")
        if end == _INVALID:
            raise ValueError("a value is not one of its variable's kind")
        if end == _TOO_LONG:
            raise OverflowError("the values take more room than there is")
        return end

    @cython.cfunc
    def _open(self, v: cython.Py_ssize_t, column: Any, made: Opened) -> object:
        """Note where the values of a variable lie, and hold them there."""
        if self._kind[v] != _STRING:
            numbers: cython.const[cython.longlong][::1] = column
            made._left[v] = numbers.shape[0]
            if numbers.shape[0]:
                made._numbers[v] = cython.cast(cython.longlong, cython.address(numbers[0]))
            made._held.append(column)
            return None
        given, text = column
        edges: cython.const[cython.longlong][::1] = given
        data: cython.const[cython.uchar][::1] = text
        made._left[v] = max(0, edges.shape[0] - 1)
        made._sizes[v] = data.shape[0]
        if edges.shape[0]:
            made._numbers[v] = cython.cast(cython.longlong, cython.address(edges[0]))
        if data.shape[0]:
            made._texts[v] = cython.cast(cython.longlong, cython.address(data[0]))
        made._held.append(column)
        return None

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _fill(
        self,
        codes: cython.pointer(cython.const[cython.longlong]),
        low: cython.Py_ssize_t,
        high: cython.Py_ssize_t,
        numbers: cython.p_longlong,
        following: cython.p_longlong,
        n: cython.Py_ssize_t,
        offsets: cython.p_int,
        out: cython.p_uchar,
        at: cython.Py_ssize_t,
        room: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """The loop of `put_together`. At every copy `at` is at most `room`, behind which 32 bytes may be written."""
        # Stores to `out` may change what `self` points to, for all that the compiler knows: hence copies of pointers.
        first: cython.p_int = self._first
        text: cython.p_char = self._text
        value: cython.p_int = self._value
        values: cython.p_char = self._values
        own_first: cython.p_int = self._own_first
        own: cython.p_int = self._own
        steps: cython.p_int = self._step
        count: cython.Py_ssize_t = self.count
        i: cython.Py_ssize_t
        t: cython.longlong
        size: cython.Py_ssize_t
        step: cython.p_int
        for i in range(low, high):
            offsets[i - low] = cython.cast(cython.int, at)
            t = codes[i] - 1
            if not -1 <= t < count:
                return _MISSING
            if t < 0:
                continue
            step = steps + 8 * (first[t] + t)
            while True:
                size = step[1]
                if size > room - at:
                    return _TOO_LONG
                _copy(out + at, text + step[0], size)
                at += size
                if step[2] < 0:
                    break
                size = _show(step, numbers, following[step[4]], n, value, values, out + at, room - at)
                if size < 0:
                    return size
                at += size
                step += 8
            for size in range(own_first[t], own_first[t + 1]):
                following[own[size]] += 1
        offsets[high - low] = cython.cast(cython.int, at)
        return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _show(
    step: cython.p_int,
    numbers: cython.p_longlong,
    place: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
    value: cython.p_int,
    values: cython.p_char,
    out: cython.p_uchar,
    room: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write what the slot of a step shows, the value at a place of its variable: at most `room` bytes and 32 more.
    Gives how many, or what is wrong.
    """
    v: cython.Py_ssize_t = step[4]
    size: cython.Py_ssize_t
    end: cython.longlong
    if place >= numbers[3 * n + v]:
        return _MISSING
    column: cython.p_longlong = cython.cast(cython.p_longlong, numbers[v])
    number: cython.longlong = column[place]
    if step[2] == _ENUM:
        if not 0 <= number < step[6]:
            return _MISSING
        number += step[5]
        size = value[number + 1] - value[number]
        if size > room:
            return _TOO_LONG
        _copy(out, values + value[number], size)
        return size
    if step[2] == _STRING:
        end = column[place + 1]
        if not 0 <= number <= end <= numbers[2 * n + v]:
            return _MISSING
        size = end - number
        if size > room:
            return _TOO_LONG
        if size:
            memcpy(out, cython.cast(cython.p_char, numbers[n + v]) + number, size)
        return size
    size = _write(step[2], step[3], number, out)
    if size < 0:
        return _INVALID
    return size if size <= room else _TOO_LONG


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _copy(to: cython.p_uchar, source: cython.p_char, size: cython.Py_ssize_t) -> cython.void:
    """Copy `size` bytes; up to 32 bytes behind both places may be read and written."""
    if size <= 16:
        memcpy(to, source, 16)
    elif size <= 32:
        memcpy(to, source, 32)
    else:
        memcpy(to, source, size)


@cython.cfunc
def _is_known(kind: cython.int, parameter: cython.int, values: cython.int) -> cython.bint:
    """Whether a kind has such a parameter and so many values."""
    if values and kind != _ENUM:
        return False
    if kind in (_PADDED, _DECIMAL):
        return 1 <= parameter <= 18
    if kind == _HEX:
        return 1 <= parameter <= 16
    if kind == _DATE:
        return parameter < DATE_FORMS
    return kind <= _INTEGER and parameter == 0


@cython.cfunc
def _longest(kind: cython.int, parameter: cython.int) -> cython.int:
    """The most bytes that a number of a kind takes; 0 for other kinds."""
    if kind == _INTEGER:
        return 20
    if kind == _DECIMAL:
        return 22  # a sign, 19 digits, one more before the point, the point
    if kind == _DATE:
        return 26
    return parameter if kind in (_PADDED, _HEX) else 0


# ------------------------------------------------------------ writing numbers


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _padded(number: cython.ulonglong, digits: cython.Py_ssize_t, to: cython.p_uchar) -> cython.void:
    """The lowest decimal digits of a number."""
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
    """How many decimal digits a number has."""
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
def _write(kind: cython.int, parameter: cython.int, number: cython.longlong, to: cython.p_uchar) -> cython.Py_ssize_t:
    """A number as its kind writes it, at most 28 bytes; -1 where it cannot."""
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
        if rest < 100:
            memcpy(to + sign, _PAIRS + 2 * rest + (1 if rest < 10 else 0), 2)
            return sign + (1 if rest < 10 else 2)
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
    """So many digits, eight at a time from the end; what stands before `to` is not touched."""
    at: cython.Py_ssize_t
    word: cython.ulonglong
    if digits < 16 and number >> (4 * digits):
        return -1
    left: cython.Py_ssize_t = digits
    while left >= 8:
        left -= 8
        word = _eight_digits(number & _LOW)
        for at in range(8):  # which compilers make one store
            to[left + at] = cython.cast(cython.uchar, (word >> (8 * at)) & 255)
        number >>= 32
    while left > 0:
        left -= 1
        to[left] = _HEX_DIGITS[number & 15]
        number >>= 4
    return digits


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _eight_digits(number: cython.ulonglong) -> cython.ulonglong:
    """The eight hexadecimal digits of 32 bits, as characters, the first one in the lowest byte."""
    spread: cython.ulonglong = (number >> 16) | ((number & 0xFFFF) << 32)
    spread = ((spread >> 8) & _BYTES) | ((spread & _BYTES) << 16)
    spread = ((spread >> 4) & _NIBBLES) | ((spread & _NIBBLES) << 8)
    letters: cython.ulonglong = ((spread + _SIXES) >> 4) & _ONES
    return spread + _ZEROS + letters * 39


# ------------------------------------------------------------ dates


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _per_day(form: cython.int) -> cython.longlong:
    """How many units of a form a day has."""
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
    """A date of years 1 to 9999; -1 for others. Days to dates: counted from March in eras of 400 years."""
    per_day: cython.longlong = _per_day(form)
    day: cython.longlong = number // per_day  # C's: towards 0
    rest: cython.longlong = number - day * per_day
    if rest < 0:
        rest += per_day
        day -= 1
    if not _FIRST_DAY <= day <= _LAST_DAY:
        return -1
    day += 719468  # from 0000-03-01 on; never negative here
    era: cython.longlong = day // 146097
    of_era: cython.longlong = day - 146097 * era
    year: cython.longlong = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year: cython.longlong = of_era - (365 * year + year // 4 - year // 100)
    month: cython.longlong = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year += 400 * era + (1 if month <= 2 else 0)
    at: cython.Py_ssize_t = 10
    if form == 9:  # as web servers log it
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
    """The time of a day, in units of a form."""
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
