"""Notebooks show small tables in which all external text is escaped."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

import aggregator
import esformat

BAD = "<script>alert('x')</script>&\""


class _Table(HTMLParser):
    """The cells of a table, and all its tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.cells += [""] if tag in ("td", "th", "caption") else []

    def handle_data(self, data):
        self.cells[-1] += data


def shown(one) -> _Table:
    table = _Table(one._repr_html_())
    assert set(table.tags) <= {"table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert len(one._repr_html_()) < 20_000
    return table


@pytest.fixture
def path(tmp_path):
    with esformat.create(tmp_path / "a&b.esdb", indexes=["type"]) as writer:
        for n in range(30):
            writer.add(BAD, b"x" * 1000, timestamp=n, indexes={"type": BAD})
    return tmp_path / "a&b.esdb"


def test_files(path):
    """A file, several files and scans show their contents; a scan shows its first events."""
    with esformat.open(path) as segment, esformat.open_many(path) as files:
        assert shown(segment).cells[0] == str(path)[:79] + "…" if len(str(path)) > 80 else str(path)
        assert "30" in shown(segment).cells
        assert "30" in shown(files).cells
        for scan in (segment.scan(), segment[BAD].scan(limit=3), files.scan(), segment.scan_index("type", BAD)):
            cells = shown(scan).cells
            assert BAD in cells
            assert max(map(len, cells)) <= 80
        assert shown(segment.scan()).tags.count("tr") == 1 + 10 + 1  # the names, the events, one row for those left out
        assert shown(segment.scan(limit=10)).tags.count("tr") == 1 + 10
        assert shown(segment.scan(limit=0)).tags.count("tr") == 1


def test_times_beyond_the_calendar(tmp_path):
    """Timestamps beyond Python's calendar are shown as numbers: the format allows any 64 bits."""
    with esformat.create(tmp_path / "far.esdb") as writer:
        for at in (-(2**62), 0, 2**62):
            writer.add("a", b"", timestamp=at)
    with esformat.open(tmp_path / "far.esdb") as segment:
        assert f"{2**62} µs" in shown(segment).cells
        assert any(cell.startswith("1970-01-01") for cell in shown(segment.scan()).cells)


def test_catalogs(tmp_path):
    """Catalogs, topics, receipts and the results of scans and statements are shown."""
    with aggregator.open(tmp_path / "data", durability="none") as catalog:
        receipt = catalog.create_topic(BAD, indexes=["type"]).append(
            [{"space": BAD, "timestamp": n, "type": BAD} for n in range(30)]
        )
        catalog.write({"app": BAD}, [{"msg": BAD}])
        for one in (catalog, catalog.topic(BAD), receipt, catalog.topic(BAD).scan(), catalog.query("SELECT")):
            assert any("script" in cell for cell in shown(one).cells), one
        assert "30" in shown(catalog.topic(BAD)).cells
        assert "30 events" in shown(catalog).cells
