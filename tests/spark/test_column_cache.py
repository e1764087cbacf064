"""The columns of many segments, noted in their directory: a writer opens only segments that the note lacks."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

import esformat
from esformat import UsageError
from esformat.io.commit_folder import LocalFolder
from esformat.spark import column_cache, scan_plan
from esformat.spark.options import WriteOptions
from esformat.spark.save import SegmentWriter

COUNT = 40
KEYS = [StructField("space", StringType()), StructField("timestamp", TimestampType())]


def segment(path, **payload):
    """A segment of one event."""
    table = pa.table({"space": ["a"], "timestamp": pa.array([1], pa.timestamp("us", "UTC")), **payload})
    with esformat.create(path) as writer:
        writer.add_table(table)


@pytest.fixture
def folder(tmp_path):
    """More segments than a writer should open each time."""
    for number in range(COUNT):
        segment(tmp_path / f"{number}.esdb", n=[number])
    return tmp_path


@pytest.fixture
def opened(monkeypatch):
    """The names of the segments that were opened for their columns."""
    names = []
    real = scan_plan.opened
    monkeypatch.setattr(scan_plan, "opened", lambda place: names.append(place) or real(place))
    return names


def begin(folder, kind):
    """Begin and abort a write of a column `n` of type `kind`, like a process that has not opened any file before."""
    scan_plan._known_schema.cache_clear()
    options = WriteOptions.parse({"path": str(folder)})
    SegmentWriter(options, StructType([*KEYS, StructField("n", kind)]), overwrite=False).abort([])


def test_only_new_segments_are_opened(folder, opened):
    """Each write after the first opens only the segments that are new since."""
    begin(folder, LongType())
    assert len(opened) == COUNT
    for number in range(3):
        opened.clear()
        segment(folder / f"new-{number}.esdb", n=[1])
        begin(folder, LongType())
        assert opened == [str(folder / f"new-{number}.esdb")]
    opened.clear()
    begin(folder, LongType())
    assert opened == []
    assert sum(len(batch) for batch in esformat.open_many(folder).scan().batches()) == COUNT + 3


def test_columns_that_do_not_fit(folder):
    """A column of another type is refused with the name of a segment; once those segments are gone, it is accepted."""
    segment(folder / "text.esdb", m=["x"])
    begin(folder, LongType())
    with pytest.raises(UsageError, match=rf"column 'n' is string in what is written and int64 in {folder}/\d+.esdb"):
        begin(folder, StringType())
    for path in folder.glob("[0-9]*.esdb"):
        path.unlink()
    for number in range(COUNT):
        segment(folder / f"other-{number}.esdb", m=["x"])
    begin(folder, StringType())


@pytest.mark.parametrize("change", ["replaced", "damaged", "cut short"])
def test_changes(folder, opened, change):
    """A replaced segment is opened again; a damaged note is ignored entirely."""
    begin(folder, LongType())
    opened.clear()
    note = folder / column_cache.CACHE_FILE
    content = note.read_bytes()
    if change == "replaced":
        (folder / "3.esdb").unlink()
        segment(folder / "3.esdb", n=[12345], m=["x"])
    else:
        note.write_bytes(content[:-9] if change == "cut short" else content.replace(b"39.esdb", b"38.esdb"))
    begin(folder, LongType())
    assert len(opened) == (1 if change == "replaced" else COUNT)
    names = {name for _, schema in column_cache.cached_columns(LocalFolder(str(folder))) for name in schema.names}
    assert ("m" in names) == (change == "replaced")
