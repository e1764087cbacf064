"""The questions that the demo asks a segment, each with the code that a user would type, and its result.

This module chooses what to ask about, and asks; `screen` shows the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd

from esformat import Segment
from examples.demo.peers import connect

EVENTS_SHOWN = 5
SECOND_US = 1_000_000
# Widths of a time range: pandas' name, a word, seconds. The widest with at least PERIODS_AT_LEAST ranges is chosen.
PERIODS = (("D", "day", 86_400), ("h", "hour", 3_600), ("min", "minute", 60), ("s", "second", 1))
PERIODS_AT_LEAST = 8
VALUES_TRIED = 50  # of an index that may have thousands
_SEPARATORS = "/:@-_. "  # in order of preference


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a piece of code. `code` evaluates to `found` if `segment` is the open file."""

    question: str
    code: str
    found: Any  # a list of events, counts by value, a number, or a pandas object
    seconds: float


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of the questions: the space with most events, index values, and the busiest period."""

    key: str
    prefix: str
    index: str | None
    value_in_space: Any
    value_anywhere: Any
    period: tuple[str, str, int]
    start: datetime

    @property
    def end(self) -> datetime:
        return self.start + timedelta(seconds=self.period[2])


def choose_subject(segment: Segment) -> Subject:
    """Choose a good example in `segment`, which must have at least one event."""
    key = max(segment.spaces().items(), key=lambda item: item[1])[0]
    index = next((name for name in segment.indexes if len(segment.index_values(name))), None)
    inside = anywhere = None
    if index is not None:
        frequent = sorted(segment.index_values(index).items(), key=lambda item: (-item[1], str(item[0])))[:VALUES_TRIED]
        anywhere = _rare_but_enough(dict(frequent))
        space = segment[key]
        inside = _rare_but_enough({value: space.scan_index(index, value).count() for value, _ in frequent})
    period, start = _busiest_period(segment)
    return Subject(key, _prefix(key), index, inside, anywhere, period, start)


def _rare_but_enough(counts: Mapping[Any, int]) -> Any:
    """Choose the rarest value with at least EVENTS_SHOWN events, or the most frequent one if none has."""
    enough = [value for value in counts if counts[value] >= EVENTS_SHOWN]
    if not enough:
        return max(counts, key=lambda value: (counts[value], str(value)))
    return min(enough, key=lambda value: (counts[value], str(value)))


def _prefix(key: str) -> str:
    """Cut `key` after a separator, to get a prefix that neighbouring keys share."""
    ends = (key[:-1].rfind(separator) + 1 for separator in _SEPARATORS)
    return key[: next(filter(None, ends), max(1, len(key) // 2))]


def _busiest_period(segment: Segment) -> tuple[tuple[str, str, int], datetime]:
    timestamps = segment.scan(columns=["timestamp"]).to_table()["timestamp"].cast("int64").to_numpy()
    for period in PERIODS:
        starts, counts = np.unique(timestamps // (period[2] * SECOND_US), return_counts=True)
        if len(starts) >= PERIODS_AT_LEAST:
            break
    busiest = int(starts[np.argmax(counts)]) * period[2]
    return period, datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=busiest)


def answers(segment: Segment, subject: Subject) -> Iterator[Answer]:
    """Ask the questions in order."""
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
        f"Which spaces begin with {subject.prefix}",
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
        "The same from the beginning",
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
    inside, anywhere = subject.value_in_space, subject.value_anywhere
    assert index is not None
    yield _ask(
        f"Only {index} = {inside}, newest first",
        f"segment[{key!r}].scan_index({index!r}, {inside!r}, reverse=True, limit={limit})",
        lambda: list(segment[key].scan_index(index, inside, reverse=True, limit=limit)),
    )
    yield _ask(
        f"Which values does {index} take, and how often (no event is read)",
        f"segment.index_values({index!r})",
        lambda: dict(segment.index_values(index)),
    )
    yield _ask(
        f"{index} = {anywhere} over the whole file",
        f"segment.scan_index({index!r}, {anywhere!r}, limit={limit})",
        lambda: list(segment.scan_index(index, anywhere, limit=limit)),
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
    """Format `moment` as a user would write it after `from datetime import UTC, datetime`."""
    fields = [moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second]
    while len(fields) > 3 and fields[-1] == 0:
        fields.pop()
    return f"datetime({', '.join(map(str, fields))}, tzinfo=UTC)"
