"""`aggregator bench --url`: measure a server under load."""

from __future__ import annotations

import sys
from typing import Any

from aggregator.client import load as sending
from aggregator.errors import InvalidRequestError
from esformat.cli.parts import progress, say_json

WORKS = ("append", "read")
_SWITCH_S = 0.0005  # short, so that a thread whose response has arrived is not measured late


def bench_url(
    url: str,
    seconds: float,
    rate: float | None,
    threads: int,
    what: tuple[str, str, str, str, str, str | None],
    load: dict[str, Any],
    as_json: bool,
) -> None:
    """Put a server under load and report rates and latencies. what: work, interface, body, compression,
    topic, token.

    Raises InvalidRequestError if no request succeeded, or plateau gets options that only the native routes have.
    """
    work, interface, body, compression, topic, token = what
    if interface == "plateau" and (body, compression) != ("arrow", "none"):
        raise InvalidRequestError("plateau's routes take plain Arrow files", hint="leave --body and --compression out")
    sys.setswitchinterval(_SWITCH_S)
    with progress("sending"):
        if interface == "native":
            sending.make_topic(url, topic, token)
        partitions = [str(number) for number in range(load["partitions"])]
        sizes = load["batch"], load["payload"], load["spaces"]
        if work == "append":
            requests = sending.appends(interface, topic, partitions, body, *sizes, compression)
        else:
            requests = sending.reads(interface, topic, partitions[0], load["spaces"])
        facts = sending.run(sending.Load(url, seconds, threads, rate, token), requests)
    facts |= {
        "work": work,
        "interface": interface,
        "body": body,
        "compression": compression,
        "rate": rate,
        "threads": threads,
        **load,
    }
    if as_json:
        say_json(facts)
    else:
        _show(facts)
    if not facts["done"]:
        raise InvalidRequestError(f"no request succeeded at {url}: {facts['errors'] or 'all were refused'}")


def _show(facts: dict[str, Any]) -> None:
    from esformat.cli.parts import show_rows  # here: rich is slow to import

    loop = "closed loop" if facts["rate"] is None else f"{facts['rate']:g} requests/s"
    rows = [
        ("done", f"{facts['done']:,} of {facts['requests']:,} requests in {facts['seconds']:.1f} s"),
        ("done/s", f"{facts['done_per_s']:,.1f}"),
        ("events/s", f"{facts['events_per_s']:,}")
        if facts["events"]
        else ("answers", f"{facts['answer_mb_per_s']} MB/s"),
        ("latency", _times(facts["latency_ms"])),
        ("shed", f"{facts['shed']:,}"),
        ("refused after", _times(facts["refusal_ms"])),
        ("failed", f"{facts['failed']:,} {facts['errors'] or ''}"),
        ("began late, all connections busy", f"{facts['late']:,}"),
    ]
    show_rows(("", f"{facts['work']}, {facts['interface']}, {loop}, {facts['threads']} connections"), rows)


def _times(found: dict[str, float] | None) -> str:
    return "–" if found is None else ", ".join(f"{name} {value:,.1f} ms" for name, value in found.items())
