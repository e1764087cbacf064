"""`esdb erase`: copy segments without the events of some spaces, and report what was erased."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import repeat
from typing import TYPE_CHECKING

import click

import esformat
from esformat.cli.console import count, progress
from esformat.cli.new_files import FileReport, files_and_out, write_files
from esformat.cli.output import finished_file, json_option, shown_name
from esformat.cli.params import Hex
from esformat.cli.segments import is_one, places
from esformat.io.location import Place, name_of

if TYPE_CHECKING:
    from esformat.tools import EraseReport

_EXAMPLES = """\b
Examples:
  esdb erase activity.esdb without.esdb --space customer-1
  esdb erase activity.esdb report.esdb --space customer-1 --space customer-2 --json
  esdb erase parts without --space customer-1
"""


@click.command(epilog=_EXAMPLES)
@files_and_out
@click.option("--space", "spaces", multiple=True, metavar="KEY", help="Erase the events of this space. Repeatable.")
@click.option(
    "--space-hex", "hex_spaces", multiple=True, type=Hex(), metavar="HEX", help="The same, with a hexadecimal key."
)
@json_option
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
def erase(
    files: tuple[str, ...], out: str, spaces: tuple[str, ...], hex_spaces: tuple[bytes, ...], as_json: bool, force: bool
) -> int:
    """Write segments without the events of some spaces, and report what was erased.

    Also removes their keys, their index entries, values that no other event has, and any of their text in compression
    dictionaries. Each new file is then searched for all of these: exit status 1 if any are found. FILE is a segment, a
    directory or pattern of segments, or a place in a store. A single file goes to OUT, several go into the directory
    OUT; files without these spaces are copied. FILE is not changed: the events are gone only when you have deleted it
    and its copies.
    """
    from esformat.tools import erase as erase_spaces  # here: slow to import

    keys: list[str | bytes] = [*spaces, *hex_spaces]
    if not keys:
        raise click.UsageError("name at least one space with --space or --space-hex")
    several = not is_one(files)
    if several and not any(map(_holds, places(files), repeat(keys))):
        raise esformat.SpaceNotFoundError("no file has any of the spaces")

    def write(file: Place, target: str) -> FileReport:
        if several and not _holds(file, keys):
            from esformat.tools.new_segment import copy_file  # here: slow to import

            copy_file(file, target, overwrite=force)
            return FileReport({"path": target, "copied": True}, [f"{target}: copied, it has none of the spaces"])
        with finished_file(target) as made_at, progress("erasing") as show:
            report = erase_spaces(file, made_at, keys, overwrite=force, progress=show)
        report = replace(report, path=shown_name(target))
        return FileReport(_document(report), list(_lines(report, name_of(file))), report.ok)

    return write_files(files, out, write, as_json=as_json)


def _holds(file: Place, keys: Sequence[str | bytes]) -> bool:
    """Whether a segment contains one of the spaces; True if it cannot be read, so that erasing reports the error."""
    try:
        with esformat.open(file) as segment:
            return any(key in segment for key in keys)
    except (esformat.EsdbError, OSError):
        return True


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


def _lines(report: EraseReport, file: str) -> Iterator[str]:
    yield f"{report.path}: {count(report.events, 'event')} of {count(len(report.erased), 'space')} erased"
    for key, events in report.erased.items():
        yield f"  {_shown(key)}: {count(events, 'event')}"
    for key in report.absent:
        yield f"  {_shown(key)}: was not in the file"
    for name, entries in report.index_entries.items():
        words = f"{count(report.index_values[name], 'value')} that no other event has"
        yield f"  index {name}: {entries:,} entries removed, {words}"
    if report.dictionary_values:
        yield f"  dictionaries: {count(report.dictionary_values, 'value')} overwritten"
    if report.reencoded:
        yield "  all blocks re-encoded: the compression dictionary might have contained text of erased events"
    yield f"  {count(report.copied_blocks, 'block')} copied, {report.encoded_blocks:,} re-encoded"
    yield "checked in the new file:"
    for check in report.checks:
        yield f"  {check.what}: {'ok' if check.ok else 'FAILED'}, {check.found}"
    for key, found in report.stored_matches.items():
        if found:
            times = count(found, "time")
            yield f"  note: the bytes of {_shown(key)!r} occur {times} in the file, in keys or events of others"
    yield f"to finish erasing, delete {file} and its copies"
