# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Keys in ascending order: read, found by halving, compared."""

from collections.abc import Iterator
from typing import Any

import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.cpython.unicode import PyUnicode_AsUTF8String
from cython.cimports.libc.string import memcmp

from esformat.core.bytes_nodes import read_values
from esformat.errors import UsageError


def to_key(key: Any) -> bytes:
    """A space or grouping as it is stored. Raises UsageError for what is neither Unicode text nor bytes."""
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
    """Keys side by side in some bytes: looked up there, and given as a list or as memory of an Arrow array."""

    edges: Any
    """Where each key begins in `data`, and where the last ends: int64."""
    data: bytes
    _count: cython.Py_ssize_t

    def __init__(self, edges: Any, data: bytes) -> None:
        """edges: an array of int64. Raises ValueError where they do not ascend from 0 to the end of `data`."""
        self.edges, self.data = edges, data
        self._count = len(self.edges) - 1
        if self.edges.typecode != "q" or self._count < 0:
            raise ValueError("no edges of keys")
        i: cython.Py_ssize_t
        last: cython.longlong = 0
        edge: cython.p_longlong = self.edges.data.as_longlongs
        for i in range(self._count + 1):
            if edge[i] < last or (i == 0 and edge[i]):
                raise ValueError("a key lies outside of its bytes")
            last = edge[i]
        if last != len(data):
            raise ValueError("a key lies outside of its bytes")

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.as_list())

    @property
    def size_bytes(self) -> int:
        """What they take."""
        return 8 * self._count + len(self.data)

    @property
    def all_empty(self) -> bool:
        """Whether no key has a byte."""
        return not self.data

    def __getitem__(self, place: cython.Py_ssize_t) -> bytes:
        """One key, as a list gives it. Raises IndexError."""
        if place < 0:
            place += self._count
        if not 0 <= place < self._count:
            raise IndexError("there is no such key")
        edge: cython.p_longlong = self.edges.data.as_longlongs
        return self.data[edge[place] : edge[place + 1]]

    def as_list(self) -> list[bytes]:
        """The keys as Python bytes."""
        edge: cython.p_longlong = self.edges.data.as_longlongs
        data: cython.p_char = self.data
        return [PyBytes_FromStringAndSize(data + edge[i], edge[i + 1] - edge[i]) for i in range(self._count)]

    def places_of(self, key: bytes) -> tuple[int, int]:
        """Where a key stands among ascending keys: [first, last), empty at the place where it would stand."""
        first = cython.declare(cython.Py_ssize_t)
        last = cython.declare(cython.Py_ssize_t)
        self._places(key, cython.address(first), cython.address(last))
        return first, last

    def holders_of(self, key: bytes) -> range:
        """Of leaves that begin with these keys, those that can hold one: usually one leaf."""
        first = cython.declare(cython.Py_ssize_t)
        last = cython.declare(cython.Py_ssize_t)
        self._places(key, cython.address(first), cython.address(last))
        return range(max(first - 1, 0), last)

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
        """The first place whose key is not below `key`, or is above it where `behind`."""
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = self._count
        middle: cython.Py_ssize_t
        order: cython.int
        while low < high:  # so that each place looked at is from 0 to the last one of a key
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
        """-1, 0 or 1 as the key at a place is below, is or is above another."""
        edge: cython.p_longlong = self.edges.data.as_longlongs
        size: cython.Py_ssize_t = edge[place + 1] - edge[place]
        data: cython.p_char = self.data
        other: cython.p_char = key
        order: cython.int = memcmp(data + edge[place], other, min(size, len(key)))
        if order == 0:
            return (size > len(key)) - (size < len(key))
        return 1 if order > 0 else -1

    def ascend_with(self, others: Any) -> bool:
        """Whether pairs of these keys and the others, place by place, ascend strictly.

        Raises ValueError where there are not as many others.
        """
        them: Keys = others
        if self._count != them._count:
            raise ValueError("different numbers of keys")
        one: cython.p_longlong = self.edges.data.as_longlongs
        two: cython.p_longlong = them.edges.data.as_longlongs
        first: cython.p_char = self.data
        second: cython.p_char = them.data
        count: cython.Py_ssize_t = self._count
        i: cython.Py_ssize_t
        order: cython.int = -1
        with cython.nogil:
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
    """-1, 0 or 1 as data[begin:middle] is below, is or is above data[middle:end]."""
    order: cython.int = memcmp(data + begin, data + middle, min(middle - begin, end - middle))
    if order == 0:
        return (middle - begin > end - middle) - (middle - begin < end - middle)
    return 1 if order > 0 else -1


def read_keys(body: Any, at: cython.Py_ssize_t, count: cython.Py_ssize_t, plain: Any, framed: Any) -> tuple[Keys, int]:
    """The node of `count` keys at a byte of a body, as `read_values` reads it; also the byte after it."""
    edges, data, end = cython.cast(tuple, read_values(body, at, count, plain, framed))
    keys: Keys = Keys.__new__(Keys)
    keys.edges, keys.data, keys._count = edges, data, count  # the edges ascend to the end of the data
    return keys, end
