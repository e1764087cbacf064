"""The base class of open archives and open streams."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Generic

import pyarrow as pa

from esformat.customerio.layout import Layout, Layouts
from esformat.customerio.question import LayoutChecks
from esformat.customerio.scan import Scan
from esformat.errors import EsdbError
from esformat.io.source import ClosedSource, Source
from esformat.read.segment_like import SegmentLike, SpaceT


class OpenFile(SegmentLike[Scan, SpaceT], Generic[SpaceT]):
    """An open file of the Go ESDB. Close it, or use it as a context manager."""

    kind: ClassVar[str]

    def __init__(self, source: Source) -> None:
        self._source = source
        self._closed = False

    def __repr__(self) -> str:
        return f"<esformat.customerio {self.kind} {self.path!r}, {self.size_bytes} bytes>"

    # ------------------------------------------------------------ facts

    @property
    def path(self) -> str:
        """The path or name of the file."""
        return self._source.name

    @property
    def size_bytes(self) -> int:
        """The size of the file in bytes."""
        return self._source.size

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """The file's columns."""

    @property
    @abstractmethod
    def num_events(self) -> int:
        """The number of events in the file."""

    @property
    @abstractmethod
    def num_spaces(self) -> int:
        """The number of spaces that have events."""

    @property
    @abstractmethod
    def min_timestamp(self) -> int | None:
        """The earliest timestamp, µs; None without events."""

    @property
    @abstractmethod
    def max_timestamp(self) -> int | None:
        """The latest timestamp, µs; None without events."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the events: space, grouping, timestamp, data, then one per index."""
        return self.layout.schema.arrow

    @property
    def indexes(self) -> tuple[str, ...]:
        """The names of the indexed columns."""
        return self.layout.index_names

    @property
    def properties(self) -> dict[str, str]:
        """Always empty: these files have no properties."""
        return {}

    def info(self) -> dict[str, Any]:
        """Facts about the file: its kind, counts, time span and indexes."""
        return {
            "path": self.path,
            "size_bytes": self.size_bytes,
            "format": f"Go ESDB {self.kind}",
            "events": self.num_events,
            "spaces": self.num_spaces,
            "min_timestamp": self.min_timestamp,
            "max_timestamp": self.max_timestamp,
            "keys": "binary" if self.layout.binary_keys else "text",
            "indexes": {name: {"values": len(self.index_values(name))} for name in self.indexes},
        }

    # ------------------------------------------------------------ life

    def close(self) -> None:
        """Close the file. Closing twice is allowed; later scans raise ClosedError."""
        if not self._closed:
            self._closed = True
            self._source = ClosedSource(self._source)

    def _check_open(self) -> None:
        if self._closed:
            self._source.read_at(0, 0)  # raises ClosedError

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Add the file's path to errors."""
        try:
            yield
        except EsdbError as error:
            error.path = error.path or self.path
            raise

    # ------------------------------------------------------------ spaces

    def may_contain(self, space: str | bytes) -> bool:
        """Whether the file has events of a space. The same as `space in file`, since these files have no filter."""
        return self.find(space) is not None

    @property
    def _checks(self) -> LayoutChecks:
        return LayoutChecks(self.path, Layouts(lambda: self.layout, lambda: self.layout))
