"""Request bodies as Arrow tables: Arrow streams and files, JSON, CSV. Pure: bytes and types in, a table out.

`esformat.convert` parses lines and CSV in whole blocks. This module defines the meaning of their columns over HTTP, and
translates its errors for HTTP clients.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from aggregator.server.bodies.arrow_body import MAX_ROWS, read_arrow
from aggregator.server.bodies.shared.media import ARROW_FILE, ARROW_STREAM, CSV, JSON, LINES
from aggregator.server.bodies.shared.records import free_name
from aggregator.server.bodies.shared.text_repair import check_keys, objects_in, parse_json
from aggregator.server.bodies.shared.times import TIMES_HINT, TimeReader
from esformat import InvalidEventError, convert  # whose readers are imported with the first body that needs one
from esformat.parts import as_text

_BINARY_DATA = re.compile(rb'"data"\s*+:\s*+\{\s*+"base64"')
_JOINED = re.compile(rb"\}\s*+\{")
_CURL = "`curl -d` removes line ends: use `curl --data-binary`, which keeps them"
_OPTIONS = re.compile(r"(?:^|[;:,] )(?:or )?(?:choose|give|take)\b.*--.*")
"""Advice to use command-line options, at the end of a message."""
_NAMES_HINT = "each event needs space and timestamp; ?ts= gives another name for timestamp"
_NO_EVENTS = pa.table({"space": pa.array([], pa.string()), "timestamp": pa.array([], pa.int64())})


class _Refuse:
    """A sink for bad rows that refuses them: nothing of the body is stored then."""

    count = 0

    def begin(self) -> None:
        """Do nothing."""

    def take(self, rows: Iterable[convert.BadRow]) -> None:
        """Raise InvalidEventError for the first row."""
        for row in rows:
            reason = _OPTIONS.sub("", row.reason)
            hints = {"timestamp ": TIMES_HINT, "no space: ": _NAMES_HINT, "no timestamp: ": _NAMES_HINT}
            hint = next((f"; {hint}" for start, hint in hints.items() if reason.startswith(start)), "")
            raise InvalidEventError(f"{row.unit} {row.number}: {reason}", hint=f"nothing in the body was stored{hint}")

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Names:
    """A body's names for the time and the message; None: our names."""

    time: str | None = None
    message: str | None = None

    def ours(self, time: str, message: str) -> dict[str, str]:
        """Return our names by the body's names, for those that differ."""
        given = ((self.time, time), (self.message, message))
        return {theirs: our for theirs, our in given if theirs is not None}


OURS = Names()
_ONE_A_LINE = "write one object per line, or send an object, or an array of objects, as application/json"


def read_events(
    body: pa.Buffer,
    media: str,
    *,
    types: Mapping[str, pa.DataType],
    binary_keys: bool,
    max_bytes: int,
    names: Names = OURS,
    times: TimeReader | None = None,
) -> pa.Table:
    """Return the events of a body: columns space, timestamp, and possibly grouping, data and others.

    media: one of media.INPUTS.
    types: columns of the topic. Columns of the body get these types if their values allow; others get the type that
        their values suggest.
    times: how numeric times are read.

    Raises InvalidEventError with the line or the number of the object that is invalid.
    """
    times = TimeReader() if times is None else times
    if media in (ARROW_STREAM, ARROW_FILE):
        table = _renamed(read_arrow(body, max_bytes), names.ours("timestamp", "data"))
        return times.of_arrow(table, "timestamp")
    if media not in (LINES, CSV, JSON):
        raise ValueError(media)
    text = body.to_pybytes()
    if convert.compression_of(text) is not None:  # the readers would decompress it without a limit
        raise InvalidEventError("the body is compressed", hint="send the header Content-Encoding: gzip, or zstd")
    if media == JSON:
        text = _as_lines(text)
    if not text or text.isspace():
        return _NO_EVENTS
    return _with_message(_read_text(text, media, _roles(types, binary_keys, names, times.unit), times), names)


def _read_text(text: bytes, media: str, roles: convert.Roles, times: TimeReader) -> pa.Table:
    if media == CSV:
        if b"\n" not in text and b"\r" not in text:
            raise InvalidEventError("the body has no line ends, so it has only a header", hint=_CURL)
        return _load(text, "csv", _with_grouping(roles, text), times)
    roles = replace(roles, grouping="grouping" if b'"grouping"' in text else None)
    with _explaining_line_ends(text):
        if b'"base64"' in text and _BINARY_DATA.search(text):
            _check_base64(text)
        return _load(text, "jsonl", roles, times)


@contextlib.contextmanager
def _explaining_line_ends(text: bytes) -> Iterator[None]:
    """Add a hint about missing line ends to an error in JSON lines, if that is the likely cause."""
    try:
        yield
    except InvalidEventError as error:
        if b"\n" in text or not _JOINED.search(text):
            raise
        hint = _CURL if error.hint is None else f"{error.hint}; {_CURL}"
        raise InvalidEventError(error.message, hint=hint) from None


def _with_message(table: pa.Table, names: Names) -> pa.Table:
    """Return the events with their message as the payload."""
    if names.message is None or names.message not in table.column_names:
        return table
    table = _renamed(table, {names.message: "data"})
    place = table.column_names.index("data")
    texts = [chunk if pa.types.is_binary(chunk.type) else as_text(chunk) for chunk in table.column(place).chunks]
    payloads = [pc.fill_null(text.cast(pa.binary()), b"") for text in texts]
    return table.set_column(place, "data", pa.chunked_array(payloads, pa.binary()))


def _renamed(table: pa.Table, ours: Mapping[str, str]) -> pa.Table:
    """Return the table with those columns under our names. Raises InvalidEventError if one of these is taken."""
    names = table.column_names
    made = [ours.get(name, name) for name in names]
    taken = next((name for name in ours.values() if made.count(name) > max(1, names.count(name))), None)
    if taken is not None:
        raise InvalidEventError(f"the body already has a column {taken!r}", hint="use that one, or leave it out")
    return table.rename_columns(made)


def _as_lines(text: bytes) -> bytes:
    """Cut a JSON object or array of objects into lines: line n is object n, with spaces in place of line ends. Raises
    InvalidEventError.
    """
    if not text or text.isspace():
        return b""
    try:
        found = parse_json(text)
    except orjson.JSONDecodeError as error:
        raise InvalidEventError(
            f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}",
            hint="send an object or an array of objects; for JSON lines, use application/x-ndjson",
        ) from None
    objects = found if isinstance(found, list) else [found]
    if len(objects) > MAX_ROWS:
        raise InvalidEventError(f"the body has more than {MAX_ROWS:,} objects", hint="split it into smaller ones")
    odd = next((number for number, each in enumerate(objects, 1) if not isinstance(each, dict)), None)
    if odd is not None:
        raise InvalidEventError(f"item {odd} of the array is not a JSON object")
    try:
        lines = [each.replace("\n", " ").replace("\r", " ") for each in objects_in(text.decode())]
    except RecursionError:
        raise InvalidEventError("the body nests too deeply") from None
    return "\n".join(lines).encode()


def _roles(types: Mapping[str, pa.DataType], binary_keys: bool, names: Names, unit: str | None) -> convert.Roles:
    messages = {} if names.message is None else {names.message: pa.binary()}
    return convert.Roles(
        space="space",
        timestamp=names.time or "timestamp",
        known={**types, **messages},
        keys="binary" if binary_keys else "text",
        clock=convert.Clock(unit=unit),
    )


def _without(roles: convert.Roles, names: set[str]) -> convert.Roles:
    """Return the roles without the known types of some columns."""
    return replace(roles, known={name: kind for name, kind in roles.known.items() if name not in names})


def _with_grouping(roles: convert.Roles, text: bytes) -> convert.Roles:
    """Return the roles with a grouping if the first line of the CSV has that name."""
    first = text.lstrip(b"\r\n").split(b"\n", 1)[0].rstrip(b"\r").removeprefix(b"\xef\xbb\xbf")
    names: list[str] = []
    with contextlib.suppress(csv.Error):  # the reader will report the error
        names = next(csv.reader(io.StringIO(first.decode("utf-8", "replace"))), [])
    return replace(roles, grouping="grouping") if "grouping" in names else roles


def _load(text: bytes, format_: str, roles: convert.Roles, times: TimeReader) -> pa.Table:
    if not text.endswith(b"\n"):
        text += b"\n"
    try:
        with convert.Load(
            ["-"], roles, convert.InputOptions(format=format_), bad_rows=_Refuse(), stdin=pa.py_buffer(text)
        ) as load:
            batches = list(load.batches())
            if any(batch.schema != batches[0].schema for batch in batches):  # a long body: survey all of it for types
                plan = load.survey()
                batches = list(load.batches(plan))
                odd = {f.name for batch in batches for f in batch.schema if f.type != roles.known.get(f.name, f.type)}
                if odd:  # still several types
                    plan = replace(plan, roles=_without(roles, odd))
                    batches = list(load.batches(plan))
            times.assumed |= load.assumed
    except convert.InputError as error:
        hint = None if error.hint is None else _OPTIONS.sub("", error.hint) or _NAMES_HINT
        raise InvalidEventError(f"the body {error.message}", hint=hint) from None
    except (pa.ArrowException, csv.Error) as error:
        raise InvalidEventError(f"the body cannot be read: {' '.join(str(error).split())[:200]}") from None
    table = pa.Table.from_batches(batches) if batches else _NO_EVENTS
    if len(table) > MAX_ROWS:
        raise InvalidEventError(f"the body has more than {MAX_ROWS:,} events", hint="split it into smaller ones")
    return table


def _check_base64(text: bytes) -> None:
    """Refuse payloads {"base64": "…"} that are not base64, which would be stored as ordinary objects."""
    for number, line in enumerate(split_lines(text), 1):
        given = parse_object(line, number).get("data") if _BINARY_DATA.search(line) else None
        if isinstance(given, dict):
            _of_base64(given, f"line {number}: data")


def _of_base64(given: dict[str, Any], what: str) -> Any:
    """The bytes of {"base64": "…"}; other objects are unchanged. Raises InvalidEventError."""
    if set(given) != {"base64"} or not isinstance(given["base64"], str):
        return given
    try:
        return base64.b64decode(given["base64"], validate=True)
    except (binascii.Error, ValueError):
        raise InvalidEventError(f"{what} is not base64") from None


# ------------------------------------------------------------ records of streams


def read_records(
    body: pa.Buffer, media: str, *, max_bytes: int, names: Names = OURS, times: TimeReader | None = None
) -> pa.Table | list[dict[str, Any]]:
    """Return the records of a stream, with `ts`, `msg` and fields, for `Catalog.write`. Raises InvalidEventError."""
    times = TimeReader() if times is None else times
    if media in (ARROW_STREAM, ARROW_FILE):
        return times.of_arrow(_renamed(read_arrow(body, max_bytes), names.ours("ts", "msg")), "ts")
    if media not in (LINES, JSON):
        raise ValueError(media)
    text = body.to_pybytes()
    if media == JSON:
        lines = _as_lines(text)
        try:
            check_keys(text)
        except ValueError as error:
            raise InvalidEventError(f"the body has an invalid object: {error}") from None
        return _records_in(lines, names, times)
    with _explaining_line_ends(text):
        return _records_in(text, names, times)


def _records_in(text: bytes, names: Names, times: TimeReader) -> list[dict[str, Any]]:
    records = []
    for number, line in enumerate(split_lines(text), 1):
        if line and not line.isspace():
            record = parse_object(line, number)
            if names != OURS:
                record = _with_our_names(record, names)
            if "ts" in record:
                record["ts"] = times.read(record["ts"], f"line {number}: {names.time or 'ts'}")
            if isinstance(record.get("msg"), dict):
                record["msg"] = _of_base64(record["msg"], f"line {number}: {names.message or 'msg'}")
            records.append(record)
    return records


def _with_our_names(record: dict[str, Any], names: Names) -> dict[str, Any]:
    """Rename a record's time to `ts` and its message to `msg`; fields with these names get others."""
    ours = names.ours("ts", "msg")
    ours |= {name: name for name in ("ts", "msg") if name not in ours and name not in ours.values()}
    made = {ours[name]: record.pop(name) for name in list(record) if name in ours}
    for name, value in record.items():
        made[free_name(name, "_", made)] = value
    return made


def read_lines(body: pa.Buffer) -> pa.Table:
    """Return lines of text, each as the message of a record; empty lines are skipped."""
    lines = (line.removesuffix(b"\r") for line in split_lines(body.to_pybytes()))
    return pa.table({"msg": pa.array([line for line in lines if line], pa.binary())})


def split_lines(text: bytes) -> list[bytes]:
    """Split a body into lines. Raises InvalidEventError if there are too many."""
    if text.count(b"\n") > MAX_ROWS:
        raise InvalidEventError(f"the body has more than {MAX_ROWS:,} lines", hint="split it into smaller ones")
    return text.split(b"\n")


def parse_object(line: bytes, number: int) -> dict[str, Any]:
    """Parse a line as a JSON object. Raises InvalidEventError with its number."""
    try:
        found = parse_json(line)
    except orjson.JSONDecodeError as error:
        raise InvalidEventError(
            f"line {number}: broken JSON: {error.msg} at column {error.colno}", hint=_ONE_A_LINE
        ) from None
    if not isinstance(found, dict):
        raise InvalidEventError(f"line {number}: expected a JSON object", hint=_ONE_A_LINE)
    return found
