r"""Requests whose text is not always valid UTF-8, made readable: invalid bytes are escaped, as `\xff`. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson

from aggregator.base.written_float import WrittenFloat, json_of, parse_float, parse_int
from esformat.parts import has_odd_numbers

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_BETWEEN = re.compile(r"[\s,\[\]]*+")  # between the objects of an array
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)  # of any number of digits
_DEEPEST = 100  # limit of protobuf's own parser
_VARINT, _EIGHT_BYTES, _DELIMITED, _FOUR_BYTES = 0, 1, 2, 5


def read_json(text: bytes) -> tuple[Any, bool]:
    r"""Parse JSON, and return whether text in it was escaped: invalid UTF-8, or lone surrogates such as `\ud800`.

    Raises orjson.JSONDecodeError, a ValueError.
    """
    try:
        return parse_json(text), False
    except orjson.JSONDecodeError:
        try:
            found = _loads(text.decode("utf-8", "surrogateescape"))
            escaped = _escaped(found)
        except (ValueError, RecursionError):
            escaped = found = None
        if escaped == found:  # something else was wrong
            raise
        return escaped, True


def parse_json(text: bytes) -> Any:
    """Parse JSON with all digits of its numbers.

    orjson turns integers of more than 64 bits into floats and -0 into 0, loses digits of others, and refuses numbers
    beyond the range of floats. Raises orjson.JSONDecodeError, a ValueError.
    """
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        with suppress(ValueError, RecursionError):  # unless something else is wrong
            found = _loads(text.decode())
            if _escaped(found) == found:
                return found
        raise
    if has_odd_numbers(text):
        with suppress(ValueError, RecursionError):  # for example more digits than Python converts
            return _loads(text.decode())
    return found


def _loads(text: str) -> Any:
    return json.loads(text, parse_float=parse_float, parse_int=parse_int, parse_constant=_no_number)


def objects_in(text: str) -> Iterator[str]:
    """Yield the objects of a JSON array, or a single object, as written. The text must be valid.

    Raises RecursionError if it nests too deeply.
    """
    at = _BETWEEN.match(text).end()  # type: ignore[union-attr]  # it matches everywhere
    while at < len(text):
        _, end = _DECODER.raw_decode(text, at)
        yield text[at:end]
        at = _BETWEEN.match(text, end).end()  # type: ignore[union-attr]


def check_keys(text: bytes) -> None:
    """Raise ValueError if an object has a duplicate key, of which orjson takes the last value."""
    with suppress(RecursionError):  # nested too deeply to be stored anyway
        json.loads(text, object_pairs_hook=_distinct)


def _distinct(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"duplicate key {twice[:100]!r}")


def json_text(value: Any) -> bytes:
    """Return a JSON value as text. Raises ValueError if it nests too deeply."""
    try:
        return orjson.dumps(value, default=_fragment)
    except orjson.JSONEncodeError as error:
        if "Integer" not in str(error):
            raise ValueError("it nests too deeply") from None
        return json_of(value).encode()


def _fragment(value: Any) -> orjson.Fragment:
    if isinstance(value, WrittenFloat):
        return orjson.Fragment(value.text)
    raise TypeError(type(value).__name__)


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else _whole(value)
    if isinstance(value, list):
        return [_escaped(each) for each in value]
    return {_escaped(name): _escaped(each) for name, each in value.items()} if isinstance(value, dict) else value


def _whole(text: str) -> str:
    try:  # escape single bytes
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


class MalformedError(ValueError):
    """A malformed protobuf message. place: the fields around the fault, each with its index among those of its name."""

    def __init__(self, why: str, place: tuple[tuple[str, int], ...] = ()) -> None:
        super().__init__(why)
        self.place = place


def escaped_message(body: memoryview, kind: Descriptor, depth: int = 0) -> bytes:
    """Return a protobuf message with its texts escaped. Raises MalformedError."""
    if depth > _DEEPEST:
        raise MalformedError(f"messages nest deeper than {_DEEPEST} levels")
    try:
        return _escaped_fields(body, kind, depth)
    except MalformedError:
        raise
    except ValueError as error:
        raise MalformedError(str(error)) from None


def _escaped_fields(body: memoryview, kind: Descriptor, depth: int) -> bytes:
    counts: Counter[int] = Counter()
    made = bytearray()
    at = 0
    while at < len(body):
        begin = at
        key, at = varint(body, at)
        wire = key & 7
        if wire == _VARINT:
            _, at = varint(body, at)
        elif wire == _DELIMITED:
            size, at = varint(body, at)
            inner, at = body[at : at + size], at + size
            whole = at <= len(body)  # a slice may be shorter than asked for
            field = kind.fields_by_number.get(key >> 3)
            content = _content(inner, field, depth, counts[key >> 3]) if whole else None
            counts[key >> 3] += 1
            if content is not None:
                made += _written(key) + _written(len(content)) + content
                continue
        elif wire in (_EIGHT_BYTES, _FOUR_BYTES):
            at += 8 if wire == _EIGHT_BYTES else 4
        else:
            raise ValueError(f"invalid wire type {wire}")
        if at > len(body):
            raise ValueError("the message is cut short")
        made += body[begin:at]
    return bytes(made)


def _content(inner: memoryview, field: FieldDescriptor | None, depth: int, index: int) -> bytes | None:
    """Return the new content of a length-delimited field; None: unchanged. index: among the fields of its name."""
    if field is None:
        return None
    if field.message_type is not None:
        try:
            return escaped_message(inner, field.message_type, depth + 1)
        except MalformedError as error:
            raise MalformedError(str(error), ((field.json_name, index), *error.place)) from None
    if field.type == field.TYPE_STRING:
        return bytes(inner).decode("utf-8", "backslashreplace").encode()
    return None


def varint(body: memoryview | bytes, at: int) -> tuple[int, int]:
    """Return the protobuf varint at `at`, and the offset after it. Raises ValueError."""
    number = shift = 0
    while at < len(body) and shift < 70:
        byte = body[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
    raise ValueError("a number is cut short or too long")


def _written(number: int) -> bytes:
    made = bytearray()
    while number >= 0x80:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])
