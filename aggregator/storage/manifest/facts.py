"""Facts of the manifest's backup as values and as bytes, as specified in `spec/facts.md`.

Input is not trusted: a file that breaks any rule is refused as a whole.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, TypeVar

import pyarrow as pa

from aggregator.base.common_type import LARGEST
from aggregator.base.names import check_name
from aggregator.errors import CorruptManifestError, UnknownVersionError
from aggregator.model import LAST, PartitionInfo, PipeInfo, SchemaInfo, Tombstone, TopicInfo
from aggregator.policy import Retention, Roll, StoreSettings
from aggregator.storage.files.checksum import checksum64
from esformat import EsdbError
from esformat.parts import EventSchema, make_schema

MAGIC = b"\x89ESF\r\n\x1a\n"
MAJOR_VERSION, MINOR_VERSION = 1, 0
MAX_BYTES = 64 << 20
MAX_LINE_BYTES = 8 << 20
_MOST_NUMBER = 2**31 - 1
_MOST_INDEX = 2**62
_IDENTITY = re.compile(r"[0-9a-f]{16}")

_HEADER = struct.Struct(
    "<"  # little-endian, no padding
    "8s"  # magic
    "H"  # major version
    "H"  # minor version
    "I"  # reserved
    "Q"  # change: the number of the manifest's last change when this was written
    "Q"  # length of the lines
    "Q"  # check: xxh3-64 of the bytes before and of the lines
)
_CHECK = struct.Struct("<Q")
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_T = TypeVar("_T")
_REFUSED = (
    ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, EsdbError, pa.ArrowException,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    """Facts of the catalog as a whole. identity: distinguishes it from other catalogs.

    unsynced: whether the last run acknowledged appends before they were synced, and did not end cleanly.
    store: the settings of its object store, if it has one.
    """

    identity: str = ""
    unsynced: bool = False
    store: StoreSettings | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """The contents of the file.

    A partition's `sealed_index` is from the time of writing, or later; `reserved_index` may be about a second older.
    passed_over: number of lines of kinds that this version does not know.
    """

    settings: Settings = Settings()
    topics: tuple[TopicInfo, ...] = ()
    schemas: tuple[SchemaInfo, ...] = ()
    partitions: tuple[PartitionInfo, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()
    pipes: tuple[PipeInfo, ...] = ()
    passed_over: int = 0


# ------------------------------------------------------------ bytes


def line_of(kind: str, value: Any) -> bytes:
    """Encode a value of one kind as a line: "catalog", "topic", "schema", "partition", "tombstone" or "pipe"."""
    return _JSON.encode({kind: _ENCODERS[kind](value)}).encode() + b"\n"


def encode_facts(lines: bytes, change: int) -> bytes:
    """The bytes of a file with these lines."""
    head = _HEADER.pack(MAGIC, MAJOR_VERSION, MINOR_VERSION, 0, change, len(lines), 0)[: -_CHECK.size]
    return head + _CHECK.pack(checksum64(head + lines)) + lines


def decode_lines(stored: bytes) -> tuple[bytes, int]:
    """The lines of a file, and the manifest's change. Raises CorruptManifestError, UnknownVersionError."""
    if len(stored) < _HEADER.size:
        raise CorruptManifestError(f"the file has {len(stored)} bytes, fewer than its header", offset=0)
    magic, major, _minor, _reserved, change, length, check = _HEADER.unpack_from(stored)
    if magic != MAGIC:
        raise CorruptManifestError(f"not a file of facts: it begins with {magic!r}", offset=0)
    if major != MAJOR_VERSION:
        raise UnknownVersionError(f"it has version {major}, this program knows {MAJOR_VERSION}", offset=8)
    lines = stored[_HEADER.size :]
    if len(lines) != length or check != checksum64(stored[: _HEADER.size - _CHECK.size] + lines):
        raise CorruptManifestError("the checksum does not match", offset=_HEADER.size - _CHECK.size)
    if change > _MOST_INDEX:
        raise CorruptManifestError(f"invalid number of changes {change}", offset=16)
    return lines, int(change)


def decode_facts(lines: bytes) -> Facts:
    """The facts in the lines of a file. Raises CorruptManifestError."""
    found: dict[str, list[Any]] = {kind: [] for kind in _DECODERS}
    passed_over = 0
    at = 0
    while at < len(lines):
        end = lines.find(b"\n", at, at + MAX_LINE_BYTES)
        if end < 0:
            raise CorruptManifestError("a line has no end", offset=_HEADER.size + at)
        try:
            ((kind, value),) = json.loads(lines[at:end].decode()).items()
            if kind in _DECODERS:
                found[kind].append(_DECODERS[kind](value))
            else:
                passed_over += 1
        except _REFUSED as error:
            reason = f"a line cannot be read: {type(error).__name__}: {error}"
            raise CorruptManifestError(reason[:300], offset=_HEADER.size + at) from None
        at = end + 1
    facts = Facts(
        found["catalog"][0] if found["catalog"] else Settings(),
        tuple(found["topic"]),
        tuple(found["schema"]),
        tuple(found["partition"]),
        tuple(found["tombstone"]),
        tuple(found["pipe"]),
        passed_over,
    )
    _check_unique(facts, len(found["catalog"]))
    return facts


def _check_unique(facts: Facts, settings: int) -> None:
    keys: dict[str, list[Any]] = {
        "number of a topic": [topic.number for topic in facts.topics],
        "name of a topic": [topic.name for topic in facts.topics if not topic.deleted],
        "number of a schema": [schema.number for schema in facts.schemas],
        "number of a partition": [partition.number for partition in facts.partitions],
        "name of a partition": [(partition.topic, partition.name) for partition in facts.partitions],
        "name of a pipe": [pipe.name for pipe in facts.pipes],
        "identity of a pipe": [pipe.identity for pipe in facts.pipes],
        "tombstone": [(stone.partition, stone.space, stone.cut) for stone in facts.tombstones],
    }
    doubled = next((what for what, mine in keys.items() if len(set(mine)) < len(mine)), None)
    if doubled is not None or settings != 1:
        raise CorruptManifestError(f"duplicate {doubled}" if doubled else "it has no settings, or several")


# ------------------------------------------------------------ values of each kind


def _of_settings(settings: Settings) -> dict[str, Any]:
    facts: dict[str, Any] = {"identity": settings.identity, "unsynced": settings.unsynced}
    return facts if settings.store is None else facts | {"store": settings.store.to_json()}


def _settings(facts: dict[str, Any]) -> Settings:
    if not _IDENTITY.fullmatch(facts["identity"]):
        raise ValueError("identity must have 16 hexadecimal digits")
    store = StoreSettings.from_json(facts["store"]) if "store" in facts else None
    return Settings(facts["identity"], _truth(facts["unsynced"]), store)


def _of_topic(topic: TopicInfo) -> dict[str, Any]:
    return {
        "number": topic.number,
        "name": topic.name,
        "keys": topic.keys,
        "indexes": topic.indexes,
        "roll": topic.roll.to_json(),
        "retention": topic.retention.to_json(),
        "created_us": topic.created_us,
        "deleted": topic.deleted,
    }


def _topic(facts: dict[str, Any]) -> TopicInfo:
    if facts["keys"] not in ("text", "binary"):
        raise ValueError("keys must be text or binary")
    deleted = _truth(facts["deleted"])
    if deleted and facts["name"]:
        raise ValueError("a deleted topic must not have a name")
    return TopicInfo(
        _whole(facts["number"]),
        "" if deleted else check_name(facts["name"], "topic"),
        facts["keys"],
        tuple(map(_text, facts["indexes"])),
        _policy(Roll, facts["roll"]),
        _policy(Retention, facts["retention"]),
        _whole(facts["created_us"], LAST, -LAST),
        deleted,
    )


def _policy(kind: Callable[..., _T], facts: dict[str, Any]) -> _T:
    return kind(**{name: None if value is None else _whole(value, LAST, 0) for name, value in facts.items()})


def _of_schema(schema: SchemaInfo) -> dict[str, Any]:
    return {
        "number": schema.number,
        "topic": schema.topic,
        "family": schema.family,
        "columns": schema.schema.to_json(),
        "magnitudes": dict(schema.magnitudes),
    }


def _schema(facts: dict[str, Any]) -> SchemaInfo:
    schema = EventSchema.from_json(facts["columns"])
    if make_schema(schema.arrow, schema.indexes, binary_keys=schema.binary_keys) != schema:
        raise ValueError("invalid schema for events")
    numbers = _whole(facts["number"]), _whole(facts["topic"]), _whole(facts["family"])
    return SchemaInfo(*numbers, schema, stored_magnitudes(facts["magnitudes"], schema))


def stored_magnitudes(stored: Any, schema: EventSchema) -> tuple[tuple[str, int], ...]:
    """Magnitudes of a schema's columns, from JSON. Raises ValueError, TypeError, AttributeError."""
    found = {_text(name): _whole(magnitude, LARGEST) for name, magnitude in stored.items()}
    if not found.keys() <= schema.positions.keys():
        raise ValueError("magnitude of a column that is not in the schema")
    return tuple(sorted(found.items()))


def _of_partition(partition: PartitionInfo) -> dict[str, Any]:
    return {
        "number": partition.number,
        "topic": partition.topic,
        "name": partition.name,
        "next_index": partition.sealed_index,
        "reserved": partition.reserved_index,
        "holes": partition.holes,
    }


def _partition(facts: dict[str, Any]) -> PartitionInfo:
    return PartitionInfo(
        _whole(facts["number"]),
        _whole(facts["topic"]),
        check_name(facts["name"], "partition"),
        _whole(facts["next_index"], _MOST_INDEX, 0),
        _whole(facts["reserved"], _MOST_INDEX, 0),
        _holes(facts["holes"]),
    )


def _holes(stored: Any) -> tuple[tuple[int, int], ...]:
    if not isinstance(stored, list):
        raise TypeError("holes must be a list")
    holes = tuple((_whole(first, _MOST_INDEX, 0), _whole(end, _MOST_INDEX, 0)) for first, end in stored)
    edges = [edge for hole in holes for edge in hole]
    if any(low >= high for low, high in pairwise(edges)):
        raise ValueError("holes must be in order, and not empty")
    return holes


def _of_tombstone(stone: Tombstone) -> dict[str, Any]:
    return asdict(stone) | {"space": stone.space.hex()}


def _tombstone(facts: dict[str, Any]) -> Tombstone:
    space = bytes.fromhex(facts["space"])
    if space.hex() != facts["space"]:
        raise ValueError("a space must be written in lower-case hexadecimal, two digits per byte")
    return Tombstone(
        _whole(facts["partition"]),
        space,
        _whole(facts["end_index"], LAST, 0),
        _whole(facts["created_us"], LAST, -LAST),
        _whole(facts["time_us"], LAST, -LAST - 1),
        _whole(facts["tie_index"], LAST, 0),
    )


def _pipe(facts: dict[str, Any]) -> PipeInfo:
    return PipeInfo(
        check_name(facts["name"], "pipe"),
        check_name(facts["identity"], "pipe"),
        _text(facts["source"]),
        _text(facts["condition"]),
        _truth(facts["backfill"]),
        _whole(facts["created_us"], LAST, -LAST),
        _whole(facts["sequence"], LAST, 0),
        _text(facts["progress"]),
    )


def _whole(value: Any, most: int = _MOST_NUMBER, least: int = 1) -> int:
    """Check a whole number within bounds; numbers of objects begin at 1. Raises ValueError."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{value!r:.40} is not a whole number from {least} to {most}")
    return value


def _truth(value: Any) -> bool:
    """Check a Boolean. Raises TypeError."""
    if not isinstance(value, bool):
        raise TypeError(f"{value!r:.40} is neither true nor false")
    return value


def _text(value: Any) -> str:
    """Check Unicode text. Raises TypeError, ValueError."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not text")
    value.encode()
    return value


_ENCODERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "catalog": _of_settings,
    "topic": _of_topic,
    "schema": _of_schema,
    "partition": _of_partition,
    "tombstone": _of_tombstone,
    "pipe": asdict,
}
_DECODERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "catalog": _settings,
    "topic": _topic,
    "schema": _schema,
    "partition": _partition,
    "tombstone": _tombstone,
    "pipe": _pipe,
}
KINDS = tuple(_ENCODERS)
