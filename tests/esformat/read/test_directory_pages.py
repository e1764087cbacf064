"""Files with so many leaves that the directory has pages: all methods, and the effect of a damaged page."""

from __future__ import annotations

import random
from dataclasses import replace

import make_damaged
import pytest
from small_pieces import Pieces, cut_small

import esformat
from esformat.format.layout import BlockKind
from esformat.read.anatomy import anatomy
from esformat.read.ask.bounds import Domain
from esformat.read.blocks.directory_pages import DirectoryPages
from esformat.read.row_range import EVENTS as ROWS_OF_RUN
from esformat.read.row_range import candidate_rows, runs_of_rows, scan_rows
from esformat.read.segment import Segment
from esformat.tools import erase, merge, repair, split
from esformat.tools.verification.check import verify
from esformat.write import builder

PIECES = Pieces(block_rows=2, leaf_runs=1, leaf_blocks=1)
"""Each block of two rows has its own leaf."""
EVENTS = 1_300
LONG = "s0400"
"""A space of 600 events: its leaves begin in one page, fill the next and end in a third."""


def rows_of() -> list[tuple[str, int, str]]:
    """Spaces, times and types in file order."""
    names = [f"s{n % 350:04}" for n in range(EVENTS - 600)]
    times = random.Random(3).sample(range(10_000), EVENTS)
    rows = zip([*names, *[LONG] * 300, *[LONG] * 300], times, strict=True)
    return sorted((space, time, "rare" if time % 97 == 0 else "usual") for space, time in rows)


ROWS = rows_of()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """The file; it is read with the same small block sizes."""
    path = tmp_path_factory.mktemp("pages") / "pages.esdb"
    shuffled = random.Random(5).sample(ROWS, len(ROWS))
    with cut_small(PIECES):
        with esformat.create(path, indexes=["type"]) as writer:
            for space, time, kind in shuffled:
                writer.add(space, b"%d" % time, timestamp=time, indexes={"type": kind})
        yield path


@pytest.fixture
def segment(path):
    """The file, freshly opened: none of its pages has been read."""
    with esformat.open(path) as segment:
        assert (len(segment._reader.root), segment._reader.root.page_count) == (650, 3)
        yield segment


def found(events):
    """Events as plain values."""
    return [(e.space, e.timestamp, e.indexes["type"]) for e in events]


def of(space):
    """The rows of a space."""
    return [row for row in ROWS if row[0] == space]


@pytest.mark.parametrize("space", ["s0000", "s0127", "s0128", "s0200", "s0349", LONG])
def test_a_space(segment, space):
    """A space is read forward, backward, by time and by an index, even as the first query."""
    scans = segment.find(space)
    assert found(scans.scan()) == of(space)
    assert found(scans.scan(reverse=True, limit=3)) == of(space)[::-1][:3]
    assert found(scans.scan(start=2_000, end=7_000)) == [row for row in of(space) if 2_000 <= row[1] < 7_000]
    assert found(scans.scan_index("type", "rare")) == [row for row in of(space) if row[2] == "rare"]


@pytest.mark.parametrize("space", ["", "a", "s0127x", "s9999", "zz"])
def test_spaces_that_are_not_there(segment, space):
    """An unknown space is not found, whatever page it would be in."""
    assert segment.find(space) is None
    assert not segment.may_contain(space)


def test_the_whole_file(segment):
    """Methods that visit all leaves are right."""
    assert found(segment.scan()) == ROWS
    assert found(segment.scan(reverse=True, limit=5)) == ROWS[::-1][:5]
    assert found(segment.scan(start=500, end=900)) == [row for row in ROWS if 500 <= row[1] < 900]
    assert found(segment.scan_index("type", "rare")) == [row for row in ROWS if row[2] == "rare"]
    assert segment.spaces(prefix="s03") == {s: len(of(s)) for s, _, _ in ROWS if s.startswith("s03")}
    facts = segment.info()["blocks"]
    assert (facts["directory_page"]["count"], facts["directory"]["count"], facts["data"]["count"]) == (3, 650, 650)
    parts = [part for part in anatomy(segment.path).parts if part.kind == "directory"]
    assert [(part.name, part.blocks) for part in parts] == [("leaves", 650), ("pages", 3), ("root", 1)]


def test_rows_between(segment):
    """Row ranges, spaces within bounds and candidate rows, as engines use them, are right."""
    expected = [row[:2] for row in ROWS[333:1111]]
    batches = scan_rows(segment, 333, 1111, columns=["space", "timestamp"]).batches()
    assert [(r["space"], round(r["timestamp"].timestamp() * 1e6)) for b in batches for r in b.to_pylist()] == expected
    bounds = {"space": Domain(None, b"s0100", b"s0300")}
    held = [row for row in ROWS if "s0100" <= row[0] < "s0300"]
    assert sum(piece.last - piece.first for piece in candidate_rows(segment, bounds)) == len(held)
    assert sum(sum(batch[ROWS_OF_RUN].to_pylist()) for batch in runs_of_rows(segment, 0, EVENTS, bounds)) == len(held)


def test_in_a_store(path, s3, bucket):
    """The first space of a page takes one extra request; all pages take one if all are needed."""
    s3.client.upload_file(str(path), bucket, "pages.esdb")
    with esformat.open(f"s3://{bucket}/pages.esdb") as segment:
        for space, requests_made in (("s0002", 2), ("s0010", 1), ("s0349", 2)):  # with the page, without
            with s3.recorded() as requests:
                assert found(segment.find(space).scan()) == of(space)
            assert len(requests) == requests_made
    with esformat.open(f"s3://{bucket}/pages.esdb") as segment:
        with s3.recorded() as requests:
            assert len(segment._reader.root.rows) == 651
        assert len(requests) == 1
        assert found(segment.scan()) == ROWS


def test_by_the_tools(path, tmp_path):
    """`split`, `merge` and `erase` are right; `erase` verifies its result."""
    parts = split(path, tmp_path / "parts", spaces=["s0010", "s0200", LONG])
    merge(parts, tmp_path / "merged.esdb")
    assert (tmp_path / "merged.esdb").read_bytes() == path.read_bytes()
    assert erase(path, tmp_path / "less.esdb", ["s0128", LONG]).ok
    with esformat.open(tmp_path / "less.esdb") as less:
        assert found(less.scan()) == [row for row in ROWS if row[0] not in ("s0128", LONG)]


def test_a_damaged_page(path, tmp_path):
    """A damaged page hides only its leaves; `verify` reports it, and `repair` restores all events."""
    assert verify(path).ok
    stored = bytearray(path.read_bytes())
    page = make_damaged.blocks_of(bytes(stored), BlockKind.DIRECTORY_PAGE)[1]
    stored[page.offset + 30] ^= 1
    damaged = tmp_path / "damaged.esdb"
    damaged.write_bytes(stored)
    with esformat.open(damaged) as segment:
        assert found(segment.find("s0000").scan()) == of("s0000")
        for ask in (lambda: segment.find(LONG), lambda: list(segment.scan())):
            with pytest.raises(esformat.ChecksumMismatchError, match=r"damaged\.esdb.*at byte"):
                ask()
    report = verify(damaged)
    assert [problem.offset for problem in report.problems] == [page.offset]
    assert "the leaves that it names" in str(report.problems[0])
    assert repair(damaged, tmp_path / "saved.esdb").saved_events == EVENTS
    with esformat.open(tmp_path / "saved.esdb") as segment:
        assert found(segment.scan()) == ROWS


def written_with(patch, path, name, change, rows=ROWS):
    """A file of 1,300 events whose root or pages are changed by `change` when written."""
    real = getattr(builder, name)
    patch.setattr(builder, name, lambda entries, *rest: real(change(list(entries)), *rest))
    with cut_small(PIECES), esformat.create(path, indexes=["type"]) as writer:
        for space, time, kind in rows:
            writer.add(space, b"%d" % time, timestamp=time, indexes={"type": kind})


@pytest.mark.parametrize("place", [(1 << 63) - 1, 1 << 50])
def test_a_page_beyond_the_end(tmp_path, monkeypatch, place):
    """A root with valid checksums that names a page beyond the end is an error, and no bytes are read there."""
    path = tmp_path / "beyond.esdb"

    def change(pages):
        return [pages[0], replace(pages[1], handle=pages[1].handle._replace(offset=place)), pages[2]]

    written_with(monkeypatch, path, "encode_root", change)
    with esformat.open(path) as segment:
        assert found(segment.find("s0000").scan()) == of("s0000")
        for ask in (lambda: segment.find(LONG), lambda: list(segment.scan())):
            with pytest.raises(esformat.CorruptSegmentError, match=r"beyond\.esdb: a page reaches beyond the end"):
                ask()


def test_leaves_that_lie_in_another_order(tmp_path, monkeypatch):
    """Leaves may be in another order in the file than in the directory: their blocks are then read separately."""
    path = tmp_path / "swapped.esdb"
    rows = sorted((LONG, time, kind) for _, time, kind in ROWS)
    written_with(monkeypatch, path, "encode_root", lambda pages: [pages[1], pages[0], pages[2]], rows)
    first, second, third = rows[:512], rows[512:1024], rows[1024:]
    with esformat.open(path) as segment:
        assert found(segment.scan()) == [*second, *first, *third]
        assert found(segment.scan(reverse=True)) == [*second, *first, *third][::-1]


def test_spaces_that_descend(tmp_path, monkeypatch):
    """Spaces that descend, in the root or in a page, are refused: a lookup would miss some."""
    path = tmp_path / "descends.esdb"
    with monkeypatch.context() as patch:
        written_with(patch, path, "encode_root", lambda pages: [pages[1], pages[0], pages[2]])
    with pytest.raises(esformat.CorruptSegmentError, match="contradicts itself"):
        esformat.open(path)
    path.unlink()
    with monkeypatch.context() as patch:
        written_with(patch, path, "encode_page", lambda leaves: [leaves[0], *leaves[:0:-1]])
    with esformat.open(path) as segment, pytest.raises(esformat.CorruptSegmentError, match="contradicts itself"):
        segment.find("s0000")


@pytest.mark.parametrize("ask", [
    lambda segment: list(segment.scan()), lambda segment: list(segment.scan(reverse=True, limit=3)),
    lambda segment: list(segment.scan(start=500, end=900)), lambda segment: list(segment.spaces()), Segment.info,
])  # fmt: skip
def test_all_pages_are_read_together(segment, monkeypatch, ask):
    """All pages of a file in a store are read together if all leaves are needed; on disk each is read when needed."""
    read, counts = segment._reader._pages.read, []
    monkeypatch.setattr(DirectoryPages, "read", lambda self, places: counts.append(len(places)) or read(places))
    for far, expected in ((True, [3]), (False, [1, 1, 1])):
        counts.clear()
        with esformat.open(segment.path) as opened:
            opened._reader.announce = (lambda *_: None) if far else None
            ask(opened)
        assert counts == expected
