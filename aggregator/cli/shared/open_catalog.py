"""Open catalogs for commands, and the arguments and options that several commands share."""

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
from aggregator.storage.files.layout import is_catalog
from aggregator.storage.files.modes import create_directory
from esformat.cli.parts import Pair, warn
from esformat.parts import to_bound

if TYPE_CHECKING:
    from aggregator.cli.shared.remote import RemoteCatalog

AnyCatalog: TypeAlias = "aggregator.Catalog | RemoteCatalog"
"""A catalog in a directory or behind a server; both have the same methods."""
_ASKED_OF_SERVERS = "append, export, forward, query, scan, shell, sql, stats, tail, topics"
_ACCESS = "aggregator.access"
_HOST = re.compile(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}/?")


class _Directory(click.Path):
    """A catalog's directory. The error for an address names the commands that accept one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if is_address(value):
            verb = "this command" if ctx is None else f"`{ctx.command_path}`"
            self.fail(
                f"{verb} works on a directory, not through a server; commands for a server: {_ASKED_OF_SERVERS}",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


def is_address(place: Any) -> bool:
    """Whether `place` is the address of a server, not a directory."""
    return isinstance(place, str) and place.lower().startswith(("http://", "https://"))


def catalog_or_server(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with the argument CATALOG, a directory or a server's address, and the access options.

    `open_any_read_only` and `open_any_writable` find the options in the context; the command does not receive them.
    """
    argument = click.argument("catalog", type=click.Path(readable=False), metavar="CATALOG|URL")
    return argument(_access_options(command))


def server(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with the argument URL, a server's address, and the access options."""
    return click.argument("url", metavar="URL")(_access_options(command))


def _access_options(command: Callable[..., Any]) -> Callable[..., Any]:
    def keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        context.meta.setdefault(_ACCESS, {})[parameter.name] = value

    for option in (
        click.option("--server-ca", type=click.Path(readable=False), metavar="FILE", expose_value=False, callback=keep,
                     help="For a server: CA certificates to trust instead of the system's."),
        click.option("--token-file", type=click.Path(readable=False), metavar="FILE", expose_value=False, callback=keep,
                     help="For a server: file with the access token."),
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
    help="What acknowledged events survive: fsync: a power cut; interval, interval:200ms, none: only a crash.",
)


def policy_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with the options for when a topic rolls and what it keeps."""
    for name, text in (
        (
            "retention",
            "What is kept: bytes, age, segments, partition_bytes, partition_segments; e.g. bytes=10GiB; "
            "none means no limit. Repeatable.",
        ),
        ("roll", "When events become a segment: rows, bytes, age; and frame_bytes; e.g. age=60s. Repeatable."),
    ):
        command = click.option(f"--{name}", type=Pair(), multiple=True, metavar="WHAT=LIMIT", help=text)(command)
    return command


def policy(pairs: Sequence[tuple[str, str]]) -> dict[str, Any] | None:
    """Convert pairs to a policy for `create_topic`: counts become int, "none" no limit, others stay text with units."""
    limits: dict[str, Any] = {}
    for name, text in pairs:
        counts = name == "rows" or name.endswith("segments")
        limits[name] = None if text == "none" else int(text) if counts and text.isdecimal() else text
    return limits or None


def open_read_only(path: str) -> aggregator.Catalog:
    """Open a directory for reading. A process that writes to it is not disturbed."""
    _must_be(path)
    return aggregator.open(path, read_only=True)


def open_writable(path: str, durability: str = DURABILITY) -> aggregator.Catalog:
    """Open a directory for writing. It must exist: only `init` creates a catalog."""
    _must_be(path, hint=f"create one with `aggregator init {path}`")
    return aggregator.open(path, durability=durability)


def open_writable_if_possible(path: str) -> aggregator.Catalog:
    """Open a directory for writing, or for reading if another process writes to it or permissions forbid writing."""
    _must_be(path)
    try:
        return open_writable(path)
    except CatalogLockedError:
        return open_read_only(path)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES):
            raise
        return open_read_only(path)


def open_any_read_only(place: str) -> AnyCatalog:
    """Open a directory for reading, or the server at an address. Raises click.UsageError if an option does not fit."""
    return _server(place) if is_address(place) else open_read_only(_without_access(place))


def open_any_writable(place: str, durability: str = DURABILITY) -> AnyCatalog:
    """Open a directory for writing, or the server at an address. Raises click.UsageError if an option does not fit."""
    if not is_address(place):
        return open_writable(_without_access(place), durability)
    if durability != DURABILITY:
        raise click.UsageError(
            "--durability is only for a directory; a server has its own setting, see `aggregator serve --help`"
        )
    return _server(place)


def _without_access(path: str) -> str:
    """Return the path of a directory. Raises click.UsageError if access options were typed for it.

    AGGREGATOR_TOKEN is ignored: it may be set for other commands.
    """
    for name in typed_options("server_ca", "token_file", "token"):
        raise click.UsageError(f"--{name.replace('_', '-')} goes with the address of a server; {path} is a directory")
    return path


def access() -> tuple[str | None, str | None]:
    """The token and the certificate file from the access options. Raises click.UsageError, OSError."""
    if len(typed_options("token", "token_file")) == 2:
        raise click.UsageError("give either --token or --token-file, not both")
    given = click.get_current_context().meta[_ACCESS]
    token = given["token"]
    if given["token_file"] is not None:
        token = Path(given["token_file"]).read_text("utf-8").strip()
    if token == "":
        raise click.UsageError(f"no token in {given['token_file'] or '--token or AGGREGATOR_TOKEN'}")
    return token, given["server_ca"]


def _server(address: str) -> RemoteCatalog:
    from aggregator.cli.shared.remote import RemoteCatalog  # needs the extra `client`

    return RemoteCatalog(address, *access())


def typed_options(*names: str) -> list[str]:
    """Those of the named options that were given on the command line, not in the environment."""
    context = click.get_current_context()
    typed = click.core.ParameterSource.COMMANDLINE
    return [name for name in names if context.get_parameter_source(name) is typed]


def warn_of_hidden_streams(topic: str) -> None:
    """Warn if a new topic has the name of the SQL table of the streams' records."""
    if topic.casefold() == "streams":
        warn(f"in SQL, {topic} is now this topic, and no longer the table of the streams' records")


def _must_be(path: str, hint: str = "give the directory of a catalog or the address of a server") -> None:
    root = Path(path)
    if "://" in path:
        return  # opening it raises a better error
    if not is_catalog(root):
        if root.is_file():
            reads = f"`esdb scan {path}` reads it" if path.endswith(".esdb") else None
            raise CatalogNotFoundError(f"a {'segment' if reads else 'file'}, not a catalog", path=path, hint=reads)
        if _HOST.fullmatch(path):
            hint = f"the address of a server begins with http:// or https://: http://{path}"
        raise CatalogNotFoundError("no catalog found", path=path, hint=hint)


def parsed_time(given: str | None) -> int | None:
    """Convert ISO 8601 text, UTC unless it names a zone, to µs since the epoch; None if no time was given."""
    return None if given is None else to_bound(given, "at")


def state_folder() -> Path:
    """The folder for the progress of commands, created if it does not exist."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "aggregator"
    create_directory(folder)
    return folder


def state_file(given: str | None, name: str) -> Path:
    """The progress file: `given`, or a file called `name` in the state folder."""
    return state_folder() / f"{name}.json" if given is None else Path(given)
