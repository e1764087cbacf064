"""`aggregator token`: manage the bearer tokens of a server."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict
from pathlib import Path

import click

from aggregator.cli.shared.open_catalog import catalog_argument
from aggregator.storage.files.modes import MANIFEST
from esformat.cli.parts import Group, json_option, say, say_json, warn

_EXAMPLES = """\b
Examples:
  aggregator token create data web-1 --scope write --topic clicks
  aggregator token create data grafana --scope read --expires 365d
  aggregator token list data
  aggregator token revoke data web-1
"""
_file_option = click.option(
    "--file",
    type=click.Path(readable=False),
    metavar="FILE",
    help="Token file to use instead of tokens.json in CATALOG.",
)


@click.group(cls=Group, epilog=_EXAMPLES)
def token() -> None:
    """Create, list and revoke the bearer tokens of a server.

    Once a token exists, every request needs one. A running server notices changes within a second.
    """


@token.command(epilog=_EXAMPLES)
@catalog_argument
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(["read", "write", "admin"]),
    required=True,
    help="Scope of the token; admin includes all. Repeatable.",
)
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC", help="Topic it may use, e.g. clicks or 'web-*'. Repeatable."
)
@click.option("--expires", metavar="AGE", help="Lifetime of the token, e.g. 90d.")
@json_option
@_file_option
def create(catalog: str, name: str, scopes: tuple[str, ...], topics: tuple[str, ...], expires: str | None,
           as_json: bool, file: str | None) -> None:  # fmt: skip
    """Create a token for NAME, and print it: only its hash is stored."""
    from aggregator.policy import checked_duration
    from aggregator.server.control.tokens import create as make

    end = None
    if expires is not None:
        end = dt.datetime.now(dt.UTC) + dt.timedelta(microseconds=checked_duration(expires, "--expires"))
    if file is None and not Path(catalog, MANIFEST).exists():
        warn(f"{catalog}: no catalog found here; only a server of this directory will require the token")
    made = make(_file(catalog, file), name, scopes, topics or None, end)
    if as_json:
        say_json({"name": name, "token": made, "scopes": scopes, "topics": topics or None, "expires": end})
    else:
        say(made)


@token.command("list", epilog=_EXAMPLES)
@catalog_argument
@json_option
@_file_option
def list_(catalog: str, as_json: bool, file: str | None) -> None:
    """List the tokens, without their secrets."""
    from aggregator.server.control.tokens import read_tokens

    path = _file(catalog, file)
    tokens = read_tokens(path) if path.exists() else []
    if as_json:
        say_json([{name: value for name, value in asdict(found).items() if name != "digest"} for found in tokens])
        return
    for found in tokens:
        where = "every topic" if found.topics is None else ", ".join(found.topics)
        end = f", until {found.expires}" if found.expires else ""
        say(f"{found.id}  {found.name}: {', '.join(found.scopes)} on {where}{end}")
    if not tokens:
        say("no tokens")


@token.command(epilog=_EXAMPLES)
@catalog_argument
@click.argument("token")
@json_option
@_file_option
def revoke(catalog: str, token: str, as_json: bool, file: str | None) -> None:
    """Revoke TOKEN, an id or a name."""
    from aggregator.server.control.tokens import revoke as take_away

    revoked = take_away(_file(catalog, file), token)
    if as_json:
        say_json({"revoked": [{"id": gone.id, "name": gone.name} for gone in revoked]})
        return
    for gone in revoked:
        say(f"{gone.id}  {gone.name}: revoked")


def _file(catalog: str, file: str | None) -> Path:
    return Path(file) if file is not None else Path(catalog) / "tokens.json"
