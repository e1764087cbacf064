# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Batches as Arrow IPC messages: the columns of a schema, copied in one pass from wherever they are.

A message is its metadata, which is the same for all batches of a schema except for some numbers, and a body. In the
body, each column has: a bit for each value if some are null; its numbers, or bits, or the edges of its texts and the
texts, or the edges of its lists; its parts. Each of these begins at a multiple of 8 bytes. `esformat/write/messages.py`
analyses the schema.
"""

import array as arrays
from typing import Any

import cython
from cython.cimports.cpython import array
from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.cpython.pycapsule import PyCapsule_GetPointer
from cython.cimports.esformat.core.messages import ArrowArray, FlatColumn, Walk
from cython.cimports.libc.stdlib import calloc, free, malloc
from cython.cimports.libc.string import memcmp, memcpy, memset

VALUES, BITS, TEXTS, LISTS, FIXED_LISTS, STRUCTS = range(6)
"""Kinds of columns: numbers of `width` bytes; bits; texts or lists with edges of `width` bytes; lists of `width` items;
structs.
"""
_VALUES = cython.declare(cython.longlong, VALUES)
_BITS = cython.declare(cython.longlong, BITS)
_TEXTS = cython.declare(cython.longlong, TEXTS)
_LISTS = cython.declare(cython.longlong, LISTS)
_FIXED_LISTS = cython.declare(cython.longlong, FIXED_LISTS)
_STRUCTS = cython.declare(cython.longlong, STRUCTS)
_LARGE = cython.declare(cython.Py_ssize_t, 1 << 16)
"""From this many bytes on the lock is released; below, retaking it costs more than the copy."""
_MANY = cython.declare(cython.longlong, 1 << 14)  # rows; from this many on they are searched without the lock
_MOST_ROWS = cython.declare(cython.longlong, (1 << 31) - 2)  # of edges of 32 bits
_FACTS = cython.declare(cython.Py_ssize_t, 6)  # of a column
_LONGS = cython.declare(array.array, arrays.array("q"))

Column = tuple[int, int, int, bool, int, int]
"""A column of the schema, followed by its parts. The numbers are: its position in the batch, or -1 for all null, or all
empty if it is required; its kind and width; whether it is required; the most bytes of a text, or -1 for no limit; its
number of parts.
"""


@cython.final
@cython.cclass
class MessageWriter:
    """Writes batches of one set of columns as messages of a schema."""

    _head: bytes
    _rows_at: cython.Py_ssize_t
    _nodes_at: cython.Py_ssize_t
    _buffers_at: cython.Py_ssize_t
    _body_length_at: cython.Py_ssize_t
    _columns: array.array
    _facts: cython.p_longlong  # the numbers of `_columns`
    _count: cython.Py_ssize_t
    _size: cython.Py_ssize_t  # of the head
    _times: cython.Py_ssize_t
    _buffers: cython.Py_ssize_t

    def __init__(self, head: bytes, places: tuple[int, int, int, int], columns: list[Column], times: int) -> None:
        """Raises ValueError.

        head: the bytes before the body.
        places: where it contains the number of rows, the first node, the first buffer, and the length of the body.
        times: the column of the batch whose smallest and largest values are returned.
        """
        missing: int = 0  # parts that must follow the columns so far
        for source, kind, width, required, _, parts in columns:
            missing += parts - (missing > 0)
            if kind not in range(6) or width < 0 or (kind in (_TEXTS, _LISTS) and width not in (4, 8)):
                raise ValueError("unknown kind of column")
            if parts != (1 if kind in (_LISTS, _FIXED_LISTS) else max(parts, 0) if kind == _STRUCTS else 0):
                raise ValueError("the column has different parts")
            if source < 0 and required and kind != _TEXTS:
                raise ValueError("only texts can be empty")
        buffers: int = sum(_buffers_of(kind) for _, kind, _, _, _, _ in columns)
        lengths: list[int] = [8, 16 * len(columns), 16 * buffers, 8]
        if min(places) < 0 or max([at + length for at, length in zip(places, lengths, strict=True)]) > len(head):
            raise ValueError("numbers lie outside of the head of a message")
        if missing or times < 0:
            raise ValueError("the column has different parts")
        self._head, self._count, self._times, self._buffers = head, len(columns), times, buffers
        self._size = len(head)
        self._rows_at, self._nodes_at, self._buffers_at, self._body_length_at = places
        self._columns = arrays.array("q", [int(fact) for column in columns for fact in column])
        self._facts = self._columns.data.as_longlongs

    def write(self, given: Any) -> tuple[bytes, int, int, int] | None:
        """The message of a batch, the batch's smallest and largest time, and the number of nulls in its columns and
        parts.

        given: a capsule "arrow_array" of a valid batch without top-level nulls, with columns of the types for which
        this was created; the caller ensures both. Returns None if it has no rows, or a value that its column must not
        have. Raises ValueError for the batch has different columns.
        """
        whole: cython.pointer(ArrowArray) = cython.cast(
            cython.pointer(ArrowArray), PyCapsule_GetPointer(given, b"arrow_array")
        )
        if whole.length < 1 or whole.length > _MOST_ROWS:
            return None
        if whole.null_count > 0 or self._times >= whole.n_children:
            raise ValueError("the batch has different columns")
        return self._write(whole)

    @cython.cfunc
    def _write(self, whole: cython.pointer(ArrowArray)) -> tuple[bytes, int, int, int] | None:
        """The message of a valid batch that has rows."""
        found: array.array = array.clone(_LONGS, 2 * self._count, False)
        first: cython.p_longlong = self._columns.data.as_longlongs
        end: cython.p_longlong = first + _FACTS * self._count
        walk = cython.declare(Walk)
        walk.column, walk.found = first, found.data.as_longlongs
        body: cython.longlong = _measure_all(cython.address(walk), whole, end)
        if body < 0:
            return None
        message: bytes = PyBytes_FromStringAndSize(cython.NULL, len(self._head) + body)
        out: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(message))
        memcpy(out, cython.cast(cython.p_char, self._head), len(self._head))
        _put(out + self._rows_at, whole.length)
        _put(out + self._body_length_at, body)
        walk.column, walk.found, walk.node, walk.buffer = (
            first,
            found.data.as_longlongs,
            out + self._nodes_at,
            out + self._buffers_at,
        )
        walk.body, walk.at = out + len(self._head), 0
        times = cython.declare(cython.longlong[2])
        if body < _LARGE:
            _fill_all(cython.address(walk), whole, end)
            _span(whole, self._times, times)
        else:
            with cython.nogil:
                _fill_all(cython.address(walk), whole, end)
                _span(whole, self._times, times)
        nulls: cython.longlong = 0
        i: cython.Py_ssize_t
        for i in range(self._count):
            nulls += found.data.as_longlongs[2 * i]
        return message, times[0], times[1], nulls

    def write_columns(self, columns: list[Any], rows: int, texts: bytes) -> tuple[bytes, int, int, int] | None:
        """Like `write`, for the columns of a batch, which are checked here and not by Arrow: that would release the
        lock several times, whatever the size, and wait for it among all other threads.

        columns: Arrow arrays of the types for which this was created, which the caller ensures. texts: for each column,
        1 if it must be UTF-8. Also returns None if a column has parts or is invalid: then Arrow can report what is
        wrong.
        """
        place: cython.Py_ssize_t
        given: tuple[Any, ...] = tuple(columns)  # a copy, because another thread may change the list
        count: cython.Py_ssize_t = len(given)
        if rows < 1 or rows > _MOST_ROWS or self._times >= count or len(texts) != count:
            return None
        flags: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(texts))
        made: cython.pointer(FlatColumn) = cython.cast(
            cython.pointer(FlatColumn), calloc(count, cython.sizeof(FlatColumn) + cython.sizeof(cython.p_void))
        )
        if made == cython.NULL:
            raise MemoryError
        whole = cython.declare(ArrowArray)
        whole.length, whole.null_count, whole.offset, whole.n_children = rows, 0, 0, count
        whole.children = cython.cast(cython.pointer(cython.pointer(ArrowArray)), made + count)
        fact: cython.p_longlong = self._columns.data.as_longlongs
        try:
            for _ in range(self._count):
                if fact[5] != 0 or fact[1] >= _LISTS or fact[0] >= count or (fact[0] >= 0 and made[fact[0]].held):
                    return None
                if fact[0] >= 0:
                    if not _acquire(cython.address(made[fact[0]]), given[fact[0]], rows, _buffers_of(fact[1])):
                        return None
                    if not _is_valid(cython.address(made[fact[0]]), fact[1], fact[2], flags[fact[0]]):
                        return None
                    whole.children[fact[0]] = cython.address(made[fact[0]].array)
                fact += _FACTS
            if whole.children[self._times] == cython.NULL or made[self._times].views[1].len < 8 * (
                made[self._times].array.offset + whole.length
            ):
                return None
            return self._write(cython.address(whole))
        finally:
            for place in range(count):
                _release(cython.address(made[place]))
            free(made)

    def join(self, messages: list[bytes]) -> bytes | None:
        """Join several messages into one, with their rows in order. They must come from this writer, or be exactly like
        its messages.

        Returns None if one is not, if the result is too large for the edges of its texts, and for columns with parts.
        """
        number: cython.Py_ssize_t
        held: tuple[bytes, ...] = tuple(messages)  # a copy, because another thread may change the list
        count: cython.Py_ssize_t = len(held)
        totals: array.array = array.clone(_LONGS, 2 * self._count, True)
        rows: cython.longlong = self._rows_of(held, totals.data.as_longlongs)
        if rows < 1:
            return None
        body: cython.longlong = self._joined_bytes(rows, totals.data.as_longlongs)
        if body < 0:
            return None
        whole: bytes = PyBytes_FromStringAndSize(cython.NULL, len(self._head) + body)
        walk = cython.declare(Walk)
        self._begin(cython.address(walk), PyBytes_AS_STRING(whole), rows, body, totals.data.as_longlongs)
        ones = cython.cast(cython.pointer(cython.p_const_uchar), malloc(count * cython.sizeof(cython.p_const_uchar)))
        if ones == cython.NULL:
            raise MemoryError
        for number in range(count):
            ones[number] = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(held[number]))
        size: cython.Py_ssize_t = len(self._head)
        if body < _LARGE:
            self._join_all(cython.address(walk), ones, count, size, rows)
        else:
            with cython.nogil:
                self._join_all(cython.address(walk), ones, count, size, rows)
        free(ones)
        return whole

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _join_all(
        self,
        walk: cython.pointer(Walk),
        messages: cython.pointer(cython.p_const_uchar),
        count: cython.Py_ssize_t,
        head: cython.Py_ssize_t,
        rows: cython.longlong,
    ) -> cython.void:
        """Write the body of messages that `_reads` accepted, and where each part of it is."""
        lies_at: cython.Py_ssize_t = self._buffers_at
        for _ in range(self._count):
            self._join_column(walk, messages, count, head, lies_at, rows)
            lies_at += 16 * _buffers_of(walk.column[1])
            walk.column += _FACTS
            walk.found += 2

    @cython.cfunc
    def _reads(self, message: cython.p_const_uchar, size: cython.longlong, totals: cython.p_longlong) -> cython.bint:
        """Whether a message is like those of this writer. Adds its nulls and its text bytes to `totals`, by column."""
        fact: cython.p_longlong = self._columns.data.as_longlongs
        place: cython.Py_ssize_t
        head: cython.longlong = len(self._head)
        at: cython.longlong = 0
        buffer: cython.p_const_uchar = message + self._buffers_at
        if size < head or not self._has_head(message):
            return False
        rows: cython.longlong = _number_at(message + self._rows_at)
        if rows < 1 or rows > _MOST_ROWS or _number_at(message + self._body_length_at) != size - head:
            return False
        for place in range(self._count):
            if fact[5] != 0 or fact[1] >= _LISTS:
                return False
            node: cython.p_const_uchar = message + self._nodes_at + 16 * place
            nulls: cython.longlong = _number_at(node + 8)
            if _number_at(node) != rows or nulls < 0 or nulls > rows:
                return False
            if not _is_next(buffer, cython.address(at), (rows + 7) // 8 if nulls else 0, size - head):
                return False
            edges: cython.p_const_uchar = message + head + at
            if fact[2] > 0 and rows > (size - head) // fact[2]:
                return False
            if not _is_next(buffer + 16, cython.address(at), _values_bytes(fact, rows), size - head):
                return False
            buffer += 32
            if fact[1] == _TEXTS:
                texts: cython.longlong = _edge_at(edges, fact[2], rows)
                if texts < 0 or _edge_at(edges, fact[2], 0) != 0:
                    return False
                if not _is_next(buffer, cython.address(at), texts, size - head):
                    return False
                totals[2 * place + 1] += texts
                buffer += 16
            totals[2 * place] += nulls
            fact += _FACTS
        return at == size - head

    @cython.cfunc
    def _has_head(self, message: cython.p_const_uchar) -> cython.bint:
        """Whether the head of a message, which is long enough, is the known one except for its numbers."""
        known: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_char, message), len(self._head))
        own: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(self._head))
        out: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(known))
        memcpy(out + self._rows_at, own + self._rows_at, 8)
        memcpy(out + self._body_length_at, own + self._body_length_at, 8)
        memcpy(out + self._nodes_at, own + self._nodes_at, 16 * self._count)
        memcpy(out + self._buffers_at, own + self._buffers_at, 16 * self._buffers)
        return memcmp(out, own, len(self._head)) == 0

    @cython.cfunc
    def _joined_bytes(self, rows: cython.longlong, totals: cython.p_longlong) -> cython.longlong:
        """Size of the body of messages with `rows` rows in total; -1 if that is too much for their edges."""
        fact: cython.p_longlong = self._columns.data.as_longlongs
        place: cython.Py_ssize_t
        body: cython.longlong = 0
        if rows > _MOST_ROWS:
            return -1
        for place in range(self._count):
            if fact[1] == _TEXTS and fact[2] == 4 and totals[2 * place + 1] > _MOST_ROWS:
                return -1
            body += _padded((rows + 7) // 8 if totals[2 * place] else 0)
            body += _padded(_values_bytes(fact, rows)) + _padded(totals[2 * place + 1])
            fact += _FACTS
        return body

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _join_column(
        self,
        walk: cython.pointer(Walk),
        messages: cython.pointer(cython.p_const_uchar),
        count: cython.Py_ssize_t,
        head: cython.Py_ssize_t,
        lies_at: cython.Py_ssize_t,
        rows: cython.longlong,
    ) -> cython.void:
        """Write the next column. lies_at: where a message states the position of the column's first part."""
        number: cython.Py_ssize_t
        fact: cython.pointer(cython.const[cython.longlong]) = walk.column
        base: cython.longlong = 0  # rows so far
        before: cython.longlong = 0  # bytes of texts so far
        bits: cython.longlong = (rows + 7) // 8 if walk.found[0] else 0
        values: cython.longlong = _values_bytes(fact, rows)
        to: cython.p_uchar = walk.body + walk.at
        values_to: cython.p_uchar = to + _padded(bits)
        texts_to: cython.p_uchar = values_to + _padded(values)
        memset(to, 0, _padded(bits) + _padded(values))
        for number in range(count):
            body: cython.p_const_uchar = messages[number] + head
            lies: cython.p_const_uchar = messages[number] + lies_at
            some: cython.longlong = _number_at(messages[number] + self._rows_at)
            if bits:
                _put_bits(body + _number_at(lies) if _number_at(lies + 8) else cython.NULL, some, to, base)
            given: cython.p_const_uchar = body + _number_at(lies + 16)
            if fact[1] == _VALUES:
                memcpy(values_to + base * fact[2], given, some * fact[2])
            elif fact[1] == _BITS:
                _put_bits(given, some, values_to, base)
            else:
                _put_edges(given, fact[2], some, values_to + base * fact[2], before)
                memcpy(texts_to + before, body + _number_at(lies + 32), _number_at(lies + 40))
                before += _number_at(lies + 40)
            base += some
        _put(walk.node, rows)
        _put(walk.node + 8, walk.found[0])
        walk.node += 16
        _end(walk, bits)
        _end(walk, values)
        if fact[1] == _TEXTS:
            _end(walk, before)

    def find(
        self, messages: list[bytes], column: cython.Py_ssize_t, text: bytes, times: cython.Py_ssize_t
    ) -> tuple[bytes, bytes] | None:
        """Find the rows, numbered across all messages, that have a text in a column; return them and their numbers in
        the column `times`, 64 bits each. Excludes rows where the column is null.

        Returns None if a message is not like those of this writer, and for columns of other kinds.
        """
        number: cython.Py_ssize_t
        held: tuple[bytes, ...] = tuple(messages)  # a copy, because another thread may change the list
        if text is None:
            raise TypeError("the text must be bytes")
        if not 0 <= column < self._count or not 0 <= times < self._count:
            return None
        fact: cython.p_longlong = self._columns.data.as_longlongs
        if fact[_FACTS * column + 1] != _TEXTS or fact[_FACTS * times + 1] != _VALUES or fact[_FACTS * times + 2] != 8:
            return None
        rows: cython.longlong = self._rows_of(held, array.clone(_LONGS, 2 * self._count, True).data.as_longlongs)
        if rows < 0:
            return None
        found: cython.p_longlong = cython.cast(cython.p_longlong, malloc(16 * max(rows, 1)))
        if found == cython.NULL:
            raise MemoryError
        base: cython.longlong = 0
        count: cython.longlong = 0
        size: cython.Py_ssize_t = len(text)
        wanted: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(text))
        for number in range(len(held)):
            one: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(held[number]))
            some: cython.longlong = _number_at(one + self._rows_at)
            if some < _MANY:
                count = self._find(one, column, wanted, size, times, base, found, found + rows, count)
            else:
                with cython.nogil:
                    count = self._find(one, column, wanted, size, times, base, found, found + rows, count)
            base += some
        try:
            return (
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, found), 8 * count),
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, found + rows), 8 * count),
            )
        finally:
            free(found)

    @cython.cfunc
    def _rows_of(self, messages: tuple[bytes, ...], totals: cython.p_longlong) -> cython.longlong:
        """The number of rows in all messages; -1 if `_reads` does not accept one."""
        number: cython.Py_ssize_t
        rows: cython.longlong = 0
        for number in range(len(messages)):
            one: bytes = messages[number]
            if one is None or not self._reads(
                cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(one)), len(one), totals
            ):
                return -1
            rows += _number_at(cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(one)) + self._rows_at)
        return rows

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _lies(self, message: cython.p_const_uchar, column: cython.Py_ssize_t) -> cython.p_const_uchar:
        """Where a message states the positions of a column's parts."""
        i: cython.Py_ssize_t
        lies: cython.p_const_uchar = message + self._buffers_at
        for i in range(column):
            lies += 16 * _buffers_of(self._facts[_FACTS * i + 1])
        return lies

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _find(
        self,
        message: cython.p_const_uchar,
        column: cython.Py_ssize_t,
        text: cython.p_const_uchar,
        size: cython.longlong,
        times: cython.Py_ssize_t,
        base: cython.longlong,
        rows: cython.p_longlong,
        numbers: cython.p_longlong,
        count: cython.longlong,
    ) -> cython.longlong:
        """Append the rows of a message that have a text to the `count` found so far; return the new count."""
        i: cython.longlong
        width: cython.longlong = self._facts[_FACTS * column + 2]
        body: cython.p_const_uchar = message + self._size
        lies: cython.p_const_uchar = self._lies(message, column)
        bits: cython.p_const_uchar = body + _number_at(lies)
        nulls: cython.bint = _number_at(lies + 8) != 0
        edges: cython.p_const_uchar = body + _number_at(lies + 16)
        texts: cython.p_const_uchar = body + _number_at(lies + 32)
        most: cython.longlong = _number_at(lies + 40) - size  # no text of that size begins after this
        values: cython.p_const_uchar = body + _number_at(self._lies(message, times) + 16)
        first: cython.longlong
        end: cython.longlong = 0
        for i in range(_number_at(message + self._rows_at)):
            first = end
            end = _edge_at(edges, width, i + 1)
            if end - first != size or first < 0 or first > most or memcmp(texts + first, text, size) != 0:
                continue
            if nulls and not (bits[i >> 3] >> (i & 7)) & 1:
                continue
            rows[count] = base + i
            numbers[count] = _number_at(values + 8 * i)
            count += 1
        return count

    def gather(self, messages: list[bytes], places: bytes) -> bytes | None:
        """Copy some rows of messages to one message, in the order of `places`: for each row the number of its message,
        and its row there, 64 bits each.

        Returns None as in `join`, without rows, and if there is no such row.
        """
        i: cython.Py_ssize_t
        held: tuple[bytes, ...] = tuple(messages)  # a copy, because another thread may change the list
        if places is None:
            raise TypeError("places must be bytes")
        rows: cython.longlong = len(places) // 16
        where: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(places))
        totals: array.array = array.clone(_LONGS, 2 * self._count, True)
        if rows == 0 or self._rows_of(held, totals.data.as_longlongs) < 0:
            return None
        ones = cython.cast(
            cython.pointer(cython.p_const_uchar), malloc(max(len(held), 1) * cython.sizeof(cython.p_const_uchar))
        )
        if ones == cython.NULL:
            raise MemoryError
        try:
            for i in range(len(held)):
                ones[i] = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(held[i]))
            for i in range(rows):
                number: cython.longlong = _number_at(where + 16 * i)
                row: cython.longlong = _number_at(where + 16 * i + 8)
                if number < 0 or number >= len(held) or row < 0 or row >= _number_at(ones[number] + self._rows_at):
                    return None
            for i in range(self._count):
                if not self._measure_rows(ones, where, rows, i, totals.data.as_longlongs + 2 * i):
                    return None
            body: cython.longlong = self._joined_bytes(rows, totals.data.as_longlongs)
            if body < 0:
                return None
            whole: bytes = PyBytes_FromStringAndSize(cython.NULL, len(self._head) + body)
            walk = cython.declare(Walk)
            self._begin(cython.address(walk), PyBytes_AS_STRING(whole), rows, body, totals.data.as_longlongs)
            for i in range(self._count):
                self._gather_column(cython.address(walk), ones, where, rows, i)
                walk.column += _FACTS
                walk.found += 2
            return whole
        finally:
            free(ones)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _begin(
        self,
        walk: cython.pointer(Walk),
        message: cython.p_char,
        rows: cython.longlong,
        body: cython.longlong,
        totals: cython.p_longlong,
    ) -> cython.void:
        """Write the head of a message with `rows` rows and `body` bytes, and start at its first column."""
        out: cython.p_uchar = cython.cast(cython.p_uchar, message)
        memcpy(out, cython.cast(cython.p_char, self._head), len(self._head))
        _put(out + self._rows_at, rows)
        _put(out + self._body_length_at, body)
        walk.node, walk.buffer = out + self._nodes_at, out + self._buffers_at
        walk.body, walk.at = out + len(self._head), 0
        walk.column, walk.found = self._columns.data.as_longlongs, totals

    @cython.cfunc
    @cython.exceptval(check=False)
    def _measure_rows(
        self,
        messages: cython.pointer(cython.p_const_uchar),
        places: cython.p_const_uchar,
        rows: cython.longlong,
        column: cython.Py_ssize_t,
        totals: cython.p_longlong,
    ) -> cython.bint:
        """Count the nulls and the bytes of text of some rows in a column. False if a text is outside of its message."""
        i: cython.longlong
        fact: cython.p_longlong = self._columns.data.as_longlongs + _FACTS * column
        skipped: cython.Py_ssize_t = self._lies(messages[0], column) - messages[0]
        totals[0] = totals[1] = 0
        for i in range(rows):
            message: cython.p_const_uchar = messages[_number_at(places + 16 * i)]
            row: cython.longlong = _number_at(places + 16 * i + 8)
            lies: cython.p_const_uchar = message + skipped
            body: cython.p_const_uchar = message + len(self._head)
            if _number_at(lies + 8) and not (body[_number_at(lies) + (row >> 3)] >> (row & 7)) & 1:
                totals[0] += 1
            if fact[1] == _TEXTS:
                first: cython.longlong = _edge_at(body + _number_at(lies + 16), fact[2], row)
                end: cython.longlong = _edge_at(body + _number_at(lies + 16), fact[2], row + 1)
                if first < 0 or first > end or end > _number_at(lies + 40):
                    return False
                totals[1] += end - first
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _gather_column(
        self,
        walk: cython.pointer(Walk),
        messages: cython.pointer(cython.p_const_uchar),
        places: cython.p_const_uchar,
        rows: cython.longlong,
        column: cython.Py_ssize_t,
    ) -> cython.void:
        """Write some rows, which `_measure_rows` accepted, as the next column."""
        i: cython.longlong
        fact: cython.pointer(cython.const[cython.longlong]) = walk.column
        skipped: cython.Py_ssize_t = self._lies(messages[0], column) - messages[0]
        before: cython.longlong = 0  # bytes of texts so far
        bits: cython.longlong = (rows + 7) // 8 if walk.found[0] else 0
        values: cython.longlong = _values_bytes(fact, rows)
        to: cython.p_uchar = walk.body + walk.at
        values_to: cython.p_uchar = to + _padded(bits)
        texts_to: cython.p_uchar = values_to + _padded(values)
        memset(to, 0, _padded(bits) + _padded(values))
        for i in range(rows):
            message: cython.p_const_uchar = messages[_number_at(places + 16 * i)]
            row: cython.longlong = _number_at(places + 16 * i + 8)
            lies: cython.p_const_uchar = message + skipped
            body: cython.p_const_uchar = message + len(self._head)
            if bits and (not _number_at(lies + 8) or (body[_number_at(lies) + (row >> 3)] >> (row & 7)) & 1):
                to[i >> 3] |= cython.cast(cython.uchar, 1 << (i & 7))
            given: cython.p_const_uchar = body + _number_at(lies + 16)
            if fact[1] == _VALUES:
                memcpy(values_to + i * fact[2], given + row * fact[2], fact[2])
            elif fact[1] == _BITS:
                values_to[i >> 3] |= cython.cast(cython.uchar, ((given[row >> 3] >> (row & 7)) & 1) << (i & 7))
            else:
                first: cython.longlong = _edge_at(given, fact[2], row)
                size: cython.longlong = _edge_at(given, fact[2], row + 1) - first
                memcpy(texts_to + before, body + _number_at(lies + 32) + first, size)
                before += size
                _put_edge(values_to, fact[2], i + 1, before)
        _put(walk.node, rows)
        _put(walk.node + 8, walk.found[0])
        walk.node += 16
        _end(walk, bits)
        _end(walk, values)
        if fact[1] == _TEXTS:
            _end(walk, before)


@cython.cfunc
def _acquire(
    column: cython.pointer(FlatColumn), given: Any, rows: cython.longlong, buffers: cython.longlong
) -> cython.bint:
    """Hold the buffers of an Arrow array of `rows` rows; False if its size differs. The caller must release them."""
    place: cython.Py_ssize_t
    parts: list[Any] = given.buffers()
    offset: cython.longlong = given.offset
    column.held = True
    if len(given) != rows or len(parts) != buffers or offset < 0 or offset > _MOST_ROWS:
        return False
    for place in range(len(parts)):
        if parts[place] is not None:
            PyObject_GetBuffer(parts[place], cython.address(column.views[place]), PyBUF_SIMPLE)
            column.taken[place] = True
            column.buffers[place] = column.views[place].buf
    column.array.length, column.array.null_count, column.array.offset = rows, -1, offset
    column.array.n_buffers, column.array.n_children = buffers, 0
    column.array.buffers = column.buffers
    return True


@cython.cfunc
def _release(column: cython.pointer(FlatColumn)) -> cython.void:
    place: cython.Py_ssize_t
    for place in range(3):
        if column.taken[place]:
            PyBuffer_Release(cython.address(column.views[place]))


@cython.cfunc
@cython.exceptval(check=False)
def _is_valid(
    column: cython.pointer(FlatColumn), kind: cython.longlong, width: cython.longlong, text: cython.uchar
) -> cython.bint:
    """Whether all rows of a column are within its buffers, and its texts are valid, including those beneath nulls."""
    end: cython.longlong = column.array.offset + column.array.length
    bits: cython.longlong = (end + 7) // 8
    if column.taken[0] and column.views[0].len < bits:
        return False
    if kind == _BITS:
        return column.views[1].len >= bits
    if kind == _VALUES:
        return width == 0 or column.views[1].len // width >= end
    if column.views[1].len // width < end + 1:
        return False
    return _are_texts(cython.address(column.array), width, column.views[2].len, text)


@cython.cfunc
@cython.exceptval(check=False)
def _are_texts(
    source: cython.pointer(ArrowArray), width: cython.longlong, size: cython.longlong, text: cython.uchar
) -> cython.bint:
    """Whether edges ascend within `size` bytes and, if `text`, each text is UTF-8."""
    i: cython.longlong
    edge: cython.longlong = _edge(source, width, source.offset)
    first: cython.longlong = edge
    following: cython.longlong
    if edge < 0:
        return False
    for i in range(source.offset + 1, source.offset + source.length + 1):
        following = _edge(source, width, i)
        if following < edge:
            return False
        edge = following
    if edge > size:
        return False
    if not text or edge == first:
        return True
    data: cython.p_const_uchar = _buffer(source, 2)
    if _is_ascii(data + first, edge - first):
        return True
    for i in range(source.offset, source.offset + source.length):
        first = _edge(source, width, i)
        if not _is_utf8(data + first, _edge(source, width, i + 1) - first):
            return False
    return True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _is_ascii(data: cython.p_const_uchar, size: cython.longlong) -> cython.bint:
    i: cython.longlong
    seen: cython.uchar = 0
    for i in range(size):
        seen |= data[i]
    return seen < 0x80


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _is_utf8(data: cython.p_const_uchar, size: cython.longlong) -> cython.bint:
    """Whether bytes are valid UTF-8: complete characters, in their shortest form, without surrogates."""
    i: cython.longlong
    at: cython.longlong = 0
    more: cython.longlong
    while at < size:
        first: cython.uchar = data[at]
        at += 1
        if first < 0x80:
            continue
        if first < 0xC2 or first > 0xF4:
            return False
        more = 1 if first < 0xE0 else 2 if first < 0xF0 else 3
        if size - at < more:
            return False
        second: cython.uchar = data[at]
        if (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F):
            return False
        if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
            return False
        for i in range(more):
            if data[at + i] & 0xC0 != 0x80:
                return False
        at += more
    return True


@cython.cfunc
@cython.exceptval(-2)
def _measure_all(
    walk: cython.pointer(Walk), whole: cython.pointer(ArrowArray), end: cython.p_longlong
) -> cython.longlong:
    """Size of the body of a message; -1 if a value does not fit."""
    body: cython.longlong = 0
    size: cython.longlong
    while walk.column != end:
        if walk.column[0] >= whole.n_children:
            raise ValueError("the batch has different columns")
        size = _measure(walk, _given(whole, walk.column), whole.offset, whole.length)
        if size < 0:
            return -1
        body += size
    return body


@cython.cfunc
@cython.exceptval(-2)
def _measure(
    walk: cython.pointer(Walk),
    source: cython.pointer(ArrowArray),
    first: cython.longlong,
    rows: cython.longlong,
) -> cython.longlong:
    """Size of rows [first, first + rows) of the next column and its parts; -1 if a value does not fit.

    source: NULL if the batch lacks the column, and so its parts.
    """
    fact: cython.pointer(cython.const[cython.longlong]) = walk.column
    found: cython.p_longlong = walk.found
    walk.column += _FACTS
    walk.found += 2
    found[0], found[1] = 0 if fact[3] else rows, 0
    if source != cython.NULL:
        if (
            source.length < first + rows
            or source.n_buffers != _buffers_of(fact[1])
            or source.n_children != fact[5]
            or (rows and source.n_buffers > 1 and source.buffers[1] == cython.NULL)
        ):
            raise ValueError("the column has a different type")
        first += source.offset
        found[0] = _nulls(source, first, rows)
        if found[0] and fact[3]:
            return -1
        if rows and (fact[1] == _TEXTS or fact[1] == _LISTS):
            found[1] = _edge(source, fact[2], first + rows) - _edge(source, fact[2], first)
        if found[1] < 0 or (found[1] and fact[1] == _TEXTS and source.buffers[2] == cython.NULL):
            raise ValueError("the column has a different type")
        if fact[4] >= 0 and found[1] > fact[4] and _longest(source, fact[2], first, rows) > fact[4]:
            return -1
    body: cython.longlong = _padded((rows + 7) // 8) if found[0] else 0
    body += _padded(_values_bytes(fact, rows)) + (_padded(found[1]) if fact[1] == _TEXTS else 0)
    begin: cython.longlong = _first_of_parts(source, fact, found, first)
    size: cython.longlong
    for i in range(fact[5]):
        size = _measure(walk, _part(source, i), begin, _rows_of_parts(fact, found, rows))
        if size < 0:
            return -1
        body += size
    return body


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _fill_all(walk: cython.pointer(Walk), whole: cython.pointer(ArrowArray), end: cython.p_longlong) -> cython.void:
    """Write the body of a message, and where each part of it is."""
    while walk.column != end:
        _fill(walk, _given(whole, walk.column), whole.offset, whole.length)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _fill(
    walk: cython.pointer(Walk),
    source: cython.pointer(ArrowArray),
    first: cython.longlong,
    rows: cython.longlong,
) -> cython.void:
    """Write rows of the next column and of its parts, which `_measure` has checked."""
    fact: cython.pointer(cython.const[cython.longlong]) = walk.column
    found: cython.p_longlong = walk.found
    walk.column += _FACTS
    walk.found += 2
    if source != cython.NULL:
        first += source.offset
    _put(walk.node, rows)
    _put(walk.node + 8, found[0])
    walk.node += 16
    size: cython.longlong = (rows + 7) // 8 if found[0] else 0
    if size:
        _copy_bits(_buffer(source, 0), first, rows, walk.body + walk.at)
    _end(walk, size)
    if fact[1] < _FIXED_LISTS:
        size = _values_bytes(fact, rows)
        if source == cython.NULL or rows == 0:
            memset(walk.body + walk.at, 0, size)
        elif fact[1] == _VALUES:
            memcpy(walk.body + walk.at, _buffer(source, 1) + first * fact[2], size)
        elif fact[1] == _BITS:
            _copy_bits(_buffer(source, 1), first, rows, walk.body + walk.at)
        else:
            _copy_edges(source, fact[2], first, rows, walk.body + walk.at)
        _end(walk, size)
    if fact[1] == _TEXTS:
        if found[1]:
            memcpy(walk.body + walk.at, _buffer(source, 2) + _edge(source, fact[2], first), found[1])
        _end(walk, found[1])
    begin: cython.longlong = _first_of_parts(source, fact, found, first)
    for i in range(fact[5]):
        _fill(walk, _part(source, i), begin, _rows_of_parts(fact, found, rows))


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _given(whole: cython.pointer(ArrowArray), fact: cython.pointer(cython.const[cython.longlong])) -> cython.pointer(
    ArrowArray
):
    """The batch's column that becomes one of the schema; NULL if none does."""
    return cython.NULL if fact[0] < 0 else whole.children[fact[0]]


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _part(source: cython.pointer(ArrowArray), number: cython.longlong) -> cython.pointer(ArrowArray):
    return cython.NULL if source == cython.NULL else source.children[number]


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _first_of_parts(
    source: cython.pointer(ArrowArray),
    fact: cython.pointer(cython.const[cython.longlong]),
    found: cython.p_longlong,
    first: cython.longlong,
) -> cython.longlong:
    """The row of its parts at which a row of a column begins; any if there are none."""
    if fact[1] == _LISTS:
        return _edge(source, fact[2], first) if found[1] else 0
    return first * fact[2] if fact[1] == _FIXED_LISTS else first


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _rows_of_parts(
    fact: cython.pointer(cython.const[cython.longlong]), found: cython.p_longlong, rows: cython.longlong
) -> cython.longlong:
    """The number of rows of the parts of some rows of a column."""
    if fact[1] == _LISTS:
        return found[1]
    return rows * fact[2] if fact[1] == _FIXED_LISTS else rows


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _buffers_of(kind: cython.longlong) -> cython.longlong:
    """The number of buffers of a column of a kind."""
    return 3 if kind == _TEXTS else 2 if kind < _FIXED_LISTS else 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _values_bytes(fact: cython.pointer(cython.const[cython.longlong]), rows: cython.longlong) -> cython.longlong:
    """Size of a column's numbers, bits or edges."""
    if fact[1] == _VALUES:
        return rows * fact[2]
    if fact[1] == _BITS:
        return (rows + 7) // 8
    return (rows + 1) * fact[2] if fact[1] < _FIXED_LISTS else 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _span(whole: cython.pointer(ArrowArray), place: cython.Py_ssize_t, times: cython.p_longlong) -> cython.void:
    """The smallest and the largest value of a column of 64-bit numbers; it must have rows."""
    i: cython.longlong
    source: cython.pointer(ArrowArray) = whole.children[place]
    number: cython.pointer(cython.const[cython.longlong]) = cython.cast(
        cython.pointer(cython.const[cython.longlong]), source.buffers[1]
    )
    number += whole.offset + source.offset
    low: cython.longlong = number[0]
    high: cython.longlong = number[0]
    for i in range(1, whole.length):
        low = min(low, number[i])
        high = max(high, number[i])
    times[0], times[1] = low, high


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _nulls(source: cython.pointer(ArrowArray), first: cython.longlong, rows: cython.longlong) -> cython.longlong:
    """The number of nulls in some rows."""
    i: cython.longlong
    valid: cython.longlong = 0
    bits: cython.p_const_uchar = _buffer(source, 0)
    if bits == cython.NULL or source.null_count == 0:
        return 0
    for i in range(first, first + rows):
        valid += (bits[i >> 3] >> (i & 7)) & 1
    return rows - valid


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _copy_bits(
    bits: cython.p_const_uchar, first: cython.longlong, rows: cython.longlong, out: cython.p_uchar
) -> cython.void:
    """Copy some bits to begin at a byte's lowest bit; NULL: none is set. The rest of the last byte becomes 0."""
    i: cython.longlong
    memset(out, 0, (rows + 7) // 8)
    if bits != cython.NULL:
        for i in range(rows):
            out[i >> 3] |= ((bits[(first + i) >> 3] >> ((first + i) & 7)) & 1) << (i & 7)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _copy_edges(
    source: cython.pointer(ArrowArray),
    width: cython.longlong,
    first: cython.longlong,
    rows: cython.longlong,
    out: cython.p_uchar,
) -> cython.void:
    """Copy the edges of texts, relative to the first one."""
    i: cython.longlong
    short: cython.pointer(cython.int) = cython.cast(cython.pointer(cython.int), source.buffers[1]) + first
    long: cython.p_longlong = cython.cast(cython.p_longlong, source.buffers[1]) + first
    if width == 4:
        for i in range(rows + 1):
            cython.cast(cython.pointer(cython.int), out)[i] = short[i] - short[0]
    else:
        for i in range(rows + 1):
            cython.cast(cython.p_longlong, out)[i] = long[i] - long[0]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _longest(
    source: cython.pointer(ArrowArray), width: cython.longlong, first: cython.longlong, rows: cython.longlong
) -> cython.longlong:
    """The length of the longest text."""
    i: cython.longlong
    most: cython.longlong = 0
    for i in range(first, first + rows):
        most = max(most, _edge(source, width, i + 1) - _edge(source, width, i))
    return most


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _buffer(source: cython.pointer(ArrowArray), number: cython.int) -> cython.p_const_uchar:
    """The bytes of a buffer; NULL if the buffer or the column is missing."""
    if source == cython.NULL:
        return cython.NULL
    return cython.cast(cython.p_const_uchar, source.buffers[number])


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _edge(source: cython.pointer(ArrowArray), width: cython.longlong, row: cython.longlong) -> cython.longlong:
    """One edge: the beginning of a text, or the end of the one before it."""
    if width == 4:
        return cython.cast(cython.pointer(cython.int), source.buffers[1])[row]
    return cython.cast(cython.p_longlong, source.buffers[1])[row]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_bits(
    bits: cython.p_const_uchar, rows: cython.longlong, out: cython.p_uchar, at: cython.longlong
) -> cython.void:
    """Set bits from `at` on like `bits`, which begin at a byte's lowest bit; NULL: set all."""
    i: cython.longlong
    for i in range(rows):
        if bits == cython.NULL or (bits[i >> 3] >> (i & 7)) & 1:
            out[(at + i) >> 3] |= cython.cast(cython.uchar, 1 << ((at + i) & 7))


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_edges(
    given: cython.p_const_uchar,
    width: cython.longlong,
    rows: cython.longlong,
    out: cython.p_uchar,
    before: cython.longlong,
) -> cython.void:
    """Write edges of texts, increased by `before` bytes."""
    i: cython.longlong
    for i in range(rows + 1):
        _put_edge(out, width, i, _edge_at(given, width, i) + before)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_edge(out: cython.p_uchar, width: cython.longlong, row: cython.longlong, edge: cython.longlong) -> cython.void:
    """Write one edge to a place that may be unaligned."""
    short: cython.int
    if width == 4:
        short = cython.cast(cython.int, edge)
        memcpy(out + 4 * row, cython.address(short), 4)
    else:
        memcpy(out + 8 * row, cython.address(edge), 8)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _edge_at(edges: cython.p_const_uchar, width: cython.longlong, row: cython.longlong) -> cython.longlong:
    """Like `_edge`, for edges that may be unaligned."""
    short: cython.int = 0
    if width == 4:
        memcpy(cython.address(short), edges + 4 * row, 4)
        return short
    return _number_at(edges + 8 * row)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _number_at(place: cython.p_const_uchar) -> cython.longlong:
    number: cython.longlong = 0
    memcpy(cython.address(number), place, 8)
    return number


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_next(
    lies: cython.p_const_uchar, at: cython.p_longlong, size: cython.longlong, body: cython.longlong
) -> cython.bint:
    """Whether a part of a body is at a place, has `size` bytes, and ends within the body; moves the place after it."""
    if _number_at(lies) != at[0] or _number_at(lies + 8) != size or size > body - at[0]:
        return False
    at[0] += _padded(size)
    return at[0] <= body


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _padded(size: cython.longlong) -> cython.longlong:
    """Round up to a multiple of 8."""
    return (size + 7) & ~7


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put(to: cython.p_uchar, number: cython.longlong) -> cython.void:
    memcpy(to, cython.address(number), 8)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _end(walk: cython.pointer(Walk), size: cython.longlong) -> cython.void:
    """Record that a part of the body is complete, and pad it."""
    _put(walk.buffer, walk.at)
    _put(walk.buffer + 8, size)
    walk.buffer += 16
    memset(walk.body + walk.at + size, 0, _padded(size) - size)
    walk.at += _padded(size)
