"""Many small spaces: histories and look-ups in a file of real reviews, mostly one per reviewer.

    python -m benchmarks.small_spaces anonreviews.csv.bz2

Compared with SQLite with an index over the same keys. Figures are processor time: medians of several rounds over the
same 5,000 spaces in random order, without the first round. Every answer is checked against the other contender's.
"""

from __future__ import annotations

import json
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import esformat
from esformat.convert import InputOptions, Load, Roles

ASKED = 5_000
ROUNDS = 5


def main(csv: str) -> None:
    """Measure, and print the figures as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reviews.esdb"
        roles = Roles(space="reviewerId", grouping="vendorId", timestamp="date", indexes=("rating",))
        with Load([csv], roles, InputOptions()) as load:
            load.write(lambda _: esformat.create(path, indexes=roles.indexes))
        with esformat.open(path) as segment:
            spaces = list(segment.spaces())
            asked = random.Random(1).sample(spaces, ASKED)
            database = _database(Path(folder) / "reviews.sqlite", segment)
            history, theirs = _esdb_history(segment), _sqlite_history(database)
            assert all(history(space) == theirs(space) for space in asked)
            figures = {
                "events": segment.num_events,
                "spaces": len(spaces),
                "bytes per event": round(path.stat().st_size / segment.num_events, 1),
                "history µs": _micros(lambda space: [event.timestamp for event in segment[space].scan()], asked),
                "history with index values µs": _micros(history, asked),
                "history µs, SQLite": _micros(theirs, asked),
                "find µs": _micros(segment.find, asked),
            }
        with esformat.open(path, cache_bytes=0) as segment:
            figures["history µs, nothing cached"] = _micros(_esdb_history(segment), asked[:500])
        print(json.dumps(figures, ensure_ascii=False, indent=2))


def _esdb_history(segment: esformat.Segment) -> Callable[[str], list[tuple[Any, ...]]]:
    def history(space: str) -> list[tuple[Any, ...]]:
        return [(event.timestamp, event.grouping, event.indexes["rating"]) for event in segment[space].scan()]

    return history


def _database(path: Path, segment: esformat.Segment) -> sqlite3.Connection:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE e (space TEXT, grouping TEXT, at INTEGER, rating TEXT)")
    rows = ((e.space, e.grouping, e.timestamp, e.indexes["rating"]) for e in segment.scan())
    database.executemany("INSERT INTO e VALUES (?, ?, ?, ?)", rows)
    database.execute("CREATE INDEX by_space ON e (space, at, grouping)")
    database.commit()
    return database


def _sqlite_history(database: sqlite3.Connection) -> Callable[[str], list[tuple[Any, ...]]]:
    statement = "SELECT at, grouping, rating FROM e WHERE space = ? ORDER BY at, grouping, rowid"
    return lambda space: database.execute(statement, (space,)).fetchall()


def _micros(work: Callable[[str], object], asked: Sequence[str]) -> float:
    rounds = []
    for _ in range(ROUNDS + 1):
        began = time.process_time()
        for space in asked:
            work(space)
        rounds.append((time.process_time() - began) / len(asked) * 1e6)
    return round(statistics.median(rounds[1:]), 1)


if __name__ == "__main__":
    main(sys.argv[1])
