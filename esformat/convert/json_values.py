"""Line-by-line JSON reader for blocks that pyarrow cannot read: with a bad line, or a column of several types.

Slow but exact: a number that neither int64 nor float64 can represent turns its column into text, with every digit.
Numbers below 2⁵³ with a fraction become the nearest float.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from esformat.core.json_paths import outline
from esformat.format.json_values import is_number_of

DEEPEST = 100  # levels of nesting; pyarrow crashes at about ten thousand, and no reader needs so many

_EXACT_IN_FLOAT = 2**53


def parse_object(line: bytes, *, floats: bool = False) -> dict[str, Any]:
    """Parse one line as a JSON object. Raises ValueError that says what is wrong.

    floats: some members become floats, in which -0 keeps its sign; -0 is a float then, else the integer 0.
    """
    try:
        if outline(line)[0] > DEEPEST:
            raise ValueError(f"nested deeper than {DEEPEST} levels")
        parse_int = _int if floats else None
        value = json.loads(line.decode(), object_pairs_hook=_object, parse_float=_float, parse_int=parse_int)
        if b"\\u" in line:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1} of the line is not UTF-8 text") from error
    except UnicodeEncodeError as error:
        raise ValueError("a string contains an unpaired surrogate") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"broken JSON: {error.msg} at character {error.pos + 1}") from error
    if not isinstance(value, dict):
        raise ValueError(f"a JSON {_name(value)} where an object is expected")
    return value


def columns(objects: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Convert `objects` to one column per key; null if an object lacks the key."""
    names = list(dict.fromkeys(name for found in objects for name in found))
    if not names:
        return pa.RecordBatch.from_struct_array(pa.array(objects, pa.struct([])))
    return pa.RecordBatch.from_arrays([column([found.get(name) for found in objects]) for name in names], names=names)


def column(values: Sequence[Any]) -> pa.Array:
    """Convert JSON values to a column of their common type; text if there is none."""
    kinds = {type(value) for value in values} - {type(None)}
    if kinds == {int, float}:
        exact = all(abs(value) <= _EXACT_IN_FLOAT for value in values if isinstance(value, int))
        return pa.array(values, pa.float64()) if exact else _text(values)
    if len(kinds) > 1:
        return _text(values)
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):  # nested types differ, or a number is too long
        return _text(values)


def _text(values: Sequence[Any]) -> pa.StringArray:
    return pa.array([None if value is None else _text_of(value) for value in values], pa.string())


def _text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return str(pa.scalar(value).cast(pa.string()))  # as the fast path does
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _float(text: str) -> float | str:
    """The number as a float; its text if it is 2⁵³ or more and the float differs."""
    value = float(text)
    return value if abs(value) < _EXACT_IN_FLOAT or is_number_of(value, text) else text


def _int(text: str) -> int | float:
    return -0.0 if text == "-0" else int(text)  # the integer 0 has no sign


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"duplicate key {twice!r}")
    return found


def _name(value: Any) -> str:
    names = {list: "array", str: "text", bool: "truth value", type(None): "null"}
    return names.get(type(value), "number")
