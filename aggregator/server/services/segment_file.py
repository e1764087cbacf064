"""Responses as `.esdb` files: each is written to disk before it is sent, because its footer locates its parts."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from starlette.responses import Response

import esformat
from aggregator import OverloadedError, Topic
from aggregator.server.bodies.shared.media import ESDB
from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.control.thread_pools import WorkPool
from aggregator.server.http.responses import CHUNK_BYTES, Batches, opened, response_of
from esformat.parts import without_keys

_MEMORY_BYTES = 64 << 20
_AT_ONCE = 4
"""Number of files that exist at the same time. This bounds their disk space even if clients read slowly."""
_places = threading.BoundedSemaphore(_AT_ONCE)


async def stream_segment(
    pool: WorkPool, make: Callable[[], Batches | pa.Table], topic: Callable[[], Topic] | None = None
) -> Response:
    """Return a response that sends the events from `make` as a file.

    topic: returns the topic whose indexes and kind of keys the file gets. Raises ProblemError for rows that are not
    events, OverloadedError while too many such files are being sent.
    """

    def pieces() -> Iterator[bytes]:
        with _place(), tempfile.TemporaryDirectory(prefix="aggregator-export-") as folder:
            path = Path(folder) / "events.esdb"
            _write(path, make(), None if topic is None else topic())
            with path.open("rb") as file:
                while piece := file.read(CHUNK_BYTES):
                    yield piece

    return await response_of(pool.pull(pieces), ESDB)


@contextlib.contextmanager
def _place() -> Iterator[None]:
    if not _places.acquire(blocking=False):
        raise OverloadedError(f"{_AT_ONCE} .esdb files are being sent", hint="try again later", retry_after_s=5.0)
    try:
        yield
    finally:
        _places.release()


def _write(path: Path, found: Batches | pa.Table, topic: Topic | None) -> None:
    schema, batches = (found.schema, iter(found.to_batches())) if isinstance(found, pa.Table) else opened(found)
    if missing := [name for name in ("space", "timestamp") if name not in schema.names]:
        raise ProblemError(
            406,
            "not-acceptable",
            f"these rows are not events: they have no {' and no '.join(missing)}",
            "accept another format",
        )
    columns = without_keys(schema)
    possible = {field.name for field in columns if not pa.types.is_decimal(field.type)}
    indexes = [] if topic is None else [name for name in topic.indexes if name in possible]
    keys = "text" if topic is None else topic.keys
    with esformat.create(path, indexes=indexes, schema=columns, keys=keys, memory=_MEMORY_BYTES) as writer:
        for batch in batches:
            writer.add_table(batch)
