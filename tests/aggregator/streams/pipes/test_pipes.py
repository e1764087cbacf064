"""Pipes copy each matching record once, whatever happens, and block nobody."""

from __future__ import annotations

import threading
import time
from unittest import mock

import pyarrow as pa
import pytest
from crash_image import crash_image
from waiting import until

import aggregator
import esformat
from aggregator.engine.ingest.append import Ingest
from aggregator.errors import OverloadedError
from aggregator.lql import LqlError, TagSet, source_to_text
from aggregator.policy import Tuning
from aggregator.storage.segments.records import FIELD_MAP, FIELDS, STREAM_SCHEMA
from aggregator.storage.state.schema import MAX_COLUMNS
from aggregator.streams.pipes import worker as pipes
from aggregator.streams.pipes.copy import copied_events, with_fields


def facts(catalog, name):
    return next(pipe for pipe in catalog.stats()["pipes"] if pipe["name"] == name)


def level(catalog, *names):
    """Wait until pipes have processed everything."""
    until(lambda: all(facts(catalog, name)["lag"] == 0 for name in names))


def copies(catalog, name):
    return [event.data.decode() for event in catalog.query(f"SELECT FROM logrange.pipe = {name}")]


def test_from_and_where(tmp_path):
    """New records that match both clauses are copied with their fields; the tags of their stream become fields."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"app": "web"}, [{"ts": 1, "msg": "ERROR before"}])
        made = catalog.query("CREATE PIPE errors FROM app = web WHERE msg PREFIX ERROR").to_pylist()
        assert (made[0]["name"], made[0]["copied"], made[0]["destination"]) == ("errors", 0, "{logrange.pipe=errors}")
        catalog.write({"app": "web", "zone": "eu"}, [{"ts": 2, "msg": "ERROR 1", "code": "7"}, {"ts": 3}])
        catalog.write({"app": "db"}, [{"ts": 4, "msg": "ERROR of another"}])
        until(lambda: facts(catalog, "errors")["copied"] == 1)
        level(catalog, "errors")
        (copy,) = catalog.query("SELECT FROM {logrange.pipe=errors}").to_table().to_pylist()
        assert (copy["data"], dict(copy["fields"])) == (b"ERROR 1", {"code": "7", "app": "web", "zone": "eu"})
        assert catalog.query("SELECT FROM logrange.pipe=errors WHERE fields:zone = eu").count() == 1
        assert copies(catalog, "errors") == ["ERROR 1"]


def test_backfill_of_all_that_is_there(tmp_path):
    """BACKFILL copies existing records, sealed or not, over several topics, partitions and rounds."""
    with aggregator.open(tmp_path / "c", tuning=Tuning(pipe_round_records=150, pipe_slice_rows=64)) as catalog:
        expected = []
        for number in range(6):
            for topic in ("logs", "other"):
                records = [{"ts": 1000 - 7 * i + number, "msg": f"{topic} {number} {i}"} for i in range(100)]
                catalog.write({"n": str(number % 2)}, records, topic, partition=str(number % 3))
                expected += [record["msg"] for record in records]
            if number < 5:
                catalog.seal()
        catalog.query("CREATE PIPE everything BACKFILL")
        catalog.query("CREATE PIPE one FROM n = 1 WHERE msg PREFIX other BACKFILL")
        level(catalog, "everything", "one")
        assert sorted(copies(catalog, "everything")) == sorted(expected)
        assert sorted(copies(catalog, "one")) == sorted(
            f"other {number} {i}" for number in (1, 3, 5) for i in range(100)
        )
        assert [facts(catalog, name)["gone"] for name in ("everything", "one")] == [0, 0]


@pytest.mark.usefixtures("quiet")
def test_saved_at_once_and_caught_up(tmp_path):
    """A pipe survives a crash right after its creation and copies earlier records without waiting for a write."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.query("CREATE PIPE p")
        with mock.patch.object(pipes.Pipes, "_append", return_value=0.01):  # never any room
            catalog.write({"a": "1"}, [{"msg": str(i)} for i in range(10)])
            until(lambda: facts(catalog, "p")["state"] == "waiting")
            assert facts(catalog, "p")["lag"] == 10
            crash_image(tmp_path / "c", tmp_path / "image")
            catalog._pipes._stopping.set()
    with aggregator.open(tmp_path / "image") as catalog:
        level(catalog, "p")
        assert copies(catalog, "p") == [str(i) for i in range(10)]


@pytest.mark.usefixtures("quiet")
def test_exactly_once_over_crashes(tmp_path):
    """Wherever a crash falls between batches of copies, sealed or not, each record is copied once."""
    few = Tuning(pipe_slice_rows=7)
    images = []
    append = Ingest.append

    def copying(self, topic, given, partition, producer, sequence, note=""):
        if producer is not None and producer.startswith("pipe") and sequence % 5 == 0:
            images.append(crash_image(root, tmp_path / f"before{len(images)}"))
        receipt = append(self, topic, given, partition, producer, sequence, note)
        if producer is not None and producer.startswith("pipe") and sequence % 5 == 3:
            images.append(crash_image(root, tmp_path / f"after{len(images)}"))
        if sequence == 6:  # from here on only segments contain its note
            catalog.seal()
            catalog._backend.log.roll()
            catalog._backend.sealer.release_log()
            images.append(crash_image(root, tmp_path / f"sealed{len(images)}"))
        return receipt

    root = tmp_path / "c"
    with mock.patch.object(Ingest, "append", copying), aggregator.open(root, tuning=few) as catalog:
        catalog.write({"a": "1"}, [{"ts": -i, "msg": str(i)} for i in range(60)])
        catalog.seal()
        catalog.write({"a": "2"}, [{"ts": 5 * i, "msg": str(60 + i)} for i in range(40)], partition="1")
        catalog.query("CREATE PIPE p WHERE msg != 13 BACKFILL")
        level(catalog, "p")
    assert len(images) > 4
    for image in (*images, root):
        for _ in range(2 if image == root else 1):
            with aggregator.open(image, tuning=few) as catalog:
                level(catalog, "p")
                catalog.write({"a": "3"}, [{"msg": "13"}])
                level(catalog, "p")
                assert sorted(map(int, copies(catalog, "p"))) == [i for i in range(100) if i != 13]
                catalog.seal()
                catalog.compact()


def test_what_passed_unmatched_is_not_read_again(tmp_path):
    """Progress without copies is saved when the catalog closes."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.query("CREATE PIPE p WHERE msg = never")
        catalog.write({"a": "1"}, [{"msg": "x"}] * 100)
        level(catalog, "p")
    with aggregator.open(tmp_path / "c", read_only=True) as catalog:
        assert facts(catalog, "p")["lag"] == 0


def test_pipes_do_not_feed_pipes(tmp_path):
    """Pipes do not copy copies, not even with another pipe's stream or everything as their source."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.query("CREATE PIPE one")
        catalog.query("CREATE PIPE two FROM logrange.pipe = one")
        catalog.query("CREATE PIPE three")
        catalog.write({"a": "1"}, [{"msg": "x"}])
        until(lambda: copies(catalog, "one") == copies(catalog, "three") == ["x"])
        level(catalog, "one", "two", "three")
        assert copies(catalog, "two") == []
        assert catalog.query("SELECT COUNT").to_pylist() == [{"count": 3}]


def test_create_again_show_describe_delete(tmp_path):
    """Creating the same pipe again has no effect, another of its name is an error; copies survive; names may be odd."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.query("CREATE PIPE p FROM a = 1 WHERE msg CONTAINS x")
        catalog.query("CREATE PIPE p FROM a=1 WHERE msg contains 'x'")
        with pytest.raises(aggregator.InvalidRequestError, match="another definition"):
            catalog.query("CREATE PIPE p FROM a = 2 WHERE msg CONTAINS x")
        catalog.query('CREATE PIPE `odd "name"=,{}`')
        shown = catalog.query("SHOW PIPES").to_pylist()
        assert [(pipe["name"], pipe["from"], pipe["where"]) for pipe in shown] == [
            ('odd "name"=,{}', "", ""), ("p", "a = 1", 'msg CONTAINS "x"'),
        ]  # fmt: skip
        assert catalog.query("SHOW PIPES OFFSET 1 LIMIT 1")["name"].to_pylist() == ["p"]
        catalog.write({"a": "1"}, [{"msg": "x1"}])
        until(lambda: facts(catalog, "p")["copied"] == 1)
        level(catalog, "p", 'odd "name"=,{}')
        described = catalog.query("DESCRIBE PIPE p").to_pylist()[0]
        assert (described["copied"], described["lag"], described["state"]) == (1, 0, "level")
        assert catalog.query("DELETE PIPE p").to_pylist() == [{"name": "p", "copied": 1}]
        catalog.write({"a": "1"}, [{"msg": "x2"}])
        for text in ("DELETE PIPE p", "DESCRIBE PIPE p"):
            with pytest.raises(aggregator.InvalidRequestError, match="no pipe"):
                catalog.query(text)
        level(catalog, 'odd "name"=,{}')
        assert copies(catalog, "p") == ["x1"]
        catalog.query("CREATE PIPE p FROM a = 1")  # a new one, which starts now
        catalog.write({"a": "1"}, [{"msg": "x3"}])
        until(lambda: copies(catalog, "p") == ["x1", "x3"])
    with aggregator.open(tmp_path / "c", read_only=True) as catalog:
        assert catalog.query("SHOW PIPES")["copied"].to_pylist() == [3, 1]
        for text in ("CREATE PIPE q", "DELETE PIPE p"):
            with pytest.raises(aggregator.ReadOnlyError):
                catalog.query(text)


def test_a_condition_that_means_nothing_is_refused(tmp_path):
    """A pipe with an invalid condition is not created."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"a": "1"}, [{"msg": "x"}])
        with pytest.raises(LqlError, match="missing"):
            catalog.query("CREATE PIPE p WHERE msg MATCHES '('")
        assert len(catalog.query("SHOW PIPES")) == 0


LATE_COLUMNS = [pa.array([7]), pa.array([True]), pa.array([[1]]), pa.array([0], pa.time64("us")), pa.array([{"a": 1}])]


@pytest.mark.parametrize("late", LATE_COLUMNS, ids=lambda late: str(late.type))
def test_a_column_that_cannot_be_compared_comes_later(tmp_path, late):
    """Values of a column that cannot be compared are treated as text, like fields in the map, which match as before."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"app": "web"}, [{"msg": "first", "level": "error"}])
        for name, condition in {"p": "level = error", "q": "level != error", "r": "level < 5 OR app = db"}.items():
            catalog.query(f"CREATE PIPE {name} WHERE {condition} BACKFILL")
        catalog.write({"app": "web"}, pa.table({"msg": ["second"], "level": late}))
        catalog.write({"app": "db"}, [{"msg": "third", "level": "error"}])
        level(catalog, "p", "q", "r")
        assert [copies(catalog, name) for name in "pqr"] == [["first", "third"], ["second"], ["third"]]


@pytest.mark.parametrize(
    ("there", "comes", "text"),
    [
        (pa.array([2**60]), pa.array([1.5]), "1.5"),
        (pa.array([1.5]), pa.array([2**60 + 1]), "1152921504606846977"),
        (pa.array(["one"]), pa.array([[1, 2]]), "[1,2]"),
    ],
    ids=["float", "whole", "list"],
)
def test_values_that_the_topic_of_copies_does_not_take(tmp_path, there, comes, text):
    """Values that the copies' topic cannot store become text fields: no column of another topic stops a pipe."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.create_topic("logs", STREAM_SCHEMA, indexes=["kind"])
        name = "kind" if text == "[1,2]" else "n"
        catalog.write({"a": "1"}, pa.table({"ts": [1], name: there}))
        catalog.query("CREATE PIPE p FROM app = web")
        for _ in range(2):
            catalog.write({"app": "web"}, pa.table({"ts": [2], name: comes, "new": [7]}), topic="other")
        until(lambda: facts(catalog, "p")["copied"] == 2)
        for copy in catalog.query("SELECT FROM {logrange.pipe=p}").to_table().to_pylist():
            assert (copy[name], copy["new"], dict(copy["fields"])) == (None, 7, {name: text, "app": "web"})


def test_columns_become_fields():
    """Columns become fields in reverse order before the existing ones; a column replaces a field of its name."""
    there = pa.array([[("a", "was"), ("z", "stays")], None, [], [("b", "was")]], FIELD_MAP)
    columns = {"a": pa.array([1, None, 3, None]), "b": pa.array(["x", None, None, "y"]), "c": pa.array([None] * 4)}
    found = with_fields(pa.table({"space": ["s"] * 4, **columns, FIELDS: there}), ["a", "b", "c"])
    assert found.column_names == ["space", FIELDS]
    assert found[FIELDS].to_pylist() == [[("b", "x"), ("a", "1"), ("z", "stays")], [], [("a", "3")], [("b", "y")]]


def test_a_record_of_as_many_columns_as_there_may_be(tmp_path):
    """A record with the maximum of columns is copied: columns that the copies' topic lacks become text fields."""
    with aggregator.open(tmp_path / "c") as catalog:
        columns = {f"c{n}": [n] for n in range(MAX_COLUMNS - 4)}
        catalog.create_topic("other", pa.schema([("data", pa.binary())]))
        catalog.write({"app": "web"}, pa.table({"ts": [1], **columns}), topic="other")
        catalog.query("CREATE PIPE p FROM app = web BACKFILL")
        until(lambda: facts(catalog, "p")["copied"] == 1)
        (copy,) = catalog.query("SELECT FROM {logrange.pipe=p}").to_table().to_pylist()
        assert dict(copy["fields"]) == {**{name: str(n) for name, (n,) in columns.items()}, "app": "web"}


def test_overload_makes_a_pipe_lag_and_nobody_else(tmp_path):
    """Without room for copies, writers continue, the lag shows, and everything is copied once there is room."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.query("CREATE PIPE p")
        append = Ingest.append
        full = True

        def refusing(self, topic, given, partition, producer, sequence, note=""):
            if full and producer is not None:
                raise OverloadedError("full", retry_after_s=0.01)
            return append(self, topic, given, partition, producer, sequence, note)

        with mock.patch.object(Ingest, "append", refusing), mock.patch.object(pipes, "PATIENCE_S", 0.05):
            for number in range(20):
                catalog.write({"a": "1"}, [{"ts": number, "msg": str(number)}])
            until(lambda: facts(catalog, "p")["state"] == "waiting")
            assert facts(catalog, "p")["lag"] == 20
            time.sleep(0.2)  # the pipe releases its files and reopens them
            assert facts(catalog, "p")["copied"] == 0
            full = False
            level(catalog, "p")
        assert copies(catalog, "p") == [str(number) for number in range(20)]


def test_pipes_leave_writers_room(tmp_path):
    """A pipe can copy more than fits in memory unsealed, and writers are never refused."""
    limits = {"memory_bytes": "4 MiB", "log_bytes": "8 MiB"}
    with aggregator.open(tmp_path / "c", limits=limits, durability="none") as catalog:
        for _ in range(6):
            catalog.write({"a": "1"}, [{"msg": "x" * 1000}] * 1500)
            catalog.seal()
        catalog.query("CREATE PIPE p BACKFILL")
        while facts(catalog, "p")["copied"] < 9000:
            catalog.write({"b": "1"}, [{"msg": "y" * 1000}] * 100)  # raises if there is no room
            catalog.seal()
        catalog.query("DELETE PIPE p")
        assert catalog.query("SELECT COUNT FROM logrange.pipe = p WHERE msg PREFIX x").to_pylist() == [{"count": 9000}]


def test_a_failing_pipe_tells_and_tries_again(tmp_path):
    """A read error is shown as the pipe's problem; once it is over, no record is missing."""
    with aggregator.open(tmp_path / "c", tuning=Tuning(pipe_back_off_s=(0.01, 30.0))) as catalog:
        catalog.query("CREATE PIPE p")
        with mock.patch.object(pipes, "begin_round", side_effect=OSError(5, "the disk")):
            catalog.write({"a": "1"}, [{"msg": "x"}])
            until(lambda: facts(catalog, "p")["state"] == "failing")
            assert "the disk" in facts(catalog, "p")["problem"]
            (problem,) = catalog.problems()
            assert (problem.subject, "the disk" in problem.message) == ("pipe p", True)
            assert facts(catalog, "p")["created"] < problem.found_us <= time.time_ns() // 1000
            assert catalog.stats()["problems"] == 1
        until(lambda: copies(catalog, "p") == ["x"])
        level(catalog, "p")
        until(lambda: facts(catalog, "p")["problem"] is None)
        assert catalog.problems() == []


@pytest.mark.usefixtures("quiet")
def test_a_segment_of_another_topic_is_missing(tmp_path):
    """If a segment of a topic that a pipe does not read is missing, the pipe continues without a problem."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"app": "web"}, [{"ts": 1, "msg": "before"}])
        catalog.write({"app": "db"}, [{"ts": 1}] * 10, "other")
        catalog.write({"app": "gone"}, [{"ts": 1}], "other")
        catalog.query("CREATE PIPE p FROM app = web")
        with mock.patch.object(pipes.Pipes, "_keep"):  # as if a crash came first
            catalog.write({"app": "db"}, [{"ts": 2}] * 10, "other")
            catalog.topic("other").erase("{app=gone}")
            catalog.compact()
            level(catalog, "p")
            crash_image(tmp_path / "c", tmp_path / "image")
    for path in (tmp_path / "image" / "segments").rglob("*.esdb"):
        with esformat.open(path) as segment:
            is_other = segment.find("{app=db}") is not None
        if is_other:
            path.unlink()
    with aggregator.open(tmp_path / "image") as catalog:
        assert catalog.problems()
        catalog.write({"app": "web"}, [{"ts": 3, "msg": "behind"}])
        until(lambda: facts(catalog, "p")["lag"] == 0 or facts(catalog, "p")["problem"])
        assert (copies(catalog, "p"), facts(catalog, "p")["problem"]) == (["behind"], None)


def test_what_retention_took_is_counted(tmp_path):
    """Records removed before a pipe could read them are counted exactly."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.query("CREATE PIPE p")
        catalog.write({"a": "1"}, [{"ts": i, "msg": str(i)} for i in range(5)])
        level(catalog, "p")
        append = mock.patch.object(pipes.Pipes, "_append", return_value=0.01)
        with append as refused, mock.patch.object(pipes, "PATIENCE_S", 0.0):
            for start in (10, 20, 30):
                catalog.write({"a": "1"}, [{"ts": start + i, "msg": str(start + i)} for i in range(10)])
                catalog.seal()
            catalog.alter_topic("logs", retention={"segments": 1})
            until(lambda: facts(catalog, "p")["state"] == "waiting")
            catalog.retain()
            before = refused.call_count
            until(lambda: refused.call_count > before + 1)  # the round in progress and the next
        level(catalog, "p")
        assert facts(catalog, "p")["gone"] == 20
        assert copies(catalog, "p")[-10:] == [str(i) for i in range(30, 40)]


def test_idle_pipes_cost_nothing(tmp_path):
    """Idle pipes take almost no CPU time, and a catalog without pipes has no thread."""
    with aggregator.open(tmp_path / "c") as catalog:
        assert catalog._pipes._thread is None
        for number in range(20):
            catalog.query(f"CREATE PIPE p{number} FROM a = {number}")
        catalog.write({"a": "1"}, [{"msg": "x"}])
        level(catalog, *(f"p{number}" for number in range(20)))

        def spent():
            start = time.process_time()
            time.sleep(0.5)
            return time.process_time() - start

        until(lambda: spent() < 0.05)  # a busy machine takes a while to finish


def test_only_pipes_of_a_stream_that_got_records_are_asked(tmp_path, monkeypatch):
    """Only pipes of a stream with new records read; the others skip these records together, and none lags."""
    asked = []
    original = pipes.begin_round

    def counting(backend, chosen, *arguments):
        asked.append(source_to_text(chosen.source))
        return original(backend, chosen, *arguments)

    names = [f"p{number}" for number in range(30)]
    with aggregator.open(tmp_path / "c") as catalog:
        for number, name in enumerate(names):
            catalog.query(f"CREATE PIPE {name} FROM a = {number}")
        catalog.write({"a": "1"}, [{"msg": "first"}])
        level(catalog, *names)
        monkeypatch.setattr(pipes, "begin_round", counting)
        for number in range(5):
            catalog.write({"a": "7"}, [{"msg": f"x{number}"}])
            level(catalog, *names)
        until(lambda: copies(catalog, "p7") == [f"x{number}" for number in range(5)])
        assert set(asked) == {"a = 7"}
    with aggregator.open(tmp_path / "c") as catalog:
        assert [facts(catalog, name)["lag"] for name in names] == [0] * len(names)
        catalog.write({"a": "1"}, [{"msg": "second"}])
        level(catalog, *names)
        assert copies(catalog, "p1") == ["first", "second"]
        assert len(copies(catalog, "p7")) == 5


def test_a_pipe_that_is_woken_as_its_lag_is_asked_for(tmp_path, monkeypatch):
    """The lag of a pipe that is woken meanwhile includes what it was woken for."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.query("CREATE PIPE p")
        until(lambda: catalog._pipes.all()[0].resting)
        catalog._pipes.stop()
        catalog.write({"a": "1"}, [{"msg": "x"}])
        before = vars(catalog._pipes).pop("_passed")

        def passed(mine):
            """Act like the pipe thread at this moment."""
            for pipe in mine.all():
                pipe.resting = False
            return {**before, **pipes.visible_ends(catalog._backend)}

        monkeypatch.setattr(pipes.Pipes, "_passed", property(passed), raising=False)
        assert facts(catalog, "p")["lag"] == 1
        monkeypatch.undo()
        catalog._pipes._passed = before


def test_after_long_idling_a_pipe_is_quick(tmp_path):
    """However long nothing arrived, a new record is copied soon."""
    waits = []

    class Recording(threading.Event):
        def wait(self, timeout=None):
            waits.append(timeout)
            return super().wait(timeout)

    with aggregator.open(tmp_path / "c") as catalog:
        catalog._pipes._stopping = Recording()
        catalog.query("CREATE PIPE p")
        time.sleep(1)
        catalog.write({"a": "1"}, [{"msg": "x"}])
        level(catalog, "p")
        assert copies(catalog, "p") == ["x"]
        assert max(waits) <= pipes.MAX_GAP_S


def test_copied_events_by_hand():
    """Fields stay, and tags are added unless a field has the name; all-null columns are omitted; any slice works."""
    rows = [
        ("{a=1,b=2}", [("a", "own"), ("x", "y")], 5, None),
        ("{}", None, None, None),
        ("{c=3}", [], None, None),
        ('{"q=\\""=""}', [("z", "")], 6, None),
    ]
    batch = pa.record_batch(
        {
            "space": [row[0] for row in rows],
            "grouping": [""] * 4,
            "timestamp": pa.array(range(4), pa.timestamp("us", "UTC")),
            "data": pa.array([b"m"] * 4),
            "fields": pa.array([row[1] for row in rows], pa.map_(pa.string(), pa.string())),
            "status": pa.array([row[2] for row in rows], pa.int64()),
            "absent": pa.array([row[3] for row in rows], pa.string()),
            "record_index": range(4),
            "partition": ["0"] * 4,
        }
    )
    expected = [{"a": "own", "b": "2", "x": "y"}, {}, {"c": "3"}, {"z": "", 'q="': ""}]
    for first in range(4):
        made = copied_events(batch.slice(first), "{logrange.pipe=p}")
        assert made.column_names == ["space", "grouping", "timestamp", "data", "fields", "status"]
        assert [dict(fields) for fields in made["fields"].to_pylist()] == expected[first:]
        assert made["status"].to_pylist() == [5, None, None, 6][first:]
    assert dict(TagSet.parse(rows[3][0]).items) == {'q="': ""}


def test_no_thread_for_pipes(tmp_path, monkeypatch):
    """If the system has no thread, the catalog opens anyway, and the pipe starts once there is one."""
    start = threading.Thread.start

    def refuse(thread):
        if thread.name == "aggregator-pipes":
            raise RuntimeError("can't start new thread")
        start(thread)

    with aggregator.open(tmp_path / "data") as catalog:
        catalog.write({"app": "web"}, [{"msg": "hello"}])
        with monkeypatch.context() as scarce:
            scarce.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="thread"):
                catalog.query("CREATE PIPE p FROM app = web BACKFILL")
        catalog.query("CREATE PIPE p FROM app = web BACKFILL")
        deadline = time.monotonic() + 60
        while catalog.query("DESCRIBE PIPE p")["copied"].to_pylist() != [1]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="thread"):
            aggregator.open(tmp_path / "data")
    aggregator.open(tmp_path / "data").close()
