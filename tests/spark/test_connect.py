"""Spark Connect: reading, writing and streams work; features that need Java say so. Runs in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from clicks import click_table, write_clicks

from tests.spark.conftest import MISSING

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os, sys
import aggregator.spark, esformat.spark
from esformat import UsageError
from esformat.spark import jobs
from esformat.spark.java import ensure_java
from pyspark.sql import SparkSession

ensure_java()
os.environ["PYSPARK_PYTHON"] = sys.executable
folder = sys.argv[1]
source, out = f"{folder}/in", f"{folder}/out"
spark = SparkSession.builder.remote("local[1]").config("spark.driver.memory", "700m").getOrCreate()
carts = esformat.spark.read(spark, source, where="type = 'cart'", columns=["space"]).count()
esformat.spark.write(esformat.spark.read(spark, source), out)
esformat.spark.view(spark, "clicks", out)
assert spark.sql("SELECT count(*) FROM clicks WHERE type = 'cart'").collect()[0][0] == carts > 0
stream = spark.readStream.format("esdb").load(source).writeStream.format("esdb")
stream = stream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
stream.start(f"{folder}/streamed").awaitTermination()
assert esformat.spark.read(spark, f"{folder}/streamed").count() == 200
aggregator.spark.write(esformat.spark.read(spark, source), f"{folder}/data", "clicks")
assert aggregator.spark.read(spark, f"{folder}/data", "clicks").count() == 200
refused = [
    lambda: esformat.spark.sql(spark, f"SELECT * FROM esdb.`{out}`"),
    lambda: jobs.compact(spark, out),
    lambda: jobs.verify(spark, out),
    lambda: jobs.convert(spark, source, out),
]
for each in refused:
    try:
        each()
    except UsageError as error:
        assert "classic session" in str(error), error
    else:
        raise AssertionError("it was not refused")
print("all well", flush=True)
os._exit(0)  # the server's Java goes with its parent
"""


@pytest.mark.xdist_group("java")
@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
@pytest.mark.skipif(find_spec("grpc_status") is None, reason='Spark Connect needs: pip install "pyspark[connect]"')
def test_connect(tmp_path):
    """The answers equal those of a classic session."""
    (tmp_path / "in").mkdir()
    write_clicks(tmp_path / "in" / "a.esdb", click_table(200))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(tmp_path)],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert "all well" in done.stdout, done.stderr[-3000:]
