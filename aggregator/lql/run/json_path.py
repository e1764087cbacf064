"""Paths into messages that are JSON: the value at a place of each message, parsed only where it can matter.

Arrow has no JSON functions, so messages are parsed one by one. A regular expression sorts out first, for whole
batches, which of them can hold the key at all, and the text that is compared with; mostly few are left.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggregator.lql.parse.columns import as_text
from aggregator.lql.parse.tree import SYMBOLS, Value
from aggregator.lql.text import glob
from aggregator.lql.text.number import number_holds
from aggregator.lql.text.predicate import Test, as_string, text_test
from aggregator.lql.text.quantity import parse_number

_ENOUGH = 100  # characters
_SCAN = json.scanner.make_scanner(json.JSONDecoder())  # type: ignore[attr-defined]  # the fast half of json.loads
Holds = Callable[[list[object]], list[bool]]


def path_test(steps: tuple[str | int, ...], op: str, value: Value) -> Test:
    """Compile `PATH op value` to a test of messages (text or bytes, no nulls).

    A number without quotes compares with numbers, also those in a JSON string; only != holds for anything else.
    Other values compare with text: a string's own, `true`, a number as Python writes it, JSON of objects and arrays,
    and empty text where there is nothing, null, or no JSON.
    """
    otherwise: bool
    if value.number and op in SYMBOLS:
        holds, otherwise = _number_test(op, value), op == "!="
    else:
        holds, otherwise = _text_test(op, value)
    possible = _candidates(steps, op, value)

    def test(messages: pa.Array) -> pa.BooleanArray:
        result = np.full(len(messages), otherwise)
        rows = pc.indices_nonzero(pc.match_substring_regex(as_string(messages), possible))
        if len(rows):
            found = [_at(text, steps) for text in as_text(messages.take(rows)).to_pylist()]
            result[np.asarray(rows)] = holds(found)
        return pa.array(result)

    return test


def path_text(steps: tuple[str | int, ...], messages: pa.Array) -> pa.Array:
    """The value at the path as text, null where there is none."""
    values = [None if text is None else _at(text, steps) for text in as_text(messages).to_pylist()]
    return pa.array([None if value is None else _text(value) for value in values], pa.string())


def _candidates(steps: tuple[str | int, ...], op: str, value: Value) -> str:
    """An RE2 pattern that every message matches whose test is not the one of a missing value.

    The last key stands in the message, in quotes, and so does the text compared with, unless something is escaped. Of
    long ones the beginning is enough.
    """
    keys = [step for step in steps if isinstance(step, str) and not step.isdigit()]
    key = glob.escape(json.dumps(keys[-1], ensure_ascii=False)[:_ENOUGH]) if keys else ""
    text = ""
    if op in ("=", "CONTAINS", "PREFIX", "SUFFIX") and not value.number:
        text = glob.escape(json.dumps(value.text, ensure_ascii=False)[1:-1][:_ENOUGH])
        if set(value.text) & set(',:{}[]" ') or not set(value.text) - set("0123456789+-.eE"):
            text = ""  # may be of an object or a number, which are written anew
    wanted = f"{key}\\C*{text}" if key and text else key or text
    return rf"{wanted}|\\" if wanted else ""


def _at(text: str, steps: tuple[str | int, ...]) -> object:
    """The value at the path, None where there is none or the text is no JSON."""
    text = text.strip(" \t\r\n")
    try:
        value, end = _SCAN(text, 0)
    except (StopIteration, ValueError, RecursionError):
        return None
    if end != len(text):
        return None
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step if isinstance(step, str) else str(step))
        elif isinstance(value, list):
            position = _position(step)
            value = value[position] if -len(value) <= position < len(value) else None
        else:
            return None
    return value


def _position(step: str | int) -> int:
    """Where in an array; out of any where the step is a key."""
    if isinstance(step, str):
        return int(step) if re.fullmatch("[0-9]{1,9}", step) else 2**62
    return step


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return ""


def _number_test(op: str, value: Value) -> Holds:
    limit = parse_number(value.text)

    def holds(found: list[object]) -> list[bool]:
        return [number_holds(_written(item), op, limit) for item in found]

    return holds


def _written(value: object) -> str:
    """A number, or the text of one, as it is written; anything else is no number."""
    try:
        return str(value) if isinstance(value, int | float | str) else ""
    except ValueError:  # an integer of more digits than Python writes
        return ""


def _text_test(op: str, value: Value) -> tuple[Holds, bool]:
    test = text_test(op, value.text)

    def holds(found: list[object]) -> list[bool]:
        texts = ["" if item is None else _text(item) for item in found]
        decided: list[bool] = test(_utf8(texts)).to_pylist()
        return decided

    return holds, holds([None])[0]


def _utf8(texts: list[str]) -> pa.Array:
    try:
        return pa.array(texts, pa.large_string())
    except UnicodeEncodeError:  # "\ud800", legal JSON, is half a character
        return pa.array([text.encode("utf-8", "replace").decode() for text in texts], pa.large_string())
