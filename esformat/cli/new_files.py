"""Verbs that write a new file for each input file: one input to one file, several into a directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, TypeAlias

import click

from esformat.cli.console import count, say, warn
from esformat.cli.output import report_printer, say_json
from esformat.cli.params import several
from esformat.cli.program import expected_errors, one_line
from esformat.cli.segments import is_one, places
from esformat.convert.formats import format_by_name, without_extension
from esformat.io.location import SUFFIX, Place, join_path, locate, name_below, name_of
from esformat.io.publish import STDOUT

Find: TypeAlias = Callable[[Sequence[str]], Sequence[Place]]
Rename: TypeAlias = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class FileReport:
    """The report on one new file: what --json prints, the lines printed otherwise, and whether all went well."""

    facts: dict[str, Any]
    lines: Sequence[str]
    ok: bool = True


Write: TypeAlias = Callable[[Place, str], FileReport]


def files_and_out(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments FILE... and OUT to a command."""
    command = click.argument("out", type=click.Path(readable=False))(command)
    return several("files", "FILE...")(command)


def write_files(
    files: Sequence[str], out: str, write: Write, *, as_json: bool, find: Find = places, rename: Rename = str
) -> int:
    """Call `write` for each input file, print the reports and return the exit status.

    A single file goes to OUT, or into OUT if that is a directory. Several files go into the directory OUT, each under
    its own name, changed by `rename`; if one fails, its error is printed and the others are still written.
    Raises UsageError before anything is written if two files would get the same target, or one would replace an input.
    """
    if is_one(files):
        (source,) = find(files)
        target = str(join_path(out, rename(PurePath(name_of(source)).name))) if _is_directory(out) else out
        report = write(source, target)
        emit = report_printer(target)
        say_json(report.facts, emit) if as_json else _say_lines(report.lines, emit)
        return 0 if report.ok else 1
    _check_directory(files, out)
    pairs = list(_pairs(files, out, find, rename))
    results = [_one_of_several(source, target, write, as_json=as_json) for source, target in pairs]
    good = sum(each["ok"] for each in results)
    say_json(results) if as_json else say(f"{out}: {good:,} of {count(len(results), 'file')} without a problem")
    return 0 if good == len(results) else 1


def _one_of_several(source: Place, target: str, write: Write, *, as_json: bool) -> dict[str, Any]:
    try:
        if "://" not in target:
            Path(target).parent.mkdir(parents=True, exist_ok=True)
        report = write(source, target)
    except expected_errors() as error:
        if isinstance(error, click.ClickException):  # an option is wrong: the same for every file
            raise
        message = one_line(error)
        if not as_json:
            warn(f"esdb: {message if name_of(source) in message else f'{name_of(source)}: {message}'}")
        return {"source": name_of(source), "ok": False, "error": message}
    if not as_json:
        _say_lines(report.lines, say)
    return {"source": name_of(source), "ok": report.ok, **report.facts}


def _say_lines(lines: Sequence[str], emit: Callable[[str], None]) -> None:
    for line in lines:
        emit(line)


def _is_directory(out: str) -> bool:
    return out != STDOUT and (out.endswith("/") or ("://" not in out and Path(out).is_dir()))


def _pairs(files: Sequence[str], out: str, find: Find, rename: Rename) -> Iterator[tuple[Place, str]]:
    """Yield each input once with its target. Raises UsageError if targets collide with each other or with an input."""
    named = {_identity(place): (file, place) for file in reversed(files) for place in reversed(find([file]))}
    inputs = {*named, *(name.parent for name in named)}  # and their directories, for `split`
    made: dict[str, str] = {}
    for file, place in reversed(named.values()):
        below = name_below(file, place)
        target, stem = str(join_path(out, rename(below))), without_extension(below)
        if _identity(locate(target)) in inputs:
            raise click.UsageError(f"{target} is an input or contains one: choose another directory")
        if stem in made:
            raise click.UsageError(f"{made[stem]} and {name_of(place)} would both become {target}: run them one by one")
        made[stem] = name_of(place)
        yield place, target


def _identity(place: Place) -> PurePath:
    return Path(place).resolve() if isinstance(place, str) else PurePath(place.name)


def _check_directory(files: Sequence[str], out: str) -> None:
    """Raise UsageError unless `out` can be a directory, outside the inputs so that the next run does not read it."""
    if out == STDOUT or (not _is_directory(out) and (_names_file(out) or Path(out).is_file())):
        hint = "`esdb merge` and `esdb scan -o FILE` combine several files into one"
        raise click.UsageError(f"several files need an output directory, but {out!r} is a file; {hint}")
    for file in files:
        if file != STDOUT and _identity(locate(out)).is_relative_to(_identity(locate(file))):
            raise click.UsageError(
                f"{out} is inside {file}, where the next run would read it: choose another directory"
            )


def _names_file(out: str) -> bool:
    return out.endswith(SUFFIX) or format_by_name(out) is not None
