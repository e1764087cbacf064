"""A program of several commands, and how each one ends: its status, and one line for whatever went wrong."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from keyword import iskeyword

import click

from esformat import ClosedError, EsdbError, UnknownIndexError, UsageError
from esformat.base.extras import advice

_WRONG_USAGE = (UsageError, UnknownIndexError, ClosedError)
_MAY_NOT = "run as a user who may, or allow it with chmod or chown, here and on the directories above"
_FIXED = "write elsewhere, or mount it for writing"
_INTERRUPTED = 130  # what shells report for an interrupt

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Verbs(Mapping[str, click.Command]):
    """The commands by name, imported when they are asked for: `esdb info` need not wait for the readers of Parquet.

    Each is a module of `package` with a command of the module's name; "a-b" is `a_b`, and "import" `import_`. The name
    "room/a" is that of the command "a" of which the module stands in a room of the package.
    """

    def __init__(self, package: str, names: Sequence[str]) -> None:
        places = (name.rpartition("/") for name in names)
        self._packages = {name: f"{package}.{room}" if room else package for room, _, name in places}

    def __getitem__(self, name: str) -> click.Command:
        package = self._packages[name]
        module = name.replace("-", "_") + "_" * iskeyword(name)
        command: click.Command = getattr(import_module(f"{package}.{module}"), module)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(self._packages)

    def __len__(self) -> int:
        return len(self._packages)


class Group(click.Group):
    """A group that lists its commands in our order, which is the one they are learned in, each with its whole line."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(limit=1000)) for name, each in found if each is not None]
            )

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


_ZSH_COMPLETES = "    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }\n"
"""A .zshrc that nobody has changed does not turn completion on."""


def completion_command(example: str) -> click.Command:
    """Make the command `completion` of a program."""

    @click.command(epilog=f"\b\nExamples:\n{example}")
    @click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
    @click.pass_context
    def completion(ctx: click.Context, shell: str) -> None:
        """Print the script that lets SHELL complete verbs, options, values and files with the tab key."""
        from click.shell_completion import get_completion_class  # here: few ask

        main = ctx.find_root().command
        kind = get_completion_class(shell)
        assert kind is not None  # click knows these three
        source = kind(main, {}, str(main.name), f"_{str(main.name).upper()}_COMPLETE").source()
        click.echo(source.replace("    compdef ", f"{_ZSH_COMPLETES}    compdef "))

    return completion


def run_program(main: click.Group, arguments: Sequence[str], *, wrong_usage: tuple[type[Exception], ...] = ()) -> int:
    """Run one command of `main` and return its exit status. What goes wrong is one line on stderr.

    wrong_usage: errors that mean status 2, besides those of esformat.
    """
    program = str(main.name)
    completing = f"_{program.upper()}_COMPLETE"
    if completing in os.environ:  # set by the shell, which asks what may come next, or for its own part of that
        from click.shell_completion import shell_complete  # here: few ask

        return shell_complete(main, {}, program, completing, os.environ[completing])
    status = _invoke(main, program, arguments, (*_WRONG_USAGE, *wrong_usage))
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        _discard_output()
        if status == 0 and error.errno != errno.EPIPE:
            return _failed(program, one_line(error), 1)
    return status


def _invoke(main: click.Group, program: str, arguments: Sequence[str], wrong_usage: tuple[type[Exception], ...]) -> int:
    try:
        # not main.main(), which has its own idea of how a broken pipe ends
        with main.make_context(program, list(arguments)) as context:
            status = main.invoke(context)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.UsageError as error:
        return _wrong_usage(program, error)
    except (click.Abort, KeyboardInterrupt):
        return _failed(program, "interrupted", _INTERRUPTED)
    except MemoryError:
        return _failed(program, "out of memory", 1)
    except ModuleNotFoundError as error:
        missing = advice(error, "this")
        if missing is None:
            raise
        return _failed(program, missing, 2)
    except expected_errors() as error:
        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            return 0  # whoever read our output, `head` for example, has seen enough
        status = error.exit_code if isinstance(error, click.ClickException) else 1
        return _failed(program, one_line(error), 2 if isinstance(error, wrong_usage) else status)
    return status if isinstance(status, int) else 0


def expected_errors() -> tuple[type[Exception], ...]:
    """The errors that are told in one line; those of pyarrow only where it was imported, which is slow."""
    arrow = sys.modules.get("pyarrow")
    arrow_errors = () if arrow is None else (arrow.ArrowException,)
    return (click.ClickException, EsdbError, OSError, UnicodeError, *arrow_errors)


def one_line(error: Exception) -> str:
    """Say what went wrong, and with which file, in one line."""
    if isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror.lower()}" if error.filename else error.strerror.lower()
    else:
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        message = message.replace("overwrite=True", "--force")  # what it is called here
    if any(map(_is_of_a_file_here, (error, error.__cause__))):
        message += f"; {_MAY_NOT}"
    if isinstance(error, OSError) and error.errno == errno.EROFS:
        message += f"; {_FIXED}"
    return " ".join(message.split()) or type(error).__name__


def _is_of_a_file_here(error: BaseException | None) -> bool:
    """Whether an error is a lack of permission that can be given with chmod: stores and sockets have others."""
    return isinstance(error, PermissionError) and bool(error.filename) and "://" not in str(error.filename)


def _wrong_usage(program: str, error: click.UsageError) -> int:
    command = error.ctx.command_path if error.ctx is not None else program
    message = " ".join(error.format_message().split()).rstrip(".")
    click.echo(f"{command}: {message} (see '{command} --help')", err=True)
    return 2


def _failed(program: str, message: str, status: int) -> int:
    click.echo(f"{program}: {message}", err=True)
    return status


def _discard_output() -> None:
    """Send nowhere what could not be written, since Python tries once more when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
