"""Writing with a real Spark: all rows once, clustered, and no remains of failed writes."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from clicks import click_table, in_file_order
from effort import long, share_of
from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import functions as fn

import esformat
import esformat.spark
from esformat.spark import save
from esformat.spark.options import WriteOptions
from esformat.spark.source import EsdbDataSource
from esformat.spark.types import spark_schema
from tests.spark.test_read import rows, rows_of

ROLES = {"space": "user", "timestamp": "at", "grouping": "app", "indexes": "type,country"}


@pytest.fixture(scope="module")
def clicks():
    """5,000 clicks whose columns have other names than those of events."""
    return click_table(5000).rename_columns(["user", "app", "at", "data", "type", "country"])


@pytest.fixture(scope="module")
def expected():
    """Their rows as they are read back."""
    return rows_of(in_file_order(click_table(5000)))


def left(folder):
    """Names of all files and directories below, commit records excluded; unfinished files would be among them."""
    names = sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*"))
    return [name for name in names if not name.startswith("_committed-")]


def load(spark, folder):
    return spark.read.format("esdb").load(str(folder))


@long
def test_helper_clusters(spark, clicks, expected, tmp_path):
    """Every event is written once. Spaces are in order from file to file, sorted and indexed within, and the result
    says so.
    """
    df = spark.createDataFrame(clicks)
    options = {name: value for name, value in ROLES.items() if name != "indexes"}
    written = esformat.spark.write(df, str(tmp_path), indexes=["type", "country"], partitions=3, **options)
    assert (written.files, written.events) == (3, 5000)
    assert written.bytes == sum(path.stat().st_size for path in tmp_path.glob("*.esdb"))
    assert rows(load(spark, tmp_path)) == expected
    spans = []
    for path in sorted(tmp_path.glob("*.esdb")):
        with esformat.open(path) as segment:
            assert segment.indexes == ("type", "country")
            keys = list(segment.spaces())
            spans.append((keys[0], keys[-1], segment.num_events))
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert max(span[2] for span in spans) < 2 * min(span[2] for span in spans)


@long
def test_large_space_is_split_by_time(spark, tmp_path):
    """A space with most of the events is shared by several tasks; its files follow each other in time."""
    table = pa.table(
        {
            "space": ["one"] * 9000 + ["other"] * 1000,
            "timestamp": pa.array(range(10_000), pa.timestamp("us", "UTC")),
        }
    )
    esformat.spark.write(spark.createDataFrame(table), str(tmp_path), partitions=4)
    times = []
    for path in sorted(tmp_path.glob("*.esdb")):
        with esformat.open(path) as segment:
            found = segment.find("one")
            if found is not None:
                stamps = found.scan().to_table()["timestamp"].cast(pa.int64()).to_pylist()
                times.append((min(stamps), max(stamps), len(stamps)))
    assert len(times) >= 3
    assert sum(count for *_, count in times) == 9000
    assert max(count for *_, count in times) < 5000
    assert all(before[1] <= after[0] for before, after in pairwise(times))


def test_segments_are_bounded(spark, clicks, expected, tmp_path):
    """A task begins its next segment when the current one is full, so that memory does not grow with its rows."""
    df = spark.createDataFrame(clicks).coalesce(1)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    try:
        df.write.format("esdb").options(**ROLES, segmentEvents=1000).mode("append").save(str(tmp_path))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    counts = []
    for path in tmp_path.glob("*.esdb"):
        with esformat.open(path) as segment:
            counts.append(segment.num_events)
    assert counts == [1000] * 5
    assert rows(load(spark, tmp_path)) == expected


def test_append_and_overwrite(spark, clicks, expected, tmp_path):
    """Append adds, overwrite replaces, and no other file remains."""
    df = spark.createDataFrame(clicks)
    target = tmp_path / "new"  # created by the write
    first = df.where("user < 'customer-3'")
    for mode, part in [("append", first), ("append", df.where("user >= 'customer-3'"))]:
        part.write.format("esdb").options(**ROLES).mode(mode).save(str(target))
    assert rows(load(spark, target)) == expected
    first.write.format("esdb").options(**ROLES).mode("overwrite").save(str(target))
    assert load(spark, target).count() == first.count()
    assert [name for name in left(target) if not name.startswith("part-")] == []


@long
def test_overwrite_of_what_is_read(spark, clicks, expected, tmp_path):
    """One statement can read and overwrite the same directory."""
    spark.createDataFrame(clicks).write.format("esdb").options(**ROLES).mode("append").save(str(tmp_path))
    upper = load(spark, tmp_path).withColumn("country", fn.lower("country"))
    esformat.spark.write(upper, str(tmp_path), indexes=["country"], mode="overwrite")
    assert rows(load(spark, tmp_path).withColumn("country", fn.upper("country"))) == expected


def test_overwrite_is_atomic_for_readers(spark, tmp_path):
    """A reader that plans during an overwrite sees all of one write: never a mix, never nothing."""

    def make(number):
        table = pa.table({"space": [f"{n}" for n in range(100)], "timestamp": pa.array([number] * 100, pa.int64())})
        df = spark.createDataFrame(table).withColumn("timestamp", fn.timestamp_micros("timestamp"))
        df.repartition(3).write.format("esdb").mode("overwrite").save(str(tmp_path))

    from esformat.spark.files import segments_at

    make(0)
    seen, done = set(), threading.Event()

    def look():
        while not done.is_set():
            names = [Path(place).name for place in segments_at([str(tmp_path)])]
            seen.add((len({name.split("-")[2] for name in names}), len(names)))

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for number in range(1, 5):
            make(number)
    finally:
        done.set()
        reader.join()
    assert seen == {(1, 3)}


def test_two_overwrites_that_end_together(tmp_path, monkeypatch):
    """After two simultaneous overwrites the events of one remain, not those of both."""
    both = threading.Barrier(2, timeout=0.5)
    real = save.listed_below

    def listed(folder):
        found = list(real(folder))
        with contextlib.suppress(threading.BrokenBarrierError):  # the other one waits for its turn
            both.wait()
        return found

    monkeypatch.setattr(save, "listed_below", listed)
    clicks = click_table(5000)
    schema, options = spark_schema(clicks.schema), WriteOptions(str(tmp_path))
    writers = [save.SegmentWriter(options, schema, overwrite=True) for _ in range(2)]
    written = [writer.write(iter(clicks.slice(0, n + 1).to_batches())) for n, writer in enumerate(writers)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda writer, result: writer.commit([result]), writers, written))
    (name,) = [path.name for path in tmp_path.iterdir() if path.name.startswith("part-")]
    assert sorted(left(tmp_path)) == sorted([name])
    with esformat.open(tmp_path / name) as segment:
        assert segment.num_events in (1, 2)


# ------------------------------------------------------------ tasks that die


class DyingSource(EsdbDataSource):
    """The data source, but tasks die as the option `die` says, unless a file shows that they already did."""

    @classmethod
    def name(cls):
        return "dying"

    def writer(self, schema, overwrite):
        how, flag = self.options.pop("die").split(":", 1)
        made = super().writer(schema, overwrite)
        portions = made._portions

        def dying(batches):
            for portion in portions(batches):
                yield portion
                try:
                    os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    if how != "always":
                        continue
                if how == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise OSError("the disk is full")

        made._portions = dying
        return made


@pytest.fixture
def dying(spark):
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark.dataSource.register(DyingSource)
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.mark.parametrize("how", ["killed", pytest.param("failed", marks=long)])
def test_tasks_that_die_are_retried(spark, dying, clicks, expected, tmp_path, how):
    """A task that is killed or fails after it wrote something is retried: every row once, no orphan file."""
    df = spark.createDataFrame(clicks).repartition(2)
    target = tmp_path / "out"
    options = {**ROLES, "segmentEvents": 500, "die": f"{how}:{tmp_path / 'died'}"}
    df.write.format("dying").options(**options).mode("append").save(str(target))
    assert (tmp_path / "died").exists()
    assert rows(load(spark, target)) == expected
    assert all(name.startswith("part-") for name in left(target))


def test_write_that_fails_leaves_nothing(spark, dying, clicks, expected, tmp_path):
    """If a task fails for good, the existing files remain, and no other."""
    df = spark.createDataFrame(clicks)
    df.write.format("esdb").options(**ROLES).mode("append").save(str(tmp_path / "out"))
    before = left(tmp_path / "out")
    writer = df.coalesce(1).write.format("dying").options(**ROLES, segmentEvents=500, die=f"always:{tmp_path / 'flag'}")
    with pytest.raises(Exception, match="the disk is full"):
        writer.mode("overwrite").save(str(tmp_path / "out"))
    assert left(tmp_path / "out") == before
    assert rows(load(spark, tmp_path / "out")) == expected


# ------------------------------------------------------------ mistakes

MISTAKES = {
    "missing column 'space' for the space": {},
    "missing column 'nix' for the timestamp": {"space": "user", "timestamp": "nix"},
    "column 'number' of type int32 cannot be a key": {"space": "number", "timestamp": "at"},
    "column 'naive' of type timestamp.us. cannot be the timestamp; it has no time zone": {
        "space": "user",
        "timestamp": "naive",
    },
    "no column 'nix' to index": {**ROLES, "indexes": "nix"},
    "column 'data' of type binary cannot be indexed": {**ROLES, "indexes": "data"},
    "must be different columns": {"space": "user", "timestamp": "user"},
    "option 'level' must be a zstd level": {**ROLES, "level": "99"},
    "unknown option 'index'": {**ROLES, "index": "type"},
    "option 'codec' must be one of zstd, lz4, none": {**ROLES, "codec": "snappy"},
}


@pytest.mark.parametrize("message", share_of(MISTAKES, 4))
def test_mistakes(spark, clicks, tmp_path, message):
    """A wrong option or name is refused before a task runs and leaves no file."""
    df = spark.createDataFrame(clicks).withColumn("number", fn.lit(1))
    df = df.withColumn("naive", fn.lit("2020-01-01").cast("timestamp_ntz"))
    with pytest.raises(Exception, match=message):
        df.write.format("esdb").options(**MISTAKES[message]).mode("append").save(str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@long
def test_append_of_other_types(spark, clicks, tmp_path):
    """Columns that could not be read together with the existing ones are refused."""
    df = spark.createDataFrame(clicks)
    df.write.format("esdb").options(**ROLES).mode("append").save(str(tmp_path))
    before = left(tmp_path)
    other = df.withColumn("type", fn.lit(1))
    with pytest.raises(Exception, match=r"column 'type' is int32 in what is written and string in"):
        other.write.format("esdb").options(**ROLES).mode("append").save(str(tmp_path))
    assert left(tmp_path) == before


@long
def test_null_space(spark, tmp_path):
    """A row without a space is not an event: the write fails with that reason."""
    df = spark.sql("SELECT cast(null AS string) AS space, timestamp_micros(1) AS timestamp")
    with pytest.raises(Exception, match="column 'space' is null in row 0"):
        df.write.format("esdb").mode("append").save(str(tmp_path / "out"))
    assert left(tmp_path / "out") == []


@long
def test_locations_as_spark_spells_them(spark, clicks, expected, tmp_path, monkeypatch):
    """`file:/…` names the local disk for writing and reading: no folder called `file:` appears."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    location = f"file:{tmp_path}/out"
    esformat.spark.write(spark.createDataFrame(clicks), location, **{**ROLES, "indexes": ["type", "country"]})
    assert rows(load(spark, location)) == rows(load(spark, tmp_path / "out")) == expected
    assert esformat.spark.read(spark, f"file://{tmp_path}/out").count() == 5000
    assert list((tmp_path / "here").iterdir()) == []
    with pytest.raises(AnalysisException, match="has no bucket"):
        load(spark, "s3a:/bucket/out")


@long
def test_write_in_another_thread(spark, clicks, tmp_path):
    """Spark looks for data sources in the session of the current thread, and the helper provides one."""
    df = spark.createDataFrame(clicks)
    with ThreadPoolExecutor(1) as pool:
        options = {**ROLES, "indexes": ["type"]}
        assert pool.submit(esformat.spark.write, df, str(tmp_path / "a"), **options).result().events == 5000
    with ThreadPoolExecutor(1, initializer=esformat.spark.register, initargs=(spark,)) as pool:
        writer = df.write.format("esdb").options(**ROLES).mode("append")
        pool.submit(writer.save, str(tmp_path / "b")).result()
    assert load(spark, tmp_path / "b").count() == 5000


@long
def test_nothing_is_a_dataset_too(spark, clicks, tmp_path):
    """Columns survive without rows: an empty write is read back empty, and an empty overwrite hides earlier events."""
    df = spark.createDataFrame(clicks)
    empty = df.where("false")
    options = {**ROLES, "indexes": ["type"]}
    assert esformat.spark.write(empty, str(tmp_path), **options).events == 0
    names = ["space", "grouping", "timestamp", "data", "type", "country"]
    assert sorted(load(spark, tmp_path).columns) == sorted(names)
    assert load(spark, tmp_path).count() == 0
    esformat.spark.write(df, str(tmp_path), **options)
    assert load(spark, tmp_path).count() == 5000
    esformat.spark.write(empty, str(tmp_path), mode="overwrite", **options)
    assert (load(spark, tmp_path).count(), len(list(tmp_path.glob("*.esdb")))) == (0, 1)
    esformat.spark.write(empty, str(tmp_path), **options)
    assert len(list(tmp_path.glob("*.esdb"))) == 1
    assert esformat.spark.write(df, str(tmp_path), mode="ignore", **options).files == 0
    with pytest.raises(esformat.UsageError, match="segments exist already"):
        esformat.spark.write(df, str(tmp_path), mode="default", **options)
    assert esformat.spark.write(empty, str(tmp_path / "new"), mode="error", **options).files == 1
