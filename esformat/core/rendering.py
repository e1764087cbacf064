# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Render the rows of a node of templates; `searching.py` finds texts in them.

Adjacent rows of one template, or some of them, are rendered column by column: the values of each variable are written
to cells, then literals and cells are copied one after another, 32 bytes at a time. Other rows are rendered one by one,
and rows between them are only counted.
"""

from typing import Any

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.esformat.core.cells import (
    MISSING,
    Piece,
    Work,
    copy_some,
    join_any,
    join_short,
    write_enum,
    write_enum_bits,
)
from cython.cimports.esformat.core.digits import CELL_BYTES, write_number, write_numbers
from cython.cimports.esformat.core.packs import number_of_bits, unpack_bits
from cython.cimports.esformat.core.template_columns import (
    ABSENT,
    BITS,
    ENUM,
    FEW_CODES,
    MARK_ROWS,
    NUMBERS,
    STRING,
    TEXTS,
    Column,
    TemplateColumns,
    end_of_run,
)
from cython.cimports.libc.string import memcpy, memset

from esformat.errors import CorruptSegmentError

MOST_NODE_BYTES = 16 << 20
"""Most bytes of all rows of a node."""


_SLACK = cython.declare(cython.Py_ssize_t, 32)
_MOST = cython.declare(cython.Py_ssize_t, 0x7FFF_FFFF)
_FEW_ROWS = cython.declare(cython.Py_ssize_t, 8)  # up to this many rows are rendered one by one, with the lock
_RUN_ROWS = cython.declare(cython.Py_ssize_t, 128)  # so that their cells stay in the processor's L1 cache
_RUN_CELLS = cython.declare(cython.Py_ssize_t, 2048)
_MOST_SLOTS = cython.declare(cython.Py_ssize_t, 1024)  # of a template

_INVALID = cython.declare(cython.Py_ssize_t, -2)
_TOO_LONG = cython.declare(cython.Py_ssize_t, -3)


@cython.final
@cython.cclass
class TemplateRows(TemplateColumns):  # type: ignore[misc]  # the class is imported from C
    """The rows of one node, for rendering."""

    def shortened(self, templates: Any) -> Any:
        """These rows, shown by `Templates.shortened` of their templates. Raises ValueError for other templates."""
        made: TemplateRows = TemplateRows.__new__(TemplateRows)
        made._share(self, templates)
        return made

    def most_bytes(self, low: cython.Py_ssize_t, high: cython.Py_ssize_t, given: list[Any], most: int) -> int:
        """Upper bound of the size of rows [low, high), at most `most`. given: as in `render`."""
        self._check_rows(low, high)
        i: cython.Py_ssize_t = low
        end: cython.Py_ssize_t
        total: cython.longlong = 0
        if low == 0 and high == self.rows:
            total, i = self._most_bytes, high
        while i < high:
            end = end_of_run(self._codes, i, high)
            total += (end - i) * self._most_of(self._codes[i])
            i = end
        return min(total + self._bytes_of(given), most)

    def most_chosen(self, places: cython.const[cython.longlong][::1], given: list[Any], most: int) -> int:
        """Like `most_bytes`, for the rows at some places. Raises ValueError for a place without a row."""
        i: cython.Py_ssize_t
        total: cython.longlong = 0
        for i in range(places.shape[0]):
            if not 0 <= places[i] < self.rows:
                raise ValueError("fewer rows than requested")
            total += self._most_of(self._codes[places[i]])
        return min(total + self._bytes_of(given), most)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _most_of(self, code: cython.Py_ssize_t) -> cython.longlong:
        """Upper bound of the size of a row with a code, without its strings."""
        return self._row_bytes[code - 1] if code else 0

    @cython.cfunc
    def _bytes_of(self, given: list[Any]) -> object:
        """Upper bound of the bytes that rows take from the strings `given`."""
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
        """Write rows [low, high) to out[at:], and the positions where they begin to offsets[row:], followed by the end
        of the last row.

        Returns the end. `out` must have room for 32 bytes more than are written. Raises IndexError for a value that
        does not exist, ValueError for one that its kind cannot represent, OverflowError if `out` is too small.

        given: values of variables that are strings, as the number of the variable, the number of the first value, edges
            (one more than values, the first one a position in the bytes) and bytes.
        """
        self._check_rows(low, high)
        if row < 0 or row > offsets.shape[0] or high - low >= offsets.shape[0] - row:
            raise ValueError("fewer places than rows")
        if not 0 <= at <= out.shape[0] - _SLACK or out.shape[0] > _MOST:
            raise OverflowError("the values need more room than there is")
        held: list[Any] = []
        columns: cython.pointer(Column) = self._with(given, held)
        few: cython.bint = high - low <= _FEW_ROWS
        work: Work = self._prepare(held, not few)
        end: cython.Py_ssize_t
        if few:
            end = self._few(
                columns, cython.address(work), low, high, cython.address(offsets[row]), cython.address(out[0]), at,
                out.shape[0] - _SLACK,
            )  # fmt: skip
        else:
            with cython.nogil:
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
        """Like `render`, for the rows at ascending places."""
        n: cython.Py_ssize_t = places.shape[0]
        i: cython.Py_ssize_t
        last: cython.longlong = -1
        for i in range(n):
            if not last < places[i] < self.rows:
                raise ValueError("fewer rows than requested")
            last = places[i]
        if row < 0 or row > offsets.shape[0] or n >= offsets.shape[0] - row:
            raise ValueError("fewer places than rows")
        if not 0 <= at <= out.shape[0] - _SLACK or out.shape[0] > _MOST:
            raise OverflowError("the values need more room than there is")
        if not n:
            offsets[row] = cython.cast(cython.int, at)
            return at
        held: list[Any] = []
        columns: cython.pointer(Column) = self._with(given, held)
        work: Work = self._prepare(held, n > _FEW_ROWS)
        end: cython.Py_ssize_t
        with cython.nogil:
            end = self._chosen(
                columns, cython.address(work), cython.address(places[0]), n, cython.address(offsets[row]),
                cython.address(out[0]), at, out.shape[0] - _SLACK,
            )  # fmt: skip
        return _checked(end)

    def cached_values(
        self, low: cython.Py_ssize_t, high: cython.Py_ssize_t, chosen: list[int] | None
    ) -> list[Any] | None:
        """Like `values`, or None if values of strings must be passed for that. Raises CorruptSegmentError."""
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
        """Rows [low, high), or the ascending places among them that are `chosen`, as Python bytes, None for null.

        Raises like `render`, for a buffer of the size that the rows can take, limited to `most` bytes.
        """
        self._check_rows(low, high)
        if not 0 <= most <= _MOST - _SLACK:
            raise OverflowError("the values need more room than there is")
        n: cython.Py_ssize_t = high - low if chosen is None else len(chosen)
        i: cython.Py_ssize_t
        total: cython.longlong = 0
        memory: bytes = PyBytes_FromStringAndSize(cython.NULL, 8 * (n + 1) + 4 * (n + 1))
        places: cython.p_longlong = cython.cast(cython.p_longlong, PyBytes_AS_STRING(memory))
        offsets: cython.p_int = cython.cast(cython.p_int, places + n + 1)
        for i in range(n):
            places[i] = low + i if chosen is None else chosen[i]
            if not low <= places[i] < high or (i and places[i] <= places[i - 1]):
                raise ValueError("fewer rows than requested")
            total += self._most_of(self._codes[places[i]])
        most = min(total + self._bytes_of(given), most)
        texts: bytes = PyBytes_FromStringAndSize(cython.NULL, most + _SLACK)
        out: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(texts))
        held: list[Any] = []
        columns: cython.pointer(Column) = self._with(given, held)
        every: cython.bint = chosen is None
        work: Work = self._prepare(held, n > _FEW_ROWS)
        end: cython.Py_ssize_t
        if n <= _FEW_ROWS:
            end = self._chosen(columns, cython.address(work), places, n, offsets, out, 0, most)
        else:
            with cython.nogil:
                if every:
                    end = self._many(columns, cython.address(work), low, high, offsets, out, 0, most)
                else:
                    end = self._chosen(columns, cython.address(work), places, n, offsets, out, 0, most)
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
        """The location of each variable's values, including those `given`, in memory that `held` keeps alive."""
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
            if not 0 <= v < self._variables or self._kind[v] != STRING or first < 0:
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
            8 * (codes + variables + 2 * rows + cells)
            + cython.sizeof(Piece) * (slots + 1)
            + 4 * (codes + variables + slots + cells)
            + CELL_BYTES * (cells + 1),
        )
        held.append(memory)
        work = cython.declare(Work)
        work.seen = cython.cast(cython.p_longlong, PyBytes_AS_STRING(memory))
        work.place = work.seen + codes
        work.numbers = work.place + variables
        work.chosen = work.numbers + rows
        work.texts = cython.cast(cython.pointer(cython.p_uchar), work.chosen + rows)
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
        """Advance each variable's place past the values of rows [low, high)."""
        k: cython.Py_ssize_t
        if low == 0 and high >= MARK_ROWS and self._count < FEW_CODES:
            low = high // MARK_ROWS * MARK_ROWS
            before: cython.p_uint = self._before + (high // MARK_ROWS - 1) * (self._count + 1)
            for k in range(1, self._count + 1):
                self._move(work, k, before[k])
        while low < high:  # usually many adjacent rows have the same code
            k = end_of_run(self._codes, low, high)
            if k < high and k - low <= _FEW_ROWS:
                break
            self._move(work, self._codes[low], k - low)
            low = k
        if high - low <= _FEW_ROWS:
            for k in range(low, high):
                self._move(work, self._codes[k], 1)
            return
        if self._count < FEW_CODES:  # counted in four lanes, because one count would wait for the one before
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
        """Advance the places of a code's variables by `rows`."""
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
        low: cython.Py_ssize_t,
        high: cython.Py_ssize_t,
        offsets: cython.p_int,
        out: cython.p_uchar,
        at: cython.Py_ssize_t,
        room: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Render rows [low, high) one by one. At every copy `at` is at most `room`, after which 32 more bytes may be
        written.
        """
        row: cython.Py_ssize_t
        self._pass_over(work, 0, low)
        for row in range(low, high):
            offsets[row - low] = cython.cast(cython.int, at)
            at = self._row(columns, work, cython.cast(cython.Py_ssize_t, self._codes[row]) - 1, out, at, room)
            if at < 0:
                return at
        offsets[high - low] = cython.cast(cython.int, at)
        return at

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _chosen(
        self,
        columns: cython.pointer(Column),
        work: cython.pointer(Work),
        places: cython.pointer(cython.const[cython.longlong]),
        n: cython.Py_ssize_t,
        offsets: cython.p_int,
        out: cython.p_uchar,
        at: cython.Py_ssize_t,
        room: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Like `_few`, for the n rows at ascending places; rows between which the template does not change are rendered
        together.
        """
        i: cython.Py_ssize_t = 0
        k: cython.Py_ssize_t
        t: cython.Py_ssize_t
        most: cython.Py_ssize_t
        count: cython.Py_ssize_t
        end: cython.longlong
        passed: cython.Py_ssize_t = 0
        while i < n:
            t = cython.cast(cython.Py_ssize_t, self._codes[places[i]]) - 1
            count = 1
            if n > _FEW_ROWS and t >= 0:
                most = min(n - i, _RUN_ROWS, _RUN_CELLS // (self._own_first[t + 1] - self._own_first[t] + 1))
                if most > _FEW_ROWS:
                    end = end_of_run(self._codes, places[i], places[i + most - 1] + 1)
                    while count < most and places[i + count] < end:
                        count += 1
            if count > _FEW_ROWS:
                self._pass_over(work, passed, places[i])
                for k in range(count):
                    work.chosen[k] = places[i + k] - places[i]
                at = self._run(columns, work, t, count, work.chosen, offsets + i, out, at, room)
                if at < 0:
                    return at
                i += count
                passed = places[i - 1] + 1
                continue
            for k in range(i, i + count):
                offsets[k] = cython.cast(cython.int, at)
                self._pass_over(work, passed, places[k])
                passed = places[k] + 1
                at = self._row(columns, work, t, out, at, room)
                if at < 0:
                    return at
            i += count
        offsets[n] = cython.cast(cython.int, at)
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
        """Render the next row, of template t, or a null if t is -1. Returns the end."""
        k: cython.Py_ssize_t
        size: cython.Py_ssize_t
        if t < 0:
            return at
        step: cython.p_int = self._step + 8 * (self._first[t] + t)
        while True:
            size = step[1]
            if size > room - at:
                return _TOO_LONG
            copy_some(out + at, self._text + step[0], size)
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
        Returns the size, or an error code.
        """
        size: cython.Py_ssize_t
        number: cython.longlong
        place -= column.first
        if not 0 <= place < column.count or column.form == ABSENT:
            return MISSING
        if step[2] == STRING:
            number = column.numbers[place]
            if not 0 <= number <= column.numbers[place + 1] <= column.size:
                return MISSING
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
        if step[2] == ENUM:
            if not 0 <= number < step[6]:
                return MISSING
            number += step[5]
            size = self._value[number + 1] - self._value[number]
            if size > room:
                return _TOO_LONG
            copy_some(out, self._values + self._value[number], size)
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
        """Render rows [low, high), grouped by template. At every copy `at` is at most `room`; 32 more bytes may be
        written.
        """
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
            end = end_of_run(self._codes, begin, min(high, begin + most))
            if t >= 0 and end - begin > _FEW_ROWS:
                at = self._run(columns, work, t, end - begin, cython.NULL, offsets + (begin - low), out, at, room)
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
        chosen: cython.p_longlong,
        offsets: cython.p_int,
        out: cython.p_uchar,
        at: cython.Py_ssize_t,
        room: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Render n of the next rows, which all have template t. Returns the end.

        chosen: these rows, ascending, counted from the next one; NULL for the next n.
        """
        k: cython.Py_ssize_t
        i: cython.Py_ssize_t
        v: cython.Py_ssize_t
        cell: cython.Py_ssize_t = 0
        total: cython.longlong = 0
        wide: cython.int = 0  # whether a value has more than 16 bytes
        slots: cython.Py_ssize_t = self._first[t + 1] - self._first[t]
        step: cython.p_int = self._step + 8 * (self._first[t] + t)
        passed: cython.longlong = n if chosen == cython.NULL else chosen[n - 1] + 1
        for k in range(self._own_first[t], self._own_first[t + 1]):
            v = self._own[k]
            i = self._write_column(columns + v, v, work, cell, n, chosen)
            if i < 0:
                return i
            work.cell[v] = cython.cast(cython.int, cell)
            work.place[v] += passed
            if self._longest[v] > 16:
                for i in range(cell, cell + n):
                    wide |= work.sizes[i] > 16
            cell += n
        for k in range(slots):
            work.slot[k] = work.cell[step[8 * k + 4]]
        if self._short[t] and self._row_bytes[t] <= (room - at) // n:  # no value is longer than its kind's longest
            return join_short(wide != 0, work, self._text, step, slots, n, offsets, out, at)
        total = n * cython.cast(cython.longlong, self._literal_bytes[t])
        for k in range(slots):
            for i in range(n):
                total += work.sizes[work.slot[k] + i]
        if total > room - at:
            return _TOO_LONG
        join_any(work, self._text, step, slots, n, offsets, out, at)
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
        chosen: cython.p_longlong,
    ) -> cython.Py_ssize_t:
        """Write n of the next values of a variable to cells from `cell` on. chosen: as in `_run`."""
        i: cython.Py_ssize_t
        k: cython.longlong
        last: cython.longlong = n - 1 if chosen == cython.NULL else chosen[n - 1]
        numbers: cython.pointer(cython.const[cython.longlong])
        sizes: cython.p_int = work.sizes + cell
        texts: cython.pointer(cython.p_uchar) = work.texts + cell
        place: cython.longlong = work.place[v] - column.first
        if place < 0 or last >= column.count - place or column.form == ABSENT:
            return MISSING
        if column.form == TEXTS:
            numbers = column.numbers + place
            for i in range(n):
                k = i if chosen == cython.NULL else chosen[i]
                if not 0 <= numbers[k] <= numbers[k + 1] <= column.size or numbers[k + 1] - numbers[k] > _MOST:
                    return MISSING
                sizes[i] = cython.cast(cython.int, numbers[k + 1] - numbers[k])
                texts[i] = cython.cast(cython.p_uchar, column.stored) + numbers[k]
            return 0
        bits: cython.bint = column.form == BITS and 0 < column.bits <= 32 and not column.base
        if self._kind[v] == ENUM and bits and chosen == cython.NULL:
            return write_enum_bits(
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
            if chosen != cython.NULL:
                for i in range(n):
                    work.numbers[i] = numbers[chosen[i]]
                numbers = work.numbers
        else:
            if column.bits and chosen != cython.NULL:
                for i in range(n):
                    work.numbers[i] = number_of_bits(
                        column.stored, column.whole, column.bits, column.base, place + chosen[i]
                    )
            elif column.bits:
                unpack_bits(column.stored, column.size, column.bits, column.base, place, work.numbers, n)
            else:
                for i in range(n):
                    work.numbers[i] = column.base
            numbers = work.numbers
        if self._kind[v] == ENUM:
            return write_enum(
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
@cython.exceptval(-1)
def _checked(end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the end of the rendered bytes, or raise the error for an error code."""
    if end == MISSING:
        raise IndexError("a row names a missing value")
    if end == _INVALID:
        raise ValueError("a value is not one of its variable's kind")
    if end == _TOO_LONG:
        raise OverflowError("the values need more room than there is")
    return end


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _tally(
    codes: cython.p_ushort, low: cython.Py_ssize_t, high: cython.Py_ssize_t, work: cython.pointer(Work)
) -> cython.Py_ssize_t:
    """Count the rows of each code in `work.seen`, and list these codes in `work.touched`; return how many there are."""
    i: cython.Py_ssize_t = low
    begin: cython.Py_ssize_t
    touched: cython.Py_ssize_t = 0
    while i < high:
        begin = i
        i = end_of_run(codes, i, high)
        if not work.seen[codes[begin]]:
            work.touched[touched] = codes[begin]
            touched += 1
        work.seen[codes[begin]] += i - begin
    return touched
