# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Ascending keys: read, binary-searched, compared. And keys of rows in any order: numbered, found."""

from collections.abc import Iterator
from typing import Any

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.cpython.unicode import PyUnicode_AsUTF8String
from cython.cimports.esformat.core.hashing import hashed
from cython.cimports.libc.stdlib import calloc, free
from cython.cimports.libc.string import memcmp

from esformat.core.bytes_nodes import read_values
from esformat.errors import UsageError

# above this many rows the interpreter's lock is released; for fewer, retaking it may take longer than the work
_MANY_ROWS = cython.declare(cython.Py_ssize_t, 1 << 12)


def to_key(key: Any) -> bytes:
    """A space or grouping as it is stored. Raises UsageError unless it is Unicode text or bytes."""
    if isinstance(key, str):
        try:
            return PyUnicode_AsUTF8String(key)
        except UnicodeEncodeError:
            raise UsageError(f"key {key!r} is not Unicode text") from None
    if isinstance(key, (bytes, bytearray, memoryview)):
        return bytes(key)
    raise UsageError(f"a key must be str or bytes, not {type(key).__name__}")


@cython.final
@cython.cclass
class Keys:
    """Concatenated keys: searched in place, and returned as a list or as the memory of an Arrow array."""

    edges: Any
    """The offset of each key in `data`, followed by the end of the last one: int64."""
    data: bytes
    _count: cython.Py_ssize_t

    def __init__(self, edges: Any, data: bytes) -> None:
        """edges: an array of int64. Raises ValueError unless they ascend from 0 to the end of `data`."""
        self.edges, self.data = edges, data
        self._count = len(self.edges) - 1
        if self.edges.typecode != "q" or self._count < 0:
            raise ValueError("no edges of keys")
        i: cython.Py_ssize_t
        last: cython.longlong = 0
        edge: cython.p_longlong = self.edges.data.as_longlongs
        for i in range(self._count + 1):
            if edge[i] < last or (i == 0 and edge[i]):
                raise ValueError("a key is outside its bytes")
            last = edge[i]
        if last != len(data):
            raise ValueError("a key is outside its bytes")

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.as_list())

    @property
    def size_bytes(self) -> int:
        """Memory used, in bytes."""
        return 8 * self._count + len(self.data)

    @property
    def all_empty(self) -> bool:
        """Whether all keys are empty."""
        return not self.data

    def __getitem__(self, place: cython.Py_ssize_t) -> bytes:
        """One key, indexed like a list. Raises IndexError."""
        if place < 0:
            place += self._count
        if not 0 <= place < self._count:
            raise IndexError("no such key")
        edge: cython.p_longlong = self.edges.data.as_longlongs
        return self.data[edge[place] : edge[place + 1]]

    def as_list(self) -> list[bytes]:
        """The keys as Python bytes."""
        edge: cython.p_longlong = self.edges.data.as_longlongs
        data: cython.p_char = self.data
        return [PyBytes_FromStringAndSize(data + edge[i], edge[i + 1] - edge[i]) for i in range(self._count)]

    def places_of(self, key: bytes) -> tuple[int, int]:
        """The places [first, last) of a key among ascending keys; empty, at its insertion point, if it is missing."""
        first = cython.declare(cython.Py_ssize_t)
        last = cython.declare(cython.Py_ssize_t)
        self._places(key, cython.address(first), cython.address(last))
        return first, last

    @cython.cfunc
    @cython.exceptval(check=False)
    def _places(
        self, key: bytes, first: cython.pointer(cython.Py_ssize_t), last: cython.pointer(cython.Py_ssize_t)
    ) -> cython.void:
        first[0] = last[0] = self._bound(key, False)
        if first[0] < self._count and self._order(first[0], key) == 0:
            last[0] = self._bound(key, True)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _bound(self, key: bytes, behind: cython.bint) -> cython.Py_ssize_t:
        """The first place whose key is at least `key`, or greater if `behind`."""
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = self._count
        middle: cython.Py_ssize_t
        order: cython.int
        while low < high:  # every place examined is valid: from 0 to the last key
            middle = low + (high - low) // 2
            order = self._order(middle, key)
            if order < 0 or (behind and order == 0):
                low = middle + 1
            else:
                high = middle
        return low

    @cython.cfunc
    @cython.exceptval(check=False)
    def _order(self, place: cython.Py_ssize_t, key: bytes) -> cython.int:
        """-1, 0 or 1 if the key at a place is less than, equal to or greater than `key`."""
        edge: cython.p_longlong = self.edges.data.as_longlongs
        size: cython.Py_ssize_t = edge[place + 1] - edge[place]
        data: cython.p_char = self.data
        other: cython.p_char = key
        order: cython.int = memcmp(data + edge[place], other, min(size, len(key)))
        if order == 0:
            return (size > len(key)) - (size < len(key))
        return 1 if order > 0 else -1

    def descend(self) -> bool:
        """Whether a key is less than the one before it."""
        edge: cython.p_longlong = self.edges.data.as_longlongs
        data: cython.p_char = self.data
        i: cython.Py_ssize_t
        with cython.nogil:
            for i in range(2, self._count + 1):
                if _compare(data, edge[i - 2], edge[i - 1], edge[i]) > 0:
                    with cython.gil:
                        return True
        return False

    def ascend_with(self, others: Any) -> bool:
        """Whether the pairs of these keys and the others, place by place, ascend strictly.

        Raises ValueError if their numbers differ.
        """
        them: Keys = others
        if self._count != them._count:
            raise ValueError("different numbers of keys")
        one: cython.p_longlong = self.edges.data.as_longlongs
        two: cython.p_longlong = them.edges.data.as_longlongs
        first: cython.p_char = self.data
        second: cython.p_char = them.data
        ascend: cython.bint
        if self._count <= _MANY_ROWS:
            return _ascend(first, one, second, two, self._count)
        with cython.nogil:
            ascend = _ascend(first, one, second, two, self._count)
        return ascend


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _ascend(
    first: cython.p_char,
    one: cython.p_longlong,
    second: cython.p_char,
    two: cython.p_longlong,
    count: cython.Py_ssize_t,
) -> cython.bint:
    """Whether pairs of texts ascend strictly: one part of `first`, between its edges, and one of `second`."""
    i: cython.Py_ssize_t
    order: cython.int = -1
    for i in range(count - 1):  # i + 2 is at most the last edge
        order = _compare(first, one[i], one[i + 1], one[i + 2])
        if order == 0:
            order = _compare(second, two[i], two[i + 1], two[i + 2])
        if order >= 0:
            break
    return order < 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _compare(data: cython.p_char, begin: cython.longlong, middle: cython.longlong, end: cython.longlong) -> cython.int:
    """-1, 0 or 1 if data[begin:middle] is less than, equal to or greater than data[middle:end]."""
    order: cython.int = memcmp(data + begin, data + middle, min(middle - begin, end - middle))
    if order == 0:
        return (middle - begin > end - middle) - (middle - begin < end - middle)
    return 1 if order > 0 else -1


def read_keys(body: Any, at: cython.Py_ssize_t, count: cython.Py_ssize_t, plain: Any, framed: Any) -> tuple[Keys, int]:
    """Read the node of `count` keys at a byte of a body, like `read_values`; also return the byte after it."""
    edges, data, end = cython.cast(tuple, read_values(body, at, count, plain, framed))
    keys: Keys = Keys.__new__(Keys)
    keys.edges, keys.data, keys._count = edges, data, count  # the edges ascend to the end of the data
    return keys, end


# ------------------------------------------------------------ the filter of spaces

SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
"""The salts of Parquet's Bloom filters."""


def add_to_filter(
    words: cython.uint[::1],
    hashes: cython.const[cython.ulonglong][::1],
    buckets: cython.ulonglong,
    first: cython.Py_ssize_t,
) -> None:
    """Set the bits of hashes in a part of a filter: the buckets from `first` on, `words`, eight for each."""
    salts = cython.declare(cython.uint[8], SALTS)
    held: cython.Py_ssize_t = words.shape[0] // 8
    i: cython.Py_ssize_t
    k: cython.Py_ssize_t
    low: cython.uint
    if not 0 < buckets <= 0xFFFF_FFFF:
        raise ValueError("a filter cannot have this number of buckets")
    with cython.nogil:
        for i in range(hashes.shape[0]):
            place: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, ((hashes[i] >> 32) * buckets) >> 32) - first
            if 0 <= place < held:
                low = cython.cast(cython.uint, hashes[i])
                for k in range(8):
                    words[8 * place + k] |= cython.cast(cython.uint, 1) << ((low * salts[k]) >> 27)


# ------------------------------------------------------------ keys of rows

_nothing: bytes = b""
_NOTHING = cython.declare(cython.p_char, PyBytes_AS_STRING(_nothing))


def number_keys(
    edges: cython.const[cython.longlong][::1],
    data: cython.const[cython.uchar][::1],
    places: cython.longlong[::1],
) -> list[bytes]:
    """The distinct keys in order of appearance; places[i] becomes the position of row i's key among them.

    Key i is data[edges[i]:edges[i + 1]]. Raises ValueError if a key is out of bounds, or if there are more or fewer
    places.
    """
    rows: cython.Py_ssize_t = places.shape[0]
    _check_rows(edges, data.shape[0], rows)
    if not rows:
        return []
    first: cython.p_longlong = cython.cast(cython.p_longlong, calloc(rows, 8))  # for each distinct key, one of its rows
    slots: cython.Py_ssize_t = 16
    while slots < 2 * rows:
        slots *= 2
    table: cython.p_int = cython.cast(cython.p_int, calloc(slots, 4))
    text: cython.p_const_char = _text_of(data)
    edge = cython.cast(cython.pointer(cython.const[cython.longlong]), cython.address(edges[0]))
    try:
        if first == cython.NULL or table == cython.NULL:
            raise MemoryError
        count: cython.Py_ssize_t
        if rows <= _MANY_ROWS:
            count = _number(text, edge, rows, cython.address(places[0]), first, table, slots)
        else:
            with cython.nogil:
                count = _number(text, edge, rows, cython.address(places[0]), first, table, slots)
        return [_key(text, edge, first[i]) for i in range(count)]
    finally:
        free(first)
        free(table)


@cython.cfunc
@cython.inline
def _key(text: cython.p_const_char, edge: cython.pointer(cython.const[cython.longlong]), row: cython.longlong) -> bytes:
    return PyBytes_FromStringAndSize(text + edge[row], edge[row + 1] - edge[row])


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _number(
    text: cython.p_const_char,
    edge: cython.pointer(cython.const[cython.longlong]),
    rows: cython.Py_ssize_t,
    places: cython.p_longlong,
    first: cython.p_longlong,
    table: cython.p_int,
    slots: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Number the keys; return how many are distinct. table: `slots` zeros, a power of two, at least twice the rows."""
    count: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    at: cython.ulonglong
    size: cython.longlong
    found: cython.longlong = 0
    for i in range(rows):
        size = edge[i + 1] - edge[i]
        if i and _is_key(text, edge, first[found], text + edge[i], size):  # same as in the row before
            places[i] = found
            continue
        at = hashed(text + edge[i], size)
        while True:
            found = table[at & (slots - 1)] - 1
            if found < 0 or _is_key(text, edge, first[found], text + edge[i], size):
                break
            at += 1
        if found < 0:
            found = count
            first[count] = i
            count += 1
            table[at & (slots - 1)] = cython.cast(cython.int, count)
        places[i] = found
    return count


def are_key(
    edges: cython.const[cython.longlong][::1],
    data: cython.const[cython.uchar][::1],
    key: bytes,
    mask: cython.uchar[::1],
) -> None:
    """Set mask[i] to 1 if row i has a key, else to 0. Raises ValueError like `number_keys`."""
    rows: cython.Py_ssize_t = mask.shape[0]
    _check_rows(edges, data.shape[0], rows)
    if not rows:
        return
    text: cython.p_const_char = _text_of(data)
    wanted: cython.p_const_char = PyBytes_AS_STRING(key)
    size: cython.longlong = len(key)
    edge = cython.cast(cython.pointer(cython.const[cython.longlong]), cython.address(edges[0]))
    if rows <= _MANY_ROWS:
        _compare_rows(text, edge, rows, wanted, size, cython.address(mask[0]))
    else:
        with cython.nogil:
            _compare_rows(text, edge, rows, wanted, size, cython.address(mask[0]))


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _compare_rows(
    text: cython.p_const_char,
    edge: cython.pointer(cython.const[cython.longlong]),
    rows: cython.Py_ssize_t,
    key: cython.p_const_char,
    size: cython.longlong,
    mask: cython.p_uchar,
) -> cython.void:
    i: cython.Py_ssize_t
    for i in range(rows):
        mask[i] = _is_key(text, edge, i, key, size)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_key(
    text: cython.p_const_char,
    edge: cython.pointer(cython.const[cython.longlong]),
    row: cython.longlong,
    key: cython.p_const_char,
    size: cython.longlong,
) -> cython.bint:
    """Whether a row has a certain key of `size` bytes."""
    return edge[row + 1] - edge[row] == size and memcmp(text + edge[row], key, size) == 0


@cython.cfunc
def _text_of(data: cython.const[cython.uchar][::1]) -> cython.p_const_char:
    if data.shape[0]:
        return cython.cast(cython.p_const_char, cython.address(data[0]))
    return _NOTHING


@cython.cfunc
def _check_rows(edges: cython.const[cython.longlong][::1], size: cython.Py_ssize_t, rows: cython.Py_ssize_t) -> object:
    """Raise ValueError unless there is one edge more than rows, and all keys are within `size` bytes."""
    i: cython.Py_ssize_t
    if edges.shape[0] != rows + 1 or rows > 0x3FFF_FFFF:
        raise ValueError("the number of edges does not fit the rows")
    last: cython.longlong = 0
    for i in range(rows + 1):
        if edges[i] < last:
            raise ValueError("a key is outside its bytes")
        last = edges[i]
    if last > size:
        raise ValueError("a key is outside its bytes")
    return None
