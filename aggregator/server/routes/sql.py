"""SQL over HTTP: a statement over the topics that a token may read, with a streamed result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aggregator.server.bodies.shared.media import ARROW_STREAM, CSV, JSON, LINES, PARQUET, TEXT
from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.bodies.shared.schemas import BINARY, shape
from aggregator.server.config.settings import Work
from aggregator.server.context import Context
from aggregator.server.control.access import Access
from aggregator.server.control.operation import bound, operation
from aggregator.server.http.params import Params, limit_in, statement_in
from aggregator.server.http.responses import media_for, stream_response

if TYPE_CHECKING:
    from esformat.sql import Database, Rows

_EXAMPLE = {"query": "SELECT type, count(*) AS events FROM activity GROUP BY type", "limit": 10}
_SQL = {"type": "string", "format": "sql"}
_BODY = shape(
    {"query": _SQL},
    {
        "limit": {"type": ["integer", "null"], "minimum": 1},
    },
)
_ANSWERS: dict[str, Any] = {
    "200": {
        "description": "the rows, streamed",
        "content": {
            LINES: {"example": '{"type": "page", "events": 17}\n'},
            CSV: {},
            ARROW_STREAM: BINARY,
            PARQUET: BINARY,
        },
    },
    "400": {
        "description": "an invalid statement, one that is not a query, or one that exceeds its time or memory limit"
    },
    "429": {"description": "overloaded, or too many slow queries: retry after Retry-After seconds"},
    "501": {"description": "the server lacks the package duckdb"},
}


def routes(context: Context) -> list[Route]:
    """Return the route `POST /v1/sql`."""
    return [Route("/v1/sql", bound(sql, context, Databases(context.settings.work)), methods=["POST"])]


class Databases:
    """The server's DuckDB: created by the first statement, locked, within the limits of queries."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._made: Database | None = None

    def get(self) -> Database:
        """Return the database. Raises ProblemError (501)."""
        if self._made is None:
            try:
                from esformat.sql import Database
            except ModuleNotFoundError as error:
                raise ProblemError(501, "not-installed", "SQL is not available on this server", str(error)) from None
            memory = f"memory_limit = '{self._work.query_bytes} bytes'"
            self._made = Database(locked=True, settings=(memory, f"threads = {self._work.read_threads}"))
        return self._made


@operation(
    "read",
    "Run a SQL query",
    tag="query",
    responses=_ANSWERS,
    checks_topics=True,
    description="DuckDB's dialect. Topics are tables, including their unsealed events; the table `streams` has the "
    "records of streams, with their tags as a map. A query sees each topic as it is when the query begins. It cannot "
    "access anything else: no files, no network, no extensions. `limit`: largest number of rows.",
    body={JSON: {"schema": _BODY, "example": _EXAMPLE}, TEXT: {"schema": _SQL, "example": _EXAMPLE["query"]}},
)
async def sql(context: Context, databases: Databases, request: Request) -> Response:
    Params(request, [])
    body = await statement_in(request, context, _BODY["properties"], _EXAMPLE)
    limit = limit_in(body)
    access: Access = request.state.access

    def make() -> Answer:
        session = context.catalog.sql_session(lambda topic: access.allows("read", topic), databases.get())
        return Answer(session.ask(body["query"]), limit)

    return await stream_response(context.reads, make, media_for(request))


class Answer:
    """The first rows of a result."""

    def __init__(self, rows: Rows, limit: int | None) -> None:
        reader = rows.to_reader()
        self.schema: pa.Schema = reader.schema
        """The schema of the rows."""
        self._batches = _first(reader, limit)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, only once. The iterator's end drops the stream, which ends the statement."""
        return self._batches


def _first(reader: pa.RecordBatchReader, limit: int | None) -> Iterator[pa.RecordBatch]:
    """Yield the first rows of a stream."""
    for batch in reader:
        yield batch if limit is None else batch.slice(0, limit)
        limit = None if limit is None else limit - min(limit, len(batch))
        if limit == 0:
            return
