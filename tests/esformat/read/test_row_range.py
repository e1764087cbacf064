"""Row ranges [first, last) of a segment: together they are the segment, whatever the bounds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from clicks import click_table, frame_of, write_clicks
from small_pieces import Pieces, cut_small

import esformat
from esformat.read.ask.bounds import NOTHING, Domain
from esformat.read.row_range import (
    EVENTS,
    candidate_rows,
    identity,
    most_events,
    runs_of_rows,
    scan_rows,
    schema_of,
)

CUTS = [0, 1, 700, 701, 2500, 2999, 3000]
TIMES = (1_403_534_919_900_000, 1_403_534_921_000_000)
BOUNDS = {
    "everything": {},
    "a space": {"space": Domain(frozenset([b"customer-1"]))},
    "two spaces": {"space": Domain(frozenset([b"customer-2", b"customer-9", b"nobody"]))},
    "spaces between": {"space": Domain(None, b"customer-2", b"customer-4")},
    "grouping": {"grouping": Domain(frozenset([b"web"]))},
    "time": {"timestamp": Domain(None, *TIMES)},
    "another time": {"timestamp": Domain(None, TIMES[1] * 2, None)},
    "an index": {"type": Domain(frozenset(["purchase"]))},
    "one of two values": {
        "type": Domain(frozenset(["purchase", "signup"])),
        "space": Domain(None, None, b"customer-3"),
    },
    "nothing": NOTHING,
}


@pytest.fixture(scope="module")
def segment(tmp_path_factory):
    """3,000 clicks in many leaves and blocks."""
    path = tmp_path_factory.mktemp("rows") / "clicks.esdb"
    with cut_small(Pieces(block_rows=32, leaf_blocks=4, leaf_runs=16)):
        write_clicks(path, click_table(3000))
        with esformat.open(path) as segment:
            yield segment


def matching(frame, bounds):
    """The rows of a frame within bounds, by a plain filter."""
    for name, domain in bounds.items():
        column = frame[name] if name in frame else frame["space"]
        values = column.str.encode("utf-8") if name in ("space", "grouping") else column
        frame = frame[np.array([domain.holds(value) for value in values], bool)] if name else frame[:0]
    return frame


@pytest.mark.parametrize("what", BOUNDS)
def test_parts_make_the_whole(segment, what):
    """Ranges cut anywhere have exactly their rows within the bounds."""
    bounds = BOUNDS[what]
    whole = frame_of(segment.scan())
    for first, last in pairwise(CUTS):
        found = matching(frame_of(scan_rows(segment, first, last, bounds=bounds)), bounds)
        expected = matching(whole[first:last], bounds)
        assert found.values.tolist() == expected.values.tolist()


@pytest.mark.parametrize("what", BOUNDS)
def test_candidates_hold_all_that_is_within_bounds(segment, what):
    """Every event within the bounds is among the candidate rows, which ascend."""
    bounds = BOUNDS[what]
    pieces = candidate_rows(segment, bounds)
    inside = {row for piece in pieces for row in range(piece.first, piece.last)}
    assert set(matching(frame_of(segment.scan()), bounds).index) <= inside
    assert all(a.last <= b.first for a, b in pairwise(pieces))


@pytest.mark.parametrize(
    ("what", "most"),
    [
        ("everything", 3000),
        ("a space", 1000),
        ("two spaces", 400),
        ("spaces between", 2000),
        ("another time", 0),
        ("nothing", 0),
    ],
)
def test_candidates_leave_out_the_rest(segment, what, most):
    """Rows that cannot be within the bounds are not candidates: exactly for listed spaces, by leaf otherwise."""
    rows = sum(piece.last - piece.first for piece in candidate_rows(segment, BOUNDS[what]))
    assert rows <= most
    if "space" in what:
        assert rows == len(matching(frame_of(segment.scan()), BOUNDS[what]))


def test_indexes_weigh(segment):
    """A rare index value lowers the estimated bytes of the rows; an unknown one leaves no candidates."""
    every = sum(piece.stored_bytes for piece in candidate_rows(segment))
    rare = sum(
        piece.stored_bytes
        for piece in candidate_rows(segment, BOUNDS["an index"] | {"country": Domain(frozenset(["C07"]))})
    )
    assert 0 < rare <= every
    assert candidate_rows(segment, {"type": Domain(frozenset(["no such type"]))}) == []


@pytest.mark.parametrize("what", BOUNDS)
def test_most_events(segment, what):
    """The estimate of events from indexes and directory is never too low, and exact for listed values."""
    bounds = BOUNDS[what]
    count = len(matching(frame_of(segment.scan()), bounds))
    most = most_events(segment, bounds, candidate_rows(segment, bounds))
    assert count <= most <= len(frame_of(segment.scan()))
    alone = {"type": Domain(frozenset(["purchase", "no such type"]))}
    expected = len(matching(frame_of(segment.scan()), alone))
    assert 0 < expected == most_events(segment, alone, candidate_rows(segment, alone))


def test_columns_and_schema(segment):
    """Only the requested columns are returned; the schema names the indexes."""
    assert scan_rows(segment, 5, 9, columns=["type", "timestamp"]).to_table().column_names == ["type", "timestamp"]
    assert schema_of(segment).indexes == ("type", "country")


@pytest.mark.parametrize(("first", "last"), [(-1, 4), (4, 3), (0, 3001)])
def test_rows_that_are_not_there(segment, first, last):
    with pytest.raises(esformat.UsageError, match="are out of range: the file has 3000"):
        scan_rows(segment, first, last)


def test_column_that_is_not_there(segment):
    with pytest.raises(esformat.UsageError, match="no column 'nix'"):
        scan_rows(segment, 0, 1, columns=["nix"])


def test_identity_tells_files_apart(tmp_path):
    """Identical files have the same identity; one different payload byte changes it."""
    found = []
    for number, data in enumerate([b"aaaa", b"aaaa", b"aaab"]):
        with esformat.create(tmp_path / f"{number}.esdb") as writer:
            writer.add_table(pa.table({"space": ["s"], "timestamp": [1], "data": [data]}))
        with esformat.open(tmp_path / f"{number}.esdb") as segment:
            found.append(identity(segment))
    assert found[0] == found[1] != found[2]


def test_the_space_filter_is_asked_first(segment, monkeypatch):
    """A space that the filter excludes is rejected without reading the directory, although its key is in range."""
    absent = next(key for key in (f"customer-1x{n}" for n in range(100)) if not segment.may_contain(key))
    monkeypatch.setattr(type(segment._reader), "leaf", lambda *_: pytest.fail("a leaf was read"))
    assert candidate_rows(segment, {"space": Domain(frozenset([absent.encode()]))}) == []


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20, 64 << 20])
def test_pages_read_again(segment, cache_bytes):
    """Rows are the same whichever were read before, with no memory for pages, some and enough."""
    whole = segment.scan().to_table()
    spans = [(first, min(first + rows, 3000)) for rows in (1, 40, 700) for first in range(0, 3000, 431)]
    with esformat.open(segment.path, cache_bytes=cache_bytes) as again:
        for first, last in spans * 2:
            for columns in (["timestamp"], ["type", "data", "space"]):
                found = scan_rows(again, first, last, columns=columns).to_table()
                assert found == whole.select(columns).slice(first, last - first)


def test_a_page_is_decoded_once(segment, monkeypatch):
    """A second read of the same page reads no block; one with other columns, times or bounds does."""
    with esformat.open(segment.path) as again:

        def page(**options):
            return scan_rows(again, 100, 900, **{"columns": ["data", "type"]} | options).to_table()

        first = page()
        with monkeypatch.context() as blocked:
            blocked.setattr(again._reader, "data_blocks", None)
            assert page() == first
            for options in ({"columns": ["timestamp"]}, {"start": TIMES[0]}, {"bounds": BOUNDS["a space"]}):
                with pytest.raises(TypeError):
                    page(**options)
        assert len(page(start=TIMES[0])) < len(first)


def test_kept_pages_are_bounded(segment):
    """Cached pages stay within their share, however many and small; ranges longer than a page are not cached."""
    with esformat.open(segment.path, cache_bytes=4 << 20) as again:
        pages = again._reader.pages._budget
        for columns, rows, step in ((["space", "data", "type"], 300, 150), (["timestamp"], 1, 20)):
            for first in range(0, 3000 - rows, step):
                scan_rows(again, first, first + rows, columns=columns).to_table()
        assert 1 << 17 < pages.held_bytes <= 1 << 18
        assert len(again._reader.pages.shelf.values) < (1 << 18) // 2000
        with cut_small(Pieces(page_rows=200)):
            held = pages.held_bytes
            scan_rows(again, 7, 2900).to_table()
            assert pages.held_bytes == held
    assert pages.held_bytes == 0


@pytest.mark.parametrize("what", BOUNDS)
def test_runs_make_the_whole(segment, what):
    """Runs of ranges cut anywhere are those of the rows; none that may have events within the bounds is missing."""
    bounds = BOUNDS[what]
    keys = {name: bounds[name] for name in ("space", "") if name in bounds}
    whole = frame_of(segment.scan())
    for first, last in [*pairwise(CUTS), (0, 3000)]:
        part = whole.iloc[first:last]
        runs = [row for batch in runs_of_rows(segment, first, last, bounds) for row in batch.to_pylist()]
        found = [(run["space"], run["grouping"]) for run in runs for _ in range(run[EVENTS])]
        wanted = matching(part, keys)
        assert found == list(zip(wanted["space"], wanted["grouping"], strict=True))
        assert all(run[EVENTS] > 0 for run in runs)
        for name in ("space", "grouping"):
            alone = [row for each in runs_of_rows(segment, first, last, bounds, [name]) for row in each.to_pylist()]
            assert alone == [{name: run[name], EVENTS: run[EVENTS]} for run in runs]
