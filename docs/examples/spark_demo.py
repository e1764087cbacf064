# %% [markdown]
# Spark on the events that `make demo` tells of: the git history around here, or else the files of this Python.
#
# `python docs/examples/spark_demo.py [folder]`: Parquet becomes segments, those are read back, SQL is asked of them,
# they are loaded into a catalog. Starting Spark takes most of its time.

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

# %% The last changes of every file, and how many it has
CHANGES = """
SELECT space AS file, count(*) AS changes, max(timestamp) AS last
FROM events GROUP BY space ORDER BY changes DESC, file LIMIT 5
"""


# %%
def main(spark: Any, folder: str | Path) -> dict[str, Any]:
    """Make everything anew in `folder`; gives the summaries of the jobs and what was found."""
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
