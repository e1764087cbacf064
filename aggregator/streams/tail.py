"""`Tail`: the records of a SELECT as they arrive. Waiting costs nothing, because appending wakes waiting readers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain

import pyarrow as pa

from aggregator.engine.backend import Backend
from aggregator.engine.writer import WriterEngine
from aggregator.errors import InvalidRequestError
from aggregator.lql.parse.tree import Select
from aggregator.streams.selection import Selection
from esformat import Event
from esformat.parts import rows_of_batch


class Tail:
    """Records as they arrive, from the statement's POSITION, or from now on. Can be iterated once."""

    def __init__(self, backend: Backend, select: Select, timeout_s: float | None) -> None:
        """Created by `Catalog.tail`. Raises InvalidRequestError."""
        if select.count or select.newest_first:
            raise InvalidRequestError("a tail returns records in time order", hint="remove COUNT and ORDER BY")
        self._backend, self._timeout_s = backend, timeout_s
        self._left = None if select.limit is None or select.limit < 0 else select.limit
        self._selection = Selection(backend, select, start="tail")
        self._selection.begin()

    @property
    def gone(self) -> int:
        """The number of records after the start position that are gone; see `Selection.gone`."""
        return self._selection.gone

    @property
    def position(self) -> str:
        """The current position: pass it as POSITION to continue after the last record returned."""
        return self._selection.position

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The records as record batches, a few at a time, as soon as they are available."""
        arrivals = self._backend.state.arrivals
        waited = time.monotonic()
        while self._left != 0:
            seen = arrivals.count
            given = 0
            for batch in self._selection.batches():
                given += len(batch)
                yield batch
                waited = time.monotonic()
            self._selection.go_on(given)
            if self._left is not None:
                self._left -= given
            if self._left != 0 and not self._wait(seen, waited):
                return

    def __iter__(self) -> Iterator[Event]:
        rows = (rows_of_batch(batch, ()) for batch in self.batches())
        return chain.from_iterable(chain.from_iterable(row.iterators() for row in rows))

    def _wait(self, seen: int, since: float) -> bool:
        """Wait for an arrival; False if the timeout has passed or the catalog is closed."""
        self._backend.owner.check()
        arrivals = self._backend.state.arrivals
        while not arrivals.ended:
            left = None if self._timeout_s is None else since + self._timeout_s - time.monotonic()
            if left is not None and left <= 0:
                return False
            if isinstance(self._backend, WriterEngine):
                if arrivals.wait(seen, left):
                    return not arrivals.ended
            elif arrivals.wait(seen, self._backend.look_s if left is None else min(self._backend.look_s, left)):
                return not arrivals.ended
            else:
                self._backend.refresh()
        return False
