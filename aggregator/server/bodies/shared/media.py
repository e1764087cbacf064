"""Media types: what a request contains, and what its sender accepts."""

from __future__ import annotations

from collections.abc import Sequence
from email.message import Message

ARROW_STREAM = "application/vnd.apache.arrow.stream"
ARROW_FILE = "application/vnd.apache.arrow.file"
LINES = "application/x-ndjson"
CSV = "text/csv"
TEXT = "text/plain"
JSON = "application/json"
PROTOBUF = "application/x-protobuf"
PARQUET = "application/vnd.apache.parquet"
ESDB = "application/vnd.esdb"

INPUTS = (ARROW_STREAM, ARROW_FILE, LINES, CSV, JSON)
"""Types of event bodies."""
OUTPUTS = (LINES, ARROW_STREAM, CSV, PARQUET)
"""Types of streamed responses; the first is the default."""
_OTHER_NAMES = {
    "application/ndjson": LINES,
    "application/jsonl": LINES,
    "application/jsonlines": LINES,
    "application/x-jsonlines": LINES,
    "application/json-lines": LINES,
    "application/jsonl+json": LINES,
}


def media_of(content_type: str | None) -> str:
    """Return the canonical media type of a Content-Type header, without parameters; "" if there is none."""
    name = (content_type or "").split(";", 1)[0].strip().lower()
    return _OTHER_NAMES.get(name, name)


_UTF8 = ("utf-8", "utf8", "us-ascii", "ascii")  # not `codecs.lookup`, which caches any name that a client makes up


def is_utf8(content_type: str | None) -> bool:
    """Whether a Content-Type header declares no charset other than UTF-8 or its subset US-ASCII."""
    if content_type is None or "charset" not in content_type.lower():
        return True
    header = Message()
    header["content-type"] = content_type
    return (header.get_content_charset() or "utf-8") in _UTF8


def choose(accept: str | None, offered: Sequence[str]) -> str | None:
    """Return the type of `offered` (the best first) that an Accept header prefers; None if it accepts none."""
    if accept is None or not accept.strip():
        return offered[0]
    best: tuple[float, int] | None = None
    chosen = None
    for part in accept.split(","):
        name, *parameters = part.split(";")
        quality = quality_of(parameters)
        wanted = media_of(name)
        for place, media in enumerate(offered):
            if wanted in (media, "*/*", media.split("/", 1)[0] + "/*"):
                rank = (quality, -place if "*" in wanted else 1)
                if quality > 0 and (best is None or rank > best):
                    best, chosen = rank, media
    return chosen


def quality_of(parameters: Sequence[str]) -> float:
    """Return the quality value `q`, from 0 to 1, of a member of an Accept header."""
    for parameter in parameters:
        name, _, value = parameter.strip().partition("=")
        if name.lower() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
