# %% [markdown]
# Spark with the events of `make demo`: the git history of the current directory, or else the files of this Python.
#
# `python docs/examples/spark_demo.py [folder]` converts Parquet to segments, reads them back, queries them with SQL,
# and loads them into a catalog. Most of the time is spent starting Spark.

# %%
from __future__ import annotations

import shutil
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow.parquet as pq

import aggregator
import aggregator.spark
import esformat.spark
from esformat.spark import jobs
from examples.demo.run import read_real_events

# %% The files with most changes, and the last change of each
CHANGES = """
SELECT space AS file, count(*) AS changes, max(timestamp) AS last
FROM events GROUP BY space ORDER BY changes DESC, file LIMIT 5
"""


# %%
def main(spark: Any, folder: str | Path) -> dict[str, Any]:
    """Rebuild everything in `folder`; return the summaries of the jobs, and the results."""
    folder = Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    events = read_real_events(Path.cwd())
    pq.write_table(events.table, folder / "events.parquet")
    roles = {"grouping": "grouping", "indexes": list(events.indexes), "partitions": 2}

    converted = jobs.convert(spark, [str(folder / "events.parquet")], str(folder / "segments"), **roles)
    spark.read.format("esdb").load(str(folder / "segments")).createOrReplaceTempView("events")
    most = spark.sql(CHANGES).collect()
    history = esformat.spark.read(spark, str(folder / "segments"), where=f"space = '{most[0].file}'")

    loaded = aggregator.spark.load(spark, [str(folder / "segments")], str(folder / "catalog"), "events", **roles)
    with aggregator.open(folder / "catalog", read_only=True) as catalog:
        topic = catalog.topic("events")
        found = {"in the catalog": topic.scan().count(), "of that file": topic.scan(space=most[0].file).count()}
    return {"events": events.num_events, "converted": converted, "loaded": loaded, "most": most,
            "history": history.count(), **found}  # fmt: skip


if __name__ == "__main__":
    started = perf_counter()
    answers = main(esformat.spark.start_session("demo", master="local[2]"), *(sys.argv[1:2] or ["demo-output/spark"]))
    for name, value in answers.items():
        print(f"{name}: {value}")  # noqa: T201 - a script that prints its answers
    print(f"{perf_counter() - started:.1f} s")  # noqa: T201
