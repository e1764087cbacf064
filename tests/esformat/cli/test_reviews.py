"""The README's command on half a million real reviews, compared with a plain filter and sort of the CSV."""

from __future__ import annotations

import bz2
import csv
import io
import os
import random
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import esformat
from tests.esformat.cli.conftest import ROOT

_GIVEN = Path(os.environ.get("ESFORMAT_TEST_DATA", ROOT.parent / "shared" / "data"))
REVIEWS = _GIVEN / "anonreviews.csv.bz2" if _GIVEN.is_dir() else _GIVEN
ROLES = ("--space", "reviewerId", "--grouping", "vendorId", "--timestamp", "date", "--index", "rating")

pytestmark = [
    pytest.mark.skipif(not REVIEWS.exists(), reason=f"no {REVIEWS.name}; ESFORMAT_TEST_DATA may name it"),
    pytest.mark.slow,
    pytest.mark.xdist_group("reviews"),  # converted once for all tests
]

Review = tuple[str, str, int, str]  # reviewer, vendor, µs, rating


def micros(text: str) -> int:
    return int(datetime.strptime(text, "%Y-%m-%d %H:%M").replace(tzinfo=UTC).timestamp()) * 1_000_000


@pytest.fixture(scope="module")
def expected() -> list[Review]:
    """All reviews in the order of a segment: by reviewer, vendor and time, then in input order."""
    times: dict[str, int] = {}
    with io.TextIOWrapper(bz2.open(REVIEWS), newline="") as file:
        rows = csv.reader(file)
        assert next(rows) == ["reviewerId", "vendorId", "rating", "date"]
        found = []
        for reviewer, vendor, rating, date in rows:
            if date not in times:
                times[date] = micros(date)
            found.append((reviewer, vendor, times[date], rating))
    return sorted(found, key=lambda row: (row[0].encode(), row[1].encode(), row[2]))


@pytest.fixture(scope="module")
def segment(tmp_path_factory):
    """The segment that the command writes."""
    from esformat.cli import run

    path = tmp_path_factory.mktemp("reviews") / "reviews.esdb"
    assert run(["write", str(path), str(REVIEWS), *ROLES]) == 0
    with esformat.open(path) as opened:
        yield opened


def rows_of(table: pa.Table) -> list[Review]:
    columns = ("space", "grouping", "timestamp", "rating")
    times = table["timestamp"].cast(pa.int64())
    table = table.set_column(table.column_names.index("timestamp"), "timestamp", times)
    return list(zip(*(table[name].to_pylist() for name in columns), strict=True))


def by_time(rows: list[Review]) -> list[Review]:
    """Merge the groupings of a reviewer by time."""
    return sorted(rows, key=lambda row: row[2])


def test_all(segment, expected):
    """Every review is stored, in order; a reverse scan has the opposite order."""
    assert (segment.num_events, segment.indexes) == (578_805, ("rating",))
    assert segment.num_spaces == len({row[0] for row in expected})
    assert rows_of(segment.scan().to_table()) == expected
    assert rows_of(segment.scan(reverse=True).to_table()) == expected[::-1]


def test_reviewers(segment, expected):
    """The history of a reviewer is right: all of it, that of one vendor, and from a given time."""
    histories: dict[str, list[Review]] = {}
    for row in expected:
        histories.setdefault(row[0], []).append(row)
    largest = sorted(histories, key=lambda key: len(histories[key]))[-20:]
    for key in [*largest, *random.Random(1).sample(sorted(histories), 200)]:
        history = by_time(histories[key])
        assert rows_of(segment[key].scan().to_table()) == history
        assert rows_of(segment[key].scan(reverse=True).to_table()) == history[::-1]
        vendor, middle = history[0][1], history[len(history) // 2][2]
        of_vendor = [row for row in history if row[1] == vendor]
        assert rows_of(segment[key].scan(grouping=vendor).to_table()) == of_vendor
        assert rows_of(segment[key].scan(start=middle).to_table()) == [row for row in history if row[2] >= middle]
        assert rows_of(segment[key].scan(end=middle).to_table()) == [row for row in history if row[2] < middle]
        best = [row for row in history if row[3] == "5"]
        assert rows_of(segment[key].scan_index("rating", "5").to_table()) == best
        assert rows_of(segment[key].scan_index("rating", "5", reverse=True).to_table()) == best[::-1]


def test_vendors(segment, expected):
    """A scan of one vendor returns that vendor's reviews of all reviewers."""
    for vendor in random.Random(2).sample(sorted({row[1] for row in expected}), 5):
        assert rows_of(segment.scan(grouping=vendor).to_table()) == [row for row in expected if row[1] == vendor]


def test_ratings(segment, expected):
    """The reviews with each rating are right: counted and listed, in both directions."""
    counts: dict[str, int] = {}
    for row in expected:
        counts[row[3]] = counts.get(row[3], 0) + 1
    assert dict(segment.index_values("rating")) == counts
    for rating in counts:
        of_rating = [row for row in expected if row[3] == rating]
        assert rows_of(segment.scan_index("rating", rating).to_table()) == of_rating
        assert rows_of(segment.scan_index("rating", rating, reverse=True).to_table()) == of_rating[::-1]


RANGES = [
    ("2006-03-01 00:00", "2006-04-01 00:00"),
    ("2006-04-07 17:08", "2006-04-07 17:09"),
    ("1990-01-01 00:00", "2003-12-31 23:59"),
    ("2020-01-01 00:00", "2030-01-01 00:00"),
]


@pytest.mark.parametrize(("start", "end"), RANGES)
def test_times(esdb, segment, expected, start, end):
    """Time ranges are right: from the command, counted and with an index, in both directions."""
    first, last = micros(start), micros(end)
    inside = [row for row in expected if first <= row[2] < last]
    question = [segment.path, "--start", start, "--end", end]
    table = pa.ipc.open_stream(esdb("scan", *question, "--format", "arrow").out).read_all()
    assert rows_of(table) == inside
    table = pa.ipc.open_stream(esdb("scan", *question, "--format", "arrow", "--reverse").out).read_all()
    assert rows_of(table) == inside[::-1]
    assert esdb("scan", *question, "--count").text == f"{len(inside)}\n"
    of_rating = sum(row[3] == "4" for row in inside)
    assert esdb("scan", *question, "--index", "rating=4", "--count").text == f"{of_rating}\n"


def test_spaces(esdb, segment, expected):
    """`spaces` returns the reviewers with the most reviews."""
    counts: dict[str, int] = {}
    for row in expected:
        counts[row[0]] = counts.get(row[0], 0) + 1
    top = sorted(counts.items(), key=lambda item: -item[1])[:10]
    result = esdb("spaces", segment.path, "--sort", "count", "--limit", "10")
    assert [row["events"] for row in result.rows] == [count for _, count in top]
    assert len(esdb("spaces", segment.path).lines) == len(counts)
