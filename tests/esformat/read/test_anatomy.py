"""The anatomy of a file: its parts are all of its bytes, with the right facts."""

from __future__ import annotations

from collections import Counter

import pytest
from clicks import click_table, write_clicks

import esformat
from esformat.parts import anatomy

COUNT = 60_000


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    found = tmp_path_factory.mktemp("anatomy") / "clicks.esdb"
    write_clicks(found, click_table(COUNT))
    return found


def test_parts_are_the_whole_file(path):
    """The parts add up to the file's size, and per kind to the bytes that `info` reports."""
    found = anatomy(path)
    sums: Counter[str] = Counter()
    for part in found.parts:
        sums[part.kind] += part.bytes
    with esformat.open(path) as segment:
        blocks = {name: each["bytes"] for name, each in segment.info()["blocks"].items()}
    assert found.size_bytes == sum(sums.values()) == path.stat().st_size
    assert sums["data"] == blocks["data"]
    assert sums["directory"] == blocks["directory"] + blocks["directory_root"]
    assert sums["index"] == blocks["index"] + blocks["index_root"]
    assert sums["dictionary"] + sums["templates"] == blocks["dictionary"]
    assert (sums["filter"], sums["metadata"]) == (blocks["filter"], blocks["metadata"])
    assert sums["templates"] > 0


def test_what_the_parts_hold(path):
    """The parts have the events of all data blocks, in file order, and the values of the indexes."""
    found = anatomy(path)
    data = [part.facts for part in found.parts if part.kind == "data"]
    spaces = [facts["first_space"] for facts in data]
    with esformat.open(path) as segment:
        assert sum(facts["events"] for facts in data) == segment.num_events == COUNT
        assert spaces == sorted(spaces)
        assert len(spaces) > 1
        assert min(facts["min_timestamp"] for facts in data) == segment.min_timestamp
        assert max(facts["max_timestamp"] for facts in data) == segment.max_timestamp
        values = {part.name: part.facts["values"] for part in found.parts if part.kind == "index"}
        assert values == {name: len(segment.index_values(name)) for name in segment.indexes}


def test_columns_share_the_data(path):
    """The bytes of data blocks are divided among the columns; payloads are the largest."""
    found = anatomy(path)
    data = sum(part.bytes for part in found.parts if part.kind == "data")
    assert [each.name for each in found.columns] == ["space, grouping", "timestamp", "data", "type", "country"]
    assert 0 <= data - sum(each.bytes for each in found.columns) < len(found.columns)
    assert max(found.columns, key=lambda each: each.bytes).name == "data"


def test_a_file_without_events(tmp_path):
    """A file without events has parts, too."""
    with esformat.create(tmp_path / "none.esdb"):
        pass
    found = anatomy(tmp_path / "none.esdb")
    assert sum(part.bytes for part in found.parts) == found.size_bytes
    assert not any(each.bytes for each in found.columns)
