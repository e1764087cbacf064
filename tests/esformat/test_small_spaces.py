"""Files of many small spaces and unique values: queries find what they need in the cache, and read nothing else."""

from __future__ import annotations

import random
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from effort import share_of

import esformat
from esformat.format.data_block import DataBlock
from esformat.format.postings import Page
from esformat.read.blocks.reader import Reader
from esformat.read.decode.block_group import BlockGroup

SPACES = 30_000


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A space, a grouping and an id for each event."""
    path = tmp_path_factory.mktemp("small") / "small.esdb"
    numbers = np.random.default_rng(1).permutation(SPACES)
    spaces = pa.array([f"reviewer-{number:08x}" for number in numbers.tolist()])
    groupings = pa.array([f"vendor-{number % 700}" for number in numbers.tolist()])
    with esformat.create(path, indexes=["id"]) as writer:
        table = {"space": spaces, "grouping": groupings, "timestamp": np.arange(SPACES), "id": numbers}
        writer.add_table(pa.table(table))
    return path


def reads_of(segment, monkeypatch) -> list[object]:
    """The blocks that are read from the file from now on."""
    read: list[object] = []
    reader, original = segment._reader, type(segment._reader).read

    def spy(self, handle, *arguments):
        read.append(handle)
        return original(self, handle, *arguments)

    monkeypatch.setattr(type(reader), "read", spy)
    return read


def test_the_directory_stays_in_the_cache(path, monkeypatch):
    """A cache of 16 MiB keeps the whole directory: a lookup reads nothing."""
    wanted = [f"reviewer-{number:08x}" for number in random.Random(2).sample(range(SPACES), 400)]
    with esformat.open(path, cache_bytes=16 << 20) as segment:
        found = [segment[space] for space in wanted]
        assert all(space.num_events == 1 for space in found)
        list(segment.spaces())
        read = reads_of(segment, monkeypatch)
        for space in wanted:
            assert segment[space].key == space
        assert segment.find("reviewer-x") is None
        assert not read


@pytest.mark.parametrize("reverse", [False, True])
def test_a_unique_value_reads_one_page_and_one_block(path, monkeypatch, reverse):
    """A unique value reads one index page and one leaf of the directory, not all its leaves."""
    with esformat.open(path, cache_bytes=0) as segment:
        assert len(segment._reader.root) > 10
        (expected,) = segment.scan_index("id", 17)
        read = reads_of(segment, monkeypatch)
        (event,) = segment.scan_index("id", 17, reverse=reverse)
        assert event == expected
        assert len(read) <= 4  # index root, page, leaf, and perhaps a dictionary; data blocks are counted elsewhere


@pytest.mark.parametrize("wanted", ["events", "table", "columns"])
def test_a_unique_value_decodes_one_page_one_leaf_and_one_row(path, wanted, monkeypatch):
    """A unique value decodes one index page, one leaf and one row, not its whole block."""
    with esformat.open(path, cache_bytes=64 << 20) as segment:
        list(segment.scan_index("id", 5))  # reads the root of the index and the dictionaries
        made = {kind: counted(monkeypatch, kind, "__init__") for kind in (Page, DataBlock, BlockGroup)}
        made["leaves"] = counted(monkeypatch, Reader, "_read_leaf")
        for number in (1717, 2, 29_000):
            scan = segment.scan_index("id", number)
            if wanted == "events":
                assert [event.indexes["id"] for event in scan] == [number]
            elif wanted == "table":
                assert scan.to_table()["id"].to_pylist() == [number]
            else:
                scan = segment.scan_index("id", number, columns=["space", "timestamp"])
                assert scan.to_table().column_names == ["space", "timestamp"]
                assert scan.count() == 1
            assert {kind: len(calls) <= 1 for kind, calls in made.items()} == dict.fromkeys(made, True)
            assert not made[BlockGroup]
            for calls in made.values():
                calls.clear()


def counted(monkeypatch, kind, method):
    """A list that grows with each call of this method of a class."""
    calls, original = [], getattr(kind, method)

    def called(self, *arguments, **named):
        calls.append(kind)
        return original(self, *arguments, **named)

    monkeypatch.setattr(kind, method, called)
    return calls


FEW_QUESTIONS = [{}, {"reverse": True}, {"limit": 2}, {"reverse": True, "limit": 1}, {"start": 20_000}, {"end": 9}]


@pytest.fixture(scope="module")
def scattered(tmp_path_factory):
    """Values of one to twelve events each, in runs of many blocks and blocks of many runs, with all column types."""
    path = tmp_path_factory.mktemp("scattered") / "scattered.esdb"
    chance = random.Random(8)
    rows = [
        {"space": "long" if n % 2 else f"s{n % 500:03}", "grouping": f"g{n % 3}", "timestamp": n, "data": b"%d" % n,
         "few": chance.randrange(3000), "word": f"w{chance.randrange(4000)}", "text": f"text {n}" * (n % 3),
         "parts": [n] * (n % 4)}
        for n in range(24_000)
    ]  # fmt: skip
    with esformat.create(path, indexes=["few", "word"]) as writer:
        writer.add_table(pa.Table.from_pylist(rows))
    return path


@pytest.mark.parametrize("question", share_of(FEW_QUESTIONS, 2), ids=str)
def test_few_rows_one_by_one_or_as_a_group(scattered, question, monkeypatch):
    """Few rows are the same whether read singly or as a group, in every form and direction, with any conditions."""
    chance = random.Random(9)
    with esformat.open(scattered) as segment:
        asked = [("few", chance.randrange(3000)) for _ in range(12)] + [("word", f"w{chance.randrange(4000)}")] * 3
        asked += [({"few": few, "word": None}, None) for few in range(3)]
        for name, value in asked:
            if isinstance(name, dict):
                (first, *_) = segment.scan_index("few", name["few"])
                name = name | {"word": first.indexes["word"]}
            scans = [partial(segment.scan_index, name, value, **question, columns=c) for c in (None, ["data", "parts"])]
            monkeypatch.setattr("esformat.read.scan.MOST_FEW", 0)
            grouped = [(list(scan()), scan().to_table()) for scan in scans]
            monkeypatch.setattr("esformat.read.scan.MOST_FEW", 50)
            for scan, (events, table) in zip(scans, grouped, strict=True):
                assert list(scan()) == events
                assert [event.columns for event in scan()] == [event.columns for event in events]
                assert scan().to_table() == table
                assert scan().count() == len(events)


def test_a_common_value_of_many_blocks(path):
    """Leaves without a matching row are skipped, others are not."""
    with esformat.open(path) as segment:
        for value in (0, 1, SPACES - 1, SPACES // 2):
            assert segment.scan_index("id", value).to_table()["id"].to_pylist() == [value]
        assert segment.scan_index("id", SPACES).count() == 0


def test_look_ups(path):
    """Spaces are found, and absent ones before, between or after them are not, also when repeated."""
    with esformat.open(path, cache_bytes=64 << 20) as segment:
        for _ in range(2):
            for number in range(0, SPACES, 501):
                key = f"reviewer-{number:08x}"
                space = segment.find(key)
                assert [event.space for event in space.scan()] == [key]
                assert list(space.groupings()) == [f"vendor-{number % 700}"]
                assert segment.find(f"{key}0") is None
            assert segment.find("a") is None
            assert segment.find("z") is None


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """Spaces of one to twenty groupings, often with equal times."""
    path = tmp_path_factory.mktemp("several") / "several.esdb"
    chance = random.Random(5)
    with esformat.create(path, indexes=["kind"]) as writer:
        for space in range(400):
            for number in range(chance.randrange(1, 25)):
                writer.add(
                    f"s{space:03}", bytes([number]), timestamp=chance.randrange(6),
                    grouping=f"g{chance.randrange(1 + space % 20)}", indexes={"kind": f"k{number % 3}"},
                )  # fmt: skip
    return path


QUESTIONS = [{}, {"reverse": True}, {"limit": 3}, {"reverse": True, "limit": 2}, {"start": 2, "end": 5}, {"limit": 0}]


@pytest.mark.parametrize("question", share_of(QUESTIONS, 2), ids=str)
def test_few_groupings_are_merged_by_time(several, question):
    """Groupings read together and sorted have the same result as a merge of their columns: events, columns, counts."""
    with esformat.open(several) as segment:
        for key in list(segment.spaces())[::9]:
            space = segment[key]
            for ask in (space.scan, partial(space.scan_index, "kind", "k1")):
                small, merged = ask(**question), ask(**question)
                merged._small = None
                expected = list(merged)
                assert list(small) == expected
                assert small.count() == len(expected)
                assert small.to_table().equals(merged.to_table())
                assert (
                    ask(**question, columns=["grouping", "data"])
                    .to_table()
                    .equals(merged.to_table().select(["grouping", "data"]))
                )


def test_small_spaces_of_several_groupings_are_cheap(several, monkeypatch):
    """Events of small spaces need no merge of Arrow tables, which would cost many times as much."""
    with esformat.open(several) as segment:
        assert segment["s007"].num_groupings > 2
        expected, table = list(segment["s007"].scan()), segment["s007"].scan().to_table()
        monkeypatch.setattr(esformat.Scan, "_read_sorted", None)
        assert list(segment["s007"].scan()) == expected
        assert segment["s007"].scan().to_table() == table


def test_a_question_that_counts_matches(several):
    """A limit on matching rows counts matches, not the rows that are checked."""
    with esformat.open(several) as segment:
        key = max(segment.spaces(), key=lambda key: len(segment[key]))
        rows = segment[key].scan().to_table().to_pylist()
        wanted = [row for row in rows if row["kind"] == "k2"][:2]
        scan = segment[key].scan(limit=2)
        found = scan.matching(["kind"], lambda batch: pc.equal(batch["kind"], "k2"))
        assert pa.Table.from_batches(list(found)).to_pylist() == wanted


def test_text_as_the_payload(tmp_path):
    """Text payloads are returned as text, in short and long runs."""
    path = tmp_path / "text.esdb"
    rows = [("a" if n < 40 else "b", n, None if n % 7 == 0 else f"nöte {n % 3}") for n in range(9000)]
    with esformat.create(path) as writer:
        writer.add_table(
            pa.Table.from_pylist([{"space": space, "timestamp": time, "data": data} for space, time, data in rows])
        )
    with esformat.open(path) as segment:
        for key in ("a", "b"):
            expected = [(time, data, {}) for space, time, data in rows if space == key]
            assert [(e.timestamp, e.data, e.columns) for e in segment[key].scan()] == expected
            newest = segment[key].scan(reverse=True, limit=3)
            assert [(e.timestamp, e.data, e.columns) for e in newest] == expected[:-4:-1]
