"""`aggregator topics`: list, create, alter, rename and delete topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from aggregator import TopicNotFoundError
from aggregator.cli.shared.open_catalog import (
    AnyCatalog,
    catalog_or_server,
    open_any_read_only,
    open_any_writable,
    policy,
    policy_options,
    warn_of_hidden_streams,
)
from esformat.cli.parts import count, json_option, length, moment, say, say_json, size

_EXAMPLES = """\b
Examples:
  aggregator topics data
  aggregator topics data --create orders --index type --retention age=365d --retention bytes=10GiB
  aggregator topics data --alter orders --retention bytes=1GiB --roll age=60s
  aggregator topics data --rename orders purchases
  aggregator topics data --delete purchases
  aggregator topics data --json
  aggregator topics http://127.0.0.1:3030 --token-file token
"""


@click.command(epilog=_EXAMPLES)
@catalog_or_server
@click.option("--create", metavar="TOPIC", help="Create this topic.")
@click.option(
    "--alter",
    metavar="TOPIC",
    help="Change the limits of this topic that --roll and --retention name. The others stay.",
)
@click.option("--rename", nargs=2, metavar="TOPIC NAME", help="Rename this topic.")
@click.option("--delete", metavar="TOPIC", help="Delete this topic and all its events, permanently.")
@click.option(
    "--index", "indexes", multiple=True, metavar="COLUMN", help="With --create: index this column. Repeatable."
)
@click.option("--keys", type=click.Choice(["text", "binary"]), help="With --create: kind of keys. Default: text.")
@policy_options
@json_option
def topics(
    catalog: str,
    create: str | None,
    alter: str | None,
    rename: tuple[str, str] | None,
    delete: str | None,
    indexes: tuple[str, ...],
    keys: str | None,
    roll: tuple[tuple[str, str], ...],
    retention: tuple[tuple[str, str], ...],
    as_json: bool,
) -> None:
    """List the topics of a catalog, or create, alter, rename or delete one."""
    if sum(each is not None for each in (create, alter, rename, delete)) > 1:
        raise click.UsageError("give one of --create, --alter, --rename and --delete")
    if create is None and (indexes or keys):
        raise click.UsageError("--index and --keys go with --create")
    if create is None and alter is None and (roll or retention):
        raise click.UsageError("--roll and --retention go with either --create or --alter")
    if alter is not None and not (roll or retention):
        raise click.UsageError("--alter needs --roll or --retention")
    if create is not None:
        with open_any_writable(catalog) as opened:
            opened.create_topic(
                create, indexes=indexes, keys=keys or "text", roll=policy(roll), retention=policy(retention)
            )
            _done(opened, create, "created", as_json)
    elif alter is not None:
        with _changing(catalog) as opened:
            opened.alter_topic(alter, roll=policy(roll), retention=policy(retention))
            facts = _facts(opened, alter)
            say_json(facts) if as_json else say(f"{alter}: altered; {_policies(facts)}")
    elif rename is not None:
        with _changing(catalog) as opened:
            opened.rename_topic(*rename)
            _done(opened, rename[1], "renamed", as_json)
    elif delete is not None:
        with _changing(catalog) as opened:
            opened.delete_topic(delete)
            say_json({"deleted": delete}) if as_json else say(f"{delete}: deleted")
    else:
        with open_any_read_only(catalog) as opened:
            _list(opened, as_json)


@contextmanager
def _changing(catalog: str) -> Iterator[AnyCatalog]:
    """Open a catalog to change one of its topics. The hint for an unknown topic does not propose to create it."""
    with open_any_writable(catalog) as opened:
        try:
            yield opened
        except TopicNotFoundError as error:
            error.hint = "see `aggregator topics`"
            raise


def _done(catalog: AnyCatalog, name: str, what: str, as_json: bool) -> None:
    if as_json:
        say_json(_facts(catalog, name))
    else:
        say(f"{name}: {what}")
    warn_of_hidden_streams(name)


def _facts(catalog: AnyCatalog, name: str) -> dict[str, Any]:
    topic = catalog.topic(name)
    facts = topic.stats()
    facts.pop("schema", None)  # a server returns the schema as well
    return {"indexes": topic.indexes, "keys": topic.keys, **facts}


def _list(catalog: AnyCatalog, as_json: bool) -> None:
    facts = {name: _facts(catalog, name) for name in catalog.topics()}
    if as_json:
        say_json(list(facts.values()))
        return
    from esformat.cli.parts import show_rows  # here: rich is slow to import

    names = ("topic", "events", "segments", "bytes", "first", "last", "partitions", "indexes", "keeps")
    show_rows(names, [_row(name, mine) for name, mine in facts.items()], right=(1, 2, 3, 6))


def _row(name: str, facts: dict[str, Any]) -> tuple[str, ...]:
    return (
        name,
        f"{facts['rows']:,}",
        f"{facts['segments']:,}",
        size(facts["bytes"]),
        moment(facts["min_timestamp"]),
        moment(facts["max_timestamp"]),
        str(len(facts["partitions"])),
        ", ".join(facts["indexes"]) or "-",
        kept(facts["retention"]),
    )


def _policies(facts: dict[str, Any]) -> str:
    """Describe what a topic keeps and when it seals segments."""
    roll = facts["roll"]
    sealed = f"{count(roll['rows'], 'event')}, {size(roll['bytes'])} or {length(roll['age_us'])}"
    return f"keeps {kept(facts['retention'])}; seals segments after {sealed}"


def kept(retention: dict[str, int | None]) -> str:
    """Describe the retention of a topic in words."""
    words: dict[str, Callable[[int], str]] = {
        "bytes": size,
        "age_us": length,
        "segments": lambda limit: count(limit, "segment"),
        "partition_bytes": lambda limit: f"{size(limit)} of each partition",
        "partition_segments": lambda limit: f"{count(limit, 'segment')} of each partition",
    }
    return ", ".join(words[name](limit) for name, limit in retention.items() if limit is not None) or "everything"
