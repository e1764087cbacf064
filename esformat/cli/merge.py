"""`esdb merge`: merge several segments into one."""

from __future__ import annotations

import click

from esformat.cli.console import count, progress
from esformat.cli.output import finished_file, json_option, report_printer, say_json, shown_name
from esformat.cli.segments import places

_EXAMPLES = """\b
Examples:
  esdb merge march.esdb monday.esdb tuesday.esdb wednesday.esdb
  esdb merge all.esdb parts --force
"""


@click.command(epilog=_EXAMPLES)
@click.argument("out", type=click.Path(dir_okay=False, readable=False))
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...", type=click.Path(readable=False))
@json_option
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
def merge(out: str, inputs: tuple[str, ...], as_json: bool, force: bool) -> None:
    """Merge segments into a new segment OUT. INPUT is a segment, a directory or pattern of them, or a place in a store.

    Columns that an INPUT lacks are null for its events. An index is kept if every INPUT with that column has it. If all
    INPUTs have the same columns and indexes, blocks whose range no other INPUT touches are copied without re-encoding.
    Events with the same keys and time keep the order of the INPUTs. The INPUTs are not changed.
    """
    from esformat.tools import merge as merge_segments  # here: slow to import

    emit, shown, found = report_printer(out), shown_name(out), places(inputs)
    with finished_file(out) as made_at, progress("merging") as show:
        made = merge_segments(found, made_at, overwrite=force, progress=show)
    notes = [
        f"index {name!r} is dropped: not every INPUT with that column has it; `esdb reindex` adds it"
        for name in made.dropped_indexes
    ]
    if as_json:
        facts = {"copied_blocks": made.copied_blocks, "encoded_blocks": made.encoded_blocks, "notes": notes}
        say_json({"path": shown, "events": made.statistics.events, "spaces": made.statistics.spaces, **facts}, emit)
        return
    copied, encoded = count(made.copied_blocks, "block"), made.encoded_blocks
    emit(f"{shown}: {count(made.statistics.events, 'event')} of {count(made.statistics.spaces, 'space')}")
    emit(f"{copied} copied, {encoded:,} re-encoded")
    for note in notes:
        emit(f"note: {note}")
