"""The group of commands, and how each one ends: its status, and one line for whatever went wrong."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module

import click
import pyarrow as pa

from esformat import ClosedError, EsdbError, UnknownIndexError, UsageError, __version__

_TOOLS = ("merge", "split", "erase", "reindex", "recompress", "repair", "diff")
# Each is a module of this package with a command of that name.
_COMMANDS = ("write", "info", "spaces", "scan", "verify", "convert", "demo", *_TOOLS, "spark")
_WRONG_USAGE = (UsageError, UnknownIndexError, ClosedError)
_INTERRUPTED = 130  # what shells report for an interrupt


class _Verbs(Mapping[str, click.Command]):
    """The commands by name, imported when they are asked for: `esdb info` need not wait for the readers of Parquet."""

    def __getitem__(self, name: str) -> click.Command:
        if name not in _COMMANDS:
            raise KeyError(name)
        command: click.Command = getattr(import_module(f"esformat.cli.{name}"), name)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


class _Group(click.Group):
    """A group that lists its commands in our order, which is the one they are learned in."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    "esdb",
    cls=_Group,
    commands=_Verbs(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="esdb", message="%(prog)s %(version)s")
def main() -> None:
    """Write, read and check .esdb files: events sorted by space, grouping and time.

    Exit status: 0, 1 if a problem was found, 2 if the command was used wrongly.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status. What goes wrong is one line on stderr."""
    status = _invoke(arguments)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        _discard_output()
        if status == 0 and error.errno != errno.EPIPE:
            return _failed(one_line(error), 1)
    return status


def _invoke(arguments: Sequence[str]) -> int:
    try:
        # not main.main(), which has its own idea of how a broken pipe ends
        with main.make_context("esdb", list(arguments)) as context:
            status = main.invoke(context)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.UsageError as error:
        return _wrong_usage(error)
    except (click.Abort, KeyboardInterrupt):
        return _failed("interrupted", _INTERRUPTED)
    except MemoryError:
        return _failed("out of memory", 1)
    except (click.ClickException, EsdbError, pa.ArrowException, OSError, UnicodeError) as error:
        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            return 0  # whoever read our output, `head` for example, has seen enough
        return _failed(one_line(error), 2 if isinstance(error, _WRONG_USAGE) else 1)
    return status if isinstance(status, int) else 0


def one_line(error: Exception) -> str:
    """Say what went wrong, and with which file, in one line."""
    if isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror.lower()}" if error.filename else error.strerror.lower()
    else:
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
    return " ".join(message.split()) or type(error).__name__


def _wrong_usage(error: click.UsageError) -> int:
    command = error.ctx.command_path if error.ctx is not None else "esdb"
    message = " ".join(error.format_message().split()).rstrip(".")
    click.echo(f"{command}: {message} (see '{command} --help')", err=True)
    return 2


def _failed(message: str, status: int) -> int:
    click.echo(f"esdb: {message}", err=True)
    return status


def _discard_output() -> None:
    """Send nowhere what could not be written, since Python tries once more when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
