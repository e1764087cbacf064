"""`esdb erase`: a segment without the events of some spaces, and the report that shows it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from esformat.cli.console import count, progress, say
from esformat.cli.params import Hex

if TYPE_CHECKING:
    from esformat.tools import EraseReport

_EXAMPLES = """\b
Examples:
  esdb erase activity.esdb without.esdb --space customer-1
  esdb erase activity.esdb report.esdb --space customer-1 --space customer-2 --format json
"""


@click.command(epilog=_EXAMPLES)
@click.argument("file", type=click.Path())
@click.argument("out", type=click.Path(dir_okay=False))
@click.option("--space", "spaces", multiple=True, metavar="KEY", help="Erase the events of this space. Repeatable.")
@click.option("--space-hex", "hex_spaces", multiple=True, type=Hex(), metavar="HEX", help="The same, in hexadecimal.")
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
def erase(
    file: str, out: str, spaces: tuple[str, ...], hex_spaces: tuple[bytes, ...], format_: str, force: bool
) -> int:
    """Write the segment FILE without the events of some spaces to OUT, and report what is gone.

    Their keys, their entries in indexes, the values that only they had and what compression dictionaries might hold of
    them go as well. OUT is then opened again and searched for them: exit status 1 if any is found. FILE stays as it is:
    erasing is done when FILE and its copies are deleted.
    """
    from esformat.tools import erase as erase_spaces  # here: slow to import

    keys: list[str | bytes] = [*spaces, *hex_spaces]
    if not keys:
        raise click.UsageError("name at least one space with --space or --space-hex")
    with progress("erasing") as show:
        report = erase_spaces(file, out, keys, overwrite=force, progress=show)
    if format_ == "json":
        say(json.dumps(_document(report), ensure_ascii=False, indent=2))
    else:
        _say(report, file)
    return 0 if report.ok else 1


def _shown(key: str | bytes) -> str:
    return key.hex() if isinstance(key, bytes) else key


def _document(report: EraseReport) -> dict[str, object]:
    return {
        **asdict(report),
        "erased": {_shown(key): events for key, events in report.erased.items()},
        "absent": [_shown(key) for key in report.absent],
        "stored_matches": {_shown(key): found for key, found in report.stored_matches.items()},
        "ok": report.ok,
    }


def _say(report: EraseReport, file: str) -> None:
    say(f"{report.path}: {count(report.events, 'event')} of {count(len(report.erased), 'space')} erased")
    for key, events in report.erased.items():
        say(f"  {_shown(key)}: {count(events, 'event')}")
    for key in report.absent:
        say(f"  {_shown(key)}: was not in the file")
    for name, entries in report.index_entries.items():
        words = f"{count(report.index_values[name], 'value')} that no other event has"
        say(f"  index {name}: {entries:,} entries gone, {words}")
    if report.dictionary_values:
        say(f"  dictionaries: {count(report.dictionary_values, 'value')} overwritten")
    if report.encoded_anew:
        say("  all blocks encoded anew: the compression dictionary might have held text of erased events")
    say(f"  {count(report.copied_blocks, 'block')} copied, {report.encoded_blocks:,} encoded anew")
    say("checked in the new file:")
    for check in report.checks:
        say(f"  {check.what}: {'ok' if check.ok else 'FAILED'}, {check.found}")
    for key, found in report.stored_matches.items():
        if found:
            say(f"  note: the bytes of {_shown(key)!r} stand {found:,} times in the file, in keys or events of others")
    say(f"erasing is done when {file} and its copies are deleted")
