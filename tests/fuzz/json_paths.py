"""Arbitrary JSON: values at a path agree with `json.loads`, and fields are those of the document."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from esformat.core.json_paths import outline, without_members
from esformat.format.json_fields import FieldCounts
from esformat.format.json_values import JsonValues

PATHS: tuple[tuple[str | int, ...], ...] = (("a",), ("a", "b"), ("list", 0), ("list", -1, "é"), (0,), ("\n",), ())
_MOST_LEVELS = 200  # both read this many, whatever the depth of the call


class Word(str):
    """A number as written in a document."""

    __slots__ = ()


def seeds() -> list[bytes]:
    """Documents with every kind of value, escapes in keys and strings, and repeated keys; some are broken."""
    documents = [
        {"a": {"b": [1, -0.5, 1e300, None, True, False, "x" * 20]}, "list": [{"é": "\n\U0001f600"}, {}], "\n": "\\"},
        [[], {}, "", 0, -1, "12345678", "1234567\t"],
        {"list": [{"é": 1}, {"é": 2}], "a": "b"},
    ]
    texts = [json.dumps(document, ensure_ascii=ascii_only) for document in documents for ascii_only in (True, False)]
    texts += [
        '{"a":1,"\\u0061":{"b":2}}',
        " [ NaN , -Infinity ] ",
        '{"a":"\\ud83d\\ude00\\ud83d"}',
        '{"a":[1,]}',
        '{"a": [1E400, -0, 0.10, NaN, {"b": 1, "b": [ ]}]}',
        "1.e5",
    ]
    return [bytes([number]) + text.encode() for number, text in enumerate(texts)]


def one_input(data: bytes) -> None:
    """The first byte selects a path; the rest is a document."""
    path, document = PATHS[data[0] % len(PATHS)] if data else (), data[1:]
    array = pa.array([b'{"a":0}', document, None, b"{"], pa.binary())
    found = JsonValues(array, path)
    text, kind = found.texts()[1].as_py(), int(found.kinds[1])
    counts = FieldCounts()
    counts.add(array)
    fields = counts.found()
    depth, _, _ = outline(document)
    left = without_members(
        document, np.array([0, len(document)]), b"a", np.array([0, 1]), lengths := np.zeros(1, np.int64)
    )
    assert len(left) == lengths[0]
    assert fields.payloads == 3
    if document.count(b"[") + document.count(b"{") > _MOST_LEVELS:
        return
    try:
        whole = _parsed(document.decode())
    except UnicodeDecodeError:
        assert (kind, text, fields.no_json) == (0, None, 2)
        return
    except ValueError:
        assert left == document.strip(b" \n\r\t")
        assert (kind, text, fields.no_json) == (0, None, 2)
        return
    assert fields.no_json == 1
    assert b"\n" in document or depth >= depth_of(whole)  # of equal keys `whole` has only the last
    if isinstance(whole, dict):
        whole_left = {name: value for name, value in whole.items() if name != "a"}
        assert _parsed(left.decode()) == whole_left
    else:
        assert left == document.strip(b" \n\r\t")
    there, value = value_at(whole, path)
    assert (kind != 0) == there
    if isinstance(value, dict | list):
        assert (text.encode() in document, _parsed(text)) == (True, value)
    else:
        assert text == _text(value)


def value_at(value: Any, path: Sequence[str | int]) -> tuple[bool, Any]:
    """Whether there is a value at the path, and the value."""
    for step in path:
        if isinstance(value, dict) and str(step) in value:
            value = value[str(step)]
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return False, None
    return True, value


def depth_of(value: Any) -> int:
    """The nesting depth of a value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


def _parsed(text: str) -> Any:
    return json.loads(text, parse_int=Word, parse_float=Word, parse_constant=Word)


def _text(value: str | bool | None) -> str | None:
    """The text of a value other than an object or array."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return None if value is None else json.dumps(value)
