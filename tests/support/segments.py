"""Helpers for tests of tools: segments of a model's rows, and a check that a file agrees with a model."""

from __future__ import annotations

import random
from pathlib import Path

from event_model import Model, Row, table_records
from event_strategies import Layout, Recording, arrow_table
from hypothesis import strategies as st

import esformat

CODECS = ("zstd", "lz4", "none")


def write_rows(path: Path, recording: Recording, rows: list[Row], codec: str = "zstd") -> Path:
    """Write a segment of these rows, with the columns and indexes of a recording."""
    layout: Layout = recording.layout
    with esformat.create(
        path,
        indexes=layout.indexes,
        schema=layout.schema,
        keys="binary" if recording.binary_keys else "text",
        codec=codec,
        threads=1,
    ) as writer:
        writer.add_table(arrow_table(recording, rows, "table"))
    return path


def model_of(recording: Recording, rows: list[Row]) -> Model:
    """The expected results of a segment of these rows."""
    return Model(recording.layout.columns, rows, binary_keys=recording.binary_keys)


def check_segment(path: Path, recording: Recording, rows: list[Row]) -> None:
    """Check that a file is valid, and has the events and indexes of the rows, in order."""
    report = esformat.verify(path)
    assert report.ok, list(map(str, report.problems))
    model = model_of(recording, rows)
    with esformat.open(path) as segment:
        assert segment.num_events == len(rows)
        assert table_records(segment.scan().to_table()) == [model.record(row, None) for row in model.rows]
        assert dict(segment.spaces().items()) == model.spaces()
        for name in segment.indexes:
            values = model.index_values(name)
            assert dict(segment.index_values(name).items()) == values
            for value in values:
                expected = [model.record(row, None) for row in model.rows if row.values[name] == value]
                assert table_records(segment.scan_index(name, value).to_table()) == expected


def phrases(rnd: random.Random, count: int) -> list[bytes]:
    """Payloads of a vocabulary that is worth a compression dictionary."""
    words = [rnd.randbytes(30).hex().encode() for _ in range(40)]
    return [b'{"page": "%s", "seen": %d, "by": "%s"}' % (rnd.choice(words), i, rnd.choice(words)) for i in range(count)]


def dealt(rows: list[Row], parts: int) -> st.SearchStrategy[list[list[Row]]]:
    """The rows distributed over `parts` files, each in order of arrival."""

    def deal(places: list[int]) -> list[list[Row]]:
        return [[row for row, place in zip(rows, places, strict=True) if place == part] for part in range(parts)]

    return st.lists(st.integers(0, parts - 1), min_size=len(rows), max_size=len(rows)).map(deal)
