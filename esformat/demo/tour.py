"""The questions that the demo asks of a segment, each as the line of code a user would type and what it finds.

Choosing what to ask about, and asking; `screen` shows the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd

from esformat import Segment
from esformat.demo.peers import connect

EVENTS_SHOWN = 5
SECOND_US = 1_000_000
# Widths of a time range: pandas' name for each, and the words for it. The widest that leaves some to choose from wins.
PERIODS = (("D", "day", 86_400), ("h", "hour", 3_600), ("min", "minute", 60), ("s", "second", 1))
PERIODS_AT_LEAST = 8
_SEPARATORS = "/-.:_@ "


@dataclass(frozen=True, slots=True)
class Answer:
    """What one line of code found. `code` evaluates to `found` where `segment` is the open file."""

    question: str
    code: str
    found: Any  # a list of events, counts by value, a number, or a pandas object
    seconds: float


@dataclass(frozen=True, slots=True)
class Subject:
    """What there is to ask about: the space with most events, what is common in it, when most happened."""

    key: str
    prefix: str
    index: str | None
    value_in_space: Any
    rare_value: Any
    period: tuple[str, str, int]
    start: datetime

    @property
    def end(self) -> datetime:
        return self.start + timedelta(seconds=self.period[2])


def choose_subject(segment: Segment) -> Subject:
    """Choose what makes a telling example in `segment`, which holds at least one event."""
    counts = segment.spaces()
    key = max(counts, key=lambda space: counts[space])
    index = next(iter(segment.indexes), None)
    common = rare = None
    if index is not None:
        totals = segment.index_values(index)
        space = segment[key]
        common = max(totals, key=lambda value: (space.scan_index(index, value).count(), str(value)))
        enough = [value for value in totals if totals[value] >= EVENTS_SHOWN] or list(totals)
        rare = min(enough, key=lambda value: (totals[value], str(value)))
    period, start = _busiest_period(segment)
    return Subject(key, _prefix(key), index, common, rare, period, start)


def _prefix(key: str) -> str:
    """Cut `key` behind its last separator but one character, so that its neighbours share it."""
    ends = [at + 1 for at, letter in enumerate(key[:-1]) if letter in _SEPARATORS]
    return key[: ends[-1]] if ends else key[: max(1, len(key) // 2)]


def _busiest_period(segment: Segment) -> tuple[tuple[str, str, int], datetime]:
    timestamps = segment.scan(columns=["timestamp"]).to_table()["timestamp"].cast("int64").to_numpy()
    for period in PERIODS:
        starts, counts = np.unique(timestamps // (period[2] * SECOND_US), return_counts=True)
        if len(starts) >= PERIODS_AT_LEAST:
            break
    busiest = int(starts[np.argmax(counts)]) * period[2]
    return period, datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=busiest)


def answers(segment: Segment, subject: Subject) -> Iterator[Answer]:
    """Ask one question after another."""
    yield from _about_keys(segment, subject)
    yield from _about_one_space(segment, subject)
    if subject.index is not None:
        yield from _about_an_index(segment, subject)
    yield from _about_time(segment, subject)
    yield from _in_other_tools(segment, subject)


def _ask(question: str, code: str, find: Callable[[], Any]) -> Answer:
    started = perf_counter()
    found = find()
    return Answer(question, code, found, perf_counter() - started)


def _about_keys(segment: Segment, subject: Subject) -> Iterator[Answer]:
    yield _ask(
        f"Whose events are there that start with {subject.prefix}",
        f"segment.spaces(prefix={subject.prefix!r})",
        lambda: dict(segment.spaces(prefix=subject.prefix)),
    )


def _about_one_space(segment: Segment, subject: Subject) -> Iterator[Answer]:
    key, limit = subject.key, EVENTS_SHOWN
    yield _ask(
        f"What happened to {key}, newest first",
        f"segment[{key!r}].scan(reverse=True, limit={limit})",
        lambda: list(segment[key].scan(reverse=True, limit=limit)),
    )
    yield _ask(
        "And how did it begin",
        f"segment[{key!r}].scan(limit={limit})",
        lambda: list(segment[key].scan(limit=limit)),
    )
    yield _ask(
        "Which groupings does it have",
        f"segment[{key!r}].groupings()",
        lambda: dict(segment[key].groupings()),
    )


def _about_an_index(segment: Segment, subject: Subject) -> Iterator[Answer]:
    key, index, limit = subject.key, subject.index, EVENTS_SHOWN
    common, rare = subject.value_in_space, subject.rare_value
    assert index is not None
    yield _ask(
        f"Only {index} = {common}, newest first",
        f"segment[{key!r}].scan_index({index!r}, {common!r}, reverse=True, limit={limit})",
        lambda: list(segment[key].scan_index(index, common, reverse=True, limit=limit)),
    )
    yield _ask(
        f"Which values does {index} take, and how often (no event is read)",
        f"segment.index_values({index!r})",
        lambda: dict(segment.index_values(index)),
    )
    yield _ask(
        f"{index} = {rare} over the whole file",
        f"segment.scan_index({index!r}, {rare!r}, limit={limit})",
        lambda: list(segment.scan_index(index, rare, limit=limit)),
    )


def _about_time(segment: Segment, subject: Subject) -> Iterator[Answer]:
    start, end = subject.start, subject.end
    yield _ask(
        f"How many events in the busiest {subject.period[1]}",
        f"segment.scan(start={_literal(start)}, end={_literal(end)}).count()",
        lambda: segment.scan(start=start, end=end).count(),
    )


def _in_other_tools(segment: Segment, subject: Subject) -> Iterator[Answer]:
    query = "SELECT space, count(*) AS events FROM scan GROUP BY space ORDER BY events DESC, space LIMIT 5"
    yield _ask(
        "The same scan in DuckDB",
        f'scan = segment.scan(columns=["space"])\nduckdb.sql("{query}").df()',
        lambda: _in_duckdb(segment, query),
    )
    unit, word, _ = subject.period
    yield _ask(
        f"The same scan in pandas: the busiest {word}s",
        'frame = segment.scan(columns=["timestamp"]).to_pandas()\n'
        f'frame["timestamp"].dt.floor("{unit}").value_counts().head({EVENTS_SHOWN})',
        lambda: _in_pandas(segment, unit),
    )


def _in_duckdb(segment: Segment, query: str) -> pd.DataFrame:
    with connect() as connection:
        connection.register("scan", segment.scan(columns=["space"]))
        return connection.execute(query).df()


def _in_pandas(segment: Segment, unit: str) -> pd.Series[int]:
    frame = segment.scan(columns=["timestamp"]).to_pandas()
    return frame["timestamp"].dt.floor(unit).value_counts().head(EVENTS_SHOWN)


def _literal(moment: datetime) -> str:
    """Write `moment` as a user would, after `from datetime import UTC, datetime`."""
    fields = [moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second]
    while len(fields) > 3 and fields[-1] == 0:
        fields.pop()
    return f"datetime({', '.join(map(str, fields))}, tzinfo=UTC)"
