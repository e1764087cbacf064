"""`esdb spark`: bulk jobs on many files, on all processors of this machine or on a cluster."""

from __future__ import annotations

from typing import Any

import click

from esformat.cli.inputs import reading_of, reading_options
from esformat.cli.output import input_format_option, target_format_option
from esformat.cli.params import Hex, Pair, Size
from esformat.cli.program import Group
from esformat.cli.spark_jobs import job_options, run_job, spark_format

_INPUT_FORMATS = ("parquet", "orc", "jsonl", "csv", "arrow", "go-esdb")
_OUTPUT_FORMATS = ("esdb", "parquet", "orc", "jsonl", "csv")

_CONVERT = """\b
Examples:
  esdb spark convert events/*.parquet activity/ --space user_id --timestamp at --index type
  esdb spark convert logs/ lake/ --input-format jsonl --space host --timestamp time --grouping service
  esdb spark convert old.archive lake/ --input-format go-esdb
  esdb spark convert activity/ export/ --format parquet
  spark-submit --master yarn …/esformat/__main__.py spark convert s/ lake/ --space user --timestamp at
"""
_COMPACT = """\b
Examples:
  esdb spark compact activity/
  esdb spark compact activity/ --target 128MiB --conf spark.driver.memory=4g
"""
_REINDEX = """\b
Examples:
  esdb spark reindex activity/ --index type --index country
  esdb spark reindex activity/ --no-index
"""
_VERIFY = """\b
Examples:
  esdb spark verify lake/
  esdb spark verify lake/2026-*/ archive.esdb --json
"""
_ERASE = """\b
Examples:
  esdb spark erase lake/ --space customer-42
  esdb spark erase lake/ --space customer-42 --space-hex 00ff
"""


class _Jobs(Group):
    """The jobs of this module, and on demand those that other packages register as entry points."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        self._look()
        return super().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        if found is None:
            self._look()
            found = super().get_command(ctx, cmd_name)
        return found

    def _look(self) -> None:
        from importlib.metadata import entry_points  # here: slow to import

        for job in entry_points(group="esformat.spark.jobs"):
            if job.name not in self.commands:
                self.add_command(job.load(), job.name)


@click.group(cls=_Jobs)
def spark() -> None:
    """Run bulk jobs on many files with Spark: restartable, with a summary.

    Exit status: 0 on success, 1 if anything failed, 2 for wrong usage. Finished work is kept: run the same command
    again to continue where it stopped.
    """


@spark.command(epilog=_CONVERT)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT... OUT", type=click.Path(readable=False))
@input_format_option(*_INPUT_FORMATS, text="Format of INPUT. Default: by the file names.")
@target_format_option(*_OUTPUT_FORMATS, text="Format of OUT.", default="esdb")
@click.option("--space", default="space", show_default=True, metavar="COLUMN", help="Column that contains the space.")
@click.option(
    "--timestamp", default="timestamp", show_default=True, metavar="COLUMN", help="Column that contains the time."
)
@click.option("--grouping", metavar="COLUMN", help="Column that contains the grouping (the second key).")
@click.option("--index", "indexes", multiple=True, metavar="COLUMN", help="Index this column. Repeatable.")
@reading_options
@click.option(
    "--write-option",
    "write_options",
    type=Pair(),
    multiple=True,
    metavar="NAME=VALUE",
    help="Option for writing segments. Repeatable.",
)
@click.option("--allow-loss", is_flag=True, help="With --format: write values even if they cannot be restored.")
@click.option("--partitions", type=click.IntRange(1), help="Number of partitions to shuffle the events into.")
@click.option("--group", "group", type=Size(), default="8GiB", show_default=True, metavar="SIZE",
              help="Size of input to convert and publish as one group.")  # fmt: skip
@job_options
def convert(inputs: tuple[str, ...], input_format: str | None, format_: str, group: int, **options: Any) -> int:
    """Convert INPUT files, directories or patterns to files in the directory OUT.

    Converts Parquet, ORC, JSON lines, CSV with a header, Arrow and files of the Go ESDB to segments, or segments to
    another --format. Files already converted into OUT are skipped.
    """
    *sources, out = inputs
    if not sources:
        raise click.UsageError("name the input and then the directory to write into")
    written = dict(options["write_options"])

    def work(session: Any, jobs: Any, show: Any) -> Any:
        if format_ != "esdb":
            return jobs.export(
                session,
                sources,
                out,
                format=spark_format(format_),
                allow_loss=options["allow_loss"],
                group_bytes=group,
                progress=show,
            )
        roles = {name: options[name] for name in ("space", "timestamp", "grouping", "partitions")}
        return jobs.convert(
            session, sources, out, format=spark_format(input_format), read_options=reading_of(options),
            group_bytes=group, progress=show, indexes=options["indexes"], **roles, **written,
        )  # fmt: skip

    return run_job("converting", options, work)


@spark.command(epilog=_COMPACT)
@click.argument("directory", type=click.Path(file_okay=False, readable=False))
@click.option(
    "--target", type=Size(), default="256MiB", show_default=True, metavar="SIZE", help="Size of the merged segments."
)
@job_options
def compact(directory: str, target: int, **options: Any) -> int:
    """Merge the small segments of DIRECTORY into fewer, larger ones."""
    return run_job(
        "merging",
        options,
        lambda session, jobs, show: jobs.compact(session, directory, target_bytes=target, progress=show),
    )


@spark.command(epilog=_REINDEX)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(readable=False))
@click.option("--index", "indexes", multiple=True, metavar="COLUMN", help="Index this column. Repeatable.")
@click.option("--no-index", is_flag=True, help="Drop all indexes.")
@job_options
def reindex(paths: tuple[str, ...], indexes: tuple[str, ...], no_index: bool, **options: Any) -> int:
    """Rewrite all segments of PATH, files or directories, in place with exactly these indexes."""
    if bool(indexes) == no_index:
        raise click.UsageError("name the columns with --index, or give --no-index")
    return run_job(
        "indexing", options, lambda session, jobs, show: jobs.reindex(session, paths, indexes, progress=show)
    )


@spark.command(epilog=_VERIFY)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(readable=False))
@job_options
def verify(paths: tuple[str, ...], **options: Any) -> int:
    """Check every block of all segments of PATH, files or directories, against the rules of the format."""
    return run_job("verifying", options, lambda session, jobs, show: jobs.verify(session, paths, progress=show))


@spark.command(epilog=_ERASE)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(readable=False))
@click.option("--space", "spaces", multiple=True, metavar="KEY", help="Erase the events of this space. Repeatable.")
@click.option(
    "--space-hex", "hex_spaces", multiple=True, type=Hex(), metavar="HEX", help="The same, with a hexadecimal key."
)
@job_options
def erase(paths: tuple[str, ...], spaces: tuple[str, ...], hex_spaces: tuple[bytes, ...], **options: Any) -> int:
    """Erase the events of some spaces from all segments of PATH, files or directories, in place.

    Each new version is searched for traces of these events before it replaces the file. You must delete copies
    elsewhere and backups yourself.
    """
    keys: list[str | bytes] = [*spaces, *hex_spaces]
    if not keys:
        raise click.UsageError("name at least one space with --space or --space-hex")
    return run_job("erasing", options, lambda session, jobs, show: jobs.erase(session, paths, keys, progress=show))
