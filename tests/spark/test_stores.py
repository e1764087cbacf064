"""Segments in an object store, read by Spark's tasks from a real S3 endpoint; and spark-submit as it is shipped."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from clicks import click_table, in_file_order, write_clicks

import esformat.spark
from esformat.spark import jobs

from .test_read import rows, rows_of

ROOT = Path(__file__).parents[2]


@pytest.fixture
def lake(spark, s3, bucket, tmp_path):
    """2,000 clicks in two objects below a prefix; Spark's workers know the endpoint from their environment."""
    table = click_table(2000)
    for number in range(2):
        write_clicks(tmp_path / f"{number}.esdb", table.slice(1000 * number, 1000))
        s3.client().upload_file(str(tmp_path / f"{number}.esdb"), bucket, f"lake/deep/{number}.esdb")
    known = dict(spark.sparkContext.environment)
    spark.sparkContext.environment.update(s3.environment)
    esformat.spark.register(spark)
    yield f"s3://{bucket}/lake"
    spark.sparkContext.environment.clear()
    spark.sparkContext.environment.update(known)
    esformat.spark.register(spark)


def test_prefix_of_a_bucket(spark, lake):
    """All objects below a prefix, or what a condition leaves of them; the count of events that verifying tells."""
    expected = in_file_order(click_table(2000))
    df = spark.read.format("esdb").option("partitions", 2).load(lake)
    assert rows(df) == rows_of(expected)
    one = esformat.spark.read(spark, lake, where="space = 'customer-1' AND type = 'page'")
    assert rows(one) == rows_of(expected[(expected.space == "customer-1") & (expected.type == "page")])
    assert jobs.verify(spark, [lake]).events == 2000
    with pytest.raises(Exception, match="nothing"):
        spark.read.format("esdb").load(f"{lake}/nothing").count()


def test_spark_submit(tmp_path):
    """A job under the spark-submit that PySpark brings, with the program itself as its script."""
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
