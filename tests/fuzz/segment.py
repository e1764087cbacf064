"""A segment of arbitrary bytes: nearly always a checksum refuses it, when opened or in some query."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path

import esformat

GOLDEN = Path(__file__).parents[2] / "fixtures" / "golden"
SMALL_BYTES = 12_000
FEW = 100  # most events and values of a query

Question = Callable[[esformat.Segment], None]


def seeds() -> list[bytes]:
    """The smaller golden files."""
    files = sorted(GOLDEN.glob("*.esdb"))
    return [path.read_bytes() for path in files if path.stat().st_size <= SMALL_BYTES]


def one_input(data: bytes) -> None:
    """Open the bytes as a segment and run all kinds of queries."""
    ask(data, QUESTIONS)


def ask(data: bytes, questions: Iterable[Question]) -> None:
    """Open the bytes as a segment and run some queries."""
    try:
        segment = esformat.open(esformat.BytesSource(data), cache_bytes=1 << 20)
    except esformat.EsdbError:
        return
    with segment:
        for question in questions:
            try:
                question(segment)
            except esformat.EsdbError as error:
                assert error.path == segment.path, f"an error that names no file: {error}"  # noqa: PT017 - of fuzzing


def _exhaust(things: Iterable[object]) -> None:
    deque(things, maxlen=0)


def _events(segment: esformat.Segment) -> None:
    for event in islice(segment.scan(), FEW):
        _ = event.indexes
        _ = event.columns


def _histories(segment: esformat.Segment) -> None:
    for key in islice(segment.spaces(), 5):
        space = segment[key]
        _exhaust(islice(space.scan(reverse=True), FEW))
        _exhaust(space.scan(limit=3, start=0))
        _exhaust(islice(space.scan(reverse=True).batches(), 3))
        for grouping in islice(space.groupings(), 2):
            _exhaust(islice(space.scan(grouping=grouping).batches(), 3))
        _exhaust(space.groupings().items())


def _index_values(segment: esformat.Segment) -> None:
    for name in segment.indexes:
        for value in islice(segment.index_values(name), 5):
            _exhaust(islice(segment.scan_index(name, value).batches(), 3))
            segment.scan_index(name, value, reverse=True).count()


def _facts(segment: esformat.Segment) -> None:
    segment.info()
    segment.may_contain("a space")
    segment.scan(start=0).count()


def _columns(segment: esformat.Segment) -> None:
    _exhaust(islice(segment.scan().batches(), 3))


def _payloads(segment: esformat.Segment) -> None:
    with suppress(esformat.UsageError):  # there may be no payloads with fields
        segment.scan(columns=["data"]).payload_fields()
        segment.scan(columns=["data"]).to_table(fields=["$.page", "$.words.note", "$.wait", "$[-1]"])


QUESTIONS = (_facts, _columns, _events, _histories, _index_values, _payloads)
