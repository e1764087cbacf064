"""A query of one space reads only that space, and agrees with the whole file."""

from __future__ import annotations

import sys

import pytest
from effort import examples
from go_files import as_bytes, go_archive, path_of
from hypothesis import given
from hypothesis import strategies as st

from esformat import CorruptSegmentError, customerio
from esformat.customerio.crc import masked_crc
from esformat.errors import UnsupportedVersionError

NAMES = st.sampled_from(["type", "tag", "tag:red", "tag:blue", "data", "data_", "", "_", "timestamp"])
VALUES = st.sampled_from(["1", "", "x:y", "http://a:80/", "é", "\udcff"])
KEYS = st.sampled_from([b"a", b"b", "é".encode(), b"\xff"])
EVENTS = st.lists(
    st.tuples(st.binary(min_size=1, max_size=3), st.integers(0, 3), KEYS, st.dictionaries(NAMES, VALUES, max_size=3)),
    min_size=1,
    max_size=4,
)


def plain(events):
    """Complete events, including types, without their order."""
    return sorted(
        repr((e.space, e.grouping, e.timestamp, e.data, sorted(e.indexes.items()), e.columns)) for e in events
    )


def rows(table):
    """Rows of a table, without their order."""
    return sorted(map(repr, table.to_pylist()))


@examples(25)
@given(st.dictionaries(KEYS, EVENTS, min_size=1, max_size=3))
def test_one_space_as_the_whole_file_has_it(tmp_path_factory, spaces):
    """Events, tables, counts and index scans of each space agree with the whole file, read first or later."""
    path = tmp_path_factory.mktemp("lazy") / "a.esdb"
    path.write_bytes(go_archive(spaces))
    with customerio.open(path) as file:
        everything, whole = list(file.scan()), file.scan().to_table()
        names = {name: list(file.index_values(name)) for name in file.indexes}
        listed = dict(file.spaces().items())
    assert {as_bytes(key): count for key, count in listed.items()} == {k: len(v) for k, v in spaces.items()}
    for key, count in listed.items():
        mine = [event for event in everything if event.space == key]
        of_table = whole.filter([as_bytes(value) == as_bytes(key) for value in whole["space"].to_pylist()])
        with customerio.open(path) as fresh:  # a file that was not read before
            space = fresh[key]
            assert plain(space.scan()) == plain(mine)
            assert (space.key, space.num_events, space.scan().count()) == (key, count, count)
            groupings = {event.grouping for event in mine}
            assert set(space.groupings()) == groupings
            for grouping in groupings:
                wanted = [event for event in mine if event.grouping == grouping]
                assert plain(space.scan(grouping=grouping)) == plain(wanted)
        with customerio.open(path) as fresh:
            assert rows(fresh[key].scan(columns=["data", "timestamp"]).to_table()) == rows(
                of_table.select(["data", "timestamp"])
            )
        for name, values in names.items():
            for value in values:
                with customerio.open(path) as fresh:
                    wanted = [event for event in mine if event.indexes.get(name) == value]
                    assert plain(fresh[key].scan_index(name, value)) == plain(wanted)
                    assert fresh[key].scan_index(name, value).count() == len(wanted)
        with customerio.open(path) as fresh:
            assert rows(fresh[key].scan().to_table()) == rows(of_table)
            assert fresh[key].scan().schema == whole.schema


def test_a_history_reads_no_other_space(tmp_path):
    """A space is read even if the directories of all others are damaged; a query that needs them reports the damage."""
    stored = bytearray(path_of("many_spaces").read_bytes())
    with customerio.open(path_of("many_spaces")) as file:
        wanted = max(file._file.spaces(), key=lambda place: place.length)
        others = [place for place in file._file.spaces() if place != wanted]
        events = [plain(file[wanted.key].scan()), plain(file[wanted.key].scan_index("type", "page"))]
        assert all(events)
    for place in others:
        stored[place.offset + place.length - 20] ^= 0xFF  # in the magic bytes of the directory
    path = tmp_path / "damaged.esdb"
    path.write_bytes(stored)
    with customerio.open(path) as file:
        space = file[wanted.key]
        assert [plain(space.scan()), plain(space.scan_index("type", "page"))] == events
        assert (
            space.scan(columns=["data"]).to_table().num_rows
            == len(space)
            == space.scan(grouping="").count() + sum(count for name, count in space.groupings().items() if name)
        )
        for whole in (space.scan().to_table, lambda: file.schema, lambda: space.scan(columns=["nothing"])):
            with pytest.raises(CorruptSegmentError):
                whole()


def test_a_missing_column_is_told_from_the_whole_file(tmp_path):
    """A column that only another space has is not an unknown column."""
    path = tmp_path / "a.esdb"
    path.write_bytes(go_archive({b"a": [(b"1", 1, "", {"x": "1"})], b"b": [(b"2", 2, "", {"y": "2"})]}))
    with customerio.open(path) as file:
        assert list(file["a"].scan_index("y", "2")) == []
        assert file["a"].scan(columns=["y"]).to_table().to_pylist() == [{"y": None}]
        assert [event.indexes for event in file["a"].scan(columns=["y"])] == [{}]


def test_without_the_library_of_checksums(monkeypatch):
    """Without google-crc32c, the first checksum raises an error that names the extra to install."""
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    with pytest.raises(UnsupportedVersionError, match="need google-crc32c") as caught:
        masked_crc(b"")
    assert "esformat[customerio]" in str(caught.value.hint)
