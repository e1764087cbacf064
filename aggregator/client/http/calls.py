"""Requests to a server as values, and parsing of its responses. No I/O."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

import pyarrow as pa

from aggregator.base.names import check_name
from aggregator.client.http import arrow_stream
from aggregator.client.http.errors import TruncatedAnswerError
from aggregator.engine.ingest.event_table import as_arrow_or_rows, to_table
from aggregator.errors import InvalidRequestError
from aggregator.model import Receipt
from aggregator.policy import Retention, Roll
from esformat import UsageError
from esformat.parts import KEY_COLUMNS, to_bound

COMPRESSIONS = (None, "zstd", "gzip")
_MOST_BYTES = 65_000
"""Of a path with its parameters: httpx takes addresses of 65,536 characters."""
_UNFIT = re.compile(r"\s|.*[\0-\x08\x0a-\x1f\x7f]", re.DOTALL)
"""Matches a producer that HTTP refuses or changes: it removes a space at the beginning of a header."""
_SPECIAL = re.compile(r'[,"\r\n]')
_SELECT = re.compile(r"\s*select\b", re.IGNORECASE)
_SELECT_RECORDS = re.compile(
    r"""\s*select\s*(?:$|[;"']|(?:from|range|where|position|order|offset|limit)\b)""", re.IGNORECASE
)
"""Matches a SELECT of records: a format or a clause follows. Otherwise measures follow. LQL's parser is not used,
because it is in an extra."""
POSITION_HEADER = "aggregator-position"
GONE_HEADER = "aggregator-gone"
_JSON = "application/json"
BYTES = "application/octet-stream"
LOG_SPARE_BYTES = 1 << 16
"""Bytes requested in addition to a frame that did not fit; larger than a frame's head."""
Body: TypeAlias = Any
"""A request body: bytes or a pyarrow buffer."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request.

    path: quoted, with its query. repeatable: sending it twice has the same effect as sending it once. wait_s:
    additional time that the response may take.
    """

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Body = b""
    repeatable: bool = True
    wait_s: float = 0.0

    @property
    def stores(self) -> bool:
        """Whether it appends events under an idempotency key."""
        return "idempotency-key" in self.headers


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete response with a status of 2xx. refusals: how often the server was too busy before it."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    refusals: int = 0

    def json(self) -> Any:
        """Return the body as JSON. Raises TruncatedAnswerError if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise TruncatedAnswerError("the answer is not JSON", hint="is this the server's address?") from None


def path(*parts: str, **parameters: Any) -> str:
    """Return a path of quoted parts, with those parameters that are not None. Lists are a line of CSV.

    Raises InvalidRequestError for text that is not Unicode, and for more than an address may have.
    """
    given = [(name.rstrip("_"), _text(value)) for name, value in parameters.items() if value is not None]
    try:
        quoted = [quote(part, safe="") if part not in (".", "..") else part.replace(".", "%2E") for part in parts]
        made = "".join(f"/{part}" for part in quoted) + ("?" + urlencode(given, quote_via=quote) if given else "")
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"{error.object!r:.200} is not Unicode text") from None
    if len(made) > _MOST_BYTES:
        raise InvalidRequestError(
            f"{made[:40]}… has {len(made)} bytes, more than the {_MOST_BYTES} of an address",
            hint="use sql() or query(), which send their text in a body",
        )
    return made


def _text(value: Any) -> str | bytes:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value
    return ",".join(map(_field, value)) if isinstance(value, list | tuple) else str(value)


def _field(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if _SPECIAL.search(name) else name


# ------------------------------------------------------------ events


def events_table(events: Any) -> pa.Table | pa.RecordBatch:
    """Return events, mappings, tables or anything with the Arrow C stream as one table. Raises InvalidEventError."""
    taken = as_arrow_or_rows(events)
    binary_keys = isinstance(taken, list) and bool(taken) and isinstance(taken[0]["space"], bytes)
    return to_table(taken, binary_keys)


def append(
    topic: str,
    table: pa.Table | pa.RecordBatch,
    partition: str,
    producer: str | None,
    sequence: int | None,
    compression: str | None,
) -> Call:
    """Return a call that appends to a topic."""
    where = path("v1", "topics", topic, "events", partition=partition)
    return _post_table(where, table, producer, sequence, compression)


def write(
    tags: str,
    table: pa.Table,
    topic: str,
    partition: str,
    producer: str | None,
    sequence: int | None,
    compression: str | None,
) -> Call:
    """Return a call that appends to a stream."""
    where = path("v1", "streams", topic=topic, tags=tags, partition=partition)
    return _post_table(where, table, producer, sequence, compression)


def _post_table(
    where: str, table: pa.Table, producer: str | None, sequence: int | None, compression: str | None
) -> Call:
    if (producer is None) != (sequence is None):
        raise InvalidRequestError("producer and sequence must be passed together", hint="pass both, or neither")
    headers = {"content-type": arrow_stream.MEDIA_TYPE, "accept": _JSON}
    if producer is not None:
        check_name(producer, "producer")
        if _UNFIT.match(producer):
            raise InvalidRequestError(f"a header cannot have the producer {producer!r}", hint="choose another name")
        headers["idempotency-key"] = f"{producer}:{sequence}"
    body = _packed(arrow_stream.encode(table), compression)
    if compression is not None:
        headers["content-encoding"] = compression
    return Call("POST", where, headers, body, repeatable=producer is not None)


def _packed(body: pa.Buffer, compression: str | None) -> Body:
    if compression == "gzip":
        return gzip.compress(memoryview(body), 1)
    if compression == "zstd":
        return pa.compress(body, "zstd", asbytes=True)
    return body


def receipt(reply: Reply) -> Receipt:
    """Return the receipt of an append."""
    found = reply.json()
    try:
        return Receipt(
            str(found["topic"]),
            str(found["partition"]),
            int(found["first"]),
            int(found["last"]),
            bool(found.get("repeated", False)),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise TruncatedAnswerError("the answer is not a receipt", hint="is this the server's address?") from None


# ------------------------------------------------------------ queries


def read(where: Sequence[str], parameters: Mapping[str, Any], changed: Mapping[str, Any]) -> Call:
    """Return a call for an Arrow stream. changed: parameters that replace others."""
    return Call("GET", path(*where, **{**parameters, **changed}), {"accept": arrow_stream.MEDIA_TYPE})


def type_of(value: Any) -> str:
    """Return the type of an index value: the same digits may be a number or text."""
    return "boolean" if isinstance(value, bool) else "text" if isinstance(value, str) else "integer"


def with_keys(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of a scan with the columns that events need added."""
    asked = parameters.get("columns")
    return parameters if asked is None else {**parameters, "columns": list(dict.fromkeys([*KEY_COLUMNS, *asked]))}


def query(text: str) -> Call:
    """Return a call that runs a statement. Only a SELECT is repeatable: other statements may change something."""
    repeatable = is_select(text)
    body = json.dumps({"query": text}).encode()
    headers = {"content-type": _JSON, "accept": arrow_stream.MEDIA_TYPE}
    return Call("POST", path("v1", "query"), headers, body, repeatable)


def analyse(text: str) -> Call:
    """Return a call that analyses a statement without running it."""
    return replace(plain("POST", path("v1", "statement"), {"query": text}), repeatable=True)


def warnings(reply: Reply) -> list[str]:
    """Return the server's warnings about an analysed statement."""
    found = reply.json()
    try:
        return [str(warning) for warning in found["warnings"]]
    except (KeyError, TypeError):
        raise TruncatedAnswerError(
            "the answer does not describe a statement", hint="is this the server's address?"
        ) from None


def sql(text: str) -> Call:
    """Return a call that runs an SQL statement, which only reads."""
    headers = {"content-type": _JSON, "accept": arrow_stream.MEDIA_TYPE}
    return Call("POST", path("v1", "sql"), headers, json.dumps({"query": text}).encode())


def page(text: str, position: str, wait_s: float, limit: int) -> Call:
    """Return a call for records of a SELECT after a position."""
    asked = {"query": text, "position": position, "wait": wait_s, "limit": limit}
    headers = {"content-type": _JSON, "accept": arrow_stream.MEDIA_TYPE}
    return Call("POST", path("v1", "query"), headers, json.dumps(asked).encode(), wait_s=wait_s)


def is_select(text: str) -> bool:
    """Whether a statement is a SELECT, of records or of measures."""
    return _SELECT.match(text) is not None


def gives_table(text: str) -> bool:
    """Whether a statement returns a table rather than records: measures, DISTINCT, and anything but a SELECT."""
    return _SELECT_RECORDS.match(text) is None


def scan_parameters(
    *, space: Any = None, grouping: Any = None, start: Any = None, end: Any = None, reverse: bool = False,
    limit: int | None = None, columns: Any = None, partition: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return the parameters of a scan. Raises UsageError or InvalidEventError for values that are invalid on any
    server.
    """
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise UsageError(f"a limit must be a whole number from 0, not {limit!r}")
    if isinstance(columns, str):
        raise UsageError(f"columns must be a list of names, not the text {columns!r}")
    keys = {
        f"{name}_base64" if isinstance(key, bytes) else name: base64.b64encode(key) if isinstance(key, bytes) else key
        for name, key in (("space", space), ("grouping", grouping))
    }
    return keys | {
        "start": None if start is None else to_bound(start, "start"),
        "end": None if end is None else to_bound(end, "end"),
        "time_unit": None if start is None and end is None else "us",
        "reverse": reverse or None,
        "limit": limit,
        "columns": None if columns is None else list(columns),
        "partition": partition,
    }


# ------------------------------------------------------------ upkeep


def plain(method: str, where: str, content: Any = None) -> Call:
    """Return a call with a JSON body, or none, and a JSON response."""
    if content is None:
        return Call(method, where, {"accept": _JSON}, repeatable=method != "POST")
    headers = {"content-type": _JSON, "accept": _JSON}
    return Call(method, where, headers, json.dumps(content).encode(), repeatable=method != "POST")


def topic_names(reply: Reply) -> tuple[str, ...]:
    """Return the names of the topics."""
    found = reply.json()
    try:
        return tuple(str(topic["name"]) for topic in found["topics"])
    except (KeyError, TypeError):
        raise TruncatedAnswerError("the answer lists no topics", hint="is this the server's address?") from None


def create_topic(
    name: str,
    indexes: Sequence[str],
    keys: str,
    roll: Roll | Mapping[str, Any] | None,
    retention: Retention | Mapping[str, Any] | None,
) -> Call:
    """Return a call that creates a topic."""
    if isinstance(indexes, str):
        raise InvalidRequestError(f"indexes must be a list of column names, not the text {indexes!r}")
    content = {"indexes": list(indexes), "keys": keys, **_policies(roll=roll, retention=retention)}
    return plain("PUT", path("v1", "topics", name), content)


def alter_topic(
    name: str, roll: Roll | Mapping[str, Any] | None, retention: Retention | Mapping[str, Any] | None
) -> Call:
    """Return a call that changes a topic's policies; those that are None stay."""
    return plain("PATCH", path("v1", "topics", name), _policies(roll=roll, retention=retention))


def _policies(**given: Roll | Retention | Mapping[str, Any] | None) -> dict[str, Any]:
    """The policies that are not None, for JSON. The server refuses what is neither an object nor a mapping."""
    made: dict[str, Any] = {name: policy for name, policy in given.items() if policy is not None}
    for name, policy in made.items():
        if isinstance(policy, Roll | Retention):
            made[name] = policy.to_json()
        elif isinstance(policy, Mapping):
            made[name] = dict(policy)
    return made


def rename_topic(name: str, new_name: str) -> Call:
    """Return a call that renames a topic."""
    return plain("POST", path("v1", "topics", name, "rename"), {"name": new_name})


def delete_topic(name: str) -> Call:
    """Return a call that deletes a topic. Not repeatable: by then another one may have its name."""
    return replace(plain("DELETE", path("v1", "topics", name)), repeatable=False)


def gone(headers: Mapping[str, str]) -> int:
    """Return how many records after a page's requested position are gone. Raises TruncatedAnswerError if it is not a
    number.
    """
    text = headers.get(GONE_HEADER, "0")
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise TruncatedAnswerError(f"the answer's {GONE_HEADER} is not a number", hint="is this the server's address?")
    return int(text)


def stats(topic: str) -> Call:
    """Return a call for a topic's figures."""
    return plain("GET", path("v1", "topics", topic))


def topic_facts(facts: Mapping[str, Any]) -> tuple[tuple[str, ...], bool]:
    """Return the indexes of a topic, and whether its keys are binary."""
    return tuple(map(str, facts.get("indexes", ()))), facts.get("keys") == "binary"
