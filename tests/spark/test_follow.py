"""Directories of segments as streams, with a real Spark: every event once, whichever process ends."""

from __future__ import annotations

import os
import signal
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clicks import click_table, write_clicks
from effort import long, share_of
from pyspark import cloudpickle

import esformat
import esformat.spark
from esformat import UsageError, tools
from esformat.spark import identity, jobs, segment_cache
from esformat.spark.identity import joined, origin_of
from esformat.spark.source import EsdbDataSource

ROLES = {"space": "user", "timestamp": "at", "grouping": "app", "indexes": "type"}


def events(folder, name, first, count):
    """Write `count` of a thousand events to a segment; return their payloads."""
    part = click_table(1000).slice(first, count)
    write_clicks(folder / name, part)
    return sorted(part["data"].to_pylist())


class Sink:
    """Collects batches in their order, for `foreachBatch`."""

    def __init__(self):
        self.batches = []

    def __call__(self, df, number):
        self.batches.append(sorted(bytes(row.data) for row in df.collect()))


def follow(spark, folder, checkpoint, **options):
    """Read all available events from the checkpoint on; return the payloads of each micro-batch."""
    sink = Sink()
    stream = spark.readStream.format("esdb").options(columns="space,data", **options).load(str(folder))
    query = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    query = query.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(600), "the machine is too busy"
    finally:
        query.stop()
    return sink.batches


@long
def test_follow_and_restart(spark, tmp_path):
    """New segments are read in micro-batches of limited size. A restart continues behind them, even if they were merged
    or renamed.
    """
    folder = tmp_path / "clicks"
    folder.mkdir()
    parts = [events(folder, f"{number}.esdb", 100 * number, 100) for number in range(3)]
    first = follow(spark, folder, tmp_path / "checkpoint", maxFilesPerTrigger="2")
    assert first == [sorted(parts[0] + parts[1]), parts[2]]
    jobs.compact(spark, str(folder))
    assert len(list(folder.glob("*.esdb"))) == 1
    (folder / "below").mkdir()
    parts.append(events(folder / "below", "3.esdb", 300, 100))
    (folder / ".4.esdb.partial").write_bytes(b"half a file")
    assert follow(spark, folder, tmp_path / "checkpoint") == [parts[3]]
    parts.append(events(folder, "5.esdb", 500, 100))
    assert follow(spark, folder, tmp_path / "checkpoint", pathGlobFilter="[!5]*") == []
    assert follow(spark, folder, tmp_path / "checkpoint", where="space > ''") == [parts[4]]


# ------------------------------------------------------------ offsets, without a session


def reader(folder, **options):
    source = EsdbDataSource({"path": str(folder), **options})
    return source.streamReader(source.schema())


def read(stream, start, end):
    tasks = stream.partitions(start, end)
    batches = [batch for task in tasks for batch in stream.read(task)]
    return sorted(pa.Table.from_batches(batches)["data"].to_pylist()) if batches else []


def compact(folder, name, *parts):
    """Merge the segments as the job `compact` does."""
    paths = [folder / part for part in parts]
    tools.merge(paths, folder / name, properties=joined([origin_of(str(path)) for path in paths]).as_property())
    for path in paths:
        path.unlink()


def latest(stream, start):
    return stream.latestOffset(start, stream.getDefaultReadLimit())


def test_micro_batch_that_is_run_again(tmp_path):
    """A repeated micro-batch has the same events, though new ones arrived, and also after its segments were merged."""
    wanted = events(tmp_path, "a.esdb", 0, 50) + events(tmp_path, "b.esdb", 50, 50)
    stream = reader(tmp_path)
    start = stream.initialOffset()
    end = latest(stream, start)
    events(tmp_path, "c.esdb", 100, 50)
    assert read(stream, start, end) == sorted(wanted)
    compact(tmp_path, "d.esdb", "a.esdb", "b.esdb")
    assert read(stream, start, end) == sorted(wanted)
    assert read(stream, end, latest(stream, end)) == sorted(click_table(1000).slice(100, 50)["data"].to_pylist())


@pytest.mark.parametrize("now", [False, True], ids=["so many a time", "what is there now"])
def test_segments_that_were_merged_before_the_stream_came_to_them(tmp_path, now):
    """Segments merged from known ones are skipped whenever they appear: their origins are known though deleted."""
    events(tmp_path, "a.esdb", 0, 50)
    events(tmp_path, "b.esdb", 50, 50)
    stream = reader(tmp_path, maxFilesPerTrigger="2")
    start = latest(stream, stream.initialOffset())
    unread = events(tmp_path, "c.esdb", 100, 50)
    stream = reader(tmp_path, **({} if now else {"maxFilesPerTrigger": "1"}))
    if now:
        stream.prepareForTriggerAvailableNow()
    compact(tmp_path, "d.esdb", "a.esdb", "b.esdb")
    end = latest(stream, start)
    assert read(stream, start, end) == unread
    after = latest(reader(tmp_path), end)
    assert read(stream, end, after) == []
    assert list(after["segments"]) == ["c.esdb", "d.esdb"]


def test_a_micro_batch_opens_what_is_new(tmp_path, monkeypatch):
    """However many segments a stream knows, the next micro-batch opens only new ones, three times each."""
    for number in range(5):
        events(tmp_path, f"{number}.esdb", 10 * number, 10)
    stream = reader(tmp_path)
    known = latest(stream, stream.initialOffset())
    opened = []
    for module, name in ((identity, "open_segment"), (segment_cache, "FileSource")):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda place, real=real, **how: opened.append(place) or real(place, **how))
    new = events(tmp_path, "new.esdb", 500, 10)
    assert read(stream, known, latest(stream, known)) == new
    assert opened == [str(tmp_path / "new.esdb")] * 3


def test_segments_that_went_or_are_mixed(tmp_path):
    """A segment that disappeared unread, or was merged with read ones, ends the stream with an error that names it."""
    events(tmp_path, "a.esdb", 0, 50)
    stream = reader(tmp_path)
    start = stream.initialOffset()
    end = latest(stream, start)
    events(tmp_path, "b.esdb", 50, 50)
    further = latest(stream, end)
    (tmp_path / "b.esdb").rename(tmp_path / "b.gone")
    with pytest.raises(UsageError, match=r"removed before the stream read them: b\.esdb"):
        stream.partitions(end, further)
    tolerant = reader(tmp_path, failOnDataLoss="false")
    assert read(tolerant, end, further) == []
    (tmp_path / "b.gone").rename(tmp_path / "b.esdb")
    compact(tmp_path, "m.esdb", "a.esdb", "b.esdb")
    with pytest.raises(UsageError, match=r"m\.esdb was merged from 2 segments, of which the stream read 1"):
        read(stream, end, latest(stream, end))


def test_a_stream_names_one_directory(tmp_path):
    events(tmp_path, "a.esdb", 0, 5)
    for options in ({"limit": "3"}, {"paths": f'["{tmp_path}"]'}):
        with pytest.raises(UsageError, match="one directory"):
            reader(tmp_path, **options)


# ------------------------------------------------------------ writing


class Dying(EsdbDataSource):
    """The data source, but tasks and commits die as the option `die` says, once."""

    @classmethod
    def name(cls):
        return "dying-stream"

    def streamWriter(self, schema, overwrite):
        how, flag = self.options.pop("die").split(":", 1)
        made = super().streamWriter(schema, overwrite)
        portions, publish = made._writer._portions, made._publish

        def ends(*hows):
            if how in hows:
                try:
                    os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    return
                if how == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise OSError("the disk is full")

        def dying_portions(batches):
            for portion in portions(batches):
                yield portion
                ends("killed")

        def dying_publish(*given):
            ends("before commit")
            publish(*given)
            ends("after commit")

        made._writer._portions, made._publish = dying_portions, dying_publish
        return made


@pytest.fixture
def dying(spark):
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark.dataSource.register(Dying)
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def write(spark, tmp_path, **options):
    """Write each Parquet file of a directory as a micro-batch, starting at the checkpoint."""
    schema = spark.read.parquet(str(tmp_path / "in")).schema
    source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    writer = source.writeStream.format("dying-stream").options(**ROLES, **options)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).queryName("a").trigger(availableNow=True)
    query = query.start(str(tmp_path / "out"))
    try:
        assert query.awaitTermination(600), "the machine is too busy"
    finally:
        query.stop()


@pytest.mark.parametrize("how", share_of(["killed", "before commit", "after commit"], 3))
def test_streams_write_exactly_once(spark, dying, tmp_path, how):
    """A query whose task is killed, or whose driver dies just before or after a commit, is restarted: every row is
    written once, with one commit for each file, and no staged file remains.
    """
    table = click_table(400).rename_columns(["user", "app", "at", "data", "type", "country"])
    (tmp_path / "in").mkdir()
    for number in range(2):
        pq.write_table(table.slice(200 * number, 200), tmp_path / "in" / f"{number}.parquet")
    die = f"{how}:{tmp_path / 'died'}"
    if how == "killed":
        write(spark, tmp_path, die=die)
    else:
        with pytest.raises(Exception, match="the disk is full"):
            write(spark, tmp_path, die=die)
        write(spark, tmp_path, die=die)
    assert (tmp_path / "died").exists()
    with esformat.open_many(tmp_path / "out") as written:
        assert sorted(written.scan(columns=["data"]).to_table()["data"].to_pylist()) == sorted(
            table["data"].to_pylist()
        )
    names = sorted(path.name.split("-")[0] for path in (tmp_path / "out").iterdir())
    assert names == ["_committed", "_committed", "part", "part"]


def test_streams_append(spark, tmp_path):
    """A stream adds segments; other output modes are refused."""
    events(tmp_path, "a.esdb", 0, 5)
    stream = spark.readStream.format("esdb").load(str(tmp_path)).writeStream.format("esdb").outputMode("complete")
    with pytest.raises(Exception, match=r"outputMode|complete"):
        stream.option("checkpointLocation", str(tmp_path / "c")).start(str(tmp_path / "out")).awaitTermination(60)


def test_streams_whose_checkpoints_spark_chooses(spark, tmp_path, request):
    """The commit of one query keeps the staged files of another and leaves none of its own."""
    request.addfinalizer(lambda: spark.conf.unset("spark.sql.streaming.checkpointLocation"))
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "checkpoints"))
    (tmp_path / "in").mkdir()
    events(tmp_path / "in", "a.esdb", 0, 5)
    stream = spark.readStream.format("esdb").load(str(tmp_path / "in"))
    source = EsdbDataSource({"path": str(tmp_path / "out")})
    other = source.streamWriter(stream.schema, overwrite=False)
    staged = set((tmp_path / "out").iterdir())
    query = stream.writeStream.format("esdb").queryName("one").trigger(availableNow=True).start(str(tmp_path / "out"))
    assert query.awaitTermination(60), "the machine is too busy"
    assert staged <= set((tmp_path / "out").iterdir())
    other.abort([], 0)
    assert sorted(path.name.split("-")[0] for path in (tmp_path / "out").iterdir()) == ["_committed", "part"]
