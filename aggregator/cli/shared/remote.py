"""`RemoteCatalog`: a catalog behind a server, with the methods of a local one that commands use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from aggregator.client import Client, Page, RemoteTail, Retry
from aggregator.errors import InvalidRequestError
from aggregator.lql import TagSet, parse_statement, to_text
from aggregator.lql.parse.tree import Select
from aggregator.storage.state.arrivals import Arrivals

_BRIEF = Retry(attempts=4)
"""For a person at a terminal: an address where nothing listens is reported within a second."""
_PATIENT = Retry(deadline_s=None)
"""For following a statement: it outlasts restarts of the server."""
_TIMEOUT_S = 300.0  # a statement may read for a long time before its first record
_FIRST_RECORDS = 10_000


class RemoteCatalog(Client):
    """The methods of `aggregator.Catalog` that commands use, through a server."""

    def __init__(self, url: str, token: str | None, ca_file: str | None) -> None:
        """Create the client; sends nothing yet. Raises InvalidRequestError, OSError (the certificate file)."""
        self.path = url.rstrip("/")
        options: dict[str, Any] = {"token": token, "ca_file": ca_file, "timeout_s": _TIMEOUT_S}
        super().__init__(url, retry=_BRIEF, **options)
        self._patient = Client(url, retry=_PATIENT, **options)
        self.arrivals = Arrivals()
        """Never ends, because this process cannot close the server."""

    def close(self) -> None:
        """Close every connection."""
        super().close()
        self._patient.close()

    def stats(self) -> dict[str, Any]:
        """The contents and the size of the catalog. `path` is the address: a path on the server means nothing here."""
        return {"path": self.path, **super().stats()}

    def streams(self) -> list[dict[str, str]]:
        """The tags of each stream."""
        table = self.query("SHOW PARTITIONS")
        assert isinstance(table, pa.Table)
        return [TagSet.parse(tags).as_dict() for tags in table.column("tags").to_pylist()]

    def tail(  # type: ignore[override]  # like `Catalog.tail`: the statement has the start position
        self, text: str, timeout_s: float | None = None
    ) -> RemoteFollowing:
        """Follow a SELECT from its POSITION, or from now on. Raises InvalidRequestError."""
        select = parse_statement(text)
        if not isinstance(select, Select):
            raise InvalidRequestError("only a SELECT can be followed", hint="run other statements with query")
        if select.count or select.newest_first:
            raise InvalidRequestError("a tail returns records in time order", hint="remove COUNT and ORDER BY")
        return RemoteFollowing(self.page, self._patient.page, select, timeout_s)


class RemoteFollowing:
    """The records of a SELECT as they arrive at a server; `aggregator.Tail` does this for a directory."""

    def __init__(
        self, ask: Callable[..., Page], ask_patiently: Callable[..., Page], select: Select, timeout_s: float | None
    ) -> None:
        """Request the first page immediately, so that an invalid statement or a missing server fails here."""
        limit = None if select.limit is None or select.limit < 0 else select.limit
        start, text = _start_of(select), to_text(replace(select, position=None, limit=None))
        first = ask(text, start, limit=_FIRST_RECORDS)
        self._left, self._first = limit, first.table
        self._tail = RemoteTail(ask_patiently, text, first.position, timeout_s)
        self.gone = first.gone
        """Number of records after the start position that were removed before they could be read."""

    @property
    def position(self) -> str | None:
        """The position after the last record yielded; None before the first, at the start of the statement."""
        return None if self._first.num_rows else self._tail.position

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the records as record batches as they arrive."""
        if self._left == 0:
            return
        first, self._first = self._first, self._first.slice(0, 0)
        for batch in _joined(first.combine_chunks().to_batches(), self._tail):
            if self._left is None:
                yield batch
                continue
            given = batch.slice(0, self._left)
            self._left -= len(given)
            if len(given):
                yield given
            if not self._left:
                return


def _joined(first: list[pa.RecordBatch], tail: RemoteTail) -> Iterator[pa.RecordBatch]:
    yield from first
    yield from tail.batches()


def _start_of(select: Select) -> str:
    """The position of a statement in the notation of the server's API."""
    position = select.position
    if position is None:
        return "tail"
    if position.kind == "token":
        if select.offset:
            raise InvalidRequestError(
                "a server cannot combine following from a position with OFFSET", hint="remove OFFSET, or omit -f"
            )
        return position.text
    return f"at {position.text}" if position.kind == "time" else position.kind
