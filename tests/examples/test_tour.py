"""The tour: every shown line of code has the shown result, on any events."""

from __future__ import annotations

from datetime import UTC, datetime

import duckdb
import pandas as pd
import pytest
from effort import long

import esformat
from examples.demo.clickstream import generate
from examples.demo.contest import EsdbFile
from examples.demo.event_set import EventSet
from examples.demo.python_files import read_python_files
from examples.demo.tour import answers, choose_subject

HOUR_US = 3_600_000_000


def rows(*events):
    return [
        {"space": space, "grouping": "", "timestamp": timestamp, "data": b"{}", "kind": kind}
        for space, timestamp, kind in events
    ]


SETS = {
    "python files": read_python_files,
    "click stream": lambda: EventSet("clicks", "generated", generate(5_000), ("type", "country")),
    "one event": lambda: EventSet.from_rows("one", "made up", rows(("a", 0, "x")), ("kind",)),
    "no index": lambda: EventSet.from_rows("none", "made up", rows(("a", 5, "x"), ("a'b", -7, None)), ()),
    "no value": lambda: EventSet.from_rows("null", "made up", rows(("a", 5, None), ("b", 7, None)), ("kind",)),
    "quotes": lambda: EventSet.from_rows("quotes", "made up", rows(*[("'\"\\ [x] {y}", 1, '"')] * 9), ("kind",)),
}


def evaluate(code, segment):
    """Run lines as a user would type them, and return the value of the last."""
    names = {"segment": segment, "duckdb": duckdb, "datetime": datetime, "UTC": UTC}
    *before, last = code.splitlines()
    exec("\n".join(before), names)
    return eval(last, names)


def plain(found):
    """Make results comparable: lazy scans and mappings become lists and dicts."""
    if isinstance(found, esformat.Scan):
        return list(found)
    if isinstance(found, pd.DataFrame | pd.Series):
        return found.reset_index().to_dict("list")
    return dict(found) if hasattr(found, "keys") else found


@pytest.mark.parametrize("name", [pytest.param(name, marks=long) if name == "python files" else name for name in SETS])
def test_shown_code_gives_what_is_shown(tmp_path, name):
    """A user who types the shown code gets the shown result."""
    EsdbFile.write(SETS[name](), tmp_path / "tour.esdb")
    with esformat.open(tmp_path / "tour.esdb") as segment:
        shown = list(answers(segment, choose_subject(segment)))
        assert len(shown) >= 6
        for answer in shown:
            assert plain(evaluate(answer.code, segment)) == plain(answer.found), answer.code


def test_subject(tmp_path):
    """The tour uses the largest space, its neighbours' prefix, rare values that fill a page, and the busiest time."""
    events = [("dir/a", at * HOUR_US, "x" if at % 2 else "y") for at in range(20)]
    events += [("dir/b", 30 * HOUR_US + at, "z") for at in range(6)]
    EsdbFile.write(EventSet.from_rows("s", "made up", rows(*events), ("kind",)), tmp_path / "s.esdb")
    with esformat.open(tmp_path / "s.esdb") as segment:
        subject = choose_subject(segment)
    assert (subject.key, subject.prefix, subject.index) == ("dir/a", "dir/", "kind")
    assert subject.value_in_space == "x"
    assert subject.value_anywhere == "z"
    assert subject.period[1] == "hour"
    assert (subject.start, subject.end) == (datetime(1970, 1, 2, 6, tzinfo=UTC), datetime(1970, 1, 2, 7, tzinfo=UTC))
