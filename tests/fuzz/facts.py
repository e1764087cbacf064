"""The backup of a manifest is read or refused; what is read can be written and read again unchanged."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa

from aggregator.errors import CorruptManifestError, UnknownVersionError
from aggregator.model import PartitionInfo, PipeInfo, SchemaInfo, Tombstone, TopicInfo
from aggregator.policy import Retention, Roll
from aggregator.storage.manifest.facts import KINDS, Facts, Settings, decode_facts, decode_lines, encode_facts, line_of
from esformat.parts import make_schema

_COLUMNS = pa.schema(
    [("kind", pa.string()), ("at", pa.timestamp("ns", "UTC")), ("tags", pa.list_(pa.decimal128(9, 2)))]
)
_FACTS = Facts(
    Settings("0123456789abcdef", unsynced=True),
    (TopicInfo(2, "t", "binary", ("kind",), Roll(rows=7, frame_bytes=8192), Retention(bytes=10), -1),),
    (SchemaInfo(4, 2, 4, make_schema(_COLUMNS, ["kind"], binary_keys=True)),),
    (PartitionInfo(3, 2, "0", 1 << 33, 1 << 34, ((0, 7), (9, 1 << 32))),),
    (Tombstone(3, b"\x00secret\xff", 12, 5, -3, 0),),
    (PipeInfo("p", "pipe 1", "{a=1}", "msg PREFIX x", True, 9, 17, "{}"),),
)


def seeds() -> list[bytes]:
    """Lines of each kind, and of all kinds."""
    lines = _lines(_FACTS)
    return [lines, _lines(Facts(_FACTS.settings)), *lines.splitlines(keepends=True)]


def one_input(data: bytes) -> None:
    """Read the bytes as a file, and as its lines with a valid header and checksum."""
    _decode(data)
    _decode(encode_facts(data, 1))
    _decode(encode_facts(_lines(Facts(_FACTS.settings)) + data, 1))


def _decode(stored: bytes) -> None:
    with suppress(CorruptManifestError, UnknownVersionError):
        facts = decode_facts(decode_lines(stored)[0])
        again = decode_facts(_lines(facts))
        assert (again, facts.passed_over) == (facts, 0) or facts.passed_over


def _lines(facts: Facts) -> bytes:
    values = ([facts.settings], facts.topics, facts.schemas, facts.partitions, facts.tombstones, facts.pipes)
    return b"".join(
        line for kind, mine in zip(KINDS, values, strict=True) for line in (line_of(kind, each) for each in mine)
    )
