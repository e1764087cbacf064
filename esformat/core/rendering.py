# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Rows of a node of templates: where the values of each variable lie, and what the rows stand for. `searching.py` finds
texts in them.

Rows of one template that follow each other are rendered column by column: the values of each variable are written
into cells, then literals and cells are copied one behind another, 32 bytes at a time. Other rows are rendered one by
one, and those between them are only counted.
"""

from typing import Any

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.esformat.core.digits import CELL_BYTES, write_number, write_numbers
from cython.cimports.esformat.core.packs import (
    FOUR_TOGETHER_BITS,
    NODE_HEAD_BYTES,
    PackHead,
    end_of_strings,
    number_of_bits,
    read_pack_head,
    unpack_bits,
    whole_words,
)
from cython.cimports.esformat.core.rendering import ABSENT, BITS, NUMBERS, TEMPLATES_HEAD, TEXTS, Column
from cython.cimports.libc.string import memcpy, memset

from esformat.core.numbers import read_numbers
from esformat.core.templates import Templates
from esformat.errors import CorruptSegmentError

MOST_NODE_BYTES = 16 << 20
"""Bytes that the rows of a node take together."""

_STRING = cython.declare(cython.int, 0)
_ENUM = cython.declare(cython.int, 1)

_SLACK = cython.declare(cython.Py_ssize_t, 32)
_MOST = cython.declare(cython.Py_ssize_t, 0x7FFF_FFFF)
_FEW_ROWS = cython.declare(cython.Py_ssize_t, 8)  # up to so many are rendered one by one
_RUN_ROWS = cython.declare(cython.Py_ssize_t, 128)  # so that their cells stay in the processor's first cache
_RUN_CELLS = cython.declare(cython.Py_ssize_t, 2048)
_MOST_SLOTS = cython.declare(cython.Py_ssize_t, 1024)  # of a template
_FEW_CODES = cython.declare(cython.Py_ssize_t, 64)
_MARK_ROWS = cython.declare(cython.Py_ssize_t, 256)
_FOUR_ONES = cython.declare(cython.ulonglong, 0x0001000100010001)  # times a code: four of it side by side
_MOST_TEMPLATES = cython.declare(cython.Py_ssize_t, 0xFFFF)  # whose numbers are kept in 16 bits

_MISSING = cython.declare(cython.Py_ssize_t, -1)
_INVALID = cython.declare(cython.Py_ssize_t, -2)
_TOO_LONG = cython.declare(cython.Py_ssize_t, -3)

Piece = cython.struct(  # a literal, and the cells of the slot behind it
    literal=cython.p_char,
    bytes=cython.Py_ssize_t,
    texts=cython.pointer(cython.p_uchar),
    sizes=cython.p_int,
)

Work = cython.struct(  # of one call
    seen=cython.p_longlong,  # by code, rows that are not in `place` yet
    place=cython.p_longlong,  # of each variable, its next value
    touched=cython.p_int,  # codes with rows in `seen`
    cell=cython.p_int,  # of each variable, the first cell of its values
    slot=cython.p_int,  # the same of each slot
    sizes=cython.p_int,  # of each cell
    numbers=cython.p_longlong,
    texts=cython.pointer(cython.p_uchar),  # of each cell
    pieces=cython.pointer(Piece),
    cells=cython.p_uchar,
)


@cython.cclass
class TemplateColumns:
    """Where the values of each variable of one node lie. Threads may share it."""

    rows: int
    end: int
    """The byte behind the node."""
    has_nulls: bool
    others: list[tuple[int, int, int]]
    """Those of `columns` whose values must be given with `hold` or to `render`, as they are strings or compressed."""

    def __init__(
        self,
        templates: Templates,
        stored: Any,
        at: cython.Py_ssize_t,
        codes: cython.const[cython.longlong][::1],
        most_slots: cython.Py_ssize_t,
    ) -> None:
        """stored: the body, bytes or what has their memory; the node's variables begin at its byte `at`. codes: the
        template of each row.

        Raises CorruptSegmentError, also where the rows show more than `most_slots`.
        """
        body: cython.const[cython.uchar][::1] = stored
        memory = templates.memory
        self._templates, self._held = templates, [stored]
        self._count, self._variables, self.rows = templates.count, templates.variables, codes.shape[0]
        if self._count > _MOST_TEMPLATES:
            raise ValueError(f"there are {self._count} templates")
        self._text, self._values = PyBytes_AS_STRING(memory[0]), PyBytes_AS_STRING(memory[1])
        self._first, self._value_first, self._value = _ints(memory[2]), _ints(memory[5]), _ints(memory[6])
        self._kind, self._parameter = _ints(memory[7]), _ints(memory[8])
        self._literal_bytes = _ints(memory[9])
        self._own_first = self._literal_bytes + self._count
        self._own = self._own_first + self._count + 1
        self._longest = self._own + self._first[self._count]
        self._step, self._row_bytes = _ints(memory[10]), _ints(memory[11])
        self._short = self._row_bytes + self._count
        self._times = self._short + self._count
        self._take_codes(codes)
        columns: bytes = bytes(cython.sizeof(Column) * (self._variables + 1))
        self._held.append(columns)
        self._columns = cython.cast(cython.pointer(Column), PyBytes_AS_STRING(columns))
        self._count_values(most_slots)
        self._find_columns(body, at)

    @cython.cfunc
    def _take_codes(self, codes: cython.const[cython.longlong][::1]) -> object:
        i: cython.Py_ssize_t
        n: cython.Py_ssize_t = self.rows
        memory: bytes = PyBytes_FromStringAndSize(cython.NULL, 2 * n + 2)
        self._held.append(memory)
        self._codes = cython.cast(cython.p_ushort, PyBytes_AS_STRING(memory))
        code: cython.ulonglong
        most: cython.ulonglong = self._count
        above: cython.ulonglong = 0  # its highest bit: whether a code is larger, or negative
        below: cython.ulonglong = 0  # the same: whether one is less than 1
        out: cython.p_ushort = self._codes
        for i in range(n):
            code = cython.cast(cython.ulonglong, codes[i])
            above |= code | (most - code)
            below |= code - 1
            out[i] = cython.cast(cython.ushort, code)
        if above >> 63:
            raise CorruptSegmentError("a row names a template that is not there")
        self.has_nulls = below >> 63 != 0
        return None

    @cython.cfunc
    def _count_values(self, most_slots: cython.Py_ssize_t) -> object:
        """Note how many values each variable has, and how many bytes the rows take at most."""
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
        """Add up the rows of each code; of few codes, note how many rows of each precede every 256th row."""
        i: cython.Py_ssize_t
        t: cython.Py_ssize_t
        marks: cython.Py_ssize_t = self.rows // _MARK_ROWS if self._count < _FEW_CODES else 0
        memory: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * marks * (self._count + 1))
        self._held.append(memory)
        self._before = cython.cast(cython.p_uint, PyBytes_AS_STRING(memory))
        for i in range(marks):
            _add_up(self._codes, i * _MARK_ROWS, (i + 1) * _MARK_ROWS, of)
            for t in range(self._count + 1):
                self._before[i * (self._count + 1) + t] = cython.cast(cython.uint, of[t])
        _add_up(self._codes, marks * _MARK_ROWS, self.rows, of)
        return None

    @cython.cfunc
    def _find_columns(self, body: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> object:
        """Note where the values of each variable lie."""
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
            if self._kind[v] == _STRING:
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

    @property
    def columns(self) -> list[tuple[int, int, int]]:
        """Each variable that has values, where in the body they lie, and how many there are."""
        every = [(v, self._columns[v].at, self._columns[v].count) for v in range(self._variables)]
        return [column for column in every if column[2]]

    def codes(self, low: cython.Py_ssize_t, high: cython.Py_ssize_t) -> bytes:
        """The templates of rows [low, high), counted from 1, 0 for null, as the memory of a uint16 array."""
        self._check_rows(low, high)
        return cython.cast(cython.p_char, self._codes + low)[: 2 * (high - low)]

    def validity(self, low: cython.Py_ssize_t, high: cython.Py_ssize_t) -> bytes | None:
        """One byte for each of rows [low, high), 1 where it is valid; None where all are."""
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
            raise ValueError("fewer rows than asked for")
        return 0

    # ------------------------------------------------------------ values that are given

    def lacks(self, variable: cython.Py_ssize_t) -> bool:
        """Whether the numbers of a variable that has some must be given with `hold` before they are looked at."""
        if not 0 <= variable < self._variables or self._kind[variable] == _STRING:
            raise ValueError("the variable has no numbers")
        return self._columns[variable].count > 0 and self._columns[variable].form == ABSENT

    def hold(self, variable: cython.Py_ssize_t, given: Any) -> None:
        """Keep all numbers of one of `others`. Raises ValueError for fewer, or another kind of variable."""
        column: cython.pointer(Column)
        numbers: cython.const[cython.longlong][::1] = given
        if not 0 <= variable < self._variables or self._kind[variable] == _STRING:
            raise ValueError("the variable has no numbers")
        column = self._columns + variable
        if numbers.shape[0] != column.count:
            raise ValueError("fewer numbers than the variable has values")
        if column.form == ABSENT:  # what another thread gave meanwhile stays
            self._held.append(given)
            column.numbers = cython.address(numbers[0]) if column.count else cython.NULL
            column.form = NUMBERS

    def needed(
        self, low: cython.Py_ssize_t, high: cython.Py_ssize_t, plain: Any = None
    ) -> list[tuple[int, int, int, int, int]]:
        """Those of `others` that rows [low, high) show and nothing holds, and which of their values: [first, last).

        plain: a decompressor; numbers that are needed are decoded with it and held, which leaves strings alone.
        Raises CorruptSegmentError.
        """
        self._check_rows(low, high)
        wanted: list[tuple[int, int, int, int, int]] = []
        v: cython.Py_ssize_t
        if not self.others:
            return wanted
        memory: bytes = bytes(8 * 2 * (self._count + 1))
        before: cython.p_longlong = cython.cast(cython.p_longlong, PyBytes_AS_STRING(memory))
        within: cython.p_longlong = before + self._count + 1
        _add_up(self._codes, low, high, within)
        counted: cython.bint = False
        for v, at, count in self.others:
            if self._columns[v].form == ABSENT and self._shown(v, within):
                if plain is not None and self._kind[v] != _STRING:
                    self.hold(v, read_numbers(self._held[0], at, count, plain)[0])
                    continue
                if not counted:
                    _add_up(self._codes, 0, low, before)
                    counted = True
                first = self._shown(v, before)
                wanted.append((v, at, count, first, first + self._shown(v, within)))
        return wanted

    @cython.cfunc
    def _shown(self, variable: cython.Py_ssize_t, of: cython.p_longlong) -> cython.longlong:
        """How many values a variable has in so many rows of each code."""
        t: cython.Py_ssize_t
        i: cython.Py_ssize_t
        values: cython.longlong = 0
        for t in range(self._count):
            if of[t + 1]:
                for i in range(self._own_first[t], self._own_first[t + 1]):
                    if self._own[i] == variable:
                        values += of[t + 1]
        return values


@cython.final
@cython.cclass
class TemplateRows(TemplateColumns):
    """What the rows of one node stand for."""

    def most_bytes(self, low: cython.Py_ssize_t, high: cython.Py_ssize_t, given: list[Any], most: int) -> int:
        """What rows [low, high) can take at most, or `most` where that is less; given: as for `render`."""
        self._check_rows(low, high)
        i: cython.Py_ssize_t = low
        end: cython.Py_ssize_t
        total: cython.longlong = 0
        if low == 0 and high == self.rows:
            total, i = self._most_bytes, high
        while i < high:
            end = _end_of_run(self._codes, i, high)
            total += (end - i) * self._most_of(self._codes[i])
            i = end
        return min(total + self._bytes_of(given), most)

    def most_chosen(self, places: cython.const[cython.longlong][::1], given: list[Any], most: int) -> int:
        """The same of the rows at some places. Raises ValueError for a place without a row."""
        i: cython.Py_ssize_t
        total: cython.longlong = 0
        for i in range(places.shape[0]):
            if not 0 <= places[i] < self.rows:
                raise ValueError("fewer rows than asked for")
            total += self._most_of(self._codes[places[i]])
        return min(total + self._bytes_of(given), most)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _most_of(self, code: cython.Py_ssize_t) -> cython.longlong:
        """What a row of a code takes at most, without its strings."""
        return self._row_bytes[code - 1] if code else 0

    @cython.cfunc
    def _bytes_of(self, given: list[Any]) -> object:
        """What rows can take of the strings that are given."""
        total = 0
        for v, _, _, text in given:
            if not 0 <= v < self._variables:
                raise ValueError("strings are given for another kind of variable")
            total += len(text) * self._times[cython.cast(cython.Py_ssize_t, v)]
        return total

    def render(
        self,
        low: cython.Py_ssize_t,
        high: cython.Py_ssize_t,
        given: list[Any],
        offsets: cython.int[::1],
        row: cython.Py_ssize_t,
        out: cython.uchar[::1],
        at: cython.Py_ssize_t,
    ) -> int:
        """Write rows [low, high) to out[at:], and where each begins to offsets[row:], where the last ends behind them.

        given: values of variables of strings, as number of the variable, which of its values is the first, edges (one
        more than values, the first one a place in the bytes) and bytes.
        `out` must have room for 32 bytes more than are written. Gives the end.
        Raises IndexError for a value that is not there, ValueError for one that its kind cannot hold, OverflowError
        where `out` is too small.
        """
        self._check_rows(low, high)
        if row < 0 or row > offsets.shape[0] or high - low >= offsets.shape[0] - row:
            raise ValueError("fewer places than rows")
        if not 0 <= at <= out.shape[0] - _SLACK or out.shape[0] > _MOST:
            raise OverflowError("the values take more room than there is")
        held: list[Any] = []
        columns: cython.pointer(Column) = self._with(given, held)
        few: cython.bint = high - low <= _FEW_ROWS
        work: Work = self._prepare(held, not few)
        end: cython.Py_ssize_t
        with cython.nogil:
            if few:
                end = self._few(
                    columns, cython.address(work), cython.NULL, low, high, cython.address(offsets[row]),
                    cython.address(out[0]), at, out.shape[0] - _SLACK,
                )  # fmt: skip
            else:
                end = self._many(
                    columns,
                    cython.address(work),
                    low,
                    high,
                    cython.address(offsets[row]),
                    cython.address(out[0]),
                    at,
                    out.shape[0] - _SLACK,
                )
        return _checked(end)

    def render_places(
        self,
        places: cython.const[cython.longlong][::1],
        given: list[Any],
        offsets: cython.int[::1],
        row: cython.Py_ssize_t,
        out: cython.uchar[::1],
        at: cython.Py_ssize_t,
    ) -> int:
        """The same for rows at ascending places."""
        n: cython.Py_ssize_t = places.shape[0]
        i: cython.Py_ssize_t
        last: cython.longlong = -1
        for i in range(n):
            if not last < places[i] < self.rows:
                raise ValueError("fewer rows than asked for")
            last = places[i]
        if row < 0 or row > offsets.shape[0] or n >= offsets.shape[0] - row:
            raise ValueError("fewer places than rows")
        if not 0 <= at <= out.shape[0] - _SLACK or out.shape[0] > _MOST:
            raise OverflowError("the values take more room than there is")
        if not n:
            offsets[row] = cython.cast(cython.int, at)
            return at
        held: list[Any] = []
        columns: cython.pointer(Column) = self._with(given, held)
        work: Work = self._prepare(held, False)
        end: cython.Py_ssize_t
        with cython.nogil:
            end = self._few(
                columns, cython.address(work), cython.address(places[0]), 0, n, cython.address(offsets[row]),
                cython.address(out[0]), at, out.shape[0] - _SLACK,
            )  # fmt: skip
        return _checked(end)

    def values_at_hand(
        self, low: cython.Py_ssize_t, high: cython.Py_ssize_t, chosen: list[int] | None
    ) -> list[Any] | None:
        """What `values` gives, or None where values must be given for that. Raises CorruptSegmentError."""
        if self.needed(low, high):
            return None
        try:
            return self.values(low, high, chosen, [], MOST_NODE_BYTES)
        except (IndexError, ValueError, OverflowError) as error:
            raise CorruptSegmentError(f"a node of templates breaks the format: {error}") from None

    def values(
        self,
        low: cython.Py_ssize_t,
        high: cython.Py_ssize_t,
        chosen: list[int] | None,
        given: list[Any],
        most: cython.Py_ssize_t,
    ) -> list[Any]:
        """Rows [low, high) as Python bytes, None for null, or those of them at ascending places that are chosen.

        Raises as `render` does, which gets room for what they can take, and for `most` bytes at most.
        """
        self._check_rows(low, high)
        if not 0 <= most <= _MOST - _SLACK:
            raise OverflowError("the values take more room than there is")
        n: cython.Py_ssize_t = high - low if chosen is None else len(chosen)
        i: cython.Py_ssize_t
        total: cython.longlong = 0
        memory: bytes = PyBytes_FromStringAndSize(cython.NULL, 8 * (n + 1) + 4 * (n + 1))
        places: cython.p_longlong = cython.cast(cython.p_longlong, PyBytes_AS_STRING(memory))
        offsets: cython.p_int = cython.cast(cython.p_int, places + n + 1)
        for i in range(n):
            places[i] = low + i if chosen is None else chosen[i]
            if not low <= places[i] < high or (i and places[i] <= places[i - 1]):
                raise ValueError("fewer rows than asked for")
            total += self._most_of(self._codes[places[i]])
        most = min(total + self._bytes_of(given), most)
        texts: bytes = PyBytes_FromStringAndSize(cython.NULL, most + _SLACK)
        out: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(texts))
        held: list[Any] = []
        columns: cython.pointer(Column) = self._with(given, held)
        few: cython.bint = n <= _FEW_ROWS or chosen is not None
        work: Work = self._prepare(held, not few)
        end: cython.Py_ssize_t
        with cython.nogil:
            if few:
                end = self._few(columns, cython.address(work), places, 0, n, offsets, out, 0, most)
            else:
                end = self._many(columns, cython.address(work), low, high, offsets, out, 0, most)
        _checked(end)
        made: list[Any] = []
        for i in range(n):
            if self._codes[places[i]]:
                text: cython.p_char = cython.cast(cython.p_char, out + offsets[i])
                made.append(PyBytes_FromStringAndSize(text, offsets[i + 1] - offsets[i]))
            else:
                made.append(None)
        return made

    @cython.cfunc
    def _with(self, given: list[Any], held: list[Any]) -> cython.pointer(Column):
        """Where the values of all variables lie, with those that are given, in memory that `held` keeps."""
        if not given:
            return self._columns
        memory: bytes = PyBytes_FromStringAndSize(cython.NULL, cython.sizeof(Column) * (self._variables + 1))
        held.append(memory)
        columns: cython.pointer(Column) = cython.cast(cython.pointer(Column), PyBytes_AS_STRING(memory))
        memcpy(columns, self._columns, cython.sizeof(Column) * self._variables)
        v: cython.Py_ssize_t
        column: cython.pointer(Column)
        for v, first, edges_given, text_given in given:
            edges: cython.const[cython.longlong][::1] = edges_given
            text: cython.const[cython.uchar][::1] = text_given
            if not 0 <= v < self._variables or self._kind[v] != _STRING or first < 0:
                raise ValueError("strings are given for another kind of variable")
            column = columns + v
            column.form, column.first, column.count = TEXTS, first, max(0, edges.shape[0] - 1)
            column.numbers = cython.address(edges[0]) if edges.shape[0] else cython.NULL
            column.size = text.shape[0]
            column.stored = cython.address(text[0]) if text.shape[0] else cython.NULL
        return columns

    @cython.cfunc
    def _prepare(self, held: list[Any], many: cython.bint) -> Work:
        """Memory for one call."""
        codes: cython.Py_ssize_t = self._count + 1
        variables: cython.Py_ssize_t = self._variables + 1
        cells: cython.Py_ssize_t = _RUN_CELLS if many else 0
        rows: cython.Py_ssize_t = _RUN_ROWS if many else 0
        slots: cython.Py_ssize_t = _MOST_SLOTS if many else 0
        memory: bytes = PyBytes_FromStringAndSize(
            cython.NULL,
            8 * (codes + variables + rows + cells)
            + cython.sizeof(Piece) * (slots + 1)
            + 4 * (codes + variables + slots + cells)
            + CELL_BYTES * (cells + 1),
        )
        held.append(memory)
        work = cython.declare(Work)
        work.seen = cython.cast(cython.p_longlong, PyBytes_AS_STRING(memory))
        work.place = work.seen + codes
        work.numbers = work.place + variables
        work.texts = cython.cast(cython.pointer(cython.p_uchar), work.numbers + rows)
        work.pieces = cython.cast(cython.pointer(Piece), work.texts + cells)
        work.touched = cython.cast(cython.p_int, work.pieces + slots + 1)
        work.cell = work.touched + codes
        work.slot = work.cell + variables
        work.sizes = work.slot + slots
        work.cells = cython.cast(cython.p_uchar, work.sizes + cells)
        memset(work.seen, 0, 8 * (codes + variables))
        return work

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _pass_over(self, work: cython.pointer(Work), low: cython.Py_ssize_t, high: cython.Py_ssize_t) -> cython.void:
        """Move each variable's place on by the values of rows [low, high)."""
        k: cython.Py_ssize_t
        if low == 0 and high >= _MARK_ROWS and self._count < _FEW_CODES:
            low = high // _MARK_ROWS * _MARK_ROWS
            before: cython.p_uint = self._before + (high // _MARK_ROWS - 1) * (self._count + 1)
            for k in range(1, self._count + 1):
                self._move(work, k, before[k])
        while low < high:  # mostly many rows have the same code
            k = _end_of_run(self._codes, low, high)
            if k < high and k - low <= _FEW_ROWS:
                break
            self._move(work, self._codes[low], k - low)
            low = k
        if low == high:
            return
        if self._count < _FEW_CODES:  # they are counted in four lanes, as one count waits for the one before
            lanes = cython.declare(cython.uint[4 * 64])
            memset(lanes, 0, cython.sizeof(lanes))
            k = low
            while k + 4 <= high:
                lanes[self._codes[k]] += 1
                lanes[64 + self._codes[k + 1]] += 1
                lanes[128 + self._codes[k + 2]] += 1
                lanes[192 + self._codes[k + 3]] += 1
                k += 4
            while k < high:
                lanes[self._codes[k]] += 1
                k += 1
            for k in range(1, self._count + 1):
                self._move(work, k, lanes[k] + lanes[64 + k] + lanes[128 + k] + lanes[192 + k])
            return
        touched: cython.Py_ssize_t = _tally(self._codes, low, high, work)
        for k in range(touched):
            self._move(work, work.touched[k], work.seen[work.touched[k]])
            work.seen[work.touched[k]] = 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _move(self, work: cython.pointer(Work), code: cython.Py_ssize_t, rows: cython.longlong) -> cython.void:
        """Move the places of a code's variables on by so many rows."""
        i: cython.Py_ssize_t
        if code and rows:
            for i in range(self._own_first[code - 1], self._own_first[code]):
                work.place[self._own[i]] += rows

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _few(
        self,
        columns: cython.pointer(Column),
        work: cython.pointer(Work),
        places: cython.pointer(cython.const[cython.longlong]),
        low: cython.Py_ssize_t,
        high: cython.Py_ssize_t,
        offsets: cython.p_int,
        out: cython.p_uchar,
        at: cython.Py_ssize_t,
        room: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Rows [low, high), or those at places[low:high], one by one. At every copy `at` is at most `room`, behind
        which 32 bytes may be written.
        """
        i: cython.Py_ssize_t
        row: cython.Py_ssize_t
        passed: cython.Py_ssize_t = 0
        for i in range(low, high):
            row = i if places == cython.NULL else places[i]
            offsets[i - low] = cython.cast(cython.int, at)
            if passed < row:
                self._pass_over(work, passed, row)
            passed = row + 1
            at = self._row(columns, work, cython.cast(cython.Py_ssize_t, self._codes[row]) - 1, out, at, room)
            if at < 0:
                return at
        offsets[high - low] = cython.cast(cython.int, at)
        return at

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _row(
        self,
        columns: cython.pointer(Column),
        work: cython.pointer(Work),
        t: cython.Py_ssize_t,
        out: cython.p_uchar,
        at: cython.Py_ssize_t,
        room: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """The next row, of template t, or a null where that is -1. Gives the end."""
        k: cython.Py_ssize_t
        size: cython.Py_ssize_t
        if t < 0:
            return at
        step: cython.p_int = self._step + 8 * (self._first[t] + t)
        while True:
            size = step[1]
            if size > room - at:
                return _TOO_LONG
            _copy(out + at, self._text + step[0], size)
            at += size
            if step[2] < 0:
                break
            size = self._show(columns + step[4], step, work.place[step[4]], out + at, room - at)
            if size < 0:
                return size
            at += size
            step += 8
        for k in range(self._own_first[t], self._own_first[t + 1]):
            work.place[self._own[k]] += 1
        return at

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _show(
        self,
        column: cython.pointer(Column),
        step: cython.p_int,
        place: cython.longlong,
        out: cython.p_uchar,
        room: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Write what the slot of a step shows, the value at a place of its variable: at most `room` bytes and 32 more.
        Gives how many, or what is wrong.
        """
        size: cython.Py_ssize_t
        number: cython.longlong
        place -= column.first
        if not 0 <= place < column.count or column.form == ABSENT:
            return _MISSING
        if step[2] == _STRING:
            number = column.numbers[place]
            if not 0 <= number <= column.numbers[place + 1] <= column.size:
                return _MISSING
            size = column.numbers[place + 1] - number
            if size > room:
                return _TOO_LONG
            if size:
                memcpy(out, column.stored + number, size)
            return size
        if column.form == NUMBERS:
            number = column.numbers[place]
        elif column.bits:
            number = number_of_bits(column.stored, column.whole, column.bits, column.base, place)
        else:
            number = column.base
        if step[2] == _ENUM:
            if not 0 <= number < step[6]:
                return _MISSING
            number += step[5]
            size = self._value[number + 1] - self._value[number]
            if size > room:
                return _TOO_LONG
            _copy(out, self._values + self._value[number], size)
            return size
        size = write_number(step[2], step[3], number, out)
        if size < 0:
            return _INVALID
        return size if size <= room else _TOO_LONG

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _many(
        self,
        columns: cython.pointer(Column),
        work: cython.pointer(Work),
        low: cython.Py_ssize_t,
        high: cython.Py_ssize_t,
        offsets: cython.p_int,
        out: cython.p_uchar,
        at: cython.Py_ssize_t,
        room: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Rows [low, high), run by run. At every copy `at` is at most `room`, behind which 32 bytes may be written."""
        begin: cython.Py_ssize_t = low
        end: cython.Py_ssize_t
        most: cython.Py_ssize_t
        t: cython.Py_ssize_t
        self._pass_over(work, 0, low)
        while begin < high:
            t = cython.cast(cython.Py_ssize_t, self._codes[begin]) - 1
            most = _RUN_ROWS
            if t >= 0:
                most = min(most, _RUN_CELLS // (self._own_first[t + 1] - self._own_first[t] + 1))
            end = _end_of_run(self._codes, begin, min(high, begin + most))
            if t >= 0 and end - begin > _FEW_ROWS:
                at = self._run(columns, work, t, end - begin, offsets + (begin - low), out, at, room)
                if at < 0:
                    return at
                begin = end
            while begin < end:
                offsets[begin - low] = cython.cast(cython.int, at)
                at = self._row(columns, work, t, out, at, room)
                if at < 0:
                    return at
                begin += 1
        offsets[high - low] = cython.cast(cython.int, at)
        return at

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _run(
        self,
        columns: cython.pointer(Column),
        work: cython.pointer(Work),
        t: cython.Py_ssize_t,
        n: cython.Py_ssize_t,
        offsets: cython.p_int,
        out: cython.p_uchar,
        at: cython.Py_ssize_t,
        room: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """The next n rows, all of template t. Gives the end."""
        k: cython.Py_ssize_t
        i: cython.Py_ssize_t
        v: cython.Py_ssize_t
        cell: cython.Py_ssize_t = 0
        total: cython.longlong = 0
        wide: cython.int = 0  # whether a value takes more than 16 bytes
        slots: cython.Py_ssize_t = self._first[t + 1] - self._first[t]
        step: cython.p_int = self._step + 8 * (self._first[t] + t)
        for k in range(self._own_first[t], self._own_first[t + 1]):
            v = self._own[k]
            i = self._write_column(columns + v, v, work, cell, n)
            if i < 0:
                return i
            work.cell[v] = cython.cast(cython.int, cell)
            work.place[v] += n
            if self._longest[v] > 16:
                for i in range(cell, cell + n):
                    wide |= work.sizes[i] > 16
            cell += n
        for k in range(slots):
            work.slot[k] = work.cell[step[8 * k + 4]]
        if self._short[t] and self._row_bytes[t] <= (room - at) // n:  # no value is longer than its kind's longest
            if wide:
                return _join_short(True, work, self._text, step, slots, n, offsets, out, at)
            return _join_short(False, work, self._text, step, slots, n, offsets, out, at)
        total = n * cython.cast(cython.longlong, self._literal_bytes[t])
        for k in range(slots):
            for i in range(n):
                total += work.sizes[work.slot[k] + i]
        if total > room - at:
            return _TOO_LONG
        _join(work, self._text, step, slots, n, offsets, out, at)
        return at + total

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _write_column(
        self,
        column: cython.pointer(Column),
        v: cython.Py_ssize_t,
        work: cython.pointer(Work),
        cell: cython.Py_ssize_t,
        n: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Write the next n values of a variable into cells from `cell` on."""
        i: cython.Py_ssize_t
        numbers: cython.pointer(cython.const[cython.longlong])
        sizes: cython.p_int = work.sizes + cell
        texts: cython.pointer(cython.p_uchar) = work.texts + cell
        place: cython.longlong = work.place[v] - column.first
        if place < 0 or n > column.count - place or column.form == ABSENT:
            return _MISSING
        if column.form == TEXTS:
            numbers = column.numbers + place
            for i in range(n):
                if not 0 <= numbers[i] <= numbers[i + 1] <= column.size or numbers[i + 1] - numbers[i] > _MOST:
                    return _MISSING
                sizes[i] = cython.cast(cython.int, numbers[i + 1] - numbers[i])
                texts[i] = cython.cast(cython.p_uchar, column.stored) + numbers[i]
            return 0
        if self._kind[v] == _ENUM and column.form == BITS and 0 < column.bits <= 32 and not column.base:
            return _write_enum_bits(
                column,
                place,
                n,
                self._value + self._value_first[v],
                self._value_first[v + 1] - self._value_first[v],
                cython.cast(cython.p_uchar, self._values),
                sizes,
                texts,
            )
        if column.form == NUMBERS:
            numbers = column.numbers + place
        else:
            if column.bits:
                unpack_bits(column.stored, column.size, column.bits, column.base, place, work.numbers, n)
            else:
                for i in range(n):
                    work.numbers[i] = column.base
            numbers = work.numbers
        if self._kind[v] == _ENUM:
            return _write_enum(
                numbers,
                n,
                self._value + self._value_first[v],
                self._value_first[v + 1] - self._value_first[v],
                cython.cast(cython.p_uchar, self._values),
                sizes,
                texts,
            )
        cells: cython.p_uchar = work.cells + CELL_BYTES * cell
        return 0 if write_numbers(self._kind[v], self._parameter[v], numbers, n, cells, sizes, texts) else _INVALID


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _write_enum(
    numbers: cython.pointer(cython.const[cython.longlong]),
    n: cython.Py_ssize_t,
    edges: cython.p_int,
    count: cython.Py_ssize_t,
    values: cython.p_uchar,
    sizes: cython.p_int,
    texts: cython.pointer(cython.p_uchar),
) -> cython.Py_ssize_t:
    """Cells of n values of an enumeration of `count`, of which each begins and ends at an edge of `values`."""
    i: cython.Py_ssize_t
    for i in range(n):
        if not _put_enum(cython.cast(cython.ulonglong, numbers[i]), count, edges, values, sizes + i, texts + i):
            return _MISSING
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _write_enum_bits(
    column: cython.pointer(Column),
    first: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
    edges: cython.p_int,
    count: cython.Py_ssize_t,
    values: cython.p_uchar,
    sizes: cython.p_int,
    texts: cython.pointer(cython.p_uchar),
) -> cython.Py_ssize_t:
    """The same of numbers of up to 32 bits without a base, which is most of them."""
    # Stores to cells may change what `column` points to, for all that the compiler knows: hence copies.
    stored: cython.pointer(cython.const[cython.uchar]) = column.stored
    bits: cython.Py_ssize_t = column.bits
    whole: cython.Py_ssize_t = column.whole
    i: cython.Py_ssize_t = 0
    k: cython.Py_ssize_t
    together: cython.Py_ssize_t = min(max(whole - first, 0), n) if bits <= FOUR_TOGETHER_BITS else 0
    place: cython.Py_ssize_t = bits * first
    word = cython.declare(cython.ulonglong)
    mask: cython.ulonglong = (cython.cast(cython.ulonglong, 1) << bits) - 1
    while i + 4 <= together:
        memcpy(cython.address(word), stored + (place >> 3), 8)
        word >>= place & 7
        for k in range(4):
            if not _put_enum(word & mask, count, edges, values, sizes + i + k, texts + i + k):
                return _MISSING
            word >>= bits
        i += 4
        place += 4 * bits
    while i < n:
        word = cython.cast(cython.ulonglong, number_of_bits(stored, whole, bits, 0, first + i))
        if not _put_enum(word, count, edges, values, sizes + i, texts + i):
            return _MISSING
        i += 1
    return 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_enum(
    number: cython.ulonglong,
    count: cython.Py_ssize_t,
    edges: cython.p_int,
    values: cython.p_uchar,
    size: cython.p_int,
    text: cython.pointer(cython.p_uchar),
) -> cython.bint:
    """The cell of one value of an enumeration of `count`; False where it has no such value."""
    begin: cython.int
    if number >= cython.cast(cython.ulonglong, count):
        return False
    begin = edges[number]
    size[0] = edges[number + 1] - begin
    text[0] = values + begin
    return True


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _join_short(
    wide: cython.bint,
    work: cython.pointer(Work),
    text: cython.p_char,
    steps: cython.p_int,
    slots: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
    offsets: cython.p_int,
    out: cython.p_uchar,
    at: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Put n rows together, of whose literals none takes more than 32 bytes, and no value more, or more than 16 if it
    is not wide. Gives the end.
    """
    pieces: cython.pointer(Piece) = work.pieces
    last: cython.pointer(Piece) = pieces + slots
    piece: cython.pointer(Piece)
    i: cython.Py_ssize_t
    k: cython.Py_ssize_t
    to: cython.p_uchar = out + at
    for k in range(slots + 1):
        pieces[k].literal = text + steps[8 * k]
        pieces[k].bytes = steps[8 * k + 1]
        if k < slots:
            pieces[k].texts = work.texts + work.slot[k]
            pieces[k].sizes = work.sizes + work.slot[k]
    for i in range(n):
        offsets[i] = cython.cast(cython.int, to - out)
        piece = pieces
        while piece < last:
            memcpy(to, piece.literal, 32)
            to += piece.bytes
            if wide:
                memcpy(to, piece.texts[i], 32)
            else:
                memcpy(to, piece.texts[i], 16)
            to += piece.sizes[i]
            piece += 1
        memcpy(to, last.literal, 32)
        to += last.bytes
    return to - out


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _join(
    work: cython.pointer(Work),
    text: cython.p_char,
    steps: cython.p_int,
    slots: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
    offsets: cython.p_int,
    out: cython.p_uchar,
    at: cython.Py_ssize_t,
) -> cython.void:
    """The same for any rows."""
    i: cython.Py_ssize_t
    k: cython.Py_ssize_t
    cell: cython.Py_ssize_t
    step: cython.p_int
    for i in range(n):
        offsets[i] = cython.cast(cython.int, at)
        step = steps
        for k in range(slots):
            _copy(out + at, text + step[0], step[1])
            at += step[1]
            cell = work.slot[k] + i
            if step[2] != _STRING:
                _copy(out + at, cython.cast(cython.p_char, work.texts[cell]), work.sizes[cell])
            elif work.sizes[cell]:  # exactly, as there may be nothing behind it
                memcpy(out + at, work.texts[cell], work.sizes[cell])
            at += work.sizes[cell]
            step += 8
        _copy(out + at, text + step[0], step[1])
        at += step[1]


def read_template_codes(body: Any, at: cython.Py_ssize_t, count: cython.Py_ssize_t, plain: Any) -> tuple[Any, int]:
    """The templates of the rows of a node as it has them, counted from 1, 0 for null: an array of int64; and the byte
    after them. plain: a decompressor. Raises CorruptSegmentError.
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


@cython.cfunc
@cython.exceptval(-1)
def _checked(end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """The end of what was rendered, or an error for what is wrong."""
    if end == _MISSING:
        raise IndexError("a row names a value that is not there")
    if end == _INVALID:
        raise ValueError("a value is not one of its variable's kind")
    if end == _TOO_LONG:
        raise OverflowError("the values take more room than there is")
    return end


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
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _end_of_run(codes: cython.p_ushort, low: cython.Py_ssize_t, high: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """The row behind those from `low` on, and before `high`, that have the code of row `low`: mostly many."""
    i: cython.Py_ssize_t = low + 1
    word = cython.declare(cython.ulonglong)
    alike: cython.ulonglong = codes[low] * _FOUR_ONES
    while i + 4 <= high:
        memcpy(cython.address(word), codes + i, 8)
        if word != alike:
            break
        i += 4
    while i < high and codes[i] == codes[low]:
        i += 1
    return i


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _add_up(
    codes: cython.p_ushort, low: cython.Py_ssize_t, high: cython.Py_ssize_t, of: cython.p_longlong
) -> cython.void:
    """Add the number of rows of each code in [low, high)."""
    i: cython.Py_ssize_t = low
    begin: cython.Py_ssize_t
    while i < high:
        begin = i
        i = _end_of_run(codes, i, high)
        of[codes[begin]] += i - begin


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _tally(
    codes: cython.p_ushort, low: cython.Py_ssize_t, high: cython.Py_ssize_t, work: cython.pointer(Work)
) -> cython.Py_ssize_t:
    """The same in `work`, which also gets a list of these codes; how many."""
    i: cython.Py_ssize_t = low
    begin: cython.Py_ssize_t
    touched: cython.Py_ssize_t = 0
    while i < high:
        begin = i
        i = _end_of_run(codes, i, high)
        if not work.seen[codes[begin]]:
            work.touched[touched] = codes[begin]
            touched += 1
        work.seen[codes[begin]] += i - begin
    return touched
