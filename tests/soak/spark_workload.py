"""One life of `spark_kills`: a driver that runs jobs over one folder, each until it reports completion.

It prints a line for each step: `begin JOB`, `end JOB`, and failures. It may be killed at any time.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

ROLES = {"space": "user", "timestamp": "at", "indexes": ["type"]}
GROUP_BYTES = 16 << 10  # few inputs per group: a job has several commits
JOBS = ("convert", "load", "export", "stream", "compact")


def say(*words: str) -> None:
    print(*words, flush=True)


def run(folder: Path, job: str) -> None:
    """Run a job. Raises RuntimeError if it reports failures."""
    import aggregator.spark
    from esformat.spark import jobs, start_session

    spark = start_session()
    source, segments = str(folder / "in"), str(folder / "segments")
    if job == "stream":
        _stream(folder)
        return
    summary = {
        "convert": lambda: jobs.convert(spark, [source], segments, group_bytes=GROUP_BYTES, **ROLES),
        "load": lambda: aggregator.spark.load(
            spark, [segments], str(folder / "data"), "clicks", group_bytes=GROUP_BYTES, indexes=["type"]
        ),
        "export": lambda: jobs.export(
            spark, [segments], str(folder / "export"), format="parquet", group_bytes=GROUP_BYTES
        ),
        "compact": lambda: jobs.compact(spark, segments),
    }[job]()
    if not summary.ok:
        raise RuntimeError(f"{job}: {summary.failed}")


def _stream(folder: Path) -> None:
    from esformat.spark import start_session

    spark = start_session()
    arriving = spark.readStream.format("esdb").option("maxFilesPerTrigger", 2).load(str(folder / "segments"))
    writing = arriving.writeStream.format("esdb").option("indexes", "type").trigger(availableNow=True)
    writing = writing.option("checkpointLocation", str(folder / "checkpoint"))
    query = writing.start(str(folder / "streamed"))
    query.awaitTermination()


def main(folder: Path, wanted: list[str]) -> None:
    warnings.simplefilter("ignore")
    from esformat.spark import start_session

    start_session(
        "soak", master="local[2,4]",  # a killed task is retried three times more
        conf={
            "spark.driver.memory": "512m", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF",
            "spark.sql.shuffle.partitions": "2", "spark.local.dir": str(folder / "local"),
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        },
    )  # fmt: skip
    for job in wanted:
        say("begin", job)
        run(folder, job)
        say("end", job)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
