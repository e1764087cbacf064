"""`aggregator store`: manage the object store that has copies of a catalog's segments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click

import aggregator
from aggregator.cli.catalog.stats import store_rows
from aggregator.cli.shared.open_catalog import (
    catalog_argument,
    open_read_only,
    open_writable,
    open_writable_if_possible,
    optional_topic,
    policy,
)
from esformat.cli.parts import Group, Pair, count, json_option, length, moment, progress, say, say_json, size, warn

_EXAMPLES = """\b
Examples:
  aggregator store set data --store s3://bucket/shop --keep-local bytes=50GiB
  aggregator store set data --keep-local bytes=50GiB --keep-local debug:bytes=0
  aggregator store status data
  aggregator store push data
  aggregator store evict data clicks --keep-local age=7d
  aggregator store fetch data clicks
  aggregator store verify data --read
  aggregator store gc data --dry-run
"""
keep_local_option = click.option(
    "--keep-local",
    type=Pair(),
    multiple=True,
    metavar="WHAT=LIMIT",
    help="Limit of local files: bytes, age; none: no limit. E.g. bytes=50GiB; for one topic debug:age=1d. Repeatable.",
)


def _kept(pairs: Sequence[tuple[str, str]]) -> dict[str, Any] | None:
    """Convert the --keep-local options to the argument of `open`: limits, and limits of topics by name."""
    of_topics: dict[str, list[tuple[str, str]]] = {}
    for what, limit in pairs:
        topic, _, what = what.rpartition(":")
        of_topics.setdefault(topic, []).append((what, limit))
    limits = policy(of_topics.pop("", [])) or {}
    if of_topics:
        limits["topics"] = {topic: policy(own) for topic, own in of_topics.items()}
    return limits or None


@click.group(cls=Group, epilog=_EXAMPLES)
def store() -> None:
    """Keep a catalog's sealed segments in an object store: S3, GCS, Azure or a directory.

    An open catalog does this in the background: it uploads segments soon after they are sealed, deletes local files
    down to the limits of --keep-local, and deletes the objects of removed segments. These commands show the state of
    that work, and do it now.
    """


@store.command("set", epilog=_EXAMPLES)
@catalog_argument
@click.option(
    "--store", metavar="ADDRESS", help="Address of the store: s3://, gs://, az:// or file://, with a separate prefix."
)
@keep_local_option
@click.option("--cache", metavar="SIZE", help="Disk space for caching data read from the store. Default: 1 GiB.")
@json_option
def set_(
    catalog: str, store: str | None, keep_local: Sequence[tuple[str, str]], cache: str | None, as_json: bool
) -> None:
    """Give CATALOG a store, or change the limits of its local files and cache.

    Options left out change nothing. All --keep-local together replace the limits that CATALOG has.
    """
    with aggregator.open(catalog, store=store, keep_local=_kept(keep_local), store_cache=cache) as opened:
        _print_status(opened.store.status(), as_json)


@store.command(epilog=_EXAMPLES)
@catalog_argument
@json_option
def status(catalog: str, as_json: bool) -> None:
    """Show the address of the store of CATALOG, and how much is stored there, not there yet, and only there."""
    with open_read_only(catalog) as opened:
        _print_status(opened.store.status(), as_json)


@store.command(epilog=_EXAMPLES)
@catalog_argument
@json_option
def push(catalog: str, as_json: bool) -> None:
    """Upload every sealed segment of CATALOG that is not in its store yet."""
    with progress("uploading"), open_writable(catalog) as opened:
        waiting = opened.store.status()["waiting"]
        opened.store.push()
    if as_json:
        say_json(waiting)
    else:
        say(f"{count(waiting['segments'], 'segment')} uploaded, {size(waiting['bytes'])}")


@store.command(epilog=_EXAMPLES)
@catalog_argument
@optional_topic
@keep_local_option
@json_option
def evict(catalog: str, topic: str | None, keep_local: Sequence[tuple[str, str]], as_json: bool) -> None:
    """Delete local files of CATALOG, or of one TOPIC, that are in the store, down to the limits of --keep-local.

    The default limits are the catalog's own. Each object is read back and its checksum compared before the file is
    deleted.
    """
    with progress("reading back"), open_writable(catalog) as opened:
        gone = opened.store.evict(topic, keep_local=_kept(keep_local))
    _print_names(gone, "evicted", as_json)


@store.command(epilog=_EXAMPLES)
@catalog_argument
@optional_topic
@json_option
def fetch(catalog: str, topic: str | None, as_json: bool) -> None:
    """Copy segments of CATALOG, or of one TOPIC, from the store back to the disk.

    The copies are deleted again unless they are within the limits of the catalog's --keep-local.
    """
    with progress("fetching"), open_writable(catalog) as opened:
        back = opened.store.fetch(topic)
    _print_names(back, "fetched", as_json)


@store.command(epilog=_EXAMPLES)
@catalog_argument
@click.option("--read", is_flag=True, help="Read every object and compare its checksum, not only its size.")
@json_option
def verify(catalog: str, read: bool, as_json: bool) -> int:
    """Check that the store has every segment of CATALOG that it should. Exit status 1 if it does not.

    A segment that is also on the disk is uploaded again. The events of any other are lost unless its object comes
    back: restore an earlier version of the object, if the store keeps versions, or delete the object and continue
    without it: `aggregator verify --accept-losses`.
    """
    with progress("verifying"), open_writable_if_possible(catalog) as opened:
        problems = opened.store.verify(read=read)
        arrived = opened.store.status()["arrived"]
    if as_json:
        say_json({**arrived, "problems": [asdict(each) for each in problems]})
        return 1 if problems else 0
    for each in problems:
        warn(f"{moment(each.found_us)} {each.subject}: {each.message}; {each.action}")
    if not problems:
        say(f"{catalog}: ok, {count(arrived['segments'], 'segment')} in the store, {size(arrived['bytes'])}")
    return 1 if problems else 0


@store.command(epilog=_EXAMPLES)
@catalog_argument
@click.option("--grace", metavar="TIME", help="Minimum age of deleted objects, by the store's clock. Default: 24h.")
@click.option("--dry-run", is_flag=True, help="Print what would be deleted; delete nothing.")
@json_option
def gc(catalog: str, grace: str | None, dry_run: bool, as_json: bool) -> None:
    """Delete objects that CATALOG does not need, such as segments that a crash left behind."""
    with open_writable(catalog) as opened:
        found = opened.store.gc(grace=grace, dry_run=dry_run)
    if as_json:
        say_json(asdict(found))
        return
    for name in found.names:
        say(name)
    say(f"{count(len(found.names), 'object')} {'would be deleted' if dry_run else 'deleted'}, {size(found.size_bytes)}")


def _print_names(names: Sequence[str], what: str, as_json: bool) -> None:
    if as_json:
        say_json(list(names))
    else:
        say(f"{count(len(names), 'segment')} {what}")


def _print_status(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        say_json(facts)
        return
    from esformat.cli.parts import show_rows  # here: rich is slow to import

    show_rows(("", facts["address"]), list(_rows(facts)))


def _rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, shown in (
        ("arrived", "in the store"),
        ("waiting", "not there yet"),
        ("evicted", "only there"),
        ("leaving", "leaving it"),
    ):
        yield shown, f"{count(facts[key]['segments'], 'segment')}, {size(facts[key]['bytes'])}"
    kept, cache = facts["keep_local"], facts["cache"]
    for of, own in [("", kept), *((f" of {name}", own) for name, own in kept["topics"].items())]:
        yield f"stays on the disk{of}, bytes", "all" if own["bytes"] is None else size(own["bytes"])
        yield f"stays on the disk{of}, age", "any" if own["age_us"] is None else length(own["age_us"])
    yield from store_rows(facts)
    yield "cache", f"{size(cache['bytes'])} of {size(cache['limit'])}"
