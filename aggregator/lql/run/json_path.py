"""Paths into JSON messages: the value at a path of each message."""

from __future__ import annotations

import re

import pyarrow as pa

from aggregator.lql.parse.columns import decoded
from aggregator.lql.parse.tree import SYMBOLS, Value
from aggregator.lql.text.number import number_test
from aggregator.lql.text.predicate import Test, text_test
from esformat.parts import JsonValues

_PLACE = re.compile("0|[1-9][0-9]{0,8}")  # a key of an object, or a position in an array


def path_test(steps: tuple[str | int, ...], op: str, value: Value) -> Test:
    """Compile `PATH op value` to a test of messages (text or bytes, no nulls).

    A number without quotes is compared with numbers, including those in JSON strings; for anything else only != is
    true. Other values are compared with text: a string's own, any other value as in the message, and empty text if
    the value is absent or null, or the message is not JSON.
    """
    test = (number_test if value.number and op in SYMBOLS else text_test)(op, value.text)
    return lambda messages: test(_values(messages, steps).texts().fill_null(""))


def path_text(steps: tuple[str | int, ...], messages: pa.Array) -> pa.Array:
    """The value at the path as text, null if there is none."""
    return _values(messages, steps).texts()


def _values(messages: pa.Array, steps: tuple[str | int, ...]) -> JsonValues:
    places = [int(step) if isinstance(step, str) and _PLACE.fullmatch(step) else step for step in steps]
    return JsonValues(decoded(messages), places)
