"""The metadata block: JSON with the schema, the properties and, in the copy at the end of the file, the statistics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from esformat.errors import CorruptSegmentError, UsageError
from esformat.format.frame import Block, encode_block
from esformat.format.layout import MAX_FRAME_BYTES, BlockKind
from esformat.format.schema import EventSchema

FORMAT_NAME = "esdb"
MOST_KNOWN = 64
"""Most parsed metadata blocks that are cached, least recently used evicted: the same files are opened repeatedly."""
MOST_KNOWN_BYTES = 8 << 10
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Statistics:
    """Facts about a whole segment. Timestamps are µs; None in a segment without events."""

    events: int
    spaces: int
    runs: int
    data_blocks: int
    min_timestamp: int | None
    max_timestamp: int | None
    indexes: dict[str, dict[str, int]] = field(default_factory=dict)
    """For each index: `values` (distinct) and `events` (not null)."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """The content of the metadata block.

    frame_bytes: approximate size of a frame of text or binary, chosen by the writer; None: its default. templates:
    whether the writer was allowed to store columns as templates. Readers need neither.
    """

    schema: EventSchema
    codec: str
    level: int | None
    properties: dict[str, str]
    statistics: Statistics | None = None
    frame_bytes: int | None = None
    templates: bool = False

    def encode(self) -> bytes:
        """Encode one framed metadata block."""
        document: dict[str, Any] = {
            "format": FORMAT_NAME,
            "schema": self.schema.to_json(),
            "codec": self.codec,
            "level": self.level,
            "properties": self.properties,
        }
        if self.frame_bytes is not None:
            document["frame_bytes"] = self.frame_bytes
        if self.templates:
            document["templates"] = True
        if self.statistics is not None:
            document["statistics"] = {name: getattr(self.statistics, name) for name in Statistics.__dataclass_fields__}
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        return encode_block(BlockKind.METADATA, text.encode())

    @classmethod
    def decode(cls, block: Block) -> Metadata:
        """Decode what `encode` wrote; unknown names are ignored. Raises CorruptSegmentError.

        Callers must not modify the result: equal bytes return the same object.
        """
        body = bytes(block.body)
        try:
            return _known(body) if len(body) <= MOST_KNOWN_BYTES else cls._parse(body)
        except CorruptSegmentError as error:
            error.offset = block.offset
            raise

    @classmethod
    def _parse(cls, body: bytes) -> Metadata:
        try:
            document = json.loads(str(body, "utf-8"))
            if document["format"] != FORMAT_NAME:
                raise CorruptSegmentError("the metadata is of another format")
            stored = document.get("statistics")
            level, frame_bytes = document.get("level"), document.get("frame_bytes")
            return cls(
                EventSchema.from_json(document["schema"]),
                _text(document.get("codec", "zstd")),
                None if level is None else _whole(level, _LEAST),
                {_text(name): _text(value) for name, value in document.get("properties", {}).items()},
                None if stored is None else _statistics(stored),
                None if frame_bytes is None else _whole(frame_bytes, 1, MAX_FRAME_BYTES),
                document.get("templates") is True,
            )
        except KeyError as error:
            raise CorruptSegmentError(f"the metadata lacks {error}") from None
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            if isinstance(error, CorruptSegmentError):
                raise
            raise CorruptSegmentError(f"the metadata breaks the format: {error!r}") from None


_known = lru_cache(MOST_KNOWN)(Metadata._parse)


def _statistics(stored: Mapping[str, Any]) -> Statistics:
    counts = {name: _whole(stored[name], 0) for name in ("events", "spaces", "runs", "data_blocks")}
    times = [
        None if time is None else _whole(time, _LEAST) for time in (stored["min_timestamp"], stored["max_timestamp"])
    ]
    indexes = {
        str(name): {fact: _whole(facts[fact], 0) for fact in ("values", "events")}
        for name, facts in stored["indexes"].items()
    }
    return Statistics(**counts, min_timestamp=times[0], max_timestamp=times[1], indexes=indexes)


def _whole(stored: Any, least: int, most: int = _MOST) -> int:
    if type(stored) is not int or not least <= stored <= most:
        raise ValueError(f"{stored!r} is no whole number from {least} to {most}")
    return stored


def _text(stored: Any) -> str:
    if not isinstance(stored, str) or not is_unicode(stored):
        raise ValueError(f"{stored!r} is no text")
    return stored


def is_unicode(text: str) -> bool:
    """Whether a text can be encoded as UTF-8: a `str` may contain unpaired surrogates, which cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_properties(properties: Mapping[str, str] | None) -> dict[str, str]:
    """Return a copy of the caller's properties. Raises UsageError unless they map text to text."""
    for name, value in (properties or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise UsageError(f"property {name!r} must map text to text")
        if not is_unicode(name + value):
            raise UsageError(f"property {name!r} is not Unicode text")
    return dict(properties or {})
