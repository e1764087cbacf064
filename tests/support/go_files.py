"""The files that the Go ESDB wrote, and their contents."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any, NamedTuple

from esformat.customerio.sst import encode_table
from esformat.customerio.varint import encode

FOLDER = Path(__file__).parents[2] / "fixtures" / "go_esdb"
ARCHIVES = ("small", "long_index", "many_spaces")
STREAMS = ("stream_open", "stream_closed", "stream_torn")


class Listed(NamedTuple):
    """An event as in the lists of events. Keys are bytes."""

    space: bytes
    grouping: bytes
    timestamp: int
    data: bytes
    indexes: dict[str, str]


def path_of(name: str) -> Path:
    """The file of that name."""
    return FOLDER / f"{name}.{'esdbstream' if name in STREAMS else 'esdb'}"


def added(name: str) -> list[Listed]:
    """The events of a file, in the order in which they were added."""
    with (FOLDER / f"{name}.events.jsonl").open(encoding="utf-8") as lines:
        return [_listed(json.loads(line)) for line in lines]


def _listed(event: dict[str, Any]) -> Listed:
    return Listed(
        base64.b64decode(event.get("space_b64", "")),
        event.get("grouping", "").encode(),
        event.get("timestamp_s", 0) * 1_000_000,
        base64.b64decode(event["data_b64"]),
        event.get("indexes") or {},
    )


def in_order(events: list[Listed], *, reverse: bool = False) -> list[Listed]:
    """Events in the scan order of an archive: ties in the order of addition, in both directions."""
    return sorted(events, key=lambda event: event[:3], reverse=reverse)


def shown(events: Any) -> list[Listed]:
    """The events of a scan in the same form."""
    return [Listed(as_bytes(e.space), as_bytes(e.grouping), e.timestamp, e.data, e.indexes) for e in events]


def as_bytes(key: str | bytes) -> bytes:
    """A key of an event, which is text or bytes, as bytes."""
    return key.encode() if isinstance(key, str) else key


# ------------------------------------------------------------ files as Go writes them, which our writer refuses to do


Added = tuple[bytes, int, str | bytes, dict[str, str]]
"""Payload, seconds, grouping and indexes of an event."""


def go_archive(spaces: dict[bytes, list[Added]]) -> bytes:
    """An archive of small spaces, by key, with events in the order of addition."""
    stored = b""
    places = []
    for key, events in sorted(spaces.items()):
        space = _go_space(events)
        places.append((key, struct.pack("<qq", len(stored), len(space))))
        stored += space
    table = encode_table(places)
    return stored + table + struct.pack("<q", len(table))


def _go_space(events: list[Added]) -> bytes:
    newest = sorted(range(len(events)), key=lambda row: events[row][1], reverse=True)
    keys = sorted(
        {b"g" + as_bytes(event[2]) for event in events} | {key for event in events for key in _keys(event[3])}
    )
    stored, directory, places = b"*", [], {}
    for key in keys:
        body = b""
        for row in newest:
            data, seconds, grouping, indexes = events[row]
            if key == b"g" + as_bytes(grouping):
                places[row] = struct.pack("<qH", len(stored), len(body))
                body += encode(len(data)) + struct.pack("<I", seconds) + data
            body += places[row] * _keys(indexes).count(key) if key[:1] == b"i" else b""
        block = struct.pack("<HB", len(body) + 1, 0) + body + b"\0"
        directory.append((key, encode(len(stored)) + encode(len(block))))
        stored += block
    table = encode_table(directory)
    return stored + table + struct.pack("<q", len(table))


def _keys(indexes: dict[str, str]) -> list[bytes]:
    return [f"i{name}:{value}".encode(errors="surrogateescape") for name, value in indexes.items()]


def go_stream(events: list[tuple[bytes, dict[str, str]]]) -> bytes:
    """An unclosed stream, from the payload and indexes of each event."""
    stored, tails = b"ESDBstream", {}
    for data, indexes in events:
        entries = {key[1:]: tails.get(key, 0) for key in _keys(indexes)}  # Go uses a map
        body = encode(len(data)) + data + encode(len(entries))
        body += b"".join(encode(len(key)) + key + encode(before) for key, before in entries.items())
        tails |= dict.fromkeys(_keys(indexes), len(stored))
        stored += struct.pack("<I", len(body)) + body
    return stored
