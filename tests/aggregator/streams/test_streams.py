"""Streams have any tags, are created by their first write, found by expressions, and survive any end of the process."""

from __future__ import annotations

import contextlib
import datetime as dt
import time

import pyarrow as pa
import pytest
from crash_image import crash_image
from effort import long

import aggregator
import esformat
from aggregator.lql import TagSet, parse_source
from aggregator.storage.manifest import Manifest
from aggregator.storage.state.streams import StreamIndex
from esformat import InvalidEventError

ODD_TAGS = [
    {"name": "app1", "ip": "27.3.2.1"}, {}, {"": ""}, {"a": ""}, {"a=b": "{x,y}"}, {'"q"': "it's `so`"},
    {"zone": "Zürich 🏔"}, {"n\nl": "\t\0"}, {"long": "x" * 1024}, {"k" * 1024: "v"}, {"from": "select"},
]  # fmt: skip

ODD_TAGS.sort(key=lambda tags: str(TagSet.of(tags)))


def _reopened(catalog):
    catalog.close()
    return aggregator.open(catalog.path)


@pytest.mark.parametrize("sealed", [False, True])
def test_any_tags_are_stored_and_listed(tmp_path, sealed):
    """Names and values of any kind form separate streams, before and after sealing and reopening."""
    catalog = aggregator.open(tmp_path / "c")
    for place, tags in enumerate(ODD_TAGS):
        catalog.write(tags, [{"ts": place, "msg": f"m{place}"}])
    assert catalog.streams() == ODD_TAGS
    if sealed:
        catalog.seal()
    catalog = _reopened(catalog)
    assert catalog.streams() == ODD_TAGS
    for place, tags in enumerate(ODD_TAGS):
        assert catalog.streams(str(TagSet.of(tags))).count(tags) == 1
        events = list(catalog.topic("logs").scan(space=str(TagSet.of(tags))))
        assert [(event.timestamp, event.data) for event in events] == [(place, f"m{place}".encode())]
    catalog.close()


def test_records_become_events(tmp_path):
    """Times, messages and fields are stored where LQL finds them; fields without a column go into the map."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.create_topic("web", pa.schema([("data", pa.binary()), ("status", pa.int64())]))
        moment = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
        records = [
            {"ts": 5, "msg": "text", "status": 200, "user": "ann", "n": 1.5, "ok": True, "at": moment, "l": [1, "x"]},
            {"ts": moment, "msg": b"\xff", "user": None},
            {"space": "s", "data": "d"},
        ]
        before = time.time_ns() // 1000
        catalog.write({"app": "web"}, records, topic="web")
        rows = catalog.topic("web").scan().to_table().to_pylist()
        assert [row["data"] for row in rows] == [b"text", b"\xff", b""]
        assert [row["status"] for row in rows] == [200, None, None]
        assert dict(rows[0]["fields"]) == {
            "user": "ann", "n": "1.5", "ok": "true", "at": "2026-03-01T00:00:00Z", "l": '[1,"x"]'
        }  # fmt: skip
        assert rows[1]["timestamp"] == moment
        assert rows[1]["fields"] is None
        assert dict(rows[2]["fields"]) == {"space": "s", "data": "d"}
        assert before <= rows[2]["timestamp"].timestamp() * 1e6 + 1


def test_tables_keep_their_types(tmp_path):
    """Arrow columns become columns of the topic; ts may be integers or timestamps with a zone."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"a": "1"}, pa.table({"ts": [1, 2], "msg": ["x", None], "took": [0.5, 1.5]}))
        later = pa.array([3_000_000], pa.timestamp("ns", "Europe/Paris"))
        catalog.write({"a": "1"}, pa.record_batch({"ts": later, "msg": pa.array(["y"], pa.large_string())}))
        table = catalog.topic("logs").scan().to_table()
        assert table["data"].to_pylist() == [b"x", b"", b"y"]
        assert table["took"].to_pylist() == [0.5, 1.5, None]
        assert [stamp.value // 1000 for stamp in table["timestamp"].to_pandas()] == [1, 2, 3000]


@pytest.mark.parametrize(
    "records",
    [
        {"msg": "one"}, "text", 5, [["no mapping"]], [{"msg": 5}], [{"msg": "\ud800"}], [{1: "x"}], [{"x": object()}],
        [{"x": b"\xff"}], [{"x": "\ud800"}], [{"ts": dt.datetime(2026, 1, 1)}], [{"ts": "now"}],
        pa.table({"ts": ["a"]}), pa.table({"ts": pa.array([1], pa.timestamp("us"))}), pa.table({"msg": [1]}),
        pa.table({"space": ["x"]}), pa.table({"fields": ["x"]}),
    ],
)  # fmt: skip
def test_records_that_cannot_be_stored(tmp_path, records):
    """Invalid records are refused with one clear error, and nothing is stored."""
    with aggregator.open(tmp_path / "c") as catalog:
        with pytest.raises((aggregator.InvalidRequestError, InvalidEventError)):
            catalog.write({"a": "1"}, records)
        assert catalog.streams() == []


@pytest.mark.parametrize("tags", [{"a": 1}, {"a": "\ud800"}, {"a": "x" * 5000}])
def test_tags_that_cannot_be(tmp_path, tags):
    """Invalid tags are refused, and nothing is stored."""
    with aggregator.open(tmp_path / "c") as catalog:
        with pytest.raises(aggregator.InvalidRequestError):
            catalog.write(tags, [{"msg": "x"}])
        assert catalog.streams() == []


def test_the_topic_of_log_records(tmp_path):
    """The topic `logs` refuses binary keys and unusable indexes, which would block senders that name no topic."""
    with aggregator.open(tmp_path / "c") as catalog:
        for wrong in ({"keys": "binary"}, {"indexes": ["data"]}, {"indexes": ["pid", "fields"]}):
            with pytest.raises(aggregator.InvalidRequestError, match="text keys"):
                catalog.create_topic("logs", **wrong)
        catalog.write({"a": "1"}, [{"msg": "x"}])


def test_spaces_that_are_no_streams(tmp_path):
    """Only canonical tag sets among a topic's spaces are streams, whoever appended them; binary keys never are."""
    with aggregator.open(tmp_path / "c") as catalog:
        topic = catalog.create_topic("mixed")
        spaces = ["customer-1", "{d=2,c=1}", "{a=1,b=2}", "{", "{x}", "{{}}"]
        topic.append(pa.table({"space": spaces, "timestamp": [1] * len(spaces)}))
        binary = catalog.create_topic("binary", keys="binary")
        binary.append(pa.table({"space": [b"{a=9}"], "timestamp": [1]}))
        for _ in range(2):
            assert catalog.streams() == [{"a": "1", "b": "2"}]
            catalog.seal()


def test_expressions_choose_streams(tmp_path):
    """Expressions and tag lists select streams as in LQL; wrong ones are refused."""
    with aggregator.open(tmp_path / "c") as catalog:
        for app, zone in (("web", "eu"), ("web", "us"), ("db", "eu")):
            catalog.write({"app": app, "zone": zone}, [{"msg": "x"}])
        assert len(catalog.streams("app = web")) == 2
        assert catalog.streams("{app=db}") == [{"app": "db", "zone": "eu"}]
        assert catalog.streams("app LIKE 'w*' AND NOT zone = eu") == [{"app": "web", "zone": "us"}]
        with pytest.raises(aggregator.InvalidRequestError):
            catalog.streams("app = ")


@pytest.mark.usefixtures("quiet")
def test_streams_after_a_crash(tmp_path):
    """A copy of a running catalog's files has every stream: saved, sealed since, and unsealed."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"n": "1"}, [{"msg": "x"}])
        catalog.seal()
        catalog._backend.streams.keep()
        catalog.write({"n": "2"}, [{"msg": "x"}])
        catalog.seal()
        catalog.write({"n": "3"}, [{"msg": "x"}])
        crash_image(tmp_path / "c", tmp_path / "copy")
    with aggregator.open(tmp_path / "copy") as copy:
        assert copy.streams() == [{"n": "1"}, {"n": "2"}, {"n": "3"}]


def test_streams_of_a_rebuilt_manifest(tmp_path):
    """A catalog with a rebuilt manifest has the same streams."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"n": "1"}, [{"msg": "x"}])
        catalog.seal()
    (tmp_path / "c" / "manifest.sqlite").unlink()
    aggregator.rebuild_manifest(tmp_path / "c")
    with aggregator.open(tmp_path / "c") as catalog:
        assert catalog.streams() == [{"n": "1"}]


def test_readers_see_new_streams(tmp_path):
    """A reader sees streams created after it was opened, sealed or not."""
    with aggregator.open(tmp_path / "c") as catalog, aggregator.open(tmp_path / "c", read_only=True) as reader:
        for number in range(3):
            catalog.write({"n": str(number)}, [{"msg": "x"}])
            assert len(reader.streams()) == number + 1
            catalog.seal()
        with pytest.raises(aggregator.ReadOnlyError):
            reader.write({"n": "9"}, [{"msg": "x"}])


def test_kept_streams_need_no_segments(tmp_path, monkeypatch):
    """Streams in the manifest are not looked up in segments again."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"n": "1"}, [{"msg": "x"}])
        catalog.seal()
    catalog = aggregator.open(tmp_path / "c")
    monkeypatch.setattr(catalog._backend.pool, "get", lambda info: pytest.fail("a segment was opened"))
    assert catalog.streams() == [{"n": "1"}]
    catalog.close()


@pytest.mark.usefixtures("quiet")
def test_streams_that_nobody_asks_for(tmp_path, monkeypatch):
    """Opening, using and closing a catalog does not read all streams from the manifest."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"n": "1"}, [{"msg": "x"}])
        catalog.create_topic("events", keys="binary").append(pa.table({"space": [b"{n=9}"], "timestamp": [1]}))
    read = Manifest.streams
    monkeypatch.setattr(Manifest, "streams", lambda self: pytest.fail("all streams were read"))
    with aggregator.open(tmp_path / "c") as catalog:
        catalog._backend.streams.keep()
    monkeypatch.setattr(Manifest, "streams", read)
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"n": "2"}, [{"msg": "x"}])
    with aggregator.open(tmp_path / "c") as catalog:
        assert catalog._backend.manifest.stream_marks() == {1: 2}
        assert catalog.streams() == [{"n": "1"}, {"n": "2"}]


@pytest.mark.parametrize("read_only", [False, True])
def test_only_topics_with_news_are_looked_at(tmp_path, monkeypatch, read_only):
    """Only topics with new or erased records since the last look are examined."""
    with aggregator.open(tmp_path / "c") as catalog:
        for number in range(3):
            catalog.write({"n": str(number)}, [{"msg": "x"}], topic=f"t{number}")
        looked_at = []
        with aggregator.open(tmp_path / "c", read_only=True) if read_only else contextlib.nullcontext(catalog) as asked:
            look, index = StreamIndex._find_streams, asked._backend.streams

            def record(self, snapshot):
                if self is index:  # the writer's own index sees to sealed topics in the background
                    looked_at.append(snapshot.topic.name)
                return look(self, snapshot)

            monkeypatch.setattr(StreamIndex, "_find_streams", record)
            for change, expected in [
                (lambda: None, {"t0", "t1", "t2"}),
                (lambda: None, set()),
                (lambda: catalog.write({"n": "3"}, [{"msg": "x"}], topic="t1"), {"t1"}),
                (lambda: catalog.topic("t2").erase("{n=2}"), {"t2"}),
                (lambda: catalog.seal("t0"), set()),
            ]:
                change()
                looked_at.clear()
                names = {stream["n"] for stream in asked.streams()}
                assert set(looked_at) == expected
        assert names == {"0", "1", "3"}


def test_a_topic_that_is_renamed_while_it_is_looked_at(tmp_path, monkeypatch):
    """If a topic is renamed during a look, the next query finds its streams although nothing else changed."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"n": "1"}, [{"msg": "x"}], topic="before")
        follow = StreamIndex._follow_names

        def renamed_then(self):
            follow(self)
            monkeypatch.setattr(StreamIndex, "_follow_names", follow)
            catalog.rename_topic("before", "after")

        monkeypatch.setattr(StreamIndex, "_follow_names", renamed_then)
        catalog.streams()
        assert catalog.streams() == [{"n": "1"}]


@pytest.mark.parametrize("sealed", [False, True])
def test_erased_streams_leave_no_trace(tmp_path, sealed):
    """An erased stream's name disappears from index and manifest; written again, the stream is back."""
    with aggregator.open(tmp_path / "c") as catalog:
        for name in ("ann-from-the-third-floor", "bob"):
            catalog.write({"user": name}, [{"msg": "x"}])
        catalog._backend.streams.keep()
        if sealed:
            catalog.seal()
        topic = catalog.topic("logs")
        topic.erase("{user=ann-from-the-third-floor}")
        assert catalog.streams() == [{"user": "bob"}]
        catalog.compact()
        catalog._backend.streams.keep()
        assert topic.traces("{user=ann-from-the-third-floor}").manifest == 0
        catalog.write({"user": "ann-from-the-third-floor"}, [{"msg": "again"}])
        assert len(catalog.streams()) == 2
    with aggregator.open(tmp_path / "c") as catalog:
        assert len(catalog.streams()) == 2


@long
def test_fifty_thousand_streams(tmp_path):
    """An expression over 50,000 streams takes a few milliseconds; the limit allows for other work during the tests."""
    with aggregator.open(tmp_path / "c", durability="none") as catalog:
        names = [str(TagSet.of({"app": f"app{i % 500}", "host": f"h{i}", "zone": "ew"[i % 2]})) for i in range(50_000)]
        catalog.create_topic("logs").append(pa.table({"space": names, "timestamp": list(range(50_000))}))
        index: StreamIndex = catalog._backend.streams
        source = parse_source("app LIKE 'app1*' AND host != h7 AND NOT zone = w")
        found = len(index.select(source))
        spent = []
        for _ in range(5):
            start = time.perf_counter()
            assert len(index.select(source)) == found
            spent.append(time.perf_counter() - start)
        expected = sum(f"app{i % 500}".startswith("app1") and i % 2 == 0 for i in range(50_000))
        assert found == expected
        assert min(spent) <= 0.2, spent


@pytest.mark.usefixtures("quiet")
def test_frames_of_streams_are_large(tmp_path):
    """Segments with stream records have larger frames than others unless the topic's policy sets the size."""

    def frames():
        catalog.seal()
        paths = sorted(catalog.path.rglob("*.esdb"), key=lambda path: path.stat().st_mtime_ns)
        with esformat.open(paths[-1]) as segment:
            assert [event.data for event in segment.scan()] == [b"m"]
            return segment.info()["frame_bytes"]

    with aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"a": "1"}, [{"msg": "m"}])
        assert frames() == 64 << 10
        catalog.topic("logs").set_policy(roll={"frame_bytes": "16 KiB"})
        catalog.write({"a": "1"}, [{"msg": "m"}])
        assert frames() == 16 << 10
        catalog.create_topic("events").append([{"space": "s", "timestamp": 1, "data": b"m"}])
        assert frames() is None
        with pytest.raises(aggregator.InvalidRequestError, match="frame_bytes must be between 512 and 1048576"):
            catalog.create_topic("odd", roll={"frame_bytes": 100})
    with aggregator.open(tmp_path / "c") as catalog:
        assert catalog.topic("logs").roll.frame_bytes == 16 << 10


def test_several_streams_in_one_batch(tmp_path):
    """Records of many streams form one batch, with one receipt and one key, stored completely or not at all."""
    with aggregator.open(tmp_path / "c") as catalog:
        table = pa.table({"ts": pa.array([7]), "msg": ["c"], "level": ["warn"]})
        batch = [({"app": "a"}, [{"ts": 5, "msg": "a", "x": 1}, {"ts": 6}]), ({"app": "b"}, table)]
        receipt = catalog.write_streams(batch, producer="p", sequence=1)
        assert (receipt.first, receipt.last) == (0, 2)
        assert catalog.write_streams(batch, producer="p", sequence=1).duplicate
        found = [(e.space, e.timestamp, e.columns["fields"], e.columns["level"]) for e in catalog.topic("logs").scan()]
        assert found == [("{app=a}", 5, [("x", "1")], None), ("{app=a}", 6, None, None), ("{app=b}", 7, None, "warn")]
        for wrong in ([], [({"app": "a"}, [{"ts": 1}]), ({"app": "b"}, [{"ts": "x"}])]):
            with pytest.raises((InvalidEventError, aggregator.InvalidRequestError)):
                catalog.write_streams(wrong)
        assert catalog.topic("logs").scan().count() == 3


def test_a_position_behind_each_record(tmp_path):
    """A reader can continue after any record of a batch it received."""
    with aggregator.open(tmp_path / "c") as catalog:
        for start in (0, 3):
            catalog.write({"app": "a"}, [{"ts": start + n, "msg": str(start + n)} for n in range(3)])
        answer = catalog.query("SELECT FROM {} LIMIT 5")
        places = [place for _ in answer.batches() for place in answer.positions()]
        assert len(places) == 5
        for given, place in enumerate(places, 1):
            rest = [int(event.data) for event in catalog.query(f"SELECT FROM {{}} POSITION {place}")]
            assert rest == list(range(given, 6))
