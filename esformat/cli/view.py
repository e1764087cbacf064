"""`esdb view`: show segments in the browser, with a viewer registered as an entry point of `esformat.view`."""

from __future__ import annotations

import contextlib
import threading
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeAlias

import click

from esformat.cli.console import count, progress, say, warn
from esformat.cli.segments import files_argument, places
from esformat.errors import UsageError

_EXAMPLES = """\b
Examples:
  esdb view activity.esdb
  esdb view --open activity.esdb reviews.esdb
  esdb view parts
"""
Viewing: TypeAlias = Callable[[Mapping[str, Sequence[str]], Callable[[str], None]], AbstractContextManager[str]]
"""A viewer, called with groups of files by name and a callback for each file that is ready.

Returns a context manager that yields the address of the page and shows the files until it exits.
"""


@click.command(epilog=_EXAMPLES)
@files_argument
@click.option("--open", "opens", is_flag=True, help="Open the address in the browser.")
def view(files: tuple[str, ...], opens: bool) -> None:
    """Show segments in the browser until Ctrl-C: events over time, contents and structure.

    Prints the address of a page; only this machine can open it, and only with that exact address. FILE is a segment, or
    a directory or pattern of segments with the same columns. The events are copied into a temporary directory, which
    takes a second or two per million; the files are not changed.
    """
    shown_by, groups = _viewing(), named_files(files)
    total, done = sum(map(len, groups.values())), 0
    with contextlib.ExitStack() as stack:
        with progress("reading", things=True) as show:

            def copied(_: str) -> None:
                nonlocal done
                done += 1
                if show is not None:
                    show(done, total)

            address = stack.enter_context(shown_by(groups, copied))
        say(address)
        warn(f"{count(total, 'file')}; press Ctrl-C to stop")
        if opens and not webbrowser.open(address):
            warn("esdb: no browser found: open the address yourself")
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


def _viewing() -> Viewing:
    from importlib.metadata import entry_points  # here: slow to import

    for found in entry_points(group="esformat.view"):
        viewing: Viewing = found.load()
        return viewing
    raise UsageError("viewing files in the browser needs the server extra", hint='pip install "esformat[server]"')


def named_files(files: Sequence[str]) -> dict[str, list[str]]:
    """The files of each argument, by its base name, or by the whole argument if that name is taken."""
    found: dict[str, list[str]] = {}
    for given in dict.fromkeys(files):
        paths = places([given])
        local = [path for path in paths if isinstance(path, str)]
        if len(local) < len(paths):
            raise UsageError("only local files can be viewed", path=given, hint="copy it to the disk first")
        name = Path(given).absolute().name.removesuffix(".esdb")
        found[given if name in found or not name else name] = local
    return found
