"""Index scans over many blocks reuse what earlier ones decoded, without evicting what others cached."""

from __future__ import annotations

import pyarrow as pa
import pytest
from effort import ALL, share_of
from small_pieces import Pieces, cut_small

import esformat
from esformat.format.codec import Decompressor
from esformat.format.schema import Field

EVENTS = 4000
TABLE = pa.table(
    {
        "space": [f"space-{n // 50:03}" for n in range(EVENTS)],
        "timestamp": pa.array([7 * n - 3000 for n in range(EVENTS)], pa.timestamp("us", "UTC")),
        "data": [None if n % 11 == 0 else b"payload %d" % n * (n % 5) for n in range(EVENTS)],
        "note": ["" if n % 3 == 0 else f"n\u00f6te {n}" for n in range(EVENTS)],
        "number": pa.array([None if n % 13 == 0 else n for n in range(EVENTS)], pa.int64()),
        "kind": [None if n % 7 == 0 else f"kind-{n % 4}" for n in range(EVENTS)],
        "code": [f"code {n // 3}" for n in range(EVENTS)],
    }
)
QUESTIONS = [{"kind": "kind-1"}, {"code": "code 700"}, {"kind": "kind-2", "code": "code 700"}]


def written(path, table):
    """A file of many small blocks, with an index whose values are in every block and one with rare values."""
    pieces = Pieces(block_rows=256, leaf_blocks=5, frame_bytes=200)
    with cut_small(pieces), esformat.create(path, indexes=["kind", "code"], templates=False) as writer:
        writer.add_table(table)
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """The file with all columns."""
    return written(tmp_path_factory.mktemp("kept") / "events.esdb", TABLE)


@pytest.fixture(scope="module")
def direct(tmp_path_factory):
    """The file without the columns that prevent direct decoding into events."""
    return written(tmp_path_factory.mktemp("kept") / "direct.esdb", TABLE.drop_columns(["note"]))


def expected(conditions):
    """The rows that satisfy all conditions, in file order."""
    rows = [row for row in TABLE.to_pylist() if all(row[name] == value for name, value in conditions.items())]
    assert rows
    return rows


def of(table):
    """The rows of a result, with the columns that were written."""
    return table.select(TABLE.column_names).to_pylist()


def decompressions(monkeypatch):
    """Record the calls that decompress from now on."""
    made = []

    def counted(plain):
        def call(self, *args):
            made.append(args)
            return plain(self, *args)

        return call

    for name in ("decompress", "decompress_run"):
        monkeypatch.setattr(Decompressor, name, counted(getattr(Decompressor, name)))
    return made


@pytest.mark.parametrize("conditions", QUESTIONS, ids=str)
@pytest.mark.parametrize("cache_bytes", share_of([0, 300_000, 64 << 20], 2))
@pytest.mark.parametrize("scattered_rows", [1, 8])
def test_every_answer_is_the_same(path, conditions, cache_bytes, scattered_rows):
    """Results are the same with little, some and enough cache, when repeated, in reverse and with time bounds."""
    rows = expected(conditions)
    middle = rows[len(rows) // 2]["timestamp"]
    pieces = Pieces(scattered_rows=scattered_rows, batch_blocks=4)
    late = [row for row in rows if row["timestamp"] >= middle]
    with cut_small(pieces), esformat.open(path, cache_bytes=cache_bytes) as segment:
        for _ in range(3 if ALL else 2):
            assert of(segment.scan_index(conditions).to_table()) == rows
            assert of(segment.scan_index(conditions, reverse=True).to_table()) == rows[::-1]
            assert of(segment.scan_index(conditions, start=middle).to_table()) == late
            assert segment.scan_index(conditions, start=middle).count() == len(late)
            assert [event.data for event in segment.scan_index(conditions)] == [row["data"] for row in rows]


def test_what_was_decoded_is_not_decoded_again(direct, monkeypatch):
    """A second scan fills the cache, a third decompresses nothing, and a history of a space uses the cached blocks."""
    with esformat.open(direct, cache_bytes=64 << 20) as segment, cut_small(Pieces(scattered_rows=2)):
        first = segment.scan_index("kind", "kind-1", columns=["space", "timestamp", "data", "kind"])
        answers = [first.to_table() for _ in range(2)]
        made = decompressions(monkeypatch)
        assert all(answer.equals(answers[0]) for answer in (answers[1], first.to_table()))
        assert not made
        assert len(list(segment["space-003"].scan())) == 50
        within = len(made)
    with esformat.open(direct, cache_bytes=64 << 20) as segment:
        segment.find("space-003")
        made.clear()
        assert len(list(segment["space-003"].scan())) == 50
        assert len(made) > within


def test_nothing_is_forgotten_for_a_scan(direct):
    """Blocks cached by queries of a space stay when scans of the whole file exceed the cache."""
    with esformat.open(direct, cache_bytes=400_000) as segment, cut_small(Pieces(scattered_rows=2)):
        reader = segment._reader
        assert len(list(segment["space-003"].scan())) == 50
        block = reader.data_block(reader.leaf(0), 0)
        node = block.bytes_node(reader.data_place, reader.contexts(block.dictionary)[reader.data_place])
        frames = {(node.key, n): reader.frames.find((node.key, n)) for n in range(len(node.table))}
        frames = {key: frame for key, frame in frames.items() if frame is not None}
        assert frames
        for kind in ("kind-1", "kind-2", "kind-3"):
            for _ in range(2):
                segment.scan_index("kind", kind).to_table()
        assert not reader.is_block_cached(reader.leaf(3).first_block)  # there was no memory for it
        assert reader.data_block(reader.leaf(0), 0) is block
        assert all(reader.frames.find(key) is frame for key, frame in frames.items())


def test_a_query_made_once_caches_nothing(direct):
    """A single index scan caches no blocks; a second one does."""
    with esformat.open(direct, cache_bytes=64 << 20) as segment:
        reader = segment._reader
        segment.scan_index("kind", "kind-1").to_table()
        assert not reader.is_block_cached(0)
        segment.scan_index("kind", "kind-1").to_table()
        assert reader.is_block_cached(0)


def test_frames_of_small_answers_are_kept_from_the_second_time_on(direct):
    """Frames of small results are cached from the second use on, because most are needed only once."""
    with esformat.open(direct, cache_bytes=64 << 20) as segment:
        reader = segment._reader
        held = []
        for _ in range(3):
            assert len(list(segment["space-003"].scan(limit=1))) == 1
            block = reader.data_block(reader.leaf(0), 0)
            node = block.bytes_node(reader.data_place, reader.contexts(block.dictionary)[reader.data_place])
            held.append([n for n in range(len(node.table)) if reader.frames.find((node.key, n)) is not None])
        assert not held[0]
        assert len(held[1]) == 1
        assert held[2] == held[1]


def test_text_that_is_none(tmp_path, monkeypatch):
    """Text that is not UTF-8 is an error even if values are decoded singly."""
    stored = tmp_path / "text.esdb"
    notes = [b"\xff" if n == 200 else b"value" for n in range(4000)]
    kinds = ["few" if n % 100 == 0 else "many" for n in range(4000)]
    table = pa.table({"space": ["s"] * 4000, "timestamp": range(4000), "note": pa.array(notes), "kind": kinds})
    with esformat.create(stored, indexes=["kind"]) as writer:
        writer.add_table(table)
    with esformat.open(stored) as segment:
        assert segment.scan_index("kind", "few").to_table()["note"][2].as_py() == b"\xff"
        reader = segment._reader
        place = reader.schema.positions["note"]
        fields = tuple(
            Field("note", pa.string()) if number == place else field for number, field in enumerate(reader.fields)
        )
        monkeypatch.setattr(reader, "fields", fields)
        for _ in range(2):
            with pytest.raises(esformat.CorruptSegmentError, match="broken"):
                segment.scan_index("kind", "few", columns=["note"]).to_table()
