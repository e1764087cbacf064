"""`RemoteCatalog`: a catalog behind a server, with what commands ask of one that lies in a directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from aggregator.client import Client, Page, RemoteTail, Retry
from aggregator.errors import InvalidRequestError
from aggregator.lql import TagSet, parse_statement, to_text
from aggregator.lql.parse.tree import Select
from aggregator.storage.state.notify import Arrivals

_BRIEF = Retry(attempts=4)
"""Somebody waits at a terminal: an address where nobody listens is told in less than a second."""
_PATIENT = Retry(deadline_s=None)
"""Of what follows a statement: it outlasts restarts of the server."""
_TIMEOUT_S = 300.0  # a statement may read for long before its first record
_FIRST_RECORDS = 10_000


class RemoteCatalog(Client):
    """The verbs of `aggregator.Catalog` that commands use, through a server."""

    def __init__(self, url: str, token: str | None, ca_file: str | None) -> None:
        """Nothing is sent yet. Raises InvalidRequestError, OSError (a file of certificates)."""
        self.path = url.rstrip("/")
        options: dict[str, Any] = {"token": token, "ca_file": ca_file, "timeout_s": _TIMEOUT_S}
        super().__init__(url, retry=_BRIEF, **options)
        self._patient = Client(url, retry=_PATIENT, **options)
        self.arrivals = Arrivals()
        """Never ends: nobody here closes the server."""

    def close(self) -> None:
        """Close every connection."""
        super().close()
        self._patient.close()

    def stats(self) -> dict[str, Any]:
        """What the catalog holds and takes; its address stands for the path, which is the server's own."""
        return {"path": self.path, **super().stats()}

    def streams(self) -> list[dict[str, str]]:
        """The tags of each stream."""
        table = self.query("SHOW PARTITIONS")
        assert isinstance(table, pa.Table)
        return [TagSet.parse(tags).as_dict() for tags in table.column("tags").to_pylist()]

    def tail(  # type: ignore[override]  # as `Catalog.tail`: the statement says where it begins
        self, text: str, timeout_s: float | None = None
    ) -> RemoteFollowing:
        """Follow a SELECT from where its POSITION says, or from now on. Raises InvalidRequestError."""
        select = parse_statement(text)
        if not isinstance(select, Select):
            raise InvalidRequestError("only a SELECT can be followed", hint="run other statements with query")
        if select.count or select.newest_first:
            raise InvalidRequestError("a tail gives records in the order of time", hint="leave COUNT and ORDER BY out")
        return RemoteFollowing(self.page, self._patient.page, select, timeout_s)


class RemoteFollowing:
    """The records of a SELECT as they arrive at a server; `aggregator.Tail` does that for a directory."""

    def __init__(
        self, ask: Callable[..., Page], ask_patiently: Callable[..., Page], select: Select, timeout_s: float | None
    ) -> None:
        """Asks for the first page at once, so that a wrong statement, or no server, is told at once."""
        limit = None if select.limit is None or select.limit < 0 else select.limit
        start, text = _start_of(select), to_text(replace(select, position=None, limit=None))
        first = ask(text, start, limit=_FIRST_RECORDS)
        self._left, self._first = limit, first.table
        self._tail = RemoteTail(ask_patiently, text, first.position, timeout_s)
        self.gone = first.gone
        """How many records behind the position that it begins at are gone."""

    @property
    def position(self) -> str | None:
        """Where it stands behind the last record that was given; None: at the statement's own beginning."""
        return None if self._first.num_rows else self._tail.position

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The records as record batches, as soon as they are there."""
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
    """The position of a statement as the server's interface names it."""
    position = select.position
    if position is None:
        return "tail"
    if position.kind == "token":
        if select.offset:
            raise InvalidRequestError(
                "a server follows from a position itself, without OFFSET", hint="leave OFFSET out, or ask without -f"
            )
        return position.text
    return f"at {position.text}" if position.kind == "time" else position.kind
