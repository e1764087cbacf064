"""A program with subcommands. Each ends with an exit status and, if it fails, one line on stderr."""

from __future__ import annotations

import errno
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from keyword import iskeyword

import click

from esformat import ClosedError, EsdbError, UnknownIndexError, UsageError
from esformat.base.extras import advice
from esformat.io.publish import naming_stdout

_WRONG_USAGE = (UsageError, UnknownIndexError, ClosedError)
_MAY_NOT = "run as a user with access, or grant access with chmod or chown, also to the parent directories"
_FIXED = "write elsewhere, or mount it read-write"
_INTERRUPTED = 130  # what shells report for an interrupt

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Verbs(Mapping[str, click.Command]):
    """The commands by name, each imported on first use, so that `esdb info` does not wait for the Parquet readers.

    A command is an attribute of the module of the same name in `package`: "a-b" is `a_b`, and "import" is `import_`.
    In `names`, "room/a" stands for the command "a" whose module is in the subpackage `room`.
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
    """A group whose help lists the commands in the order of registration, each with its full first sentence."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(limit=1000)) for name, each in found if each is not None]
            )

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name. Raises click.UsageError if they repeat one of its options."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and not ctx.resilient_parsing:
            _refuse_repeated(click.Context(command, ctx, name), rest)
        return name, command, rest


def _refuse_repeated(ctx: click.Context, args: list[str]) -> None:
    """Raise click.UsageError if two values were given for one option, of which click would keep only the last."""
    try:
        values, _, given = ctx.command.make_parser(ctx).parse_args(list(args))
    except click.UsageError as error:
        error.ctx = error.ctx or ctx  # click leaves it out if an option lacks its value
        raise
    if len({option.name for option in given}) == len(given):
        return
    from esformat.cli.params import Names, Pair  # here: seldom needed

    before: dict[str | None, click.Option] = {}
    for option in given:
        if not isinstance(option, click.Option) or option.is_bool_flag:
            continue
        shown = max(option.opts, key=len)
        if option.multiple:
            if isinstance(option.type, Pair) and option.type.once:
                names = Counter(each.partition("=")[0] for each in values[option.name])
                name, times = names.most_common(1)[0]
                if times > 1:
                    raise click.UsageError(f"{shown} has two values for {name!r}; give one", ctx)
        elif option is before.get(option.name) and not option.is_flag:
            advice = "separate names with commas" if isinstance(option.type, Names) else "it takes one value"
            raise click.UsageError(f"{shown} was given twice; {advice}", ctx)
        elif option is not before.setdefault(option.name, option):
            other = max(before[option.name].opts, key=len)
            raise click.UsageError(f"give only one of {other} and {shown}", ctx)


_ZSH_COMPLETES = "    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }\n"
"""Lines that turn zsh's completion on, which a default .zshrc does not do."""


def completion_command(example: str) -> click.Command:
    """Return the command `completion` of a program."""

    @click.command(epilog=f"\b\nExamples:\n{example}")
    @click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
    @click.pass_context
    def completion(ctx: click.Context, shell: str) -> None:
        """Print a script that lets SHELL complete commands, options, values and file names with the Tab key."""
        from click.shell_completion import get_completion_class  # here: seldom needed

        main = ctx.find_root().command
        kind = get_completion_class(shell)
        assert kind is not None  # click knows these three
        source = kind(main, {}, str(main.name), f"_{str(main.name).upper()}_COMPLETE").source()
        click.echo(source.replace("    compdef ", f"{_ZSH_COMPLETES}    compdef "))

    return completion


def run_program(main: click.Group, arguments: Sequence[str], *, wrong_usage: tuple[type[Exception], ...] = ()) -> int:
    """Run one command of `main` and return its exit status. An error is printed as one line on stderr.

    wrong_usage: further errors that end with status 2, besides those of esformat.
    """
    program = str(main.name)
    completing = f"_{program.upper()}_COMPLETE"
    if completing in os.environ:  # set by the shell, which asks for completions or for the completion script
        from click.shell_completion import shell_complete  # here: seldom needed

        return shell_complete(main, {}, program, completing, os.environ[completing])
    status = _invoke(main, program, arguments, (*_WRONG_USAGE, *wrong_usage))
    try:
        if sys.stdout is not None:
            with naming_stdout():
                sys.stdout.flush()
    except OSError as error:
        _discard_output()
        if status == 0 and error.errno != errno.EPIPE:
            return _failed(program, one_line(error), 1)
    return status


def _invoke(main: click.Group, program: str, arguments: Sequence[str], wrong_usage: tuple[type[Exception], ...]) -> int:
    try:
        # not main.main(), which handles a broken pipe differently
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
            return 0  # the reader of the output, such as `head`, has closed the pipe
        status = error.exit_code if isinstance(error, click.ClickException) else 1
        return _failed(program, one_line(error), 2 if isinstance(error, wrong_usage) else status)
    return status if isinstance(status, int) else 0


def expected_errors() -> tuple[type[Exception], ...]:
    """The errors that are printed as one line; those of pyarrow only if it is imported, since importing it is slow."""
    arrow = sys.modules.get("pyarrow")
    arrow_errors = () if arrow is None else (arrow.ArrowException,)
    return (click.ClickException, EsdbError, OSError, UnicodeError, *arrow_errors)


def one_line(error: Exception) -> str:
    """Return an error's message, with the file name, as one line."""
    if isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror.lower()}" if error.filename else error.strerror.lower()
    else:
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        message = message.replace("overwrite=True", "--force")  # its name on the command line
    if any(map(_is_of_a_file_here, (error, error.__cause__))):
        message += f"; {_MAY_NOT}"
    if isinstance(error, OSError) and error.errno == errno.EROFS:
        message += f"; {_FIXED}"
    return " ".join(message.split()) or type(error).__name__


def _is_of_a_file_here(error: BaseException | None) -> bool:
    """Whether a permission is missing that chmod can grant: on a local file, not in a store or for a socket."""
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
    """Redirect stdout to the null device: Python flushes it once more at exit, which would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
