"""Media types: what a request contains, and what its sender accepts."""

from __future__ import annotations

from collections.abc import Sequence
from email.message import Message

from starlette.datastructures import Headers

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


def listed(headers: Headers, name: str) -> str:
    """Return all members of a list header such as Accept, which may be sent in several lines; "" if it is absent."""
    return ", ".join(headers.getlist(name))


def choose(accept: str, offered: Sequence[str]) -> str | None:
    """Return the type of `offered` (the best first) that an Accept header prefers; None if it accepts none."""
    if not accept.strip():
        return offered[0]
    wanted: dict[str, float] = {}
    for part in accept.split(","):
        name, *parameters = part.split(";")
        wanted.setdefault(media_of(name), quality_of(parameters))

    def rank(media: str) -> tuple[float, int, int]:
        """The quality of the most specific range, then whether it names the type, then its place."""
        ranges = (media, media.split("/", 1)[0] + "/*", "*/*")
        found = next((name for name in ranges if name in wanted), None)
        return (0.0, 0, 0) if found is None else (wanted[found], found == media, -[*wanted].index(found))

    best = max(offered, key=rank)
    return best if rank(best)[0] > 0 else None


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
