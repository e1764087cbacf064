"""A table with invalid views beneath nulls crashed the process: Arrow's cast follows them."""

from __future__ import annotations

import struct

import httpx
import pyarrow as pa
import pytest
from served import served

import aggregator
import esformat
from esformat.cli import run

STREAM = "application/vnd.apache.arrow.stream"
LONG = b"more than twelve bytes"
EXPECTED = [b"", b"x", None, LONG]
GARBAGE = struct.pack("<iiii", -102301696, -1378975571, 3, 0)


def garbage(kind: pa.DataType) -> pa.Array:
    """An empty value, one of a letter, a null with garbage beneath it, and a long value."""
    views = bytes(16) + struct.pack("<i12s", 1, b"x") + GARBAGE + struct.pack("<i4sii", len(LONG), LONG[:4], 0, 0)
    return pa.Array.from_buffers(kind, 4, [pa.py_buffer(each) for each in (b"\x0b", views, LONG)])


def table(kind: pa.DataType, way: str) -> pa.Table:
    column = garbage(kind)
    if way == "list":
        column = pa.LargeListArray.from_arrays([0, 1, 2, 3, 4], column)
    elif way == "dictionary":
        column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3]), column)
    found = pa.table({"space": ["a"] * 4, "timestamp": pa.array(range(4), pa.int64()), "v": column})
    return found.slice(1) if way == "sliced" else found


def plain(found: pa.Table) -> list[bytes | None]:
    values = [each[0] if isinstance(each, list) else each for each in found["v"].to_pylist()]
    return [each.encode() if isinstance(each, str) else each for each in values]


@pytest.mark.parametrize("way", ["plain", "list", "sliced", "dictionary"])
@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()], ids=str)
def test_garbage_beneath_nulls(tmp_path, kind, way):
    """Garbage beneath nulls is ignored over HTTP, in a catalog, in a file, and in a file of Arrow."""
    given = table(kind, way)
    expected = EXPECTED[-len(given) :]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, given.schema) as writer:
        writer.write_table(given)
    with served(tmp_path / "served") as server:
        topic = server.catalog.create_topic("t")
        url = f"{server.url}/v1/topics/t/events"
        answer = httpx.post(url, content=sink.getvalue().to_pybytes(), headers={"content-type": STREAM})
        assert answer.status_code == 200, answer.text
        assert plain(topic.scan().to_table()) == expected
    with aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t")
        topic.append(given)
        assert plain(topic.scan().to_table()) == expected
    path = tmp_path / "a.esdb"
    with esformat.create(path, schema=given.schema) as file:
        file.add_table(given)
    with esformat.open(path) as segment:
        assert plain(segment.scan().to_table()) == expected
    source = tmp_path / "a.arrow"
    with pa.ipc.new_file(source, given.schema) as writer:
        writer.write_table(given)
    assert run(["write", str(path), str(source), "--force"]) == 0
    with esformat.open(path) as segment:
        assert plain(segment.scan().to_table()) == expected
    assert run(["write", str(path), str(source), "--force", "--data-json"]) == 0
