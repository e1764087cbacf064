# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The location of each variable's values in a node of templates."""

from typing import Any

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.esformat.core.packs import (
    NODE_HEAD_BYTES,
    PackHead,
    end_of_strings,
    read_pack_head,
    whole_words,
)
from cython.cimports.esformat.core.template_columns import (
    ABSENT,
    BITS,
    FEW_CODES,
    MARK_ROWS,
    NUMBERS,
    STRING,
    TEMPLATES_HEAD,
    Column,
    add_up,
)

from esformat.core.numbers import read_numbers
from esformat.core.templates import Templates
from esformat.errors import CorruptSegmentError

_MOST_TEMPLATES = cython.declare(cython.Py_ssize_t, 0xFFFF)  # their numbers are stored in 16 bits


@cython.cclass
class TemplateColumns:
    """The location of each variable's values in one node. Threads may share it."""

    rows: int
    end: int
    """The byte after the node."""
    has_nulls: bool
    others: list[tuple[int, int, int]]
    """Those of `columns` whose values must be passed to `hold` or `render`, because they are strings or compressed."""

    def __init__(
        self,
        templates: Templates,
        stored: Any,
        at: cython.Py_ssize_t,
        codes: cython.const[cython.longlong][::1],
        most_slots: cython.Py_ssize_t,
    ) -> None:
        """stored: the body, bytes or an object with their memory; the node's variables begin at its byte `at`. codes:
        the template of each row.

        Raises CorruptSegmentError, also if the rows show more than `most_slots`.
        """
        body: cython.const[cython.uchar][::1] = stored
        self._held = [stored]
        self.rows = codes.shape[0]
        if templates.count > _MOST_TEMPLATES:
            raise ValueError(f"there are {templates.count} templates")
        self._take_templates(templates)
        self._take_codes(codes)
        columns: bytes = bytes(cython.sizeof(Column) * (self._variables + 1))
        self._held.append(columns)
        self._columns = cython.cast(cython.pointer(Column), PyBytes_AS_STRING(columns))
        self._count_values(most_slots)
        self._find_columns(body, at)

    @cython.cfunc
    def _take_templates(self, templates: Any) -> object:
        memory = templates.memory
        self._templates, self._count, self._variables = templates, templates.count, templates.variables
        self._text, self._values = PyBytes_AS_STRING(memory[0]), PyBytes_AS_STRING(memory[1])
        self._first, self._value_first, self._value = _ints(memory[2]), _ints(memory[5]), _ints(memory[6])
        self._kind, self._parameter = _ints(memory[7]), _ints(memory[8])
        self._literal_bytes = _ints(memory[9])
        self._longest = self._literal_bytes + self._count
        self._own_first = self._longest + self._variables
        self._own = self._own_first + self._count + 1
        self._step, self._row_bytes = _ints(memory[10]), _ints(memory[11])
        self._short = self._row_bytes + self._count
        self._times = self._short + self._count
        return None

    @cython.cfunc
    def _take_codes(self, codes: cython.const[cython.longlong][::1]) -> object:
        i: cython.Py_ssize_t
        n: cython.Py_ssize_t = self.rows
        memory: bytes = PyBytes_FromStringAndSize(cython.NULL, 2 * n + 2)
        self._held.append(memory)
        self._codes = cython.cast(cython.p_ushort, PyBytes_AS_STRING(memory))
        code: cython.ulonglong
        most: cython.ulonglong = self._count
        above: cython.ulonglong = 0  # its highest bit: whether a code is too large, or negative
        below: cython.ulonglong = 0  # its highest bit: whether a code is less than 1
        out: cython.p_ushort = self._codes
        for i in range(n):
            code = cython.cast(cython.ulonglong, codes[i])
            above |= code | (most - code)
            below |= code - 1
            out[i] = cython.cast(cython.ushort, code)
        if above >> 63:
            raise CorruptSegmentError("a row names a missing template")
        self.has_nulls = below >> 63 != 0
        return None

    @cython.cfunc
    def _count_values(self, most_slots: cython.Py_ssize_t) -> object:
        """Count the values of each variable, and bound the size of the rows."""
        t: cython.Py_ssize_t
        i: cython.Py_ssize_t
        shown: cython.longlong = 0
        memory: bytes = bytes(8 * (self._count + 1))
        of: cython.p_longlong = cython.cast(cython.p_longlong, PyBytes_AS_STRING(memory))
        self._mark(of)
        for t in range(self._count):
            if of[t + 1]:
                self._most_bytes += of[t + 1] * self._row_bytes[t]
                shown += of[t + 1] * (self._first[t + 1] - self._first[t])
                for i in range(self._own_first[t], self._own_first[t + 1]):
                    self._columns[self._own[i]].count += of[t + 1]
        if shown > most_slots:
            raise CorruptSegmentError(f"the rows of a node of templates show {shown} slots")
        return None

    @cython.cfunc
    def _mark(self, of: cython.p_longlong) -> object:
        """Count the rows of each code; if there are few codes, also store the counts at every 256th row."""
        i: cython.Py_ssize_t
        t: cython.Py_ssize_t
        marks: cython.Py_ssize_t = self.rows // MARK_ROWS if self._count < FEW_CODES else 0
        memory: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * marks * (self._count + 1))
        self._held.append(memory)
        self._before = cython.cast(cython.p_uint, PyBytes_AS_STRING(memory))
        for i in range(marks):
            add_up(self._codes, i * MARK_ROWS, (i + 1) * MARK_ROWS, of)
            for t in range(self._count + 1):
                self._before[i * (self._count + 1) + t] = cython.cast(cython.uint, of[t])
        add_up(self._codes, marks * MARK_ROWS, self.rows, of)
        return None

    @cython.cfunc
    def _find_columns(self, body: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> object:
        """Find the location of each variable's values."""
        v: cython.Py_ssize_t
        pack = cython.declare(PackHead)
        column: cython.pointer(Column)
        size: cython.Py_ssize_t = body.shape[0]
        self.others = []
        for v in range(self._variables):
            column = self._columns + v
            if not column.count:
                continue
            if at >= size:
                raise CorruptSegmentError("the values of a variable are cut short")
            column.at = at
            if self._kind[v] == STRING:
                self.others.append((v, at, column.count))
                at = end_of_strings(cython.address(body[0]), size, at, column.count)
                if at < 0:
                    raise CorruptSegmentError("the strings of a variable of templates break the format")
                continue
            if not read_pack_head(cython.address(body[0]), size, at, column.count, cython.address(pack)):
                raise CorruptSegmentError("the header of packed numbers breaks the format, or they are cut short")
            if pack.bits or not pack.width:
                column.form, column.bits, column.base = BITS, pack.bits, pack.base
                column.size = pack.end - pack.stored_at
                column.whole = whole_words(column.size, pack.bits) if pack.bits else 0
                column.stored = cython.address(body[0]) + pack.stored_at
            else:
                self.others.append((v, at, column.count))
            at = pack.end
        self.end = at
        return None

    @cython.cfunc
    def _share(self, others: Any, templates: Any) -> object:
        """Share the rows of `others`, whose values stay where they are, with shortened templates."""
        whole: TemplateColumns = others
        t: cython.Py_ssize_t
        if templates.count != whole._count or templates.variables != whole._variables:
            raise ValueError("shortened templates are as many as the rows have")
        self._held, self.others = whole._held, whole.others
        self.rows, self.end, self.has_nulls = whole.rows, whole.end, whole.has_nulls
        self._codes, self._before, self._columns = whole._codes, whole._before, whole._columns
        self._take_templates(templates)
        memory: bytes = bytes(8 * (self._count + 1))
        of: cython.p_longlong = cython.cast(cython.p_longlong, PyBytes_AS_STRING(memory))
        add_up(self._codes, 0, self.rows, of)
        for t in range(self._count):
            self._most_bytes += of[t + 1] * self._row_bytes[t]
        return None

    @property
    def columns(self) -> list[tuple[int, int, int]]:
        """Each variable that has values, where they are in the body, and how many there are."""
        every = [(v, self._columns[v].at, self._columns[v].count) for v in range(self._variables)]
        return [column for column in every if column[2]]

    def codes(self, low: cython.Py_ssize_t, high: cython.Py_ssize_t) -> bytes:
        """The templates of rows [low, high), counted from 1, 0 for null, as the memory of a uint16 array."""
        self._check_rows(low, high)
        return cython.cast(cython.p_char, self._codes + low)[: 2 * (high - low)]

    def look_up(
        self, low: cython.Py_ssize_t, high: cython.Py_ssize_t, places: Any, values: Any, out: cython.uchar[::1]
    ) -> int:
        """Look up a byte in `values` for each code, and write it to `out` for rows [low, high), or for those at some
        places. Returns the union of the bits. Raises ValueError if a byte or row is missing.
        """
        table: cython.const[cython.uchar][::1] = values
        chosen: cython.const[cython.longlong][::1]
        i: cython.Py_ssize_t
        bits: cython.uchar = 0
        self._check_rows(low, high)
        if table.shape[0] != self._count + 1 or out.shape[0] != (high - low if places is None else len(places)):
            raise ValueError("one byte for each template and each row is needed")
        if places is None:
            for i in range(low, high):
                out[i - low] = table[self._codes[i]]
                bits |= table[self._codes[i]]
            return bits
        chosen = places
        for i in range(chosen.shape[0]):
            if not 0 <= chosen[i] < self.rows:
                raise ValueError("fewer rows than requested")
            out[i] = table[self._codes[chosen[i]]]
            bits |= out[i]
        return bits

    def validity(self, low: cython.Py_ssize_t, high: cython.Py_ssize_t) -> bytes | None:
        """One byte for each of rows [low, high), 1 if it is valid; None if all are valid."""
        self._check_rows(low, high)
        if not self.has_nulls:
            return None
        i: cython.Py_ssize_t
        nulls: cython.Py_ssize_t = 0
        valid: bytes = PyBytes_FromStringAndSize(cython.NULL, high - low)
        out: cython.p_char = PyBytes_AS_STRING(valid)
        for i in range(low, high):
            out[i - low] = self._codes[i] != 0
            nulls += self._codes[i] == 0
        return valid if nulls else None

    @cython.cfunc
    @cython.exceptval(-1)
    def _check_rows(self, low: cython.Py_ssize_t, high: cython.Py_ssize_t) -> cython.int:
        if not 0 <= low <= high <= self.rows:
            raise ValueError("fewer rows than requested")
        return 0

    # ------------------------------------------------------------ values that callers pass

    def lacks(self, variable: cython.Py_ssize_t) -> bool:
        """Whether the numbers of a variable, which has some, must be passed to `hold` before use."""
        if not 0 <= variable < self._variables or self._kind[variable] == STRING:
            raise ValueError("the variable has no numbers")
        return self._columns[variable].count > 0 and self._columns[variable].form == ABSENT

    def hold(self, variable: cython.Py_ssize_t, given: Any) -> None:
        """Keep all numbers of one of `others`. Raises ValueError for fewer, or another kind of variable."""
        column: cython.pointer(Column)
        numbers: cython.const[cython.longlong][::1] = given
        if not 0 <= variable < self._variables or self._kind[variable] == STRING:
            raise ValueError("the variable has no numbers")
        column = self._columns + variable
        if numbers.shape[0] != column.count:
            raise ValueError("fewer numbers than the variable has values")
        if column.form == ABSENT:  # what another thread passed in the meantime stays
            self._held.append(given)
            column.numbers = cython.address(numbers[0]) if column.count else cython.NULL
            column.form = NUMBERS

    def needed(
        self, low: cython.Py_ssize_t, high: cython.Py_ssize_t, plain: Any = None
    ) -> list[tuple[int, int, int, int, int]]:
        """Those of `others` that rows [low, high) show and that are not held, each with the range of values needed:
        [first, last).

        plain: a decompressor; with it, needed numbers are decoded and held, so only strings are returned. Raises
        CorruptSegmentError.
        """
        self._check_rows(low, high)
        wanted: list[tuple[int, int, int, int, int]] = []
        v: cython.Py_ssize_t
        if not self.others:
            return wanted
        memory: bytes = bytes(8 * 2 * (self._count + 1))
        before: cython.p_longlong = cython.cast(cython.p_longlong, PyBytes_AS_STRING(memory))
        within: cython.p_longlong = before + self._count + 1
        add_up(self._codes, low, high, within)
        counted: cython.bint = False
        for v, at, count in self.others:
            if self._columns[v].form == ABSENT and self._shown(v, within):
                if plain is not None and self._kind[v] != STRING:
                    self.hold(v, read_numbers(self._held[0], at, count, plain)[0])
                    continue
                if not counted:
                    add_up(self._codes, 0, low, before)
                    counted = True
                first = self._shown(v, before)
                wanted.append((v, at, count, first, first + self._shown(v, within)))
        return wanted

    @cython.cfunc
    def _shown(self, variable: cython.Py_ssize_t, of: cython.p_longlong) -> cython.longlong:
        """The number of values of a variable, from the number of rows of each code."""
        t: cython.Py_ssize_t
        i: cython.Py_ssize_t
        values: cython.longlong = 0
        for t in range(self._count):
            if of[t + 1]:
                for i in range(self._own_first[t], self._own_first[t + 1]):
                    if self._own[i] == variable:
                        values += of[t + 1]
        return values


def read_template_codes(body: Any, at: cython.Py_ssize_t, count: cython.Py_ssize_t, plain: Any) -> tuple[Any, int]:
    """The templates of the rows of a node, counted from 1, 0 for null: an array of int64; and the byte after them.
    plain: a decompressor. Raises CorruptSegmentError.
    """
    view: cython.const[cython.uchar][::1] = body
    if not 0 <= at <= view.shape[0] - NODE_HEAD_BYTES or not _is_of_templates(cython.address(view[at])):
        raise CorruptSegmentError("the head of a node of templates breaks the format")
    return read_numbers(body, at + NODE_HEAD_BYTES, count, plain)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_of_templates(head: cython.pointer(cython.const[cython.uchar])) -> cython.bint:
    return (head[0] | head[1] << 8 | head[2] << 16 | cython.cast(cython.uint, head[3]) << 24) == TEMPLATES_HEAD


@cython.cfunc
def _ints(memory: bytes) -> cython.p_int:
    return cython.cast(cython.p_int, PyBytes_AS_STRING(memory))
