"""Compare an .esdb file with the formats people use today for the same events: bytes, and times of several tasks.

Every figure is measured on this machine, and every answer is compared before its time counts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Protocol

import pyarrow as pa

import esformat
from examples.demo.errors import DisagreementError
from examples.demo.event_set import EventSet
from examples.demo.peers import DuckDBFile, ParquetFile, gzip_file, write_json_lines

ESDB, PARQUET, DUCKDB = "esdb", "Parquet", "DuckDB"
JSON_LINES, JSON_LINES_GZIP = "JSON lines", "JSON lines, gzip"
POINT_READ = "History of one space, median"
POINT_READS = 300
PARQUET_FILE, DUCKDB_FILE = "contest.parquet", "contest.duckdb"
REPEATS = 3  # of tasks that take milliseconds or more
SEED = 7


@dataclass(frozen=True, slots=True)
class Figure:
    """The cost of one task for each contestant."""

    work: str
    unit: str
    less_is_better: bool
    by_contestant: Mapping[str, float]


def format_ratio(ratio: float) -> str:
    """Format a ratio with its significant digits: 1.04 ×, 12 ×."""
    return f"{ratio:.2f} ×" if ratio < 10 else f"{ratio:,.0f} ×"


class Contestant(Protocol):
    """An open file that can answer the questions of the contest."""

    def history(self, key: str) -> Sequence[Any]: ...
    def with_value(self, index: str, value: object) -> pa.Table: ...
    def read(self) -> pa.Table: ...
    def close(self) -> None: ...


class EsdbFile:
    """An .esdb file as a contestant."""

    def __init__(self, path: Path) -> None:
        self._segment = esformat.open(path)

    @staticmethod
    def write(events: EventSet, path: Path) -> None:
        with esformat.create(path, indexes=events.indexes, overwrite=True) as writer:
            writer.add_table(events.table)

    def history(self, key: str) -> list[esformat.Event]:
        return list(self._segment[key].scan())

    def with_value(self, index: str, value: object) -> pa.Table:
        return self._segment.scan_index(index, value).to_table()

    def read(self) -> pa.Table:
        return self._segment.scan().to_table()

    def close(self) -> None:
        self._segment.close()


def measure_sizes(events: EventSet, files: Mapping[str, Path], scratch: Path) -> dict[str, int]:
    """Return the bytes of `files`, already written from `events`, and of the same events as JSON lines."""
    lines, packed = scratch / f"{events.name}.jsonl", scratch / f"{events.name}.jsonl.gz"
    write_json_lines(events.table, lines)
    gzip_file(lines, packed)
    every = {JSON_LINES: lines, JSON_LINES_GZIP: packed, **files}
    return {name: file.stat().st_size for name, file in every.items()}


def write_parquet(events: EventSet, path: Path) -> None:
    """Write `events` with dictionaries for grouping and indexes, which have few values."""
    few_values = [name for name in ("grouping", *events.indexes) if name in events.table.column_names]
    ParquetFile.write(events.table, path, few_values)


def measure_writing(events: EventSet, esdb: Path, scratch: Path) -> Figure:
    """Write the unsorted events in all three formats; only the .esdb file gets indexes."""
    writes: dict[str, Callable[[], None]] = {
        ESDB: lambda: EsdbFile.write(events, esdb),
        PARQUET: lambda: write_parquet(events, scratch / PARQUET_FILE),
        DUCKDB: lambda: DuckDBFile.write(events.table, scratch / DUCKDB_FILE),
    }
    rates = {name: events.num_events / _seconds(write) / 1e6 for name, write in writes.items()}
    return Figure("Sort and write (esdb: with its indexes)", "M events/s", False, rates)


def open_contestants(esdb: Path, scratch: Path) -> dict[str, Contestant]:
    """Open the three files that `measure_writing` wrote."""
    return {
        ESDB: EsdbFile(esdb),
        PARQUET: ParquetFile(scratch / PARQUET_FILE),
        DUCKDB: DuckDBFile(scratch / DUCKDB_FILE),
    }


def measure_reading(
    contestants: Mapping[str, Contestant], events: EventSet, index_value: tuple[str, object] | None
) -> list[Figure]:
    """Measure point histories, one index value over the whole file, and a scan of everything."""
    figures = [_point_histories(contestants, events)]
    if index_value is not None:
        figures.append(_index_value(contestants, *index_value))
    seconds = {name: _median_seconds(contestant.read) for name, contestant in contestants.items()}
    rates = {name: events.num_events / each / 1e6 for name, each in seconds.items()}
    return [*figures, Figure("Read everything into Arrow", "M events/s", False, rates)]


def _point_histories(contestants: Mapping[str, Contestant], events: EventSet) -> Figure:
    spaces = sorted(set(events.table["space"].to_pylist()))
    keys = random.Random(SEED).choices(spaces, k=POINT_READS)  # noqa: S311 - a sample, not a secret
    columns = events.table.column_names
    for key in keys:
        histories = {name: contestant.history(key) for name, contestant in contestants.items()}
        _agree(f"the history of {key}", {name: _essence(rows, columns) for name, rows in histories.items()})
    medians = {
        name: median(_seconds(partial(contestant.history, key)) for key in keys) * 1e6
        for name, contestant in contestants.items()
    }
    return Figure(POINT_READ, "µs", True, medians)


def _essence(rows: Sequence[Any], columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Reduce events, or rows in the order of `columns`, to a comparable form: ties have no order in the peers."""
    names = [name for name in ("timestamp", "data") if name in columns]
    places = [columns.index(name) for name in names]
    return sorted(
        tuple(getattr(row, name) for name in names)
        if isinstance(row, esformat.Event)
        else tuple(row[place] for place in places)
        for row in rows
    )


def _index_value(contestants: Mapping[str, Contestant], index: str, value: object) -> Figure:
    _agree(
        f"the events with {index} = {value}",
        {name: contestant.with_value(index, value).num_rows for name, contestant in contestants.items()},
    )
    times = {
        name: _median_seconds(partial(contestant.with_value, index, value)) * 1e3
        for name, contestant in contestants.items()
    }
    return Figure(f"All events with {index} = {value}, into Arrow", "ms", True, times)


def _agree(what: str, answers: Mapping[str, object]) -> None:
    if any(answer != answers[ESDB] for answer in answers.values()):
        raise DisagreementError(f"the contestants differ on {what}")


def _seconds(work: Callable[[], object]) -> float:
    started = perf_counter()
    work()
    return perf_counter() - started


def _median_seconds(work: Callable[[], object]) -> float:
    return median(_seconds(work) for _ in range(REPEATS))
