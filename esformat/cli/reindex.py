"""`esdb reindex`: other columns of a segment get an index."""

from __future__ import annotations

import click

from esformat.cli.console import count, progress
from esformat.cli.output import finished_file, json_option, say_json, shown_name, teller

_EXAMPLES = """\b
Examples:
  esdb reindex activity.esdb indexed.esdb --index type --index country
  esdb reindex activity.esdb plain.esdb --no-index
  esdb reindex activity.esdb rebuilt.esdb --index type --rebuild
"""


@click.command(epilog=_EXAMPLES)
@click.argument("file", type=click.Path())
@click.argument("out", type=click.Path(dir_okay=False))
@click.option("--index", "indexes", multiple=True, metavar="COLUMN", help="Index this column. Repeatable.")
@click.option("--no-index", is_flag=True, help="Drop all indexes.")
@click.option("--rebuild", is_flag=True, help="Build the indexes that FILE has from their columns, too.")
@json_option
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
def reindex(
    file: str, out: str, indexes: tuple[str, ...], no_index: bool, rebuild: bool, as_json: bool, force: bool
) -> None:
    """Write the segment FILE to OUT with indexes on exactly the named columns. FILE stays as it is."""
    from esformat.tools import reindex as reindex_segment  # here: slow to import

    if no_index == bool(indexes):
        raise click.UsageError("name the columns with --index, or give --no-index")
    tell, shown = teller(out), shown_name(out)
    with finished_file(out) as made_at, progress("indexing") as show:
        made = reindex_segment(file, made_at, indexes, rebuild=rebuild, overwrite=force, progress=show)
    if as_json:
        say_json({"path": shown, "events": made.statistics.events, "indexes": made.statistics.indexes}, tell)
        return
    tell(f"{shown}: {count(made.statistics.events, 'event')}")
    for name, facts in made.statistics.indexes.items():
        tell(f"  index {name}: {facts['values']:,} values in {facts['events']:,} events")
