# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`Event`, and functions that create many events at a time."""

import array as arrays
import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

import cython
from cython.cimports.cpython import array
from cython.cimports.cpython.list import PyList_New, PyList_SET_ITEM
from cython.cimports.cpython.ref import Py_INCREF

from esformat.errors import CorruptSegmentError

_LONGS = cython.declare(array.array, arrays.array("q"))
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@cython.final
@cython.cclass
class Column:
    """The values of one column: `values[row - first]`, or `values[code]` if it has codes."""

    name: str
    indexed: cython.bint
    _codes: bytes | None
    _values: list[Any] | None
    _array: Any
    _first: cython.Py_ssize_t
    _path: str | None

    def __init__(
        self,
        name: str,
        indexed: bool,
        values: Any,
        *,
        first: int = 0,
        codes: bytes | None = None,
        path: str | None = None,
    ) -> None:
        """values: a list, or an Arrow array whose values are converted one by one.

        codes: one byte per row, the position of its value in `values`; None if `values` are in row order from row
        `first` on. path: the file, for errors.
        """
        self.name, self.indexed, self._first, self._codes, self._path = name, indexed, first, codes, path
        if isinstance(values, list):
            self._values = values
        else:
            self._array = values

    @cython.cfunc
    def at(self, row: cython.Py_ssize_t) -> object:
        """The value of a row. Raises CorruptSegmentError for a code without a value."""
        if self._codes is not None:
            if row < 0 or row >= len(self._codes):
                raise IndexError(row)
            row = cython.cast(cython.p_uchar, self._codes)[row]
            if self._values is None or row >= len(self._values):
                raise CorruptSegmentError("a code has no value in the column's dictionary", path=self._path)
            return self._values[row]
        row -= self._first
        if row < 0:
            raise IndexError(row)
        if self._values is None:
            return self._array[row].as_py()
        if row >= len(self._values):
            raise IndexError(row)
        return self._values[row]


@cython.final
@cython.cclass
class Columns:
    """The columns of some rows beyond the four fields that an event carries; loaded when the first event needs them."""

    _load: Any
    _of: Any
    _indexed: list[Any]
    _payload: list[Any]

    def __init__(self, load: Callable[..., list[Column]], *of: Any) -> None:
        """load: returns the columns when called with `of`."""
        self._load, self._of = load, of

    @cython.cfunc
    def _now(self) -> None:
        """Load the columns unless they are loaded; two threads may do so at the same time."""
        column: Column
        load = self._load
        if load is not None:
            indexed: list[Any] = []
            payload: list[Any] = []
            for column in load(*self._of):
                (indexed if column.indexed else payload).append(column)
            self._indexed, self._payload = indexed, payload
            self._load = self._of = None

    @cython.cfunc
    def indexes(self, row: cython.Py_ssize_t) -> dict[str, Any]:
        """Indexed columns of a row that are not null."""
        column: Column
        self._now()
        found: dict[str, Any] = {}
        for column in self._indexed:
            value = column.at(row)
            if value is not None:
                found[column.name] = value
        return found

    @cython.cfunc
    def columns(self, row: cython.Py_ssize_t) -> dict[str, Any]:
        """Payload columns of a row other than `data`."""
        column: Column
        self._now()
        found: dict[str, Any] = {}
        for column in self._payload:
            found[column.name] = column.at(row)
        return found


@cython.final
@cython.no_gc  # no cycles: nothing that an event refers to refers to events
@cython.freelist(1024)
@cython.cclass
class Event:
    """One event of a segment.

    space, grouping: keys, `str` (or `bytes` in a segment with binary keys)
    timestamp: int, µs since the epoch, UTC; `time` is the same as an aware datetime
    data: the payload, `bytes` (None in a segment without a `data` column or a scan without it)
    indexes: dict of the indexed columns that are not null
    columns: dict of the other payload columns
    """

    space = cython.declare(object, visibility="readonly")  # type: str | bytes
    grouping = cython.declare(object, visibility="readonly")  # type: str | bytes
    timestamp = cython.declare(cython.longlong, visibility="readonly")  # type: int
    data = cython.declare(object, visibility="readonly")  # type: bytes | None
    _row: cython.Py_ssize_t
    _columns: Columns

    def __init__(self) -> None:
        raise TypeError("events are made by scans")

    @property
    def indexes(self) -> dict[str, Any]:
        """Indexed columns that are not null, by name."""
        return self._columns.indexes(self._row)

    @property
    def columns(self) -> dict[str, Any]:
        """Payload columns other than `data`, by name."""
        return self._columns.columns(self._row)

    @property
    def time(self) -> dt.datetime:
        """The timestamp as an aware datetime. Raises OverflowError outside of the years 1 to 9999."""
        return _EPOCH + dt.timedelta(microseconds=self.timestamp)

    def _plain(self) -> tuple[Any, ...]:
        return self.space, self.grouping, self.timestamp, self.data, self.indexes, self.columns

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and self._plain() == other._plain()

    def __hash__(self) -> int:
        return hash((self.space, self.grouping, self.timestamp, self.data))

    def __repr__(self) -> str:
        extra = "".join(
            [f", {name}={value!r}" for name, value in (("indexes", self.indexes), ("columns", self.columns)) if value]
        )
        keys = f"space={self.space!r}, grouping={self.grouping!r}, timestamp={self.timestamp}, data={self.data!r}"
        return f"Event({keys}{extra})"

    def __reduce__(self) -> tuple[Any, ...]:
        return make_event, self._plain()


def make_event(
    space: str | bytes,
    grouping: str | bytes,
    timestamp: cython.longlong,
    data: bytes | None,
    indexes: Mapping[str, Any],
    columns: Mapping[str, Any],
) -> Event:
    """Create an event from its parts."""
    known = [Column(name, True, [value]) for name, value in indexes.items()]
    known += [Column(name, False, [value]) for name, value in columns.items()]
    return _event(space, grouping, timestamp, data, 0, Columns(lambda: known))


@cython.cfunc
@cython.inline
def _event(
    space: Any, grouping: Any, timestamp: cython.longlong, data: Any, row: cython.Py_ssize_t, columns: Columns
) -> Event:
    event: Event = cython.cast(Event, Event.__new__(Event))
    event.space, event.grouping, event.timestamp, event.data = space, grouping, timestamp, data
    event._row, event._columns = row, columns
    return event


def run_events(
    space: object,
    grouping: object,
    times: cython.const[cython.longlong][::1],
    data: list[Any] | None,
    first: cython.Py_ssize_t,
    rows: list[Any] | None,
    columns: Columns,
    reverse: cython.bint,
) -> list[Event]:
    """The events of one run, one for each of `times`: of consecutive rows beginning with `first`, or of `rows`.

    data: payloads in the same order; None for none.
    """
    n: cython.Py_ssize_t
    i: cython.Py_ssize_t
    count: cython.Py_ssize_t = times.shape[0]
    if (data is not None and len(data) != count) or (rows is not None and len(rows) != count):
        raise ValueError("columns of different lengths")
    payload: Any = None
    made: list[Any] = PyList_New(count)
    for n in range(count):
        i = count - 1 - n if reverse else n
        if data is not None:
            payload = data[i]
        event: Event = _event(space, grouping, times[i], payload, first + i if rows is None else rows[i], columns)
        Py_INCREF(event)
        PyList_SET_ITEM(made, n, event)
    return made


@cython.cfunc
@cython.inline
def _at(values: list[Any], place: cython.Py_ssize_t) -> object:
    if not 0 <= place < len(values):
        raise IndexError(place)
    return values[place]


def row_events(
    spaces: list[Any],
    space_of: cython.const[cython.longlong][::1],
    groupings: list[Any],
    grouping_of: cython.const[cython.longlong][::1],
    times: cython.const[cython.longlong][::1],
    data: list[Any] | None,
    first: cython.Py_ssize_t,
    last: cython.Py_ssize_t,
    columns: list[Any],
    starts: cython.const[cython.longlong][::1],
    places: cython.const[cython.longlong][::1] | None,
    reverse: cython.bint,
) -> list[Event]:
    """The events of rows [first, last) of the decoded rows.

    Row i has spaces[space_of[i]], and groupings[grouping_of[i]] or, if there is only one grouping, that one. It is row
    places[i] (None: i) of its blocks; block b begins at starts[b] and has columns[b]. data: payloads of rows [first,
    last); None for none.
    """
    i: cython.Py_ssize_t
    n: cython.Py_ssize_t
    row: cython.Py_ssize_t
    key: cython.Py_ssize_t
    block: cython.Py_ssize_t = 0
    blocks: cython.Py_ssize_t = len(columns)
    several: cython.bint = len(groupings) != 1
    # These checks cover every index below, except those read from the arrays, which are checked when used.
    if not 0 <= first <= last <= times.shape[0] or space_of.shape[0] < last or starts.shape[0] != blocks or not blocks:
        raise ValueError("columns of different lengths")
    if (several and grouping_of.shape[0] < last) or (places is not None and places.shape[0] < last):
        raise ValueError("columns of different lengths")
    if data is not None and len(data) != last - first:
        raise ValueError("columns of different lengths")
    held: cython.Py_ssize_t = -1  # the place of `space` and the block of `current`, which rarely change
    shown: cython.Py_ssize_t = -1
    payload: Any = None
    made: list[Any] = PyList_New(last - first)
    for n in range(last - first):
        i = last - 1 - n if reverse else first + n
        row = i if places is None else places[i]
        while block > 0 and row < starts[block]:
            block -= 1
        while block + 1 < blocks and row >= starts[block + 1]:
            block += 1
        if block != shown:
            current: Columns = columns[block]
            shown = block
        key = space_of[i]
        if key != held or not n:
            space, held = _at(spaces, key), key
        if several or not n:
            grouping = _at(groupings, grouping_of[i] if several else 0)
        if data is not None:
            payload = data[i - first]
        event: Event = _event(space, grouping, times[i], payload, row - starts[block], current)
        Py_INCREF(event)
        PyList_SET_ITEM(made, n, event)
    return made


@cython.cclass
class RowEvents:
    """Creates the events of one scan, of a single run or of the runs of a space.

    A subclass provides data of a block that is not cached.
    """

    reader = cython.declare(object, visibility="readonly")  # type: Any
    space = cython.declare(object, visibility="readonly")  # type: Any
    plain = cython.declare(object, visibility="readonly")  # type: Any
    shown = cython.declare(object, visibility="readonly")  # type: tuple[str, ...] | None
    _grouping: object
    _place: object
    _quick: cython.bint
    _reverse: cython.bint

    def __init__(
        self, reader: Any, space: object, grouping: object = "", reverse: bool = False, columns: Any = None
    ) -> None:
        """grouping: of a single run. columns: names of the columns that events have; None for all."""
        self.reader, self.space, self.plain = reader, space, reader.thread_context().plain
        self.shown = columns
        self._grouping, self._reverse = grouping, reverse
        self._place, self._quick = reader.data_place, reader.plain_data

    def consecutive(
        self, block: Any, run_start: cython.Py_ssize_t, low: cython.Py_ssize_t, high: cython.Py_ssize_t
    ) -> list[Event]:
        """Events of rows [low, high) of a block; their run begins at its row `run_start`."""
        try:
            times = block.run_times(run_start, low, high, self.plain)
            columns = self.columns(block, low, high)
            data = self.data(block, low, high, None)
            return run_events(self.space, self._grouping, times, data, low, None, columns, self._reverse)
        except Exception:
            with self.reader.named:
                raise

    def picked(self, block: Any, run_start: cython.Py_ssize_t, places: list[int]) -> list[Event]:
        """Events of some rows of a block, ascending, all of one run."""
        if not places:
            return []
        low: cython.Py_ssize_t = places[0]
        high: cython.Py_ssize_t = places[len(places) - 1] + 1
        i: cython.Py_ssize_t
        place: cython.Py_ssize_t
        try:
            times: cython.const[cython.longlong][::1] = block.run_times(run_start, low, high, self.plain)
            chosen: array.array = array.clone(_LONGS, len(places), False)
            for i in range(len(places)):
                place = places[i] - low
                if not 0 <= place < times.shape[0]:
                    raise ValueError("fewer rows than requested")
                chosen.data.as_longlongs[i] = times[place]
            columns = self.columns(block, low, high)
            data = self.data(block, low, high, places)
            return run_events(self.space, self._grouping, chosen, data, low, places, columns, self._reverse)
        except Exception:
            with self.reader.named:
                raise

    @cython.ccall
    def columns(self, block: object, low: cython.Py_ssize_t, high: cython.Py_ssize_t) -> Columns:
        """The columns of rows [low, high) other than `data`."""
        pieces: list[Any] = block.light_pieces(self.reader.attribute_chunks)
        lacking: cython.bint = False
        for piece in pieces:
            lacking = lacking or piece is None
        if lacking:
            pieces = self.pieces(block, low, high)
        return Columns(self.load, self.reader, pieces, block.dictionary, block.row_count, low, high, self.shown)

    @cython.ccall
    def data(self, block: object, low: cython.Py_ssize_t, high: cython.Py_ssize_t, places: object) -> object:
        """The payloads of rows [low, high), or of the ascending `places` among them; None if there are no payloads."""
        if self._place is None:
            return None
        nodes: dict[Any, Any] = block.cached_nodes
        node = nodes.get(self._place) if self._quick else None
        rows = None if node is None else node.cached_rows
        made = None if rows is None else rows.cached_values(low, high, places)
        return self.payloads(block, low, high, places) if made is None else made
