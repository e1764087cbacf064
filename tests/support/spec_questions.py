"""All queries of a file as plain values, to compare a damaged file's results with the whole file's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import make_golden
import read_esdb

import esformat

Question = Callable[[esformat.Segment], Any]


def decoded_once(data: bytes) -> read_esdb.File:
    """A file for the independent reader, which otherwise decodes all blocks again for each query."""
    file = read_esdb.File(data)
    blocks = list(file.data_blocks())
    file.data_blocks = lambda: iter(blocks)  # type: ignore[method-assign]
    return file


def _events(scan: Any) -> list[Any]:
    return [(e.space, e.grouping, e.timestamp, e.data, repr(e.indexes), _shown(e)) for e in scan]


def _shown(event: Any) -> str:
    try:
        return repr(event.columns)
    except OverflowError:  # a date beyond Python's range
        return "beyond Python"


def _table(scan: Any) -> list[str]:
    return [make_golden.line(event) for event in make_golden.rows(scan.to_table())]


def questions(data: bytes) -> dict[str, Question]:
    """The queries for the file in `data` and for damaged copies of it."""
    with esformat.open(esformat.BytesSource(data)) as segment:
        spaces = list(segment.spaces())
        values = {name: list(segment.index_values(name)) for name in segment.indexes}
    asked: dict[str, Question] = {
        "facts": lambda s: (s.num_events, s.num_spaces, s.min_timestamp, s.max_timestamp, s.properties, str(s.schema)),
        "info": lambda s: s.info(),
        "events": lambda s: _events(s.scan()),
        "events backwards": lambda s: _events(s.scan(reverse=True)),
        "table": lambda s: _table(s.scan()),
        "spaces": lambda s: list(s.spaces().items()),
        "count": lambda s: s.scan(start=0).count(),
        "absent": lambda s: (s.find("no such space"), s.may_contain("no such space")),
    }
    for space in spaces[:: max(1, len(spaces) // 4)]:
        asked[f"may contain {space!r}"] = lambda s, space=space: s.may_contain(space)
        asked[f"space {space!r}"] = lambda s, space=space: (
            _events(s[space].scan()),
            list(s[space].groupings().items()),
        )
    for name, known in values.items():
        asked[f"values of {name}"] = lambda s, name=name: list(s.index_values(name).items())
        for value in known[:: max(1, len(known) // 3)]:
            asked[f"{name} = {value!r}"] = lambda s, name=name, value=value: _events(s.scan_index(name, value))
    return asked


def answers(data: bytes, asked: dict[str, Question]) -> Iterator[tuple[str, Any]]:
    """The result of each query, or the `EsdbError` that refuses it. Other errors pass through."""
    try:
        segment = esformat.open(esformat.BytesSource(data))
    except esformat.EsdbError as error:
        yield "open", error
        return
    with segment:
        for name, question in asked.items():
            try:
                yield name, question(segment)
            except esformat.EsdbError as error:
                yield name, error


class Sound:
    """A valid file: its results, and the comparison with a damaged copy."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked = questions(data)
        self.expected = dict(answers(data, self.asked))
        refused = [answer for answer in self.expected.values() if isinstance(answer, Exception)]
        assert not refused, refused

    def errors_of(self, damaged: bytes) -> list[esformat.EsdbError]:
        """The refusals of a damaged file. Raises AssertionError for a result that differs from the valid file's."""
        errors = []
        for name, answer in answers(damaged, self.asked):
            if isinstance(answer, esformat.EsdbError):
                errors.append(answer)
            else:
                assert answer == self.expected[name], f"a wrong answer to {name!r}"
        return errors
