"""`esdb spark load`: load files of any format into a topic with Spark. pyproject.toml names it as an entry point."""

from __future__ import annotations

from typing import Any

import click

from esformat.cli.parts import (
    Size,
    input_format_option,
    job_options,
    reading_of,
    reading_options,
    run_job,
    spark_format,
)

_FORMATS = ("parquet", "orc", "jsonl", "csv", "arrow", "go-esdb", "esdb")
_EXAMPLES = """\b
Examples:
  esdb spark load events/ data activity --space user_id --timestamp at --index type
  esdb spark load archive/*.esdb data activity
  esdb spark load logs/ data logs --input-format jsonl --space host --timestamp time --partition bulk
"""


@click.command("load", epilog=_EXAMPLES)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT... CATALOG TOPIC", type=click.Path(readable=False))
@input_format_option(*_FORMATS, text="Format of INPUT. Default: by its names.")
@click.option("--space", default="space", show_default=True, metavar="COLUMN", help="Column with the space.")
@click.option("--timestamp", default="timestamp", show_default=True, metavar="COLUMN", help="Column with the time.")
@click.option("--grouping", metavar="COLUMN", help="Column with the grouping, a second key within the space.")
@click.option(
    "--index", "indexes", multiple=True, metavar="COLUMN", help="For a new topic: index this column. Repeatable."
)
@click.option("--partition", default="0", show_default=True, metavar="NAME", help="Partition of the topic.")
@reading_options
@click.option("--partitions", type=click.IntRange(1), help="Number of ranges to shuffle the events into.")
@click.option("--group", "group", type=Size(), default="8GiB", show_default=True, metavar="SIZE",
              help="Amount of input to load in one transaction.")  # fmt: skip
@job_options
def load(inputs: tuple[str, ...], input_format: str | None, group: int, **options: Any) -> int:
    """Load INPUT files, directories or patterns into TOPIC of the CATALOG, both created if they do not exist.

    Spark writes segments, which the catalog adopts one group at a time. Files that were loaded before are skipped. The
    catalog must not be open for writing elsewhere, for example by `aggregator serve`.
    """
    if len(inputs) < 3:
        raise click.UsageError("name the input, then the catalog's directory and the topic")
    *sources, catalog, topic = inputs
    names = ("space", "timestamp", "grouping", "partitions", "partition", "indexes")
    roles = {name: options[name] for name in names}

    def work(session: Any, _: Any, show: Any) -> Any:
        from aggregator.spark import load as load_files

        return load_files(
            session, sources, catalog, topic, format=spark_format(input_format),
            read_options=reading_of(options), group_bytes=group, progress=show, **roles,
        )  # fmt: skip

    return run_job("loading", options, work)
