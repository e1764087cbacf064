"""`esdb reindex`: change which columns of segments are indexed."""

from __future__ import annotations

import click

from esformat.cli.console import count, progress
from esformat.cli.new_files import FileReport, files_and_out, write_files
from esformat.cli.output import finished_file, json_option, shown_name
from esformat.io.location import Place

_EXAMPLES = """\b
Examples:
  esdb reindex activity.esdb indexed.esdb --index type --index country
  esdb reindex activity.esdb plain.esdb --no-index
  esdb reindex activity.esdb rebuilt.esdb --index type --rebuild
  esdb reindex parts indexed --index type
"""


@click.command(epilog=_EXAMPLES)
@files_and_out
@click.option("--index", "indexes", multiple=True, metavar="COLUMN", help="Index this column. Repeatable.")
@click.option("--no-index", is_flag=True, help="Drop all indexes.")
@click.option("--rebuild", is_flag=True, help="Rebuild the indexes that FILE already has.")
@json_option
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
def reindex(
    files: tuple[str, ...],
    out: str,
    indexes: tuple[str, ...],
    no_index: bool,
    rebuild: bool,
    as_json: bool,
    force: bool,
) -> int:
    """Write segments with indexes on exactly the named columns.

    FILE is a segment, a directory or pattern of segments, or a place in a store, and is not changed. A single file goes
    to OUT, several go into the directory OUT.
    """
    from esformat.tools import reindex as reindex_segment  # here: slow to import

    if no_index == bool(indexes):
        raise click.UsageError("name the columns with --index, or give --no-index")

    def write(file: Place, target: str) -> FileReport:
        shown = shown_name(target)
        with finished_file(target) as made_at, progress("indexing") as show:
            made = reindex_segment(file, made_at, indexes, rebuild=rebuild, overwrite=force, progress=show)
        lines = [f"{shown}: {count(made.statistics.events, 'event')}"]
        for name, facts in made.statistics.indexes.items():
            lines.append(f"  index {name}: {facts['values']:,} values in {facts['events']:,} events")
        return FileReport({"path": shown, "events": made.statistics.events, "indexes": made.statistics.indexes}, lines)

    return write_files(files, out, write, as_json=as_json)
