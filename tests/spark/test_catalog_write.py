"""Writing into a catalog with a real Spark: every row once, in one transaction, whichever process dies."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clicks import click_table, write_clicks
from effort import long, share_of
from pyspark import cloudpickle

import aggregator
import aggregator.spark
from aggregator.spark import save
from aggregator.spark.source import AggregatorDataSource
from aggregator.storage.files.layout import Layout, segment_files
from aggregator.storage.files.staging import staging
from esformat import EsdbError
from esformat.spark import jobs

loading = import_module("aggregator.spark.loading")  # the module: the package exports a function of this name
ROLES = {"space": "user", "timestamp": "at", "grouping": "app"}


@pytest.fixture(scope="module")
def table():
    return click_table(2000).rename_columns(["user", "app", "at", "data", "type", "country"])


def payloads(root, **asked):
    with aggregator.open(root, read_only=True) as catalog:
        return sorted(catalog.topic("clicks").scan(columns=["data"], **asked).to_table()["data"].to_pylist())


def left(root):
    """The files in the staging directory."""
    return [path.name for path in staging(Layout(Path(root))).rglob("*")]


@long
def test_write_makes_what_is_missing(spark, table, tmp_path):
    """The first write creates the catalog and a topic with indexes. A second one adds its rows behind those appended in
    between. Compaction and verification succeed.
    """
    root = str(tmp_path / "data")
    df = spark.createDataFrame(table)
    aggregator.spark.write(df.limit(2000), root, "clicks", indexes=["type"], partitions=2, **ROLES)
    assert payloads(root) == sorted(table["data"].to_pylist())
    assert left(root) == []
    with aggregator.open(root) as catalog:
        topic = catalog.topic("clicks")
        assert topic.stats()["segments"] == 2
        assert topic.indexes == ("type",)
        assert topic.read(columns=["record_index"]).to_table()["record_index"].to_pylist() == list(range(2000))
        carts = sum(kind == "cart" for kind in table["type"].to_pylist())
        assert topic.scan_index("type", "cart").count() == carts
        topic.append([{"space": "x", "timestamp": 1, "data": b"later"}])
    df.where("type = 'cart'").write.format("aggregator").options(topic="clicks", **ROLES).mode("append").save(root)
    with aggregator.open(root) as catalog:
        topic = catalog.topic("clicks")
        assert topic.scan().count() == 2001 + carts
        assert topic.read(from_index=2001).count() == carts
        topic.compact()
        assert catalog.verify() == []
        assert topic.scan_index("type", "cart").count() == 2 * carts


@long
def test_same_batch_twice(spark, table, tmp_path):
    """A write with a known key adds nothing."""
    aggregator.spark.register(spark)
    root = str(tmp_path / "data")
    df = spark.createDataFrame(table.slice(0, 100))
    for _ in range(2):
        writer = df.write.format("aggregator").options(topic="clicks", producer="job", sequence=7, **ROLES)
        writer.mode("append").save(root)
    assert len(payloads(root)) == 100
    assert len(segment_files(Layout(Path(root)))) == df.rdd.getNumPartitions()
    assert left(root) == []


# ------------------------------------------------------------ tasks and drivers that die


class DyingCatalog(AggregatorDataSource):
    """The data source, but tasks and commits die as the option `die` says, once or always."""

    @classmethod
    def name(cls):
        return "dying-catalog"

    def _dying(self, make, schema, overwrite):
        how, flag = self.options.pop("die").split(":", 1)
        made = make(schema, overwrite)
        portions, commit = made._portions, made._commit

        def ends(*hows):
            if how.removeprefix("always ") not in hows:
                return
            try:
                os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                if not how.startswith("always"):
                    return
            if "killed" in how:
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError("the disk is full")

        def dying_portions(batches):
            for portion in portions(batches):
                yield portion
                ends("killed", "failed")

        def dying_commit(messages):
            ends("before commit")
            done = commit(messages)
            ends("after commit")
            return done

        made._portions, made._commit = dying_portions, dying_commit
        return made

    def writer(self, schema, overwrite):
        return self._dying(super().writer, schema, overwrite)

    def streamWriter(self, schema, overwrite):
        return self._dying(super().streamWriter, schema, overwrite)


@pytest.fixture
def dying(spark):
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark.dataSource.register(DyingCatalog)
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@long
def test_tasks_that_die_are_retried(spark, dying, table, tmp_path):
    """A task that is killed after it staged rows is retried: every row is written once, and no staged file remains."""
    root = str(tmp_path / "data")
    options = {**ROLES, "topic": "clicks", "segmentEvents": 500, "die": f"killed:{tmp_path / 'died'}"}
    df = spark.createDataFrame(table).repartition(2)
    df.write.format("dying-catalog").options(**options).mode("append").save(root)
    assert (tmp_path / "died").exists()
    assert payloads(root) == sorted(table["data"].to_pylist())
    assert left(root) == []


@long
def test_write_that_fails_leaves_nothing(spark, dying, table, tmp_path):
    """If a task fails for good, the topic is unchanged and no file remains."""
    root = str(tmp_path / "data")
    options = {**ROLES, "topic": "clicks", "segmentEvents": 500, "die": f"always failed:{tmp_path / 'died'}"}
    writer = spark.createDataFrame(table).coalesce(1).write.format("dying-catalog").options(**options)
    with pytest.raises(Exception, match="the disk is full"):
        writer.mode("append").save(root)
    assert payloads(root) == []
    assert segment_files(Layout(Path(root))) == {}
    assert left(root) == []


def stream(spark, tmp_path, root, name="aggregator", **options):
    """Write each file of a directory as a micro-batch, starting at the checkpoint."""
    schema = spark.read.parquet(str(tmp_path / "in")).schema
    source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    writer = source.writeStream.format(name).options(topic="clicks", **ROLES, **options)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).queryName("a").trigger(availableNow=True)
    query = writer.start(root)
    try:
        assert query.awaitTermination(600), "the machine is too busy"
    finally:
        query.stop()


@pytest.mark.parametrize("how", share_of(["killed", "after commit", "before commit"], 3))
def test_streams_write_exactly_once(spark, dying, table, tmp_path, how):
    """A query whose task is killed, or whose driver dies just before or after a commit, is restarted: every row is
    written once, in one batch for each file.
    """
    root = str(tmp_path / "data")
    (tmp_path / "in").mkdir()
    for number in range(2):
        pq.write_table(table.slice(500 * number, 500), tmp_path / "in" / f"{number}.parquet")
    die = f"{how}:{tmp_path / 'died'}"
    if how == "killed":
        stream(spark, tmp_path, root, "dying-catalog", die=die)
    else:
        with pytest.raises(Exception, match="the disk is full"):
            stream(spark, tmp_path, root, "dying-catalog", die=die)
        assert len(payloads(root)) == (500 if how == "after commit" else 0)
        stream(spark, tmp_path, root, "dying-catalog", die=die)
    assert (tmp_path / "died").exists()
    assert payloads(root) == sorted(table["data"].to_pylist()[:1000])
    with aggregator.open(root, read_only=True) as catalog:
        entries = [entry for entry in catalog._backend.manifest.producers() if entry.producer.startswith("spark:")]
        assert [(entry.sequence, entry.count) for entry in entries] == [(0, 500), (1, 500)]
    assert left(root) == []


# ------------------------------------------------------------ refused


def test_somebody_else_writes(tmp_path, table, monkeypatch):
    """A write fails before its tasks start if another process has the catalog open for writing."""
    monkeypatch.setattr(save, "LOCK_SECONDS", 0.2)
    schema = spark_schema(table)
    source = AggregatorDataSource({"path": str(tmp_path / "data"), "topic": "clicks", **ROLES})
    with aggregator.open(tmp_path / "data"), pytest.raises(aggregator.CatalogLockedError) as caught:
        source.writer(schema, False)
    assert caught.value.holder["pid"] == os.getpid()
    writer = source.writer(schema, False)
    with aggregator.open(tmp_path / "data"), pytest.raises(aggregator.CatalogLockedError):
        AggregatorDataSource(source.options).writer(schema, False)
    assert writer._target.first_index == 0


def spark_schema(table):
    from esformat.spark.parts import spark_schema

    return spark_schema(table.schema)


MISTAKES = {
    "a catalog can only be appended to": ({}, True),
    "no topic is named": ({"topic": ""}, False),
    "unknown option 'where'": ({"where": "x"}, False),
    "missing column 'nix' for the space": ({"space": "nix"}, False),
    "passed together": ({"producer": "x"}, False),
    "must be a whole number": ({"producer": "x", "sequence": "y"}, False),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes(tmp_path, table, message):
    """Invalid options are refused before anything is created."""
    options, overwrite = MISTAKES[message]
    source = AggregatorDataSource({"path": str(tmp_path / "data"), "topic": "clicks", **ROLES, **options})
    with pytest.raises(EsdbError, match=message):
        source.writer(spark_schema(table), overwrite)
    assert not (tmp_path / "data").exists()


def test_reserved_columns(tmp_path, table):
    named = table.append_column("record_index", pa.array(range(len(table))))
    source = AggregatorDataSource({"path": str(tmp_path / "data"), "topic": "clicks", **ROLES})
    with pytest.raises(EsdbError, match="cannot be called 'record_index'"):
        source.writer(spark_schema(named), False)


# ------------------------------------------------------------ the job


@pytest.fixture
def files(table, tmp_path):
    """Three Parquet files of 200 rows."""
    (tmp_path / "files").mkdir()
    for number in range(3):
        pq.write_table(table.slice(200 * number, 200), tmp_path / "files" / f"{number}.parquet")
    return str(tmp_path / "files")


@long
def test_load_stopped_and_run_again(spark, table, files, tmp_path, monkeypatch):
    """A job that dies after a group was committed, before it learns so, continues with the next group. A third run does
    nothing.
    """
    root = str(tmp_path / "data")
    real, calls = loading.write, []

    def dies(*given, **options):
        real(*given, **options)
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt

    options = {"group_bytes": 1, "partitions": 1, "indexes": ["type"], **ROLES}
    with monkeypatch.context() as patched:
        patched.setattr(loading, "write", dies)
        with pytest.raises(KeyboardInterrupt):
            aggregator.spark.load(spark, [files], root, "clicks", **options)
    assert len(payloads(root)) == 400
    again = aggregator.spark.load(spark, [files], root, "clicks", **options)
    assert (again.failed, again.files, again.skipped, again.made, again.events) == ([], 1, 2, 1, 200)
    assert payloads(root) == sorted(table["data"].to_pylist()[:600])
    changed = Path(files) / "0.parquet"
    changed.write_bytes(changed.read_bytes())
    third = aggregator.spark.load(spark, [files], root, "clicks", **options)
    assert (third.files, third.skipped, third.events) == (0, 2, 0)
    assert "has changed since" in third.failed[0][1]
    assert len(payloads(root)) == 600


@long
def test_load_into_a_topic_of_other_types(spark, tmp_path):
    """A column of a related type is loaded into a topic as an append would store it; types are widened if necessary."""
    root, time = tmp_path / "data", pa.array([1], pa.timestamp("us", "UTC"))
    there = {"x": pa.array([1.5]), "n": pa.array([1], pa.int32()), "text": pa.array(["a"])}
    new = {"x": pa.array([2], pa.int64()), "n": pa.array([1 << 40], pa.int64()), "text": pa.array([7], pa.int64())}
    with aggregator.open(root, durability="none") as catalog:
        catalog.create_topic("clicks").append(pa.table({"space": ["a"], "timestamp": time, **there}))
    pq.write_table(pa.table({"space": ["b"], "timestamp": time, **new}), tmp_path / "new.parquet")
    assert loading.load(spark, str(tmp_path / "new.parquet"), str(root), "clicks").ok
    with aggregator.open(root, read_only=True) as catalog:
        found = catalog.topic("clicks").scan(columns=["x", "n", "text"]).to_table().to_pylist()
    assert found == [{"x": 1.5, "n": 1, "text": "a"}, {"x": 2.0, "n": 1 << 40, "text": "7"}]


@long
def test_load_after_compact(spark, tmp_path):
    """Merged segments are recognized by the loaded segments that they were merged from; new ones are loaded."""
    lake, root = tmp_path / "lake", str(tmp_path / "data")
    lake.mkdir()
    table = click_table(900)
    for number in range(2):
        write_clicks(lake / f"{number}.esdb", table.slice(300 * number, 300))
    assert aggregator.spark.load(spark, [str(lake)], root, "clicks", partitions=1).events == 600
    assert jobs.compact(spark, str(lake)).made == 1
    write_clicks(lake / "2.esdb", table.slice(600, 300))
    again = aggregator.spark.load(spark, [str(lake)], root, "clicks", partitions=1)
    assert (again.failed, again.skipped, again.events) == ([], 1, 300)
    assert payloads(root) == sorted(table["data"].to_pylist())
    write_clicks(lake / "3.esdb", table.slice(0, 10))
    jobs.compact(spark, str(lake))
    mixed = aggregator.spark.load(spark, [str(lake)], root, "clicks", partitions=1)
    assert mixed.events == 0
    assert "3 of the 4 files that it was merged from" in mixed.failed[0][1]


@long
def test_command_line(spark, table, files, tmp_path, capfd):
    """`esdb spark load` loads, prints a summary, and returns the exit status that scripts rely on."""
    from esformat.cli import run

    command = ["spark", "load", files, str(tmp_path / "data"), "clicks", "--space", "user", "--timestamp", "at"]
    assert run(command) == 0
    assert "load: 3 files" in capfd.readouterr().out
    assert run(command) == 0
    assert "load: 0 files, 0 files published, 3 skipped" in capfd.readouterr().out
    assert run(command[:3]) == 2
