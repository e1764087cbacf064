"""`aggregator import`: append files to a topic, which is created if it does not exist."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

import esformat
from aggregator.cli.events.append import feeding_options, report
from aggregator.cli.shared.appending import AppendSummary, NewTopic, append_batches, append_files
from aggregator.cli.shared.open_catalog import catalog_argument, open_writable, topic_argument, warn_of_hidden_streams
from esformat import convert
from esformat.cli.parts import InputCommand, input_options, json_option, progress, warn, with_progress

if TYPE_CHECKING:
    import pyarrow as pa

    from aggregator import Catalog, Topic

_EXAMPLES = """\b
Examples:
  aggregator import data activity activity.esdb
  aggregator import data purchases activity.parquet --index type
  aggregator import data visits clicks.jsonl --space who --timestamp at --index type
"""


@click.command("import", cls=InputCommand, epilog=_EXAMPLES)
@catalog_argument
@topic_argument
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...", type=click.Path(readable=False))
@click.option(
    "--index", "indexes", multiple=True, metavar="COLUMN", help="For a new topic: index this column. Repeatable."
)
@click.option("--keys", type=click.Choice(["text", "binary"]), help="For a new topic: kind of keys. Default: text.")
@feeding_options
@input_options
@json_option
def import_(
    catalog: str,
    topic: str,
    inputs: tuple[str, ...],
    indexes: tuple[str, ...],
    keys: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Append the events of files to TOPIC, which is created if it does not exist.

    INPUT is an .esdb file, from which a new topic gets its columns, indexes and kind of keys, or any input that
    `append` reads: a file, a directory, a pattern, an address in a store. Events are appended in the order of their
    file. Text formats may have bytes as {"base64": "…"}, as `export` writes them.
    """
    started = perf_counter()
    sources = convert.inputs_at(inputs, any_name=options["input_format"] is not None, segments=True, note=warn)
    segments = [each for each in sources if convert.input_name(each).endswith(".esdb")]
    with open_writable(catalog, options["durability"]) as opened:
        if segments and segments != sources:
            raise click.UsageError(".esdb files and others cannot be imported together: use two commands")
        chosen = _topic(opened, topic, segments, indexes, keys)
        if isinstance(chosen, NewTopic) or not segments:
            summary = append_files(chosen, sources, options)
        else:
            summary = _append_segments(chosen, segments, options)
    if not options["receipts"]:
        report(summary, perf_counter() - started, as_json)


def _topic(
    catalog: Catalog, name: str, segments: Sequence[convert.Input], indexes: tuple[str, ...], keys: str | None
) -> Topic | NewTopic:
    if name in catalog.topics():
        return _checked(catalog.topic(name), indexes, keys)
    if not segments:
        return NewTopic(catalog, name, indexes, keys or "text")
    from esformat.parts import without_keys  # here: slow to import

    with esformat.open(segments[0]) as segment:
        names = [*segment.indexes, *(index for index in indexes if index not in segment.indexes)]
        keys = keys or segment.info()["keys"]
        topic = catalog.create_topic(name, without_keys(segment.schema), indexes=names, keys=keys)
    warn_of_hidden_streams(name)
    return topic


def _checked(topic: Topic, indexes: tuple[str, ...], keys: str | None) -> Topic:
    """Return the existing topic if it has the requested settings, so that the same command can run twice."""
    new = [index for index in indexes if index not in topic.indexes]
    if new or keys not in (None, topic.keys):
        asked, lacks = ("--index", f"no index {new[0]!r}") if new else ("--keys", f"keys of {topic.keys}")
        raise click.UsageError(f"{asked} is for a new topic, but {topic.name} already exists with {lacks}")
    return topic


def _append_segments(topic: Topic, paths: Sequence[convert.Input], options: dict[str, Any]) -> AppendSummary:
    def batches() -> Iterator[pa.RecordBatch]:
        for path in paths:
            with esformat.open(path) as segment:
                yield from with_progress(segment.scan().batches(), show, segment.num_events)

    with progress("importing", things=True) as show:
        return append_batches(
            topic,
            batches(),
            options["partition"],
            batch_rows=options["batch_rows"],
            producer=options["producer"],
            receipts=options["receipts"],
        )
