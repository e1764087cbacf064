"""Events of an erased space reappeared, and streams that were erased completely stayed listed.

A segment begun while the erasure was recorded extended beyond it, and was not checked. The names of streams were
checked only as long as the tombstone existed.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading

import pyarrow as pa
import pytest

import aggregator
from aggregator.storage.state.streams import StreamIndex

WAIT_S = 60
STREAM = "{name=secret}"
keep = StreamIndex.keep


def events(space, first, count=10):
    return pa.table({"space": [space] * count, "timestamp": range(first, first + count), "data": [b"x"] * count})


@pytest.fixture
def catalog(tmp_path, quiet_house):
    with aggregator.open(tmp_path / "events") as catalog:
        yield catalog


@pytest.fixture
def quiet_house(monkeypatch, quiet):
    """No background work, and no search for streams."""
    monkeypatch.setattr(StreamIndex, "keep", lambda *_, **__: None)


def test_erased_while_sealing_begins(catalog, monkeypatch):
    """Events sealed together with later ones while the erasure is recorded are erased, too."""
    topic = catalog.create_topic("t", roll={"age": "1h"})
    topic.append(events("customer-1", 0))
    writing = catalog._backend
    apply, write = writing.manifest.apply, writing.sealer._write
    written = threading.Event()
    sealing = threading.Thread(target=catalog.seal)

    def write_and_tell(*args, **kwargs):
        made = write(*args, **kwargs)
        written.set()
        return made

    def apply_late(edit):
        if edit.tombstones:
            topic.append(events("customer-2", 100))
            sealing.start()
            assert written.wait(WAIT_S)
        return apply(edit)

    monkeypatch.setattr(writing.sealer, "_write", write_and_tell)
    monkeypatch.setattr(writing.manifest, "apply", apply_late)
    topic.erase("customer-1")
    sealing.join(WAIT_S)
    assert topic.scan(space="customer-1").count() == 0
    topic.compact()
    assert topic.erasures() == ()
    assert topic.scan(space="customer-1").count() == 0
    assert topic.traces("customer-1").segments == ()
    assert topic.scan(space="customer-2").count() == 10


def test_erased_streams_are_not_listed(catalog):
    """An erased stream is neither listed nor in the manifest once `compact` reports it as erased."""
    for name in ("secret", "other"):
        catalog.write({"name": name}, [{"msg": "hello"}])
    catalog.seal()
    keep(catalog._backend.streams)
    topic = catalog.topic("logs")
    assert topic.traces(STREAM).manifest
    topic.erase(STREAM)
    assert topic.compact().erased == (STREAM,)
    assert catalog.streams() == [{"name": "other"}]
    assert topic.traces(STREAM).manifest == 0


def test_streams_that_could_not_be_looked_at(catalog, monkeypatch):
    """If a segment cannot be opened at the moment, a truncated stream is searched for again."""
    for name in ("secret", "other"):
        catalog.write({"name": name}, [{"msg": "hello"}])
    catalog.seal()
    assert len(catalog.streams()) == 2
    pool = catalog._backend.pool
    with monkeypatch.context() as broken:

        def fail(_):
            raise OSError(24, "Too many open files")

        catalog.query(f"TRUNCATE {STREAM} MAXSIZE 0")
        broken.setattr(pool, "get", fail)
        with pytest.raises(OSError, match="Too many open files"):
            catalog.streams()
    assert catalog.streams() == [{"name": "other"}]


def test_a_reader_of_the_manifest_puts_off_what_is_overwritten(catalog):
    """Erased data disappears from the manifest's files once a reader ends, even if nothing else changes."""
    topic = catalog.create_topic("t", roll={"age": "1h"})
    topic.append(events("customer-1", 0))
    topic.append(events("customer-2", 0))
    catalog.seal()
    writing = catalog._backend
    writing.manifest._connection.execute("PRAGMA busy_timeout = 50")
    with contextlib.closing(sqlite3.connect(writing.layout.manifest, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM segments").fetchone() == (1,)
        topic.erase("customer-1")
        assert topic.compact().erased == ("customer-1",)
        assert topic.traces("customer-1").manifest
    writing.upkeep._compact_by_itself()
    assert not topic.traces("customer-1").manifest
