"""Elasticsearch's `_bulk`, as log shippers use it: lines of actions and documents, and a result for each. Pure.

A document becomes a record of the stream `{index=…}`. `@timestamp` (or `time`) is its time, and `message` (or `log`,
`msg`) its message. Other fields, and its `_id`, become fields; nested objects become dotted names, as in Elasticsearch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from aggregator.server.bodies.document_ids import ID_FIELD, INDEX_TAG
from aggregator.server.bodies.formats import split_lines
from aggregator.server.bodies.shared.elastic import error_body
from aggregator.server.bodies.shared.records import TAGS_AND_RECORD, Outcome, Place, Refusal, free_name
from aggregator.server.bodies.shared.refusals import Count, ignore
from aggregator.server.bodies.shared.text_repair import json_text, read_json
from aggregator.server.bodies.shared.times import TimeReader
from esformat import InvalidEventError

_STORING = ("index", "create")
_ACTIONS = (*_STORING, "update", "delete")
_MESSAGES = ("message", "log", "msg")
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
_START_OF_DATE = re.compile(r"[0-9]{4}(-[0-9]{2})?")
_SHORT_BYTES = 500  # size limit of actions that are cached
_DEEPEST = 20  # levels of nested objects, as in Elasticsearch


@dataclass(frozen=True, slots=True)
class Action:
    """One item of a request: the action, the document's index and id, and the document as sent, if there is one.

    verb: one of _ACTIONS, or an unknown word. line: line number in the body.
    """

    verb: str
    index: str
    id: str | None
    document: bytes | None
    line: int


@dataclass(frozen=True, slots=True)
class Wrong:
    """Why an item is refused, in Elasticsearch's terms."""

    kind: str
    reason: str
    status: int = 400


def read_actions(body: bytes, index: str | None) -> Iterator[Action]:
    """Yield the items of a body. index: of items that name none. Raises InvalidEventError for malformed lines.

    An unknown action is an item, too. It includes the next line, unless that is an action.
    """
    lines = split_lines(body)
    at = 0
    while at < len(lines):
        line, number = lines[at], at + 1
        at += 1
        if not line or line.isspace():
            continue
        verb, options = _header(line, number)
        document = lines[at] if verb != "delete" and at < len(lines) else None
        if verb not in _ACTIONS and document is not None and _is_action(document):
            document = None
        if document is not None:
            at += 1
        if not document and verb in _ACTIONS and verb != "delete":
            raise InvalidEventError(f"line {number}: the document of this action is missing")
        name = options.get("_index", index)
        if not isinstance(name, str) or not name:
            raise InvalidEventError(f"line {number}: the index is missing")
        given = options.get("_id")
        if isinstance(given, list | dict):
            raise InvalidEventError(f"line {number}: _id is not a simple value")
        yield Action(verb, name, _id_of(given), document, number)


def _id_of(given: str | float | None) -> str | None:
    """Return an id as text; one that is not text as JSON writes it, as Elasticsearch does."""
    return given if given is None or isinstance(given, str) else json_text(given).decode()


def _header(line: bytes, number: int) -> tuple[str, Mapping[str, Any]]:
    try:
        return _remembered_header(line) if len(line) <= _SHORT_BYTES else _parsed_header(line)
    except ValueError as error:
        raise InvalidEventError(
            f"line {number}: no action: {str(error)[:100]}",
            hint="put each action and each document on its own line",
        ) from None


def _is_action(line: bytes) -> bool:
    try:
        return _parsed_header(line)[0] in _ACTIONS
    except ValueError:
        return False


@lru_cache(1024)
def _remembered_header(line: bytes) -> tuple[str, Mapping[str, Any]]:
    """Parse an action. Cached, because most items of a shipper repeat the same few actions."""
    return _parsed_header(line)


def _parsed_header(line: bytes) -> tuple[str, Mapping[str, Any]]:
    """Parse an action. Only the first member counts, as in Elasticsearch: winston adds members of its own."""
    found = orjson.loads(line)
    if not isinstance(found, dict) or not found:
        raise ValueError("expected an object with one action")
    verb, options = next(iter(found.items()))
    if not isinstance(options, dict):
        raise ValueError(f"the options of {verb[:20]!r} are not an object")
    return verb, options


def record_of(action: Action, count: Count = ignore) -> TAGS_AND_RECORD | Wrong:
    """Return the record that an item asks to store, with its stream's tags. A refused item is counted; return the
    reason.
    """
    found = _record_of(action, count)
    if isinstance(found, Wrong):
        count("invalid" if action.verb in _STORING else "unsupported", why=found.reason)
    return found


def _record_of(action: Action, count: Count) -> TAGS_AND_RECORD | Wrong:
    if action.verb not in _ACTIONS:
        return Wrong(
            "illegal_argument_exception", f"invalid action {action.verb[:20]!r}: expected one of {', '.join(_ACTIONS)}"
        )
    if action.verb not in _STORING:
        return Wrong("illegal_argument_exception", f"{action.verb} is not supported: events cannot be changed")
    try:
        document, escaped = read_json(action.document or b"")
    except orjson.JSONDecodeError as error:
        return Wrong("document_parsing_exception", f"the document is not JSON: {error.msg}")
    if not isinstance(document, dict):
        return Wrong("document_parsing_exception", "the document is not an object")
    if escaped:
        count("text_escaped")
    return {INDEX_TAG: action.index}, _record(document, action.id, count)


def _record(document: dict[str, Any], document_id: str | None, count: Count) -> dict[str, Any]:
    made: dict[str, Any] = {} if document_id is None else {ID_FIELD: document_id}
    time_name = _time_name(document)
    if time_name is not None:
        try:
            made["ts"] = _read_time(document[time_name], time_name)
            del document[time_name]
        except InvalidEventError:  # the value remains a field
            count("time_replaced")
    for name in _MESSAGES:
        if isinstance(document.get(name), str):
            made["msg"] = document.pop(name)
            break
    for name, value in _flat(document):
        made[free_name(name, "_", made)] = value
    return made


def _time_name(document: Mapping[str, Any]) -> str | None:
    """Return the name of the time member. pino's `time` counts only if it is a date: others store durations there."""
    if "@timestamp" in document:
        return "@timestamp"
    value = document.get("time")
    return "time" if isinstance(value, str) and _ISO_DATE.match(value) else None


def _read_time(given: Any, name: str) -> int | None:
    """Parse a time by Elasticsearch's default rules: a date, of which a year is enough, or milliseconds."""
    found = _START_OF_DATE.fullmatch(str(given))
    if found is not None:
        given = f"{given}-01" if found[1] else f"{given}-01-01"
    return TimeReader("ms").read(given, name)


def _flat(members: Mapping[str, Any], before: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Flatten nested objects into dotted names, down to _DEEPEST levels. Deeper objects remain single values."""
    for name, value in members.items():
        if isinstance(value, dict) and value and depth < _DEEPEST:
            yield from _flat(value, f"{before}{name}.", depth + 1)
        else:
            yield before + name, value


# ------------------------------------------------------------ answers


def document_answer(action: Action, outcome: Outcome | Wrong) -> tuple[int, dict[str, Any]]:
    """Return the status and the response body for a single document."""
    item = _item(action, outcome)
    status = int(item.pop("status"))
    if isinstance(outcome, Place):
        return status, item
    return status, error_body(status, item["error"]["reason"], item["error"]["type"])


def exists(action: Action) -> Wrong:
    """Return the error for a document that exists already."""
    reason = f"[{action.id}]: version conflict, document already exists (current version [1])"
    return Wrong("version_conflict_engine_exception", reason, 409)


def being_stored(action: Action) -> Wrong:
    """Return the error for a document that another request is storing."""
    return Wrong("es_rejected_execution_exception", f"[{action.id}]: another request is storing it; try again", 429)


def bulk_answer(actions: Sequence[Action], outcomes: Sequence[Outcome | Wrong], took_ms: int) -> bytes:
    """Return the response with the result of each item, in order."""
    items = [{action.verb: _item(action, outcome)} for action, outcome in zip(actions, outcomes, strict=True)]
    errors = any(not isinstance(outcome, Place) for outcome in outcomes)
    return orjson.dumps({"took": took_ms, "errors": errors, "items": items})


def _item(action: Action, outcome: Outcome | Wrong) -> dict[str, Any]:
    about: dict[str, Any] = {"_index": action.index, "_id": action.id}
    if isinstance(outcome, Place):
        return about | {
            "_id": action.id or f"{outcome.partition}-{outcome.index}",
            "_version": 1,
            "result": "created",
            "_shards": {"total": 1, "successful": 1, "failed": 0},
            "_seq_no": outcome.index,
            "_primary_term": 1,
            "status": 201,
        }
    wrong = Wrong("document_parsing_exception", outcome.reason) if isinstance(outcome, Refusal) else outcome
    return about | {"status": wrong.status, "error": {"type": wrong.kind, "reason": wrong.reason}}
