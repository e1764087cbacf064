"""Catalogs as commands open them, and the arguments and options that several verbs share."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

import aggregator
from aggregator import Catalog, CatalogNotFoundError
from aggregator.modes import create_directory
from esformat.cli.parts import Pair, say

catalog_argument = click.argument("catalog", type=click.Path())
topic_argument = click.argument("topic")
optional_topic = click.argument("topic", required=False)
format_option = click.option(
    "--format", "format_", type=click.Choice(["table", "json"]), default="table", show_default=True,
    help="json is for scripts.",
)  # fmt: skip
durability_option = click.option(
    "--durability", default="fsync", show_default=True, metavar="HOW",
    help="What acknowledged events survive: fsync a power cut; interval, interval:200ms, none a crash only.",
)  # fmt: skip


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


def reading(path: str) -> Catalog:
    """Open for reading; whoever writes goes on."""
    _must_be(path)
    return aggregator.open(path, read_only=True)


def writing(path: str, durability: str = "fsync") -> Catalog:
    """Open for writing; only `init` makes a catalog."""
    _must_be(path)
    return aggregator.open(path, durability=durability)


def _must_be(path: str) -> None:
    root = Path(path)
    if not (root / "manifest.sqlite").exists() and not (root / "log").is_dir() and not (root / "segments").is_dir():
        raise CatalogNotFoundError("no catalog is there", path=path, hint=f"`aggregator init {path}` makes one")


def state_folder() -> Path:
    """Where commands keep what they note for themselves; made where it is absent."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "aggregator"
    create_directory(folder)
    return folder


def state_file(given: str | None, name: str) -> Path:
    """A file for notes: the one that is named, or one of that name in the folder for such."""
    return state_folder() / f"{name}.json" if given is None else Path(given)


def say_json(facts: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print facts for a script. Keys that are no text are in hexadecimal."""
    say(json.dumps(facts, ensure_ascii=False, indent=2, default=_plain))


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
