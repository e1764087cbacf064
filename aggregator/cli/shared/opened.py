"""Catalogs as commands open them, and the arguments and options that several verbs share."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

import aggregator
from aggregator import CatalogLockedError, CatalogNotFoundError
from aggregator.storage.files.modes import create_directory
from esformat.cli.parts import Pair
from esformat.parts import to_bound

if TYPE_CHECKING:
    from aggregator.cli.shared.remote import RemoteCatalog

AnyCatalog: TypeAlias = "aggregator.Catalog | RemoteCatalog"
"""A catalog in a directory, or behind a server: the same verbs."""
_ASKED_OF_SERVERS = "append, export, forward, query, scan, shell, sql, stats, tail, topics"
_ACCESS = "aggregator.access"
_HOST = re.compile(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}/?")


class _Directory(click.Path):
    """A catalog's directory; an address is refused with what to do instead."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if is_address(value):
            verb = "this command" if ctx is None else f"`{ctx.command_path}`"
            self.fail(f"{verb} works on a directory, not through a server; these do: {_ASKED_OF_SERVERS}", param, ctx)
        return super().convert(value, param, ctx)


def is_address(place: Any) -> bool:
    """Whether it names a server, not a directory."""
    return isinstance(place, str) and place.lower().startswith(("http://", "https://"))


def catalog_or_server(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the argument CATALOG, a directory or the address of a server, and the options of access.

    `asking` and `changing` find the options in the context: the command itself has no use for them.
    """
    argument = click.argument("catalog", type=click.Path(readable=False), metavar="CATALOG|URL")
    return argument(_access_options(command))


def server(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the argument URL, of a server, and the options of access, as `catalog_or_server` does."""
    return click.argument("url", metavar="URL")(_access_options(command))


def _access_options(command: Callable[..., Any]) -> Callable[..., Any]:
    def keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        context.meta.setdefault(_ACCESS, {})[parameter.name] = value

    for option in (
        click.option("--server-ca", type=click.Path(readable=False), metavar="FILE", expose_value=False, callback=keep,
                     help="For a server: CA certificates to trust. Default: the system's."),
        click.option("--token-file", type=click.Path(readable=False), metavar="FILE", expose_value=False, callback=keep,
                     help="For a server: file that holds the access token."),
        click.option("--token", envvar="AGGREGATOR_TOKEN", metavar="TEXT", expose_value=False, callback=keep,
                     help="For a server: access token. Prefer AGGREGATOR_TOKEN or --token-file."),
    ):  # fmt: skip
        command = option(command)
    return command


catalog_argument = click.argument("catalog", type=_Directory(readable=False))
topic_argument = click.argument("topic")
optional_topic = click.argument("topic", required=False)
DURABILITY = "fsync"
durability_option = click.option(
    "--durability",
    default=DURABILITY,
    show_default=True,
    metavar="HOW",
    help="What acknowledged events survive: fsync a power cut; interval, interval:200ms, none a crash only.",
)


def policy_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say when a topic rolls and what it keeps."""
    for name, text in (
        (
            "retention",
            "What is kept: bytes, age, segments, partition_bytes, partition_segments; e.g. bytes=10GiB. Repeatable.",
        ),
        ("roll", "When events become a segment: rows, bytes, age; and frame_bytes; e.g. age=60s. Repeatable."),
    ):
        command = click.option(f"--{name}", type=Pair(), multiple=True, metavar="WHAT=LIMIT", help=text)(command)
    return command


def policy(pairs: Sequence[tuple[str, str]]) -> dict[str, Any] | None:
    """A policy as `create_topic` takes it: counts are numbers, "none" is no limit, other limits have units."""
    limits: dict[str, Any] = {}
    for name, text in pairs:
        counts = name == "rows" or name.endswith("segments")
        limits[name] = None if text == "none" else int(text) if counts and text.isdecimal() else text
    return limits or None


def reading(path: str) -> aggregator.Catalog:
    """Open a directory for reading; whoever writes goes on."""
    _must_be(path)
    return aggregator.open(path, read_only=True)


def writing(path: str, durability: str = DURABILITY) -> aggregator.Catalog:
    """Open a directory for writing; only `init` makes a catalog."""
    _must_be(path, hint=f"`aggregator init {path}` makes one")
    return aggregator.open(path, durability=durability)


def looking(path: str) -> aggregator.Catalog:
    """Open a directory for writing, or for reading where another process writes to it or nobody here may."""
    _must_be(path)
    try:
        return writing(path)
    except CatalogLockedError:
        return reading(path)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES):
            raise
        return reading(path)


def asking(place: str) -> AnyCatalog:
    """Open a directory for reading, or the server at an address. Raises click.UsageError for options of the other."""
    return _server(place) if is_address(place) else reading(_without_access(place))


def changing(place: str, durability: str = DURABILITY) -> AnyCatalog:
    """Open a directory for writing, or the server at an address. Raises click.UsageError for options of the other."""
    if not is_address(place):
        return writing(_without_access(place), durability)
    if durability != DURABILITY:
        raise click.UsageError("--durability is for a directory: a server has its own, see `aggregator serve --help`")
    return _server(place)


def _without_access(path: str) -> str:
    """The path of a directory, which needs no token. AGGREGATOR_TOKEN may be there for other commands."""
    for name in typed_options("server_ca", "token_file", "token"):
        raise click.UsageError(f"--{name.replace('_', '-')} goes with the address of a server; {path} is a directory")
    return path


def access() -> tuple[str | None, str | None]:
    """The token, and the file of certificates, that the options of access give. Raises click.UsageError, OSError."""
    if len(typed_options("token", "token_file")) == 2:
        raise click.UsageError("give either --token or --token-file, not both")
    given = click.get_current_context().meta[_ACCESS]
    token = given["token"]
    if given["token_file"] is not None:
        token = Path(given["token_file"]).read_text("utf-8").strip()
    if token == "":
        raise click.UsageError(f"no token in {given['token_file'] or 'what was given'}")
    return token, given["server_ca"]


def _server(address: str) -> RemoteCatalog:
    from aggregator.cli.shared.remote import RemoteCatalog  # needs the extra `client`

    return RemoteCatalog(address, *access())


def typed_options(*names: str) -> list[str]:
    """The options given on the command line."""
    context = click.get_current_context()
    typed = click.core.ParameterSource.COMMANDLINE
    return [name for name in names if context.get_parameter_source(name) is typed]


def _must_be(path: str, hint: str = "name the directory of one, or the address of a server") -> None:
    root = Path(path)
    if "://" in path:
        return  # opening says what a catalog is
    if not (root / "manifest.sqlite").exists() and not (root / "log").is_dir() and not (root / "segments").is_dir():
        if root.is_file():
            reads = f"`esdb scan {path}` reads it" if path.endswith(".esdb") else None
            raise CatalogNotFoundError(f"a {'segment' if reads else 'file'}, not a catalog", path=path, hint=reads)
        if _HOST.fullmatch(path):
            hint = f"the address of a server begins with http:// or https://: http://{path}"
        raise CatalogNotFoundError("no catalog found", path=path, hint=hint)


def parsed_time(given: str | None) -> int | None:
    """A time that was given, µs since the epoch; ISO 8601 text, in UTC where it names no zone."""
    return None if given is None else to_bound(given, "at")


def state_folder() -> Path:
    """The folder for the progress of commands; made if it does not exist."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "aggregator"
    create_directory(folder)
    return folder


def state_file(given: str | None, name: str) -> Path:
    """A progress file: the one given, or the one of that name in the state folder."""
    return state_folder() / f"{name}.json" if given is None else Path(given)
