"""`aggregator collect`: collect lines of files into streams as they are written."""

from __future__ import annotations

import hashlib
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import Any

import click

from aggregator import collect as collecting
from aggregator.cli.shared.open_catalog import durability_option, open_writable, state_file
from esformat.cli.parts import Pair, count, json_option, say, say_json

ONCE_PATIENCE_S = 60.0
"""Longest time that `--once` waits for a batch to be accepted."""
_PLAIN = ("time", "multiline", "encoding", "max_line_bytes", "begin", "compressed", "container", "path_tags", "zone")
_EXAMPLES = """\b
Examples:
  aggregator collect --path 'logs/*.log' --into data --tags app=web --once
  aggregator collect --path logs/access.log --into data --line-format combined --tag-from client --once
  aggregator collect --path 'logs/*.jsonl' --into data --line-format json --time at --column took=integer --once
  aggregator collect --path logs/app.log --into data --line-format 'regex=^(?P<ts>[^ ]+) (?P<msg>.*)' --once
  aggregator collect --path 'pods/*/*/*.log' --into data --path-tags '/(?P<namespace>[^_]+)_(?P<pod>[^_]+)_' --once
  aggregator collect collect.toml --once --json
"""


class _Config(click.Path):
    """A TOML file. The error for a directory points to --into."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if Path(value).is_dir():
            self.fail(f"{str(value)!r} is a directory, not a TOML file: give the catalog with --into", param, ctx)
        return super().convert(value, param, ctx)


@click.command(epilog=_EXAMPLES)
@click.argument("config", required=False, type=_Config(exists=True, path_type=Path))
@click.option(
    "--path",
    type=click.Path(readable=False),
    multiple=True,
    metavar="GLOB",
    help="Files to collect, or a folder. Repeatable.",
)
@click.option(
    "--into",
    type=click.Path(readable=False),
    metavar="CATALOG|URL",
    help="A catalog's directory, or http://host:port of a server.",
)
@click.option("--topic", metavar="TOPIC", help="Topic of the streams. Default: logs.")
@click.option("--tags", type=Pair(), multiple=True, metavar="NAME=VALUE", help="Tags of the streams. Repeatable.")
@click.option("--file-tag", metavar="NAME", help='Tag for the file\'s path. Default: file; "" for none.')
@click.option("--line-format", metavar="FORMAT", help=f"{', '.join(collecting.FORMATS[:-1])}, or regex=PATTERN.")
@click.option(
    "--time",
    metavar="NAME",
    help="The key or group with the time. Default: time; for a regex, ts. "
    "none: do not look for dates in lines of text.",
)
@click.option(
    "--tag-from", "tags_from", multiple=True, metavar="NAME", help="A key or group that becomes a tag. Repeatable."
)
@click.option("--field", "fields", multiple=True, metavar="NAME", help="A key that becomes a field. Repeatable.")
@click.option(
    "--column",
    "columns",
    type=Pair(),
    multiple=True,
    metavar="NAME=TYPE",
    help=f"A key or group that becomes a typed column: {', '.join(collecting.TYPES)}. Repeatable.",
)
@click.option("--multiline", metavar="PATTERN", help="Pattern that the first line of each record matches.")
@click.option(
    "--container",
    type=click.Choice(collecting.KINDS),
    help="Container runtime whose wrapping to remove from lines. Default: auto.",
)
@click.option("--path-tags", metavar="PATTERN", help="Pattern of the file's path; named groups become tags.")
@click.option(
    "--timezone", "zone", metavar="ZONE", help="Time zone of times without one, such as Europe/Stockholm. Default: UTC."
)
@click.option("--encoding", metavar="NAME", help="Encoding of the files. Default: utf-8.")
@click.option("--max-line-bytes", type=int, metavar="N", help="Longest line; longer ones are cut. Default: 1 MiB.")
@click.option("--begin", type=click.Choice(["start", "end"]), help="Where to start in each file on the first run.")
@click.option("--compressed", type=click.Choice(["skip", "once"]), help="What to do with .gz files. Default: skip.")
@click.option(
    "--state",
    type=click.Path(readable=False),
    metavar="FILE",
    help="File that records progress. Default: in ~/.local/state/aggregator.",
)
@click.option(
    "--token", envvar="AGGREGATOR_TOKEN", metavar="TEXT", help="Access token for a server. Or AGGREGATOR_TOKEN."
)
@click.option("--once", is_flag=True, help="Collect existing lines, including unfinished last lines, and exit.")
@json_option
@durability_option
def collect(
    config: Path | None, path: tuple[str, ...], once: bool, as_json: bool, durability: str, **options: Any
) -> int:
    """Collect lines of files into streams as they are written, each exactly once, until interrupted.

    Follows files that are rotated by renaming or by copying, and continues after restarts and kills: it records how
    much of each file it stored in which catalog. CONFIG is a TOML file with the same settings and one or more
    [[files]]. With --once, exit status 1 if a pattern matched no file, or a file could not be read.
    """
    settings = _settings(config, path, options)
    progress_file = state_file(settings.state, f"collect-{_digest(config, settings)}")
    stop = Event()

    def wait(seconds: float) -> None:
        if stop.wait(seconds):
            raise collecting.StoppedError("stopped while a batch was waiting")

    logging.basicConfig(format="aggregator: %(message)s", level=logging.WARNING)
    sink = _sink(settings, durability, wait, collecting.Patience(ONCE_PATIENCE_S if once else None))
    try:
        made = collecting.Collector(settings, sink, progress_file, _now_us)
        with ended_by_signals(stop, made.stop):
            made.run(wait, once=once)
    finally:
        sink.close()
    _report(made.counts, as_json)
    return 1 if once and (made.counts.unmatched or made.counts.unread) else 0


def _settings(config: Path | None, path: tuple[str, ...], options: dict[str, Any]) -> collecting.Settings:
    if config is not None:
        if path or options["into"]:
            raise click.UsageError("--path and --into cannot be combined with CONFIG")
        return collecting.Settings.load(config)
    if not path or not options["into"]:
        raise click.UsageError("give CONFIG, or --path and --into")
    given = {name: options[name] for name in _PLAIN}
    given = {name: value for name, value in given.items() if value is not None}
    kind, _, pattern = (options["line_format"] or "text").partition("=")
    given |= {"format": kind, "pattern": pattern or None, "tags_from": options["tags_from"]}
    given |= {"fields": options["fields"], "tags": dict(options["tags"]), "columns": dict(options["columns"])}
    if options["file_tag"] is not None:
        given["file_tag"] = options["file_tag"]
    files = collecting.Files(path=path, **given)
    return collecting.Settings(
        options["into"], (files,), topic=options["topic"] or "logs", state=options["state"], token=options["token"]
    )


def _digest(config: Path | None, settings: collecting.Settings) -> str:
    """Return the digest that names the progress file of a collector without --state.

    Collectors that write the same tags to the same topic share their progress, whatever their patterns and wherever
    they run, so that a file that two of them match is collected once.
    """
    into = settings.into.rstrip("/").lower() if "://" in settings.into else str(Path(settings.into).resolve())
    facts = f"{into} {settings.topic} {sorted(settings.files[0].tags.items())}"
    return hashlib.sha256((facts if config is None else str(config.resolve())).encode()).hexdigest()[:16]


def _sink(settings: collecting.Settings, durability: str, sleep: Any, patience: collecting.Patience) -> collecting.Sink:
    place = settings.topic, settings.partition
    if "://" in settings.into:
        return collecting.ServerSink(settings.into, *place, settings.token, sleep, patience)
    return collecting.CatalogSink(open_writable(settings.into, durability), *place, sleep, patience)


def _now_us() -> int:
    from time import time_ns

    return time_ns() // 1000


@contextmanager
def ended_by_signals(stop: Event, end: Any) -> Iterator[None]:
    """Let SIGTERM and Ctrl-C end the work after the current step."""

    def ended(number: int, frame: Any) -> None:
        stop.set()
        end()

    before = {number: signal.signal(number, ended) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _report(counts: collecting.Counts, as_json: bool) -> None:
    if as_json:
        say_json(asdict(counts))
        return
    counted = [count(counts.lines, "line")]
    counted += [
        f"{number:,} {what}"
        for number, what in (
            (counts.cut, "too long and cut"),
            (counts.failed, "not of the format"),
            (counts.untimed, "without a time"),
            (counts.unread, "file not read" if counts.unread == 1 else "files not read"),
        )
        if number
    ]
    say(", ".join(counted))
