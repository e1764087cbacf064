"""`reindex` and `recompress` keep the events; no tool leaves files behind when it fails."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from effort import examples
from event_strategies import LAYOUTS, Recording, recordings
from hypothesis import given
from hypothesis import strategies as st
from segments import CODECS, check_segment, write_rows
from small_pieces import cut_small

import esformat
from esformat.tools import erase, merge, recompress, reindex, repair, split


@examples(60)
@given(st.data(), recordings())
def test_other_indexes(data: st.DataObject, recording: Recording) -> None:
    """Any columns that can be indexed get an index, copied or built, as if written that way."""
    can = [c.name for c in recording.layout.columns if c.indexed]
    wanted = data.draw(st.lists(st.sampled_from(can), unique=True)) if can else []
    had = data.draw(st.lists(st.sampled_from(can), unique=True)) if can else []

    def indexed(names: list[str]) -> Recording:
        columns = tuple(replace(c, indexed=c.name in names) for c in recording.layout.columns)
        return replace(recording, layout=replace(LAYOUTS["no columns"], columns=columns))

    with tempfile.TemporaryDirectory() as directory, cut_small(recording.pieces):
        folder = Path(directory)
        path = write_rows(folder / "a.esdb", indexed(had), recording.rows, recording.codec)
        made = reindex(path, folder / "b.esdb", wanted, rebuild=data.draw(st.booleans()))
        assert made.encoded_blocks == 0
        check_segment(folder / "b.esdb", indexed(wanted), recording.rows)


@examples(40)
@given(recordings(), st.sampled_from(CODECS))
def test_other_codec(recording: Recording, codec: str) -> None:
    """The events stay the same from any codec to any other."""
    with tempfile.TemporaryDirectory() as directory, cut_small(recording.pieces):
        folder = Path(directory)
        path = write_rows(folder / "a.esdb", recording, recording.rows, recording.codec)
        made = recompress(path, folder / "b.esdb", codec=codec)
        assert made.copied_blocks == 0
        check_segment(folder / "b.esdb", recording, recording.rows)
        with esformat.open(folder / "b.esdb") as segment:
            assert segment.info()["codec"] == codec


def _segment(path: Path, **options) -> Path:
    with esformat.create(path, indexes=["type"], **options) as writer:
        for i in range(3000):
            writer.add(f"s{i % 7}", b"payload %d" % i, timestamp=i, indexes={"type": "x" if i % 2 else "y"})
    return path


TOOLS = {
    "merge": lambda path, out: merge([path, path], out),
    "split": lambda path, out: split(path, out.parent, spaces=["s3"]),
    "erase": lambda path, out: erase(path, out, ["s1"]),
    "reindex": lambda path, out: reindex(path, out, []),
    "recompress": lambda path, out: recompress(path, out),
}


@pytest.mark.parametrize("tool", TOOLS)
def test_nothing_is_left_of_a_failure(tmp_path, tool):
    """A damaged data block is a CorruptSegmentError; no new file remains, and the source is unchanged."""
    path = _segment(tmp_path / "a.esdb")
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    with pytest.raises(esformat.CorruptSegmentError):
        TOOLS[tool](path, tmp_path / "out.esdb")
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == bytes(data)


@pytest.mark.parametrize("tool", [*TOOLS, "repair"])
def test_inputs_are_never_replaced(tmp_path, tool):
    """The output cannot be the input, and an existing file stays unless `overwrite` is set."""
    path = _segment(tmp_path / "a.esdb")
    run = TOOLS.get(tool, repair)
    if tool != "split":
        with pytest.raises(esformat.UsageError):
            run(path, path)
        (tmp_path / "out.esdb").write_bytes(b"mine")
        with pytest.raises(esformat.UsageError):
            run(path, tmp_path / "out.esdb")
        assert (tmp_path / "out.esdb").read_bytes() == b"mine"
        (tmp_path / "out.esdb").unlink()
    run(path, tmp_path / "out.esdb")
    assert esformat.verify(path).ok


def test_properties_of_a_merge(tmp_path):
    """Properties that the segments share, or that only one has, are kept."""
    a = _segment(tmp_path / "a.esdb", properties={"shop": "1", "day": "monday"})
    b = _segment(tmp_path / "b.esdb", properties={"shop": "1", "day": "tuesday", "more": "x"})
    merge([a, b], tmp_path / "c.esdb")
    with esformat.open(tmp_path / "c.esdb") as segment:
        assert segment.properties == {"shop": "1", "more": "x"}


def test_other_columns_are_united(tmp_path):
    """Columns are united as by `open_many`: null if missing, the wider type, indexes that all can have."""
    parts = []
    for name, columns, indexes in (
        ("a", {"type": ["x", "y"], "n": pa.array([1, 2], pa.int32())}, ["type", "n"]),
        ("b", {"n": pa.array([2**40, 7], pa.int64()), "more": [True, None]}, []),
    ):
        table = pa.table({"space": ["s", "t"], "timestamp": [5, 6], "data": [name.encode()] * 2, **columns})
        with esformat.create(tmp_path / f"{name}.esdb", schema=table.schema, indexes=indexes, codec="none") as writer:
            writer.add_table(table)
        parts.append(tmp_path / f"{name}.esdb")
    made = merge(parts, tmp_path / "all.esdb")
    assert (made.statistics.events, made.copied_blocks, made.encoded_blocks > 0) == (4, 0, True)
    with esformat.open(tmp_path / "all.esdb") as segment, esformat.open_many(parts) as collection:
        assert segment.scan().to_table().equals(collection.scan().to_table())
        assert segment.indexes == collection.indexes == ("type",)
        assert segment.info()["codec"] == "none"
    reindex(tmp_path / "a.esdb", tmp_path / "bare.esdb", [])
    merge([tmp_path / "a.esdb", tmp_path / "bare.esdb"], tmp_path / "bare2.esdb")
    with esformat.open(tmp_path / "bare2.esdb") as segment:
        assert (segment.indexes, segment.num_events) == ((), 4)


def test_columns_that_do_not_go_together(tmp_path):
    """Incompatible columns are refused, and no file is written."""
    for name, value in (("a", "text"), ("b", 5)):
        with esformat.create(tmp_path / f"{name}.esdb") as writer:
            writer.add_table(pa.table({"space": ["s"], "timestamp": [1], "v": [value]}))
    with pytest.raises(esformat.UsageError, match="column 'v' is string"):
        merge([tmp_path / "a.esdb", tmp_path / "b.esdb"], tmp_path / "c.esdb")
    assert not (tmp_path / "c.esdb").exists()
