"""`esdb erase`: a segment without the events of some spaces, and the report that shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from esformat.cli.console import count, progress
from esformat.cli.output import finished_file, json_option, say_json, shown_name, teller
from esformat.cli.params import Hex

if TYPE_CHECKING:
    from esformat.tools import EraseReport

_EXAMPLES = """\b
Examples:
  esdb erase activity.esdb without.esdb --space customer-1
  esdb erase activity.esdb report.esdb --space customer-1 --space customer-2 --json
"""


@click.command(epilog=_EXAMPLES)
@click.argument("file", type=click.Path())
@click.argument("out", type=click.Path(dir_okay=False))
@click.option("--space", "spaces", multiple=True, metavar="KEY", help="Erase the events of this space. Repeatable.")
@click.option(
    "--space-hex", "hex_spaces", multiple=True, type=Hex(), metavar="HEX", help="The same, with the key in hexadecimal."
)
@json_option
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
def erase(
    file: str, out: str, spaces: tuple[str, ...], hex_spaces: tuple[bytes, ...], as_json: bool, force: bool
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
    tell, shown = teller(out), shown_name(out)
    with finished_file(out) as made_at, progress("erasing") as show:
        report = erase_spaces(file, made_at, keys, overwrite=force, progress=show)
    report = replace(report, path=shown)
    if as_json:
        say_json(_document(report), tell)
    else:
        _tell(report, file, tell)
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


def _tell(report: EraseReport, file: str, tell: Callable[[str], None]) -> None:
    tell(f"{report.path}: {count(report.events, 'event')} of {count(len(report.erased), 'space')} erased")
    for key, events in report.erased.items():
        tell(f"  {_shown(key)}: {count(events, 'event')}")
    for key in report.absent:
        tell(f"  {_shown(key)}: was not in the file")
    for name, entries in report.index_entries.items():
        words = f"{count(report.index_values[name], 'value')} that no other event has"
        tell(f"  index {name}: {entries:,} entries gone, {words}")
    if report.dictionary_values:
        tell(f"  dictionaries: {count(report.dictionary_values, 'value')} overwritten")
    if report.encoded_anew:
        tell("  all blocks re-encoded: the compression dictionary might have held text of erased events")
    tell(f"  {count(report.copied_blocks, 'block')} copied, {report.encoded_blocks:,} re-encoded")
    tell("checked in the new file:")
    for check in report.checks:
        tell(f"  {check.what}: {'ok' if check.ok else 'FAILED'}, {check.found}")
    for key, found in report.stored_matches.items():
        if found:
            tell(f"  note: the bytes of {_shown(key)!r} stand {found:,} times in the file, in keys or events of others")
    tell(f"erasing is done when {file} and its copies are deleted")
