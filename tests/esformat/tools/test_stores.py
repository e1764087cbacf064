"""Tools on segments in a real S3 store: inputs and outputs are objects, which appear whole or not at all."""

from __future__ import annotations

import pytest
from effort import share_of
from object_store import arrow_filesystem, keys

import esformat
from esformat import SegmentChangedError, UsageError, tools
from esformat.io import buffered as windows

EVENTS = 3000


@pytest.fixture
def stored(s3, bucket, tmp_path):
    """A segment in the store, and the same on disk."""
    path = tmp_path / "all.esdb"
    with esformat.create(path, indexes=["type"]) as writer:
        for i in range(EVENTS):
            data = b"payload %d" % (i * 7919)
            writer.add(f"space-{i % 7}", data, timestamp=i, indexes={"type": "x" if i % 2 else "y"})
    s3.client.upload_file(str(path), bucket, "all.esdb")
    return f"s3://{bucket}/all.esdb"


def events(place):
    """The events of a segment, which must be valid."""
    assert esformat.verify(place).ok
    with esformat.open(place) as segment:
        return [(event.space, event.timestamp, event.data, event.indexes) for event in segment.scan()]


def test_outputs(s3, bucket, stored, tmp_path):
    """Each tool writes the same as to disk; nothing else appears in the bucket."""
    out = f"s3://{bucket}/made/{{}}.esdb".format
    local = tmp_path / "all.esdb"
    before = events(local)
    tools.reindex(stored, out("plain"), [])
    tools.reindex(out("plain"), out("indexed"), ["type"])
    tools.recompress(stored, out("small"), level=3)
    assert [events(out(name)) for name in ("indexed", "small")] == [before] * 2
    report = tools.erase(stored, out("rest"), ["space-3"])
    assert (report.ok, report.path) == (True, out("rest"))
    assert events(out("rest")) == [event for event in before if event[0] != "space-3"]
    parts = tools.split(stored, f"s3://{bucket}/parts", spaces=["space-2", "space-5"])
    assert parts == [f"s3://{bucket}/parts/all-{number:04}.esdb" for number in range(3)]
    tools.merge(parts, out("merged"))
    assert events(out("merged")) == before
    assert tools.diff(stored, out("merged")).same
    names = ["plain", "indexed", "small", "rest", "merged"]
    assert sorted(keys(s3, bucket)) == sorted(
        ["all.esdb", *(f"made/{name}.esdb" for name in names), *(f"parts/all-{number:04}.esdb" for number in range(3))]
    )


def test_repair(s3, bucket, stored, tmp_path):
    """A damaged object is repaired into another one."""
    data = bytearray((tmp_path / "all.esdb").read_bytes())
    data[len(data) // 3] ^= 1
    s3.client.put_object(Bucket=bucket, Key="bad.esdb", Body=bytes(data))
    report = tools.repair(f"s3://{bucket}/bad.esdb", f"s3://{bucket}/saved.esdb")
    assert report.path == f"s3://{bucket}/saved.esdb"
    assert 0 < report.saved_events < EVENTS
    assert report.saved_events + report.lost_events == EVENTS
    assert len(events(report.path)) == report.saved_events


def test_pairs(s3, bucket, stored):
    """A filesystem with a path is accepted for inputs, outputs and the parts of a split."""
    filesystem = arrow_filesystem(s3)
    parts = tools.split((filesystem, f"{bucket}/all.esdb"), (filesystem, f"{bucket}/"), times=[1000])
    assert parts == [(filesystem, f"{bucket}/all-{number:04}.esdb") for number in range(2)]
    tools.merge(parts, (filesystem, f"{bucket}/again.esdb"))
    assert events((filesystem, f"{bucket}/again.esdb")) == events(stored)


def test_names_that_are_taken(s3, bucket, stored):
    """An object is replaced only with `overwrite`, an input never."""
    taken = f"s3://{bucket}/taken.esdb"
    tools.erase(stored, taken, ["space-1"])
    with pytest.raises(UsageError, match="the object exists"):
        tools.erase(stored, taken, ["space-2"])
    assert "space-2" in {event[0] for event in events(taken)}
    for out in (stored, (arrow_filesystem(s3), f"{bucket}/all.esdb")):
        with pytest.raises(UsageError, match="the output is an input"):
            tools.merge([stored], out, overwrite=True)
    assert len(events(stored)) == EVENTS


def test_a_split_that_fails(s3, bucket, stored):
    """If a later part cannot be stored, the earlier ones are removed."""
    s3.refuse = lambda method, path, query: 403 if method in ("PUT", "POST") and "0002" in path else None
    with pytest.raises(OSError, match=r"403|ACCESS_DENIED"):
        tools.split(stored, f"s3://{bucket}/parts", spaces=["space-2", "space-5"])
    assert [key for key in keys(s3, bucket) if not key.endswith("/")] == ["all.esdb"]  # Arrow may leave a directory


READERS = {
    "verify": lambda place, out: esformat.verify(place),
    "repair": tools.repair,
    "erase": lambda place, out: tools.erase(place, out, ["space-3"]),
    "merge": lambda place, out: tools.merge([place], out),
    "split": lambda place, out: tools.split(place, out.parent, times=[EVENTS // 2]),
}


@pytest.mark.parametrize("window_bytes", share_of([1 << 12, 4 << 20], 2))
@pytest.mark.parametrize("tool", READERS)
def test_requests(s3, stored, tmp_path, monkeypatch, tool, window_bytes):
    """A tool reads the file in windows, one request each, however many blocks they have."""
    monkeypatch.setattr(windows, "WINDOW_BYTES", window_bytes)
    monkeypatch.setattr(windows, "LEAST_WINDOW_BYTES", window_bytes)
    with esformat.open(stored) as segment:
        size, blocks = segment.size_bytes, esformat.verify(stored).blocks
    (tmp_path / "made").mkdir()
    with s3.recorded() as requests:
        READERS[tool](stored, tmp_path / "made" / "out.esdb")
    reads = [request for request in requests if request.method == "GET"]
    times = 2 if tool in ("split", "erase", "repair") else 1  # split: per part; erase: to check; repair: to walk
    assert len(reads) <= times * -(-size // window_bytes) + 2
    if window_bytes > size:
        assert len(reads) <= 2 < blocks


def test_an_object_that_is_replaced_while_it_is_verified(s3, bucket, stored, monkeypatch):
    """An object that is replaced during `verify` is not reported as damaged."""
    monkeypatch.setattr(windows, "WINDOW_BYTES", 1 << 12)
    monkeypatch.setattr(windows, "LEAST_WINDOW_BYTES", 1 << 12)

    def replace(done, total):
        s3.client.put_object(Bucket=bucket, Key="all.esdb", Body=bytes(total))

    with pytest.raises(SegmentChangedError):
        esformat.verify(stored, progress=replace)
