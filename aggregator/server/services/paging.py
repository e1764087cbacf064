"""Pages of a SELECT: some records after a position, and the position after them. Blocking; no HTTP."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pyarrow as pa

from aggregator import Catalog, InvalidRequestError
from aggregator.lql import parse_statement, to_text
from aggregator.lql.parse.tree import Position, Select
from aggregator.server.services.narrowing import without_place
from aggregator.streams.selection import Selection

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,1000000}")
MAX_PAGE_BYTES = 16 << 20
"""A page ends with the batch that reaches this size; the next page continues there."""


@dataclass(frozen=True, slots=True)
class Page:
    """Records, the position after them, and how many records after the requested position are gone."""

    table: pa.Table
    position: str
    gone: int


def parse_select(text: str) -> Select:
    """Parse a SELECT that can be read page by page. Raises InvalidRequestError."""
    select = parse_statement(text)
    if not isinstance(select, Select) or select.count:
        raise InvalidRequestError("only a SELECT without COUNT can be read in pages", hint="leave position out")
    if select.position is not None:
        raise InvalidRequestError("the statement already has a POSITION", hint="set it in one place")
    if select.newest_first:
        raise InvalidRequestError("pages go from old to new", hint="leave ORDER BY out")
    return select


def limited(select: Select, limit: int) -> Select:
    """Return the statement with a limit of at most `limit` records."""
    own = select.limit
    return replace(select, limit=limit if own is None or own < 0 else min(own, limit))


def select_at(catalog: Catalog, select: Select, position: str) -> Selection:
    """Return the selection from a position on: "head", "tail", "at TIME", or one from an earlier page.

    The statement's OFFSET counts from head, tail or a time. With a position from an earlier page it was already
    applied. Raises InvalidRequestError.
    """
    if position.lower() in ("head", "tail"):
        select = replace(select, position=Position(position.lower()))
    elif position[:3].lower() == "at ":
        select = replace(select, position=Position("time", position[3:].strip()))
    elif _PLAIN.fullmatch(position):
        select = replace(select, position=Position("token", position), offset=None)
    else:
        raise InvalidRequestError(
            f"invalid position {position[:40]!r}",
            hint="expected head, tail, at TIME, or a position from an earlier response",
        )
    with without_place():
        found = catalog.query(to_text(select))
    assert isinstance(found, Selection)
    return found


def read_page(catalog: Catalog, select: Select, position: str) -> Page:
    """Read one page. Raises InvalidRequestError."""
    answer = select_at(catalog, select, position)
    batches = []
    size = 0
    reading = answer.batches()
    for batch in reading:
        batches.append(batch)
        size += batch.nbytes
        if size >= MAX_PAGE_BYTES:
            break
    place = answer.position
    reading.close()  # type: ignore[attr-defined]  # it is a generator
    schema = batches[0].schema if batches else answer.schema
    return Page(pa.Table.from_batches(batches, schema=schema), place, answer.gone)
