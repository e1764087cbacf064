"""Bodies of requests as Arrow: Arrow streams and files, JSON lines, CSV. Pure: bytes and types in, a table out.

Lines and CSV are read by `esformat.convert`, whole blocks at a time; this module says what their columns mean over
HTTP, and turns its complaints into the caller's.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import csv
import datetime as dt
import io
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from aggregator.server.arrow_body import MAX_ROWS, read_arrow
from aggregator.server.media import ARROW_FILE, ARROW_STREAM, CSV, LINES
from esformat import InvalidEventError
from esformat.convert import BadRow, Clock, InputError, InputOptions, Load, Roles

_COMPRESSED = (b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"BZh")
_BINARY_DATA = re.compile(rb'"data"\s*+:\s*+\{\s*+"base64"')
_ISO = Clock("iso")
_MICROS = Clock("us")
_PLAIN_ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)?")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NO_EVENTS = pa.table({"space": pa.array([], pa.string()), "timestamp": pa.array([], pa.int64())})


class EventTimes(Clock):
    """Times over HTTP: whole microseconds, or ISO 8601 text, in UTC where no zone stands."""

    def read(self, column: pa.Array) -> Any:
        """The times of a column of either."""
        if pa.types.is_integer(column.type):
            return _MICROS.read(column)
        found = _ISO.read(column)
        if found.ok.all() or not pa.types.is_string(column.type):
            return found
        numbers = _MICROS.read(column)  # of CSV, or of lines that have both
        chosen = {
            name: np.where(found.ok, getattr(found, name), getattr(numbers, name)) for name in ("micros", "below")
        }
        return replace(found, ok=found.ok | numbers.ok, **chosen)

    def complaint(self, value: pa.Scalar) -> str:
        """What is wrong with a time."""
        return f"timestamp {str(value)[:40]!r} is neither ISO 8601 text nor whole microseconds since 1970"


class _Refuse:
    """Bad rows, refused: nothing of the body is stored then."""

    count = 0

    def begin(self) -> None:
        """Nothing is remembered."""

    def take(self, rows: Iterable[BadRow]) -> None:
        """Raise InvalidEventError for the first."""
        for row in rows:
            reason = re.sub(r"[;:,] (?:give|say|mend)\b.*", "", row.reason)  # the rest is about a command's options
            raise InvalidEventError(f"{row.unit} {row.number}: {reason}", hint="nothing of the body was stored")

    def close(self) -> None:
        """Nothing is open."""


def read_events(
    body: pa.Buffer, media: str, *, types: Mapping[str, pa.DataType], binary_keys: bool, max_bytes: int
) -> pa.Table:
    """The events of a body: columns space, timestamp, perhaps grouping and data, and any others.

    media: one of media.INPUTS. types: of columns that the topic has; others become what their values look like.
    Raises InvalidEventError, with the line of what is wrong.
    """
    if media in (ARROW_STREAM, ARROW_FILE):
        return read_arrow(body, max_bytes)
    if media not in (LINES, CSV):
        raise ValueError(media)
    text = body.to_pybytes()
    if text.startswith(_COMPRESSED):
        raise InvalidEventError("the body is compressed", hint="say so with Content-Encoding: gzip, or zstd")
    if not text or text.isspace():
        return _NO_EVENTS
    roles = _roles(types, binary_keys)
    if media == CSV:
        return _load(text, "csv", _with_grouping(roles, text))
    roles = replace(roles, grouping="grouping" if b'"grouping"' in text else None)
    if b'"base64"' in text and _BINARY_DATA.search(text):
        return _with_bytes(text, roles)
    return _load(text, "jsonl", roles)


def _roles(types: Mapping[str, pa.DataType], binary_keys: bool) -> Roles:
    return Roles(
        space="space",
        timestamp="timestamp",
        types=dict(types),
        keys="binary" if binary_keys else "text",
        clock=EventTimes(),
    )


def _with_grouping(roles: Roles, text: bytes) -> Roles:
    """Groupings of CSV, where its first line has that name."""
    first = text.lstrip(b"\r\n").split(b"\n", 1)[0].rstrip(b"\r").removeprefix(b"\xef\xbb\xbf")
    names: list[str] = []
    with contextlib.suppress(csv.Error):  # the reader will say what is wrong
        names = next(csv.reader(io.StringIO(first.decode("utf-8", "replace"))), [])
    return replace(roles, grouping="grouping") if "grouping" in names else roles


def _load(text: bytes, format_: str, roles: Roles) -> pa.Table:
    if not text.endswith(b"\n"):
        text += b"\n"
    try:
        with Load(["-"], roles, InputOptions(format=format_), bad_rows=_Refuse(), stdin=pa.py_buffer(text)) as load:
            batches = list(load.batches())
            if any(batch.schema != batches[0].schema for batch in batches):  # of a long body: look at all of it first
                batches = list(load.batches(load.survey()))
    except InputError as error:
        hint = error.hint if error.hint is not None and "--" not in error.hint else None
        raise InvalidEventError(f"the body {error.message}", hint=hint) from None
    except (pa.ArrowException, csv.Error) as error:
        raise InvalidEventError(f"the body cannot be read: {' '.join(str(error).split())[:200]}") from None
    table = pa.Table.from_batches(batches) if batches else _NO_EVENTS
    if len(table) > MAX_ROWS:
        raise InvalidEventError(f"the body has more than {MAX_ROWS:,} events", hint="send it in smaller ones")
    return table


# ------------------------------------------------------------ payloads that are no text


def _with_bytes(text: bytes, roles: Roles) -> pa.Table:
    """Lines of which some have their payload as {"base64": "…"}, as answers give what is no text."""
    lines, payloads = [], []
    for number, line in enumerate(split_lines(text), 1):
        if not line.strip():
            continue
        record = parse_object(line, number)
        payloads.append(_payload(record.pop("data", None), number))
        lines.append(json.dumps(record))
    table = _load("\n".join(lines).encode(), "jsonl", roles)
    return table.append_column("data", pa.array(payloads, pa.binary()))


def _payload(given: Any, number: int) -> bytes:
    if given is None:
        return b""
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, dict) and set(given) == {"base64"} and isinstance(given["base64"], str):
        try:
            return base64.b64decode(given["base64"], validate=True)
        except (binascii.Error, ValueError):
            raise InvalidEventError(f"line {number}: data is no base64") from None
    return as_json(given, f"line {number}: data")


def as_json(value: Any, what: str) -> bytes:
    """A value of JSON as its text. Raises InvalidEventError for one that nests more deeply than can be written."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        raise InvalidEventError(f"{what} nests too deeply") from None


# ------------------------------------------------------------ records of streams


def read_records(body: pa.Buffer, media: str, *, max_bytes: int) -> pa.Table | list[dict[str, Any]]:
    """The records of a stream: `ts`, `msg` and fields, as `Catalog.write` takes them. Raises InvalidEventError."""
    if media in (ARROW_STREAM, ARROW_FILE):
        return read_arrow(body, max_bytes)
    if media != LINES:
        raise ValueError(media)
    records = []
    for number, line in enumerate(split_lines(body.to_pybytes()), 1):
        if line and not line.isspace():
            record = parse_object(line, number)
            if "ts" in record:
                record["ts"] = read_time(record["ts"], f"line {number}: ts")
            records.append(record)
    return records


def read_lines(body: pa.Buffer) -> pa.Table:
    """Lines of text, each the message of a record; empty ones are none."""
    lines = (line.removesuffix(b"\r") for line in split_lines(body.to_pybytes()))
    return pa.table({"msg": pa.array([line for line in lines if line], pa.binary())})


def split_lines(text: bytes) -> list[bytes]:
    """The lines of a body. Raises InvalidEventError for more than it may have."""
    if text.count(b"\n") > MAX_ROWS:
        raise InvalidEventError(f"the body has more than {MAX_ROWS:,} lines", hint="send it in smaller ones")
    return text.split(b"\n")


def parse_object(line: bytes, number: int) -> dict[str, Any]:
    """A line as a JSON object. Raises InvalidEventError with its number."""
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InvalidEventError(f"line {number}: broken JSON: {error.msg} at column {error.colno}") from None
    if not isinstance(found, dict):
        raise InvalidEventError(f"line {number}: a JSON object is expected")
    return found


def read_time(given: Any, what: str) -> Any:
    """A time of JSON in µs: whole microseconds, or ISO 8601 text, in UTC where no zone stands. None stays None."""
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        return given
    if isinstance(given, str):
        if _PLAIN_ISO.fullmatch(given):  # hundreds of times faster for one value
            with contextlib.suppress(ValueError):
                moment = dt.datetime.fromisoformat(given)
                utc = moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment
                return (utc - _EPOCH) // dt.timedelta(microseconds=1)
        times = _ISO.read(pa.array([given]))
        if times.ok[0]:
            return int(times.micros[0])
    raise InvalidEventError(f"{what}: {str(given)[:40]!r} is neither ISO 8601 text nor whole microseconds since 1970")
