"""`PlateauClient`: a client for plateau's HTTP interface, which plateau servers and ours provide."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from aggregator.base.result import Closing
from aggregator.client.http import calls
from aggregator.client.http.connection import Connection, Options
from aggregator.client.http.errors import TruncatedAnswerError
from aggregator.client.http.retry import Retry
from esformat import UsageError
from esformat.parts import to_arrow

ARROW_FILE = "application/vnd.apache.arrow.file"
_STATUS_HEADER = "x-iteration-status"
_ALL = "All"


@dataclass(frozen=True, slots=True)
class Span:
    """Record indexes [start, end) of a partition."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PlateauPage:
    """Records of one schema.

    status: "All", "SchemaChange", "RecordLimited" or "ByteLimited". next: where the next page begins, by partition.
    """

    table: pa.Table
    status: str
    next: Mapping[str, int]


class PlateauClient(Closing):
    """A connection to a server with plateau's routes. Thread-safe; a context manager."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_s: float = 30.0,
        retry: Retry | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        client_cert: tuple[str, str] | None = None,
    ) -> None:
        """Options as in `Client`.

        These routes have no producers and sequences: an append that may have been stored is not retried, and raises
        UnavailableError with `maybe_stored`.
        """
        self._connection = Connection(Options(url, token, timeout_s, retry or Retry(), None, ca_file, client_cert))

    def topics(self) -> tuple[str, ...]:
        """Return the names of the topics."""
        return calls.topic_names(self._connection.send(calls.plain("GET", "/topics")))

    def topic(self, name: str) -> PlateauTopic:
        """Return a topic; its first append creates it."""
        return PlateauTopic(self._connection, name)

    def close(self) -> None:
        """Close every connection."""
        self._connection.close()


class PlateauTopic:
    """A topic. Created by `PlateauClient.topic`."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection, self.name = connection, name

    def partitions(self) -> dict[str, Span]:
        """Return record indexes by partition; {} if the topic does not exist."""
        found = self._connection.send(calls.plain("GET", calls.path("topic", self.name))).json()
        try:
            return {name: Span(int(span["start"]), int(span["end"])) for name, span in found["partitions"].items()}
        except (KeyError, TypeError, ValueError, AttributeError):
            raise _unexpected_response("does not describe a topic") from None

    def append(self, records: Any, partition: str = "0") -> Span:
        """Append anything with the Arrow C stream. Its first column is `time`, in milliseconds or a timestamp.

        Raises InvalidRequestError, BodyTooLargeError, OverloadedError (nothing was stored), UnavailableError.
        """
        table = to_arrow(records)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        where = calls.path("topic", self.name, "partition", partition)
        headers = {"content-type": ARROW_FILE}
        found = self._connection.send(calls.Call("POST", where, headers, sink.getvalue(), repeatable=False)).json()
        try:
            return Span(int(found["span"]["start"]), int(found["span"]["end"]))
        except (KeyError, TypeError, ValueError):
            raise _unexpected_response("has no span") from None

    def records(self, partition: str = "0", start: int = 0, **wanted: Any) -> PlateauRecords:
        """Return the records of a partition from a record index on. wanted: see `PlateauRecords`."""
        where = calls.path("topic", self.name, "partition", partition, "records")

        def page(next_: Mapping[str, int], asked: Mapping[str, Any]) -> calls.Call:
            return calls.Call("GET", _with(where, {"start": next_[partition], **asked}), {"accept": ARROW_FILE})

        return PlateauRecords(self._connection, page, {partition: start}, partition, wanted)

    def iterate(
        self,
        *,
        order: str = "asc",
        partition_filter: Sequence[str] = (),
        begin: Mapping[str, int] | None = None,
        **wanted: Any,
    ) -> PlateauRecords:
        """Return the records of all partitions, one partition after the other.

        order: "asc", or "desc" for the newest first. partition_filter: names, or "regex:…". begin: where to continue,
        by partition. wanted: see `PlateauRecords`.
        """
        where = calls.path("topic", self.name, "records")
        fixed = {"order": order} | {f"partition_filter[{n}]": name for n, name in enumerate(partition_filter)}

        def page(next_: Mapping[str, int], asked: Mapping[str, Any]) -> calls.Call:
            headers = {"content-type": "application/json", "accept": ARROW_FILE}
            return calls.Call("POST", _with(where, {**fixed, **asked}), headers, json.dumps(dict(next_)).encode())

        return PlateauRecords(self._connection, page, begin or {}, None, wanted)


class PlateauRecords:
    """Records that are fetched page by page on demand; may be read repeatedly."""

    def __init__(
        self,
        connection: Connection,
        call_of: Any,
        begin: Mapping[str, int],
        partition: str | None,
        wanted: Mapping[str, Any],
    ) -> None:
        """Created by methods of PlateauTopic.

        wanted: page_size; time_start and time_end, RFC 3339, both included; columns, exclude; separator, which flattens
        structs; max_bytes, limit for a column.
        """
        names = {
            "page_size": "page_size",
            "time_start": "time.start",
            "time_end": "time.end",
            "columns": "dataset",
            "exclude": "dataset.exclude",
            "separator": "dataset.separator",
            "max_bytes": "dataset.max_bytes",
        }
        self._connection, self._call_of, self._begin, self._partition = connection, call_of, begin, partition
        self._asked: dict[str, Any] = {}
        for name, value in wanted.items():
            if name not in names:
                raise UsageError(f"unknown option {name!r}", hint=f"known options: {', '.join(names)}")
            if name == "page_size" and value is not None and value < 1:
                raise UsageError(
                    f"page_size must be at least 1, not {value}", hint="leave it out for the server's default"
                )
            if name in ("columns", "exclude"):
                self._asked |= {f"{names[name]}[{n}]": column for n, column in enumerate(value)}
            elif value is not None:
                self._asked[names[name]] = value

    def pages(self) -> Iterator[PlateauPage]:
        """Yield pages until there are no more records; the last has the status "All".

        Raises InvalidRequestError, UnavailableError, TruncatedAnswerError.
        """
        next_ = self._begin
        while True:
            reply = self._connection.send(self._call_of(next_, self._asked))
            page = _page(reply, self._partition, next_)
            yield page
            if page.status == _ALL:
                return
            if page.next == next_ and not page.table.num_rows:
                raise _unexpected_response("does not advance to the next page")
            next_ = page.next

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the records as record batches; the schema may change between them."""
        for page in self.pages():
            yield from page.table.to_batches()

    def to_table(self) -> pa.Table:
        """Return all records as one table; missing columns are null."""
        return pa.concat_tables([page.table for page in self.pages()], promote_options="permissive")

    def to_pandas(self, **options: Any) -> Any:
        """Return all records as a pandas data frame. options: of `pyarrow.Table.to_pandas`."""
        return self.to_table().to_pandas(**options)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return all records as an Arrow C stream."""
        return self.to_table().__arrow_c_stream__(requested_schema)


def _with(where: str, parameters: Mapping[str, Any]) -> str:
    """Return a path with parameters whose names are not valid in Python."""
    return where + calls.path(**parameters)


def _page(reply: calls.Reply, partition: str | None, begin: Mapping[str, int]) -> PlateauPage:
    try:
        with pa.ipc.open_file(pa.py_buffer(reply.body)) as reader:
            table = reader.read_all()
        table.validate(full=True)
        if not table.num_rows and _STATUS_HEADER not in reply.headers:
            return PlateauPage(_plain(table), _ALL, begin)  # plateau sends no status for an empty page
        status = json.loads(reply.headers[_STATUS_HEADER])
        if partition is None:
            next_ = {str(name): int(index) for name, index in status["next"].items()}
            return PlateauPage(_plain(table), str(status["status"]), next_)
        span = json.loads((table.schema.metadata or {}).get(b"span", b"null"))
        end = begin[partition] + table.num_rows if span is None else int(span["end"])
        return PlateauPage(_plain(table), str(status), {partition: end})
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unexpected_response(f"is not a page of records: {error}") from None


def _plain(table: pa.Table) -> pa.Table:
    return table.replace_schema_metadata(None)


def _unexpected_response(what: str) -> TruncatedAnswerError:
    return TruncatedAnswerError(f"the answer {what}", hint="is this the address of a server with plateau's routes?")
