"""Segments in an object store, read and written by Spark's tasks at a real S3 endpoint; and spark-submit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest
from clicks import click_table, in_file_order, write_clicks
from effort import long
from object_store import keys, uploads

import esformat.spark
from esformat.io.commit_folder import StoredFolder
from esformat.io.commits import sweep
from esformat.io.location import locate
from esformat.spark import jobs
from tests.spark.test_read import rows, rows_of
from tests.spark.test_write import dying  # noqa: F401 - a fixture, asked for by its name

ROOT = Path(__file__).parents[2]


@pytest.fixture
def prefix(spark, s3, bucket):
    """An empty prefix; Spark's workers know the endpoint from their environment."""
    known = dict(spark.sparkContext.environment)
    spark.sparkContext.environment.update(s3.environment)
    esformat.spark.register(spark)
    yield f"s3://{bucket}/lake"
    spark.sparkContext.environment.clear()
    spark.sparkContext.environment.update(known)
    esformat.spark.register(spark)


@pytest.fixture
def lake(s3, bucket, prefix, tmp_path):
    """2,000 clicks in two objects below a prefix."""
    table = click_table(2000)
    for number in range(2):
        write_clicks(tmp_path / f"{number}.esdb", table.slice(1000 * number, 1000))
        s3.client.upload_file(str(tmp_path / f"{number}.esdb"), bucket, f"lake/deep/{number}.esdb")
    return prefix


def objects(s3, bucket):
    """Names of all objects below the prefix, except commit records and the empty ones that stand for directories."""
    names = [key.removeprefix("lake/") for key in keys(s3, bucket) if not key.endswith("/")]
    return [name for name in names if not name.startswith("_committed-")]


@long
def test_prefix_of_a_bucket(spark, lake):
    """All objects below a prefix are read, or those that a condition leaves; verification counts every event."""
    expected = in_file_order(click_table(2000))
    df = spark.read.format("esdb").option("partitions", 2).load(lake)
    assert rows(df) == rows_of(expected)
    one = esformat.spark.read(spark, lake, where="space = 'customer-1' AND type = 'page'")
    assert rows(one) == rows_of(expected[(expected.space == "customer-1") & (expected.type == "page")])
    assert jobs.verify(spark, [lake]).events == 2000
    with pytest.raises(Exception, match="nothing"):
        spark.read.format("esdb").load(f"{lake}/nothing").count()


@long
def test_writes_into_a_bucket(spark, s3, bucket, prefix):
    """Append adds and overwrite replaces, by every way of writing; no other object remains in the bucket."""
    table = click_table(2000)
    expected = rows_of(in_file_order(table))
    df = spark.createDataFrame(table)
    first, second = df.where("space < 'customer-3'"), df.where("space >= 'customer-3'")
    written = esformat.spark.write(first, prefix, indexes=["type"], partitions=2)
    assert written.files == len(objects(s3, bucket)) == 2
    second.coalesce(1).write.format("esdb").option("indexes", "type").mode("append").save(prefix)
    assert rows(spark.read.format("esdb").load(prefix)) == expected
    assert len(objects(s3, bucket)) == 3
    esformat.spark.write(spark.read.format("esdb").load(prefix), prefix, mode="overwrite", partitions=1)
    assert rows(spark.read.format("esdb").load(prefix)) == expected
    assert len(keys(s3, bucket)) <= 3  # a segment, a record, the prefix
    assert uploads(s3, bucket) == []


@pytest.fixture
def dying_prefix(prefix, request):
    """The same prefix, with the dying source registered once the endpoint is known."""
    request.getfixturevalue("dying")
    return prefix


@long
def test_tasks_that_die_leave_nothing_in_a_bucket(spark, s3, bucket, dying_prefix, tmp_path, monkeypatch):
    """A task that is killed after uploading an object is retried: every row once. A write that fails for good changes
    nothing; objects of tasks that Spark killed are invisible, and a later write removes them.
    """
    table = click_table(2000)
    writer = spark.createDataFrame(table).repartition(2).write.format("dying").option("segmentEvents", 500)
    writer.option("die", f"killed:{tmp_path / 'died'}").mode("append").save(dying_prefix)
    assert (tmp_path / "died").exists()
    assert rows(spark.read.format("esdb").load(dying_prefix)) == rows_of(in_file_order(table))
    before = objects(s3, bucket)
    assert all(name.startswith("part-") for name in before)
    with pytest.raises(Exception, match="the disk is full"):
        writer.option("die", f"always:{tmp_path / 'flag'}").mode("overwrite").save(dying_prefix)
    deadline = time.monotonic() + 20
    while objects(s3, bucket) != before and time.monotonic() < deadline:
        time.sleep(0.1)  # the other task may still run and remove its own object
    stray = set(objects(s3, bucket)) - set(before)
    assert all(name.startswith("_staging-") for name in stray)  # of a task that Spark killed before it could clean up
    monkeypatch.setattr("esformat.io.write_owner.STALE_SECONDS", -60)
    place = locate(dying_prefix)
    sweep(StoredFolder(place.store, place.path))
    assert objects(s3, bucket) == before


@long
def test_jobs_in_a_bucket(spark, s3, bucket, prefix, tmp_path):
    """Files of another format are converted into a prefix, then merged, reindexed and erased there; each object is
    replaced as a whole.
    """
    table = click_table(1000)
    for number in range(2):
        pq.write_table(table.slice(500 * number, 500), tmp_path / f"{number}.parquet")
    done = jobs.convert(spark, [str(tmp_path)], prefix, group_bytes=1, indexes=["type"], partitions=1)
    assert (done.ok, done.events, done.made) == (True, 1000, 2)
    assert jobs.convert(spark, [str(tmp_path)], prefix).skipped == 2
    done = jobs.compact(spark, prefix)
    assert (done.ok, done.events, done.made, len(objects(s3, bucket))) == (True, 1000, 1, 1)
    assert jobs.reindex(spark, [prefix], ["type", "country"]).made == 1
    done = jobs.erase(spark, [prefix], ["customer-1"])
    assert (done.ok, done.made) == (True, 1)
    assert jobs.erase(spark, [prefix], ["customer-1"]).skipped == 1
    expected = in_file_order(table)
    assert rows(spark.read.format("esdb").load(prefix)) == rows_of(expected[expected.space != "customer-1"])
    assert len(objects(s3, bucket)) == 1
    with pytest.raises(esformat.UsageError, match="a directory that all machines share"):
        jobs.export(spark, [prefix], prefix, format="parquet")


@pytest.mark.xdist_group("java")
@long
def test_spark_submit(tmp_path):
    """A job runs under the spark-submit of PySpark, with the program itself as its script."""
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        pytest.skip("spark-submit needs a Java of the machine")
    write_clicks(tmp_path / "a.esdb", click_table(100))
    home = Path(pyspark.__file__).parent
    environment = dict(os.environ) | {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    command = [
        str(home / "bin" / "spark-submit"), "--master", "local[1]", "--conf", "spark.ui.enabled=false",
        "--driver-memory", "512m", str(ROOT / "esformat" / "__main__.py"), "spark", "verify", str(tmp_path),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "verify: 1 file; 100 events" in done.stdout
