"""Erasing a space: hidden immediately, soon gone from every file, nothing else changed; also after a crash."""

from __future__ import annotations

import time
from threading import Lock

import pytest
from crash_image import crash_image
from still import still

import aggregator
from aggregator.engine.seal.sealer import Sealer
from aggregator.storage.state.tombstones import FEW_SPACES
from esformat import UsageError

KEY = "person-4711@example.org"


@pytest.fixture
def root(tmp_path):
    return tmp_path / "data"


def fill(topic, count=20, partition="0"):
    """Append events of two spaces alternately; the payload contains the space, too."""
    rows = [(KEY if n % 2 else "other", n) for n in range(count)]
    return topic.append(
        [{"space": space, "timestamp": n, "type": f"of {space}", "data": space.encode()} for space, n in rows],
        partition,
    )


@pytest.mark.usefixtures("quiet")
def test_longer_keys_are_no_traces(root):
    """Keys, streams and names that contain the erased key are not residue: they stay, and the erasure completes."""
    short = KEY[:-4]
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic(f"about {short}!")
        for space in (short, KEY, f"before {KEY}"):
            topic.append([{"space": space, "timestamp": 1}], f"{short}/0")
            catalog.seal()
        topic.erase(short)
        assert not topic.traces(short).gone
        catalog.compact()
        assert topic.traces(short).gone
        assert topic.scan(space=KEY).count() == 1
        catalog.create_topic("other").append([{"space": short, "timestamp": 1}])
        catalog.seal()
        assert topic.traces(short).manifest


def holding(root, text=KEY):
    """The top directories of files that contain the text's bytes."""
    found = [path for path in root.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]
    return sorted(path.relative_to(root).parts[0] for path in found)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("sealed", [False, True, "some"])
def test_hidden_at_once_and_gone_after_compaction(root, sealed):
    """Scans, counts, index lookups and record reads omit the space; after compaction no file has its bytes."""
    with aggregator.open(root) as catalog, aggregator.open(root, read_only=True) as reader:
        topic = catalog.create_topic("t", indexes=["type"])
        for partition in ("0", "1"):
            fill(topic, partition=partition)
        if sealed:
            catalog.seal()
        if sealed == "some":
            fill(topic)
        events = 30 if sealed == "some" else 20
        assert holding(root)
        erasure = topic.erase(KEY)
        assert erasure.events == events
        assert erasure.partitions == {"0": events - 10 + 20 - 10 * (events == 20), "1": 20}
        for seen in (topic, reader.topic("t")):
            assert seen.erasures() == (KEY,)
            assert seen.scan(space=KEY).count() == 0
            assert seen.scan_index("type", f"of {KEY}").to_table().num_rows == 0
            assert {event.space for event in seen.scan()} == {"other"}
            assert [event.columns["record_index"] for event in seen.read("1")] == list(range(0, 20, 2))
        assert topic.append([{"space": "other", "timestamp": 1}], "1").first == 20
        report = catalog.compact()
        assert (report.erased, report.still_erasing) == ((KEY,), ())
        assert topic.erasures() == reader.topic("t").erasures() == ()
        assert topic.traces(KEY).gone
        assert holding(root) == []
        assert holding(root, "other")
        assert [event.columns["record_index"] for event in topic.read("1")] == [*range(0, 20, 2), 20]
    with aggregator.open(root) as catalog:
        topic = catalog.topic("t")
        assert {event.space for event in topic.scan()} == {"other"}
        assert catalog.problems() == []
        assert fill(topic, 3, "1").first == 21
        assert topic.scan(space=KEY).count() == 1


@pytest.mark.parametrize("space", [None, 5])
def test_no_space_to_erase(root, space):
    """None means every space in a scan, but is refused here and erases nothing."""
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        topic.append([{"space": "a", "timestamp": 1}])
        for verb in (topic.erase, topic.traces):
            with pytest.raises(UsageError, match="space must be text"):
                verb(space)
        assert topic.scan().count() == 1


def test_gone_by_itself(root):
    """Background work completes an erasure without a call."""
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        fill(topic)
        catalog.seal()
        fill(topic)
        topic.erase(KEY)
        end = time.monotonic() + 60
        while topic.erasures():
            assert time.monotonic() < end
            time.sleep(0.02)
        assert topic.traces(KEY).gone
        assert holding(still(catalog).path) == []


@pytest.mark.usefixtures("quiet")
def test_what_comes_later_is_kept(root):
    """Events appended to the space after the erasure are kept, whenever they are sealed."""
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        fill(topic)
        topic.erase(KEY)
        topic.append([{"space": KEY, "timestamp": 100}])
        assert [event.timestamp for event in topic.scan(space=KEY)] == [100]
        catalog.compact()
        assert [event.timestamp for event in topic.scan(space=KEY)] == [100]
        topic.erase(KEY)
        topic.append([{"space": KEY, "timestamp": 101}])
        catalog.compact()
        assert [event.timestamp for event in topic.scan(space=KEY)] == [101]
        traces = topic.traces(KEY)
        assert (traces.visible, len(traces.segments), traces.logged, traces.gone) == (1, 1, 0, False)


@pytest.mark.usefixtures("quiet")
def test_open_scans_put_it_off(root):
    """A scan begun earlier still returns the space; when it ends, the file is deleted and the erasure completes."""
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        fill(topic)
        catalog.seal()
        scan = iter(topic.scan(space=KEY))
        next(scan)
        topic.erase(KEY)
        report = catalog.compact()
        assert (report.erased, report.still_erasing) == ((), (KEY,))
        traces = topic.traces(KEY)
        assert (traces.visible, len(traces.segments), traces.hidden) == (0, 1, True)
        assert len(list(scan)) == 9
        assert catalog.compact().erased == (KEY,)
        assert topic.traces(KEY).gone
        assert holding(root) == []


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("step", ["hidden", "sealed", "rewritten"])
def test_a_crash_on_the_way(root, tmp_path, monkeypatch, step):
    """The space stays hidden after a crash and is removed after reopening."""
    image = tmp_path / "image"
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        fill(topic)
        catalog.seal()
        fill(topic)
        topic.erase(KEY)
        if step != "hidden":
            kind, name = {
                "sealed": (Sealer, "seal"), "rewritten": (type(catalog._backend.upkeep.removal), "replace"),
            }[step]  # fmt: skip
            original, copied = getattr(kind, name), Lock()

            def copying(*given, **named):
                if step == "rewritten" and copied.acquire(blocking=False):
                    crash_image(root, image)  # the new file exists, and the manifest does not name it
                done = original(*given, **named)
                if step == "sealed" and copied.acquire(blocking=False):
                    crash_image(root, image)
                return done

            with monkeypatch.context() as patch:
                patch.setattr(kind, name, copying)
                catalog.compact()
        else:
            crash_image(root, image)
    with aggregator.open(image) as catalog:
        topic = catalog.topic("t")
        assert catalog.problems() == []
        assert {event.space for event in topic.scan()} == {"other"}
        assert topic.erasures() == (KEY,)
        assert catalog.compact().erased == (KEY,)
        assert topic.traces(KEY).gone
    assert holding(image) == []


@pytest.mark.usefixtures("quiet")
def test_absent_spaces_and_wrong_ones(root):
    """Erasing an absent space removes nothing but may involve the log; a number is refused as a space."""
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        fill(topic)
        catalog.seal()
        erasure = topic.erase("ozone")
        assert (erasure.events, list(erasure.partitions)) == (0, ["0"])
        assert catalog.compact().erased == ("ozone",)
        assert topic.erasures() == ()
        assert topic.erase("zzz").partitions == {}  # outside every segment's key range
        with pytest.raises(aggregator.errors.EsdbError):
            topic.erase(5)
        binary = catalog.create_topic("b", keys="binary")
        binary.append([{"space": b"\xff\0", "timestamp": 1}])
        assert binary.erase(b"\xff\0").events == 1
        assert catalog.compact().erased == (b"\xff\0",)


@pytest.mark.usefixtures("quiet")
def test_what_is_left_in_the_log_goes_too(root):
    """A space whose last segment expired is still in the log, and an erasure removes it there."""
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        for partition in ("0", "1"):
            fill(topic, partition=partition)
        catalog.seal()
        topic.set_policy(retention={"segments": 0})
        catalog.retain()
        assert topic.scan().count() == 0
        assert topic.traces(KEY).logged > 0
        topic.erase(KEY)
        assert catalog.compact().still_erasing == ()
        assert topic.traces(KEY).gone
        assert holding(root) == []


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("erased", [3, FEW_SPACES + 8])
def test_many_spaces_at_once(root, erased):
    """However many spaces are erased, the segment is rewritten without them, and later events stay."""
    spaces = [f"s{n:03}" for n in range(FEW_SPACES + 20)]
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        topic.append([{"space": space, "timestamp": n} for n in range(3) for space in spaces])
        catalog.seal()
        for space in spaces[:erased]:
            topic.erase(space)
        topic.append([{"space": spaces[0], "timestamp": 9}])
        catalog.seal()
        assert topic.scan().count() == 3 * (len(spaces) - erased) + 1
        assert set(catalog.compact().erased) == set(spaces[:erased])
        assert sorted(event.space for event in topic.scan(end=9)) == sorted(spaces[erased:] * 3)
        assert [event.timestamp for event in topic.scan(space=spaces[0])] == [9]
