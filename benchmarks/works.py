"""The works (workloads): their questions, their timing, and the units of their figures.

A work's runner returns one figure per contender. Bulk works are repeated; point works ask each of a seeded list of
questions once. Both check every answer against the dataset's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from benchmarks import bounded, engines, growth, object_store, rewriting, scratch
from benchmarks.contenders.protocol import MAIN, Answer, Reader, Row, canonical
from benchmarks.dataset import FILE_INDEX, LATEST, POINT_INDEX, Dataset, Questions
from benchmarks.measure import Figure, WrongAnswerError, excused, measure_bulk, measure_points
from benchmarks.session import Runner, Session
from benchmarks.touch import Totals, touch

WARMUP_EVENTS = 100_000
WARMUP_QUESTIONS = 2_000
OPEN_WARMUP_QUESTIONS = 20
PROBES_AFTER_WRITING = 20
MILLION = 1e6


@dataclass(frozen=True)
class Work:
    """A workload: one row of the report."""

    id: str
    title: str
    unit: str
    more_is_better: bool
    group: str  # which plot it is in
    run: Runner


# --- expectations -----------------------------------------------------------------------------------------------------


def _demand(found: Any, expected: Any, what: str) -> None:
    if found != expected:
        raise WrongAnswerError(f"{what}: {_brief(found)} instead of {_brief(expected)}")


def _brief(answer: Any) -> str:
    return f"{len(answer)} rows, {answer[:1]} first" if isinstance(answer, list) else str(answer)


def _demand_table(found: pa.Table, expected: pa.Table, what: str) -> None:
    if not found.equals(expected):
        raise WrongAnswerError(f"{what}: {len(found)} rows, other than the {len(expected)} expected")


# --- writing ----------------------------------------------------------------------------------------------------------


def _write(session: Session) -> dict[str, Figure]:
    able, figures = session.willing("W1")
    table = session.dataset.table
    targets = {name: session.scratch / "writing" / name for name in able}

    def write(name: str, events: pa.Table) -> None:
        able[name].write(events, targets[name], MAIN)
        scratch.sync(targets[name])  # for every contender, written means on disk

    def prepare(name: str) -> None:
        scratch.empty(targets[name])
        os.sync()  # so that no contender pays for the write-back of others

    def check(name: str, _: None) -> None:
        reader = able[name].open(targets[name], MAIN)
        for space in session.dataset.weighted(0, PROBES_AFTER_WRITING).counted:
            _demand(reader.rows(reader.history(space)), session.dataset.history(space), space)
        _demand(reader.objects(), session.dataset.digest, "every event")
        reader.close()
        scratch.empty(targets[name])

    some = table.slice(0, WARMUP_EVENTS)
    measure_bulk({name: partial(write, name, some) for name in able}, lambda *_: None, 1, prepare)
    tasks = {name: partial(write, name, table) for name in able}
    return figures | _rates(measure_bulk(tasks, check, session.repeats, prepare), len(table))


def _rates(figures: dict[str, Figure], events: int) -> dict[str, Figure]:
    """Convert seconds to millions of events per second."""
    for figure in figures.values():
        figure.samples = [events / seconds / MILLION for seconds in figure.samples]
    return figures


def _size(session: Session) -> dict[str, Figure]:
    able, figures = session.willing("size")
    for name, contender in able.items():
        figures[name] = Figure()
        with excused(figures[name]):
            sizes = {
                layout: scratch.size_bytes(session.built(contender, layout)) / session.events
                for layout in contender.layouts
            }
            figures[name].samples = [sizes[MAIN]]
            figures[name].detail = {
                contender.layouts[layout]: round(size, 2) for layout, size in sizes.items() if layout != MAIN
            }
    return figures


# --- scans ------------------------------------------------------------------------------------------------------------


def _touch_scan(scan: Callable[[], Iterator[pa.RecordBatch]]) -> Totals:
    return touch(scan())


def _scan_batches(session: Session, work: str, method: str) -> dict[str, Figure]:
    readers, figures = session.ready(work)
    expected = Totals(session.events, session.dataset.digest.timestamps, nulls=0)

    def check(name: str, totals: Totals) -> None:
        _demand(totals, expected, "totals")

    scans = {name: getattr(reader, method) for name, reader in readers.items()}
    for name in list(scans):  # the warm-up compares every value, in order
        with excused(figure := Figure()):
            found = canonical(pa.Table.from_batches(scans[name]()))
            _demand_table(found.combine_chunks(), session.dataset.ordered, "full scan")
        if figure.missing:
            del scans[name]
            figures[name] = figure
    tasks = {name: partial(_touch_scan, scan) for name, scan in scans.items()}
    return figures | _rates(measure_bulk(tasks, check, session.repeats), session.events)


def _scan_objects(
    session: Session,
    work: str,
    method: str,
    expected: Callable[[Dataset], Any],
    only: tuple[str, ...] | None = None,
) -> dict[str, Figure]:
    readers, figures = session.ready(work, only)
    tasks = {name: getattr(reader, method) for name, reader in readers.items()}

    def check(_: str, found: Any) -> None:
        _demand(found, expected(session.dataset), "every event")

    return figures | _rates(measure_bulk(tasks, check, session.repeats), session.events)


def _scan_matching(session: Session) -> dict[str, Figure]:
    readers, figures = session.ready("R5")
    expected = session.dataset.matching
    order = [("space", "ascending"), ("timestamp", "ascending")]

    def check(name: str, answer: Answer) -> None:
        _demand_table(readers[name].table(answer).sort_by(order).combine_chunks(), expected, "every match")

    tasks = {name: partial(reader.matching, *FILE_INDEX) for name, reader in readers.items()}
    measure_bulk(tasks, check, 1)  # warm-up
    figures |= measure_bulk(tasks, check, session.repeats)
    for figure in figures.values():
        figure.samples = [seconds * 1000 for seconds in figure.samples]
    return figures


# --- questions about one space ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PointWork:
    """A question about one space: how to ask it, its correct answer, and the spaces to ask about."""

    id: str
    ask: Callable[[Reader, str], Answer]
    expected: Callable[[Dataset, str], list[Row]]
    questions: Callable[[Dataset, int, int], Questions]
    only: tuple[str, ...] | None = None  # names of contenders; None: all

    def __call__(self, session: Session) -> dict[str, Figure]:
        readers, figures = session.ready(self.id, self.only)
        dataset = session.dataset
        questions = self.questions(dataset, WARMUP_QUESTIONS, session.questions)

        def check(name: str, space: str, answer: Answer) -> None:
            _demand(readers[name].rows(answer), self.expected(dataset, space), space)

        asked = {name: partial(self.ask, reader) for name, reader in readers.items()}
        measure_points(asked, questions.warmup, check)
        figures |= measure_points(asked, questions.counted, check)
        return figures


def _history(reader: Reader, space: str) -> Answer:
    return reader.history(space)


def _indexed(reader: Reader, space: str) -> Answer:
    return reader.indexed(space, *POINT_INDEX)


def _latest(reader: Reader, space: str) -> Answer:
    return reader.latest(space, LATEST)


def _open(session: Session) -> dict[str, Figure]:
    session.close_readers()  # some stores share one instance per file within a process
    able, figures = session.willing("open")
    dataset = session.dataset
    questions = dataset.uniform(WARMUP_QUESTIONS, session.questions)
    places = {}
    for name, contender in able.items():
        layout = session.layout(contender, "open")
        places[name] = contender, session.built(contender, layout), layout

    def ask(name: str, space: str) -> tuple[Reader, Answer]:
        contender, target, layout = places[name]
        reader = contender.open(target, layout)
        return reader, reader.history(space)

    def settle(answered: tuple[Reader, Answer]) -> list[Row]:
        reader, answer = answered
        try:
            return reader.rows(answer)
        finally:
            reader.close()

    def check(_: str, space: str, rows: list[Row]) -> None:
        _demand(rows, dataset.history(space), space)

    asked = {name: partial(ask, name) for name in places}
    measure_points(asked, questions.warmup[:OPEN_WARMUP_QUESTIONS], check, settle)
    return figures | measure_points(asked, questions.counted, check, settle)


WORKS = {
    work.id: work
    for work in (
        Work("W1", "write unsorted Arrow, sorted, two indexes", "M events/s", True, "write", _write),
        Work("W2", "write a stream, unsorted, within 256 MiB", "M events/s", True, "write", bounded.write),
        Work("size", "bytes per event, indexes included", "bytes/event", False, "write", _size),
        Work(
            "R1-batch",
            "full scan, columnar, every column",
            "M events/s",
            True,
            "scan",
            partial(_scan_batches, work="R1-batch", method="batches"),
        ),
        Work(
            "R1-coded",
            "the same, text may come dictionary-coded",
            "M events/s",
            True,
            "scan",
            partial(_scan_batches, work="R1-coded", method="coded_batches"),
        ),
        Work(
            "R1-object", "full scan, a Python object per event", "M events/s", True, "scan",
            partial(_scan_objects, work="R1-object", method="objects", expected=lambda dataset: dataset.digest),
        ),
        Work(
            "R1-untouched", "the same, no field touched", "M events/s", True, "cost",
            partial(
                _scan_objects, work="R1-untouched", method="untouched_objects", only=("esformat",),
                expected=lambda dataset: len(dataset.table),
            ),
        ),
        Work(
            "R1-fields", "the same, every field touched", "M events/s", True, "cost",
            partial(
                _scan_objects, work="R1-fields", method="objects_by_field", only=("esformat",),
                expected=lambda dataset: (len(dataset.table), dataset.last),
            ),
        ),
        Work(
            "R2", "history of a space, uniform", "µs", False, "point",
            PointWork("R2", _history, Dataset.history, Dataset.uniform),
        ),
        Work(
            "R2-uncached", "the same, esformat's caches off", "µs", False, "point",
            PointWork("R2-uncached", _history, Dataset.history, Dataset.uniform, only=("esformat",)),
        ),
        Work(
            "R3", "index value in a space, newest first, uniform", "µs", False, "point",
            PointWork("R3", _indexed, Dataset.indexed, Dataset.uniform),
        ),
        Work(
            "R3w", "index value in a space, newest first, weighted", "µs", False, "point",
            PointWork("R3w", _indexed, Dataset.indexed, Dataset.weighted),
        ),
        Work(
            "R4", "latest 10 events of a space, weighted", "µs", False, "point",
            PointWork("R4", _latest, Dataset.latest, Dataset.weighted),
        ),
        Work("R5", "index value over the whole file, 1 % of events", "ms", False, "scan", _scan_matching),
        Work("open", "open and answer a first history, warm", "µs", False, "point", _open),
        Work("Q-point", "DuckDB over the file: one space, grouped by type", "µs", False, "point", engines.point),
        Work("Q-index", "DuckDB over the file: one index value, 1 % of events", "ms", False, "scan", engines.index),
        Work("Q-full", "DuckDB over the file: all events, grouped by type", "ms", False, "scan", engines.full),
        Work("S1", "cold history, opening included: bytes read", "KiB", False, "cost", growth.cold_reads),
        Work(
            "S2", "history from S3, 50 ms away, file open", "ms", False, "cost",
            partial(object_store.histories, work="S2", latency=object_store.DISTANT_SECONDS, cold=False),
        ),
        Work(
            "S2-near", "the same, no latency added", "ms", False, "cost",
            partial(object_store.histories, work="S2-near", latency=0.0, cold=False),
        ),
        Work(
            "S2-cold", "open and history from S3, 50 ms away", "ms", False, "cost",
            partial(object_store.histories, work="S2-cold", latency=object_store.DISTANT_SECONDS, cold=True),
        ),
        Work("memory", "peak memory of a columnar full scan", "MiB", False, "cost", growth.scan_memory),
        Work("merge", "four parts of the file into one again", "ms", False, "cost", rewriting.merge_parts),
        Work("erase", "one space out of the file, checked", "ms", False, "cost", rewriting.erase_space),
    )
}  # fmt: skip
