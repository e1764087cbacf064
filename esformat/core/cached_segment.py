# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, nonecheck=True
"""Cached data of an open segment, looked up by compiled code because every read of a space does so several times.

Nothing is read here: the subclass of `CachedSegment` provides data that is not cached.
"""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import cython
from cython.cimports.cpython import array
from cython.cimports.cpython.dict import PyDict_GetItem
from cython.cimports.cpython.object import PyTypeObject
from cython.cimports.cpython.pythread import PyThread_get_thread_ident
from cython.cimports.cpython.ref import PyObject
from cython.cimports.esformat.core.blocks import Chunks
from cython.cimports.esformat.core.caches import Shelf
from cython.cimports.esformat.core.keys import to_key
from cython.cimports.esformat.core.leaves import Leaf
from cython.cimports.esformat.core.roots import Root

from esformat.errors import CorruptSegmentError, EsdbError

MAX_CHECKED = 100
"""Most lists of columns, and most conditions, that are cached as checked."""
MAX_CONTEXTS = 100
"""Most pairs of thread and dictionary whose contexts are cached."""
MOST_RUN_ROWS = 8192
"""Most rows of a run that is read block by block; longer runs are read many blocks at a time."""
_MOST_ROWS = (1 << 63) - 1
_NOTHING = cython.declare(tuple, ())


@cython.final
@cython.cclass
class NamedErrors:
    """A context manager around decoding a file's bytes: adds the file's name to errors, and turns errors of Arrow,
    NumPy or the compiled core into CorruptSegmentError. Thread-safe.
    """

    _name: str

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None:
            return
        if isinstance(error, EsdbError):
            error.path = error.path or self._name
        elif isinstance(error, (ValueError, IndexError, OverflowError)):  # Arrow's errors are among them
            raise CorruptSegmentError(f"stored values are broken: {error}", path=self._name) from error


@cython.final
@cython.cclass
class Query:
    """The query of a scan. Times are µs, [start, end); `columns` None means all.

    A condition is an index and a value; or several values as a frozenset: then the blocks found may also contain events
    with other values, so the caller filters them.
    """

    start = cython.declare(object, visibility="readonly")  # type: int | None
    end = cython.declare(object, visibility="readonly")  # type: int | None
    reverse = cython.declare(cython.bint, visibility="readonly")  # type: bool
    limit = cython.declare(object, visibility="readonly")  # type: int | None
    columns = cython.declare(object, visibility="readonly")  # type: tuple[str, ...] | None
    conditions = cython.declare(tuple, visibility="readonly")  # type: tuple[tuple[str, Any], ...]
    timed = cython.declare(cython.bint, visibility="readonly")  # type: bool
    """Whether the query limits time."""
    filtered = cython.declare(cython.bint, visibility="readonly")  # type: bool
    """Whether rows must be checked to know if they are part of the result."""

    def __init__(
        self,
        start: Any = None,
        end: Any = None,
        reverse: bool = False,
        limit: Any = None,
        columns: Any = None,
        conditions: tuple[Any, ...] = (),
    ) -> None:
        self.start, self.end, self.reverse, self.limit = start, end, reverse, limit
        self.columns, self.conditions = columns, conditions
        self.timed = start is not None or end is not None
        self.filtered = self.timed or len(conditions) > 0

    def covers(self, low: int, high: int) -> bool:
        """Whether every timestamp in [low, high] is within the query's time range."""
        return (self.start is None or low >= self.start) and (self.end is None or high < self.end)

    def misses(self, low: int, high: int) -> bool:
        """Whether no timestamp in [low, high] is within the query's time range."""
        return (self.start is not None and high < self.start) or (self.end is not None and low >= self.end)

    def described(self) -> list[str]:
        """The options that restrict the query, as a caller writes them."""
        bounds = [("start", self.start), ("end", self.end), ("limit", self.limit)]
        parts = [f"{name}={value!r}" for name, value in bounds if value is not None]
        return parts + [f"{name}={value!r}" for name, value in self.conditions] + (["reverse"] if self.reverse else [])


@cython.cfunc
def _query(reverse: cython.bint, limit: Any, columns: Any, conditions: Any) -> Query:
    query: Query = Query.__new__(Query)
    query.reverse, query.limit, query.columns, query.conditions = reverse, limit, columns, conditions
    query.filtered = len(conditions) > 0
    return query


def oldest_first(query: Query) -> Query:
    """The same query without a limit, oldest first."""
    return Query(query.start, query.end, False, None, query.columns, query.conditions)


def first_of(query: Query, limit: Any, columns: Any) -> Query:
    """The same query with another limit, None for none, and other columns."""
    return Query(query.start, query.end, query.reverse, limit, columns, query.conditions)


@cython.cclass
class CheckedQueries:
    """Parts of queries that were checked before: the same columns and conditions are often used again."""

    _columns: set[Any]
    _conditions: dict[Any, Any]

    def __cinit__(self) -> None:
        self._columns, self._conditions = set(), {}

    def has_columns(self, columns: Any) -> bool:
        """Whether a tuple of columns is known."""
        return columns in self._columns

    def remember(self, columns: Any, name: Any, value: Any) -> None:
        """Remember a tuple of columns, and a condition of text, each None for none, if there are few so far."""
        if columns is not None and len(self._columns) < MAX_CHECKED:
            self._columns.add(columns)
        if type(name) is str and type(value) is str and len(self._conditions) < MAX_CHECKED:
            self._conditions[name, value] = ((name, value),)

    def query(
        self, start: Any, end: Any, reverse: Any, limit: Any, columns: Any, name: Any = None, value: Any = None
    ) -> Query | None:
        """A query whose parts need no check, or were checked before; None for any other."""
        conditions: Any = ()
        if start is not None or end is not None:
            return None
        if limit is not None and (type(limit) is not int or not 0 <= limit <= _MOST_ROWS):
            return None
        if columns is not None and (type(columns) is not tuple or columns not in self._columns):
            return None
        if name is not None:
            conditions = self._conditions.get((name, value)) if type(name) is str and type(value) is str else None
            if conditions is None:
                return None
        return _query(bool(reverse), limit, columns, conditions)


@cython.final
@cython.freelist(64)
@cython.cclass
class RowSpan:
    """Rows [first, last) of the segment, all in one leaf. `run_start`: where their run begins, -1 for several runs."""

    leaf = cython.declare(cython.Py_ssize_t, visibility="readonly")  # type: int
    first = cython.declare(cython.longlong, visibility="readonly")  # type: int
    last = cython.declare(cython.longlong, visibility="readonly")  # type: int
    run_start = cython.declare(cython.longlong, visibility="readonly")  # type: int

    def __init__(
        self, leaf: cython.Py_ssize_t, first: cython.longlong, last: cython.longlong, run_start: cython.longlong
    ) -> None:
        self.leaf, self.first, self.last, self.run_start = leaf, first, last, run_start


def part_of(row_span: RowSpan, first: int, last: int) -> RowSpan:
    """The part of a row span within rows [first, last)."""
    return RowSpan(row_span.leaf, max(row_span.first, first), min(row_span.last, last), row_span.run_start)


@cython.cclass
class CachedSegment:
    """Directory leaves and data blocks of an open segment, by number, and the contexts in which threads decode them."""

    announce = cython.declare(object, visibility="public")  # type: Any
    """Tells the source what will be read; None if it does not need to know."""
    checks = cython.declare(object, visibility="public")  # type: Any
    """What queries are validated against."""
    direct = cython.declare(cython.bint, visibility="public")  # type: bool
    """Whether events consist only of `data`, indexed columns and numbers: then any number of events needs no Arrow."""
    data_place = cython.declare(object, visibility="public")  # type: int | None
    """The place of the column `data`; None if there is no such column."""
    everywhere = cython.declare(dict, visibility="readonly")  # type: dict[tuple[tuple[str, Any], ...], Any]
    """Conditions, used alone in earlier queries, that match an event in every data block, and their index results."""
    name = cython.declare(object, visibility="readonly")  # type: str
    named = cython.declare(NamedErrors, visibility="readonly")  # type: NamedErrors
    """Wraps everything that decodes bytes of the file."""
    positions = cython.declare(dict, visibility="public")  # type: dict[str, int]
    """Place of each payload and index column."""
    shown_type = cython.declare(object, visibility="public")  # type: type[str | bytes]
    """The type of keys that callers see."""
    root = cython.declare(Root, visibility="public")  # type: Any
    """The root of the directory."""
    _leaves: Shelf
    _data: Shelf
    _contexts: dict[Any, Any]
    _threads: object
    _leaf: Leaf  # None, or the last one used: `find` and the scan after it need the same one
    _leaf_number: cython.Py_ssize_t
    _codes: dict[Any, int] | None  # the last ones used
    _codes_dictionary: cython.Py_ssize_t
    _codes_place: cython.Py_ssize_t

    def use(self, name: str, leaves: Shelf, blocks: Shelf, threads: Any) -> None:
        """Initialize with these shelves. name: of the file. threads: has, for each thread, `context` for all
        segments.
        """
        self.name, self.named, self.everywhere, self._contexts = name, NamedErrors(name), {}, {}
        self._leaves, self._data, self._threads = leaves, blocks, threads

    def forget(self) -> None:
        """Release everything cached outside of the shelves."""
        self._leaf = None
        self._codes = None

    def thread_context(self) -> Any:
        """The context in which this thread decodes everything except columns."""
        try:
            return self._threads.context
        except AttributeError:
            return self._new_thread_context()

    @cython.ccall
    def shown(self, key: bytes) -> object:
        """A space or grouping as callers see it, str or bytes. Raises CorruptSegmentError if text is not UTF-8."""
        if self.shown_type is bytes:
            return key
        try:
            return key.decode("utf-8")
        except UnicodeDecodeError:
            raise CorruptSegmentError(f"the key {key!r} is not UTF-8 text", path=self.name) from None

    @cython.ccall
    def leaf(self, number: cython.Py_ssize_t, keys: cython.bint = True) -> Leaf:
        """A directory leaf; `keys`: with the keys of its runs."""
        leaf: Leaf = self._leaf
        if leaf is None or self._leaf_number != number:
            leaf = self._leaves._find((0, number))
            if leaf is None:
                leaf = self._missing_leaf(number, keys)
            self._leaf, self._leaf_number = leaf, number
        return self.with_keys(leaf) if keys and leaf.spaces is None else leaf

    def cached_leaf(self, number: int) -> Any:
        """A directory leaf, if it is cached."""
        return self._leaves._find((0, number))

    @cython.ccall
    def data_block(self, leaf: Leaf, number: cython.Py_ssize_t) -> Chunks:
        """The leaf's data block of that number, with the parts that earlier reads decoded."""
        block: Chunks = self._data._find(leaf.first_block + number)
        return self._missing_block(leaf, number) if block is None else block

    def is_block_cached(self, number: int) -> bool:
        """Whether a data block of the segment is cached."""
        return self._data._find(number) is not None

    def contexts(self, dictionary: int) -> Any:
        """For each column, the context in which this thread decodes it in blocks that use a dictionary."""
        key = (PyThread_get_thread_ident(), dictionary)  # if a thread ended, the next one may reuse its entries
        found = self._contexts.get(key)
        if found is None:
            if len(self._contexts) >= MAX_CONTEXTS:  # of ended threads; running ones keep their own contexts
                self._contexts.clear()
            found = self._contexts[key] = self._missing_contexts(dictionary)
        return found

    @cython.ccall
    def value_codes(self, dictionary: cython.Py_ssize_t, place: cython.Py_ssize_t) -> dict[Any, int]:
        """The code of each value of a column that is stored as codes, in blocks that use a dictionary."""
        codes: dict[Any, int] | None = self._codes
        if codes is None or self._codes_dictionary != dictionary or self._codes_place != place:
            known = self._leaves._find((3, dictionary, place))
            codes = (self._missing_codes(dictionary, place) if known is None else known).codes
            self._codes, self._codes_dictionary, self._codes_place = codes, dictionary, place
        return codes

    @cython.ccall
    def rows_with(
        self, block: Chunks, name: str, value: object, low: cython.Py_ssize_t, high: cython.Py_ssize_t
    ) -> list[int] | None:
        """Rows [low, high) of a block that have a value in a column; None if its codes are not cached.

        Raises ValueError for rows that the block does not have.
        """
        place: cython.Py_ssize_t = self.positions[name]
        known = block.cached_codes.get(place)
        if known is None:
            return None
        base, held = cython.cast(tuple, known)
        stored: bytes = held
        if not 0 <= low <= high <= len(stored):
            raise ValueError("the block does not have the requested rows")
        codes: dict[Any, int] = self.value_codes(block.dictionary, place)  # own a reference: hashing may run other code
        found: cython.pointer(PyObject) = PyDict_GetItem(codes, value)
        rows: list[int] = []
        if found == cython.NULL:
            return rows
        code = cython.cast(object, found) - base
        if 0 <= code <= 255:
            byte: cython.uchar = code
            at: cython.p_uchar = stored
            row: cython.Py_ssize_t
            for row in range(low, high):
                if at[row] == byte:
                    rows.append(row)  # noqa: PERF401 - a comprehension is a function call, and no faster
        return rows

    def matching(self, query: Query, row_span: RowSpan, index_matches: Any, maker: Any, find: Any) -> Iterator[Any]:
        """Yield what `maker` creates from the rows of a span, all of one run, that satisfy the one condition."""
        ((name, value),) = index_matches.unmet
        leaf: Leaf = self.leaf(row_span.leaf, False)
        edges: array.array = leaf.block_rows
        begin: cython.Py_ssize_t = leaf._block_of(row_span.first)
        end: cython.Py_ssize_t = leaf._block_of(row_span.last - 1) + 1
        if not 0 <= begin < end <= leaf.block_count:
            raise ValueError("the leaf does not have the requested rows")
        i: cython.Py_ssize_t
        for i in range(end - begin):
            at: cython.Py_ssize_t = end - 1 - i if query.reverse else begin + i
            origin: cython.longlong = edges.data.as_longlongs[at]
            low: cython.longlong = max(row_span.first, origin) - origin
            high: cython.longlong = min(row_span.last, edges.data.as_longlongs[at + 1]) - origin
            block: Chunks = self.data_block(leaf, at)
            with self.named:
                rows = self.rows_with(block, name, value, low, high)
                if rows is None:
                    part = leaf.slices(low + origin, high + origin, row_span.run_start)[0]
                    rows = find(self, query, part, block, index_matches)
            if rows is None:
                yield maker.consecutive(block, max(row_span.run_start - origin, 0), low, high)
            elif rows:
                yield maker.picked(block, max(row_span.run_start - origin, 0), rows)


_Rows = cython.struct(  # rows [first, last) of a leaf's block; the row of it at which their run begins or continues
    leaf=cython.Py_ssize_t,
    block=cython.Py_ssize_t,
    first=cython.Py_ssize_t,
    last=cython.Py_ssize_t,
    run_row=cython.Py_ssize_t,
)


@cython.cfunc
def _instance(class_: object) -> object:
    """An instance of a class, without calling its `__init__`."""
    if not isinstance(class_, type):
        raise TypeError("an instance needs a class")
    kind: cython.pointer(PyTypeObject) = cython.cast(cython.pointer(PyTypeObject), class_)
    return kind.tp_new(cython.cast(type, class_), cython.cast(cython.pointer(PyObject), _NOTHING), cython.NULL)


@cython.auto_pickle(False)
@cython.cclass
class SpaceRows:
    """The rows of a segment that are the events of a space."""

    _reader = cython.declare(CachedSegment, visibility="readonly")  # type: Any
    key = cython.declare(object, visibility="readonly")  # type: str | bytes
    """The space's key."""
    key_bytes = cython.declare(bytes, visibility="readonly")  # type: bytes
    num_events = cython.declare(cython.longlong, visibility="readonly")  # type: int
    """The number of its events."""
    _row_spans = cython.declare(list, visibility="readonly")  # type: list[RowSpan]
    """The rows of each of its runs, in file order; a run that crosses leaves has a row span in each leaf."""
    _groupings = cython.declare(list, visibility="readonly")  # type: list[tuple[bytes, int]]
    """Its groupings, with the number of events of each."""

    def __init__(self) -> None:
        raise TypeError("spaces are found in segments")

    @property
    def _checks(self) -> Any:
        return self._reader.checks

    @cython.cfunc
    def _add_runs_of(self, number: cython.Py_ssize_t) -> object:
        """Add the runs of a leaf; the first may continue from the leaf before."""
        leaf: Leaf = self._reader.leaf(number)
        run = cython.declare(cython.Py_ssize_t)
        last = cython.declare(cython.Py_ssize_t)
        leaf.spaces._places(self.key_bytes, cython.address(run), cython.address(last))
        edges: array.array = leaf.run_rows
        if not 0 <= run <= last < len(edges):
            raise ValueError("a leaf has fewer runs")
        while run < last:
            grouping: bytes = leaf.groupings[run] if leaf.has_groupings else b""
            start: cython.longlong = edges.data.as_longlongs[run]
            count: cython.longlong = edges.data.as_longlongs[run + 1] - start
            self.num_events += count
            self._row_spans.append(RowSpan(number, start, start + count, start))
            if self._groupings and self._groupings[len(self._groupings) - 1][0] == grouping:
                before: cython.longlong = self._groupings.pop()[1]
                added: RowSpan = self._row_spans[len(self._row_spans) - 1]
                added.run_start = start - before
                count += before
            self._groupings.append((grouping, count))
            run += 1
        return None

    def of_one_run(self, query: Query, grouping: Any, scan_class: Any) -> Any:
        """A scan, of class `scan_class`, for a query of the space's only grouping; None if the space has several, or
        if the query is for another one.
        """
        if self._groupings is None or len(self._groupings) != 1:
            return None
        stored: bytes = self._groupings[0][0]
        if grouping is not None and grouping != stored:
            return None
        scan: ScanRows = cython.cast(ScanRows, _instance(scan_class), typecheck=True)
        first: RowSpan = self._row_spans[0]
        last: RowSpan = self._row_spans[len(self._row_spans) - 1]
        scan._reader, scan._query, scan._given = self._reader, query, self._row_spans
        scan._low, scan._high = first.first, last.last
        scan._keys = (self.key, "" if not stored and self._reader.shown_type is str else self._reader.shown(stored))
        return scan


def find_space(reader: CachedSegment, key: Any, space_class: Any, leaves: Any = None) -> Any:
    """The space with a key, as an instance of `space_class`; None if the segment has no event of it.

    leaves: numbers of the leaves that can contain it, ascending; None to look them up. Raises UsageError for other
    types, CorruptSegmentError.
    """
    space: SpaceRows = cython.cast(SpaceRows, _instance(space_class), typecheck=True)
    space._reader, space.key_bytes, space._row_spans, space._groupings = reader, to_key(key), [], []
    number: cython.Py_ssize_t
    first = cython.declare(cython.Py_ssize_t)
    last = cython.declare(cython.Py_ssize_t)
    if leaves is not None:
        for number in leaves:
            space._add_runs_of(number)
    elif reader.root is not None:
        reader.root._leaves_of(space.key_bytes, cython.address(first), cython.address(last))
        for number in range(first, last):
            space._add_runs_of(number)
    if not space.num_events:
        return None
    space.key = key if type(key) is reader.shown_type else reader.shown(space.key_bytes)
    return space


def find_history(
    reader: CachedSegment, key: Any, query: Query, grouping: Any, make: Any, match_indexes: Any, find: Any
) -> list[Any] | None:
    """The events of a space that a query returns, if they are of one run within one block of a local file; None if they
    need a full scan. Parameters as in `find_space` and `ScanRows.fast_parts`.
    """
    if reader.announce is not None:
        return None
    found = find_space(reader, key, SpaceRows)
    if found is None:
        return []
    space: SpaceRows = found
    scan: ScanRows = space.of_one_run(query, grouping, ScanRows)
    if scan is None or not scan._direct():
        return None
    parts = scan.fast_parts(make, query.columns, match_indexes, find)
    if type(parts) is not tuple:
        return None
    return parts[0] if parts else []


@cython.auto_pickle(False)
@cython.cclass
class ScanRows:
    """Which rows a scan reads, and how: see `Scan`."""

    _reader = cython.declare(CachedSegment, visibility="readonly")  # type: Any
    _query = cython.declare(Query, visibility="public")  # type: Query
    _keys = cython.declare(tuple, visibility="readonly")  # type: tuple[str | bytes, str | bytes] | None
    _small = cython.declare(object, visibility="public")  # type: Any
    _listed = cython.declare(object, visibility="readonly")  # type: Any
    _threads = cython.declare(cython.Py_ssize_t, visibility="readonly")  # type: int
    _whole = cython.declare(cython.bint, visibility="readonly")  # type: bool
    _merged = cython.declare(cython.bint, visibility="readonly")  # type: bool
    _page = cython.declare(cython.bint, visibility="readonly")  # type: bool
    _given = cython.declare(object, visibility="readonly")  # type: Any
    _low: cython.longlong
    _high: cython.longlong

    def __init__(
        self, reader: CachedSegment, query: Query, row_spans: Any, span: tuple[int, int], keys: Any = None,
        whole: bool = False, merged: bool = False, small: Any = None, listed: Any = None, threads: int = 0,
        page: bool = False,
    ) -> None:  # fmt: skip
        """Created by methods of Segment and Space.

        row_spans: of rows to read, in row order: a list, or a function that returns them.
        span: the rows [low, high) that contain them.
        keys: space and grouping if all rows are of one run.
        whole: whether they are all rows of the segment, apart from limits of time.
        merged: whether their rows are merged by time.
        small: returns the space, if it is small and has several groupings.
        listed: ascending rows of the segment, to which the scan is limited.
        threads: number of threads that decode a long result; 0 to choose automatically.
        page: whether these are a few rows read as a whole, which other callers may soon read too.
        """
        self._low, self._high = span
        self._reader, self._query, self._given, self._keys = reader, query, row_spans, keys
        self._whole, self._merged, self._small, self._listed = whole, merged, small, listed
        self._threads, self._page = threads, page

    @property
    def _span(self) -> tuple[int, int]:
        """The rows [low, high) that contain the row spans."""
        return self._low, self._high

    def _row_spans(self) -> Any:
        """The row spans to read, in row order."""
        return iter(self._given) if type(self._given) is list else self._given()

    @cython.ccall
    def _direct(self) -> cython.bint:
        """Whether blocks become events one by one, without Arrow: for every run if columns stay compressed until an
        event needs them, otherwise for short runs.
        """
        wanted = self._query.columns
        if wanted is not None and self._reader.data_place is not None and "data" not in wanted:
            return False
        return self._reader.direct or self._high - self._low <= MOST_RUN_ROWS

    @cython.cfunc
    @cython.exceptval(check=True)
    def _in_one_block(self, rows: cython.pointer(_Rows)) -> cython.bint:
        """Whether the rows of a scan of one run, up to its limit, are in one block: then nothing needs to be announced,
        because it is read immediately.
        """
        if type(self._given) is not list or len(self._given) != 1:
            return False
        row_span: RowSpan = self._given[0]
        first: cython.longlong = row_span.first
        last: cython.longlong = row_span.last
        most: cython.longlong
        if self._query.limit is not None and not self._query.filtered:
            most = self._query.limit
            if last - first > most:
                first, last = (last - most, last) if self._query.reverse else (first, first + most)
        rows.first = rows.last = 0
        if first >= last or self._query.limit == 0:
            return True
        leaf: Leaf = self._reader.leaf(row_span.leaf, False)
        at: cython.Py_ssize_t = leaf._block_of(first)
        if not 0 <= at < leaf.block_count or last > leaf.block_rows.data.as_longlongs[at + 1]:
            return False
        origin: cython.longlong = leaf.block_rows.data.as_longlongs[at]
        rows.leaf, rows.block, rows.first, rows.last = row_span.leaf, at, first - origin, last - origin
        rows.run_row = max(row_span.run_start - origin, 0)
        return True

    @cython.cfunc
    def _picked(self, block: Chunks, first: cython.Py_ssize_t, last: cython.Py_ssize_t) -> list[int] | None:
        """Rows [first, last) of a block that satisfy the query's condition, up to its limit.

        None if the cached codes of one condition do not suffice.
        """
        query: Query = self._query
        if query.timed or len(query.conditions) != 1:
            return None
        name, value = cython.cast(tuple, query.conditions[0])
        if type(value) is frozenset:
            return None
        rows: list[int] | None = self._reader.rows_with(block, name, value, first, last)
        limit: cython.Py_ssize_t
        if rows is not None and query.limit is not None and query.limit < len(rows):
            limit = query.limit
            return rows[len(rows) - limit :] if query.reverse else rows[:limit]
        return rows

    def fast_parts(self, make: Any, columns: Any, match_indexes: Any, find: Any) -> Any:
        """What a maker creates from the rows of one run, block by block, if they are in one block, or in one leaf of a
        local file; otherwise None.

        make: returns a maker for rows, with some columns; called only if there are rows.
        match_indexes: looks the conditions up in the indexes.
        find: finds the rows of a block if cached codes do not suffice.
        """
        query: Query = self._query
        reader: CachedSegment = self._reader
        rows = cython.declare(_Rows)
        block: Chunks
        picked: list[int] | None
        if self._keys is None or type(self._given) is not list:
            return None
        space, grouping = self._keys
        if self._in_one_block(cython.address(rows)):
            if rows.first == rows.last:
                return ()
            leaf: Leaf = reader.leaf(rows.leaf, False)
            if not query.filtered:
                block = reader.data_block(leaf, rows.block)
                maker = make(reader, space, grouping, query.reverse, columns)
                return (maker.consecutive(block, rows.run_row, rows.first, rows.last),)
            block = reader._data._find(leaf.first_block + rows.block)
            picked = None if block is None else self._picked(block, rows.first, rows.last)
            if picked is not None:
                if not picked:
                    return ()
                maker = make(reader, space, grouping, query.reverse, columns)
                return (maker.picked(block, rows.run_row, picked),)
        elif not query.filtered:
            return None
        if len(self._given) != 1 or reader.announce is not None:
            return None
        index_matches = reader.everywhere.get(query.conditions)
        if index_matches is None:
            index_matches = match_indexes(reader, query, self._low, self._high)
        if index_matches.nothing:
            return ()
        if (
            query.timed
            or len(index_matches.unmet) != 1
            or index_matches.rows is not None
            or index_matches.blocks is not None
        ):
            return None
        maker = make(reader, space, grouping, query.reverse, columns)
        return reader.matching(query, self._given[0], index_matches, maker, find)

    def fast_events(self, make: Any, match_indexes: Any, find: Any) -> Any:
        """An iterator of the events, if `fast_parts` returns them; else None."""
        query: Query = self._query
        if not self._direct():
            return None
        parts = self.fast_parts(make, query.columns, match_indexes, find)
        if parts is None:
            return None
        if type(parts) is tuple:
            return iter(parts[0] if parts else ())
        return chain.from_iterable(parts) if query.limit is None else islice(chain.from_iterable(parts), query.limit)
