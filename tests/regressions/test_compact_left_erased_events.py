"""`compact` returned while erased events were still on disk, though unused: upkeep was searching for new streams."""

from __future__ import annotations

from threading import Event, Thread

import pytest

import aggregator


@pytest.mark.usefixtures("quiet")
def test_compact_waits_for_the_stream_index(tmp_path, monkeypatch):
    """`compact` waits for the end of the catalog's own snapshots from before the erasure, so that they keep no file."""
    looking, asked = Event(), Event()
    with aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t")
        topic.append([{"space": space, "timestamp": 1} for space in ("ada", "bob")])
        catalog.seal()
        streams, pins = catalog._backend.streams, catalog._backend.pins
        look, holds_before = streams._find_streams, pins.holds_before

        def look_slowly(snapshot):
            looking.set()
            assert asked.wait(60)
            look(snapshot)

        def note_question(change):
            held = holds_before(change)
            asked.set()
            return held

        with monkeypatch.context() as slow:
            slow.setattr(streams, "_find_streams", look_slowly)
            slow.setattr(pins, "holds_before", note_question)
            chore = Thread(target=streams.keep)
            chore.start()
            assert looking.wait(60)
            slow.setattr(streams, "_find_streams", look)
            topic.erase("ada")
            report = catalog.compact()
            chore.join()
        assert (report.erased, report.still_erasing) == (("ada",), ())
        assert topic.traces("ada").gone
