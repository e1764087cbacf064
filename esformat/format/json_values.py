"""Values at a path of JSON documents, as Arrow columns. Loops over documents only for unusual numbers and for
strings with escapes.

A path is written as in RFC 9535, without wildcards and filters: `$.user.id`, `$.items[0]`, `$["odd key"][-1]`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from esformat.core.json_paths import ESCAPED, FALSE, FLOAT, INTEGER, KINDS, MISSING, NOWHERE, NULL, TRUE, find_values
from esformat.core.matching import gathered
from esformat.errors import UsageError
from esformat.format.arrays import bytes_of

Step = str | int
"""A key, or a position in an array, counted from 0 or, if negative, from the end. A position is also tried as a key."""

_STEP = re.compile(
    r"""\.(?P<name>[^\s.\[\]"'$]+)|\[(?P<place>-?[0-9]{1,9})\]"""
    r"""|\[(?P<quoted>"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"|'[^'\\]*')\]"""
)
_NUMBER = r"\A-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?\z"
_EXACT = 2**53  # from here on, floats cannot represent every integer
_MOST_DIGITS = 1_000
_NO_NUMBER_OR_WHOLE = np.isin(np.arange(KINDS), [MISSING, NULL, FALSE, TRUE, INTEGER])
FOUND = pa.struct([("kind", pa.uint8()), ("text", pa.binary())])
"""The type of a column of found values, as returned by `JsonValues.found`."""
_STORED_PLAIN = re.compile(r'[^\x00-\x1f"\\\ud800-\udfff\ufffd]+')


def parse_path(text: str) -> tuple[Step, ...]:
    """Parse a path into steps. Raises UsageError."""
    steps: list[Step] = []
    at = 1
    while text[:1] == "$" and at < len(text) and (found := _STEP.match(text, at)) is not None:
        name, place, quoted = found["name"], found["place"], found["quoted"]
        if quoted is not None:
            steps.append(quoted[1:-1] if quoted[0] == "'" else json.loads(quoted))
        else:
            steps.append(name if place is None else int(place))
        at = found.end()
    if not steps or at < len(text):
        raise UsageError(f"invalid path {text!r} into a payload", hint="""write $.name, $.list[0] or $["odd name"]""")
    return tuple(steps)


def texts_around(text: str) -> tuple[bytes, ...]:
    """Byte strings: each document with a value that reads like `text` contains one of them. Empty if none are certain.

    A string appears unchanged in quotes, or has an escaped character. Numbers and other values can be written in many
    ways.
    """
    if not _STORED_PLAIN.fullmatch(text) or text[0] in "{[" or text in ("true", "false", "null"):
        return ()
    try:
        float(text)
    except ValueError:
        return f'"{text}"'.encode(), b"\\"
    return ()


def valid_text(documents: pa.Array) -> pa.Array:
    """Convert documents of text or binary to text, null if their bytes are not UTF-8."""
    kind = documents.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return documents
    text = pa.large_string() if pa.types.is_large_binary(kind) else pa.string()
    try:
        return documents.cast(text)
    except pa.ArrowInvalid:  # rare, so convert value by value
        return pa.array([_utf8(value) for value in documents.to_pylist()], text)


def _utf8(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


class JsonValues:
    """The values at a path in each of `documents`, of text or binary. Documents that are not UTF-8 are not JSON.

    Document i is data[edges[i]:edges[i + 1]], and its value is data[starts[i]:ends[i]], for strings without the quotes.
    `kinds`: one kind for each document, from `esformat.core.json_paths`.
    """

    def __init__(self, documents: pa.Array, steps: Sequence[Step]) -> None:
        n = len(documents)
        self.edges, data = bytes_of(valid_text(documents))
        self.data = np.frombuffer(data, np.uint8)
        self.starts, self.ends = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.kinds: npt.NDArray[np.uint8] = np.zeros(n, np.uint8)
        keys = [str(step).encode("utf-8", "surrogatepass") for step in steps]
        places = [step if isinstance(step, int) else NOWHERE for step in steps]
        find_values(self.data, self.edges, keys, places, self.starts, self.ends, self.kinds)

    @classmethod
    def of(cls, found: pa.StructArray) -> Self:
        """The values of a column of type `FOUND`."""
        made = cls.__new__(cls)
        made.kinds = found.field(0).to_numpy()
        made.edges, data = bytes_of(found.field(1))
        made.data = np.frombuffer(data, np.uint8)
        made.starts, made.ends = made.edges[:-1], made.edges[1:]
        return made

    def found(self) -> pa.StructArray:
        """The kinds and bytes of the values as a column of type `FOUND`."""
        texts = pa.Array.from_buffers(pa.large_binary(), len(self.kinds), [None, *self._pieces().buffers()[1:]])
        return pa.StructArray.from_arrays([pa.array(self.kinds), texts.cast(pa.binary())], fields=list(FOUND))

    def texts(self) -> pa.LargeStringArray:
        """The values as text: the texts of strings, all others as in the document. Null for missing values and null."""
        texts, escaped = self._pieces(), pa.array(self.kinds == ESCAPED)
        return pc.replace_with_mask(texts, escaped, _unescaped(texts.filter(escaped))) if escaped.true_count else texts

    def numbers(self) -> pa.DoubleArray:
        """Numbers, including those in strings; null for all other values."""
        texts = self.texts()
        if _NO_NUMBER_OR_WHOLE[self.kinds].all():
            return pc.if_else(pa.array(self.kinds == INTEGER), texts, None).cast(pa.float64())
        return pc.if_else(pc.match_substring_regex(texts, _NUMBER), texts, None).cast(pa.float64())

    def booleans(self) -> pa.BooleanArray:
        """True and false; null for all other values."""
        return pa.array(self.kinds == TRUE, mask=(self.kinds != TRUE) & (self.kinds != FALSE))

    def _pieces(self) -> pa.LargeStringArray:
        """The bytes of each value; null for missing values and null."""
        none = (self.kinds == MISSING) | (self.kinds == NULL)
        edges, raw = self.edges, self.data.data
        if self.starts.base is not edges:
            lengths = np.where(none, 0, self.ends - self.starts)
            edges, raw = np.append(0, np.cumsum(lengths)), memoryview(gathered(self.data, self.starts, lengths))
        validity = pa.py_buffer(np.packbits(~none, bitorder="little"))
        return pa.LargeStringArray.from_buffers(len(none), pa.py_buffer(edges), pa.py_buffer(raw), validity)


def _unescaped(strings: pa.LargeStringArray) -> pa.LargeStringArray:
    """JSON strings without quotes as the texts that they represent; unpaired surrogates become `?`."""
    pieces = b'","'.join(strings.cast(pa.large_binary()).to_pylist())
    texts = json.loads(f'["{pieces.decode("utf-8", "replace")}"]')  # parsed as one document: twenty times as fast
    return pa.array([text.encode("utf-8", "replace").decode() for text in texts], pa.large_string())


def values_column(values: list[JsonValues], path: str, kind: pa.DataType | None = None) -> pa.ChunkedArray:
    """The values at a path as type `kind`, or as the one type that represents all of them exactly. Missing values and
    null become null.

    Without `kind`: true and false are bool; integers are int64, or float64 if there are fractions; anything else is
    text, as `JsonValues.texts` returns it. Raises UsageError for a value that cannot be cast to `kind`.
    """
    if kind is not None:
        return _cast(values, path, kind)
    found = {kind for each in values for kind in np.flatnonzero(np.bincount(each.kinds)).tolist()} - {MISSING, NULL}
    if found and found <= {TRUE, FALSE}:
        return pa.chunked_array([each.booleans() for each in values])
    if found and found <= {INTEGER, FLOAT}:
        numbers = _numbers(values, found)
        if numbers is not None:
            return numbers
    return pa.chunked_array([each.texts() for each in values], pa.large_string())


def _cast(values: list[JsonValues], path: str, kind: pa.DataType) -> pa.ChunkedArray:
    texts = pa.chunked_array([each.texts() for each in values], pa.large_string())
    try:
        return texts.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(
            f"the values of {path} are not {kind}: {reason}", hint="leave out the type, or take string"
        ) from None


def _numbers(values: list[JsonValues], found: set[int]) -> pa.ChunkedArray | None:
    """The numbers as int64 or float64; None if these cannot represent all of them. A fraction is the nearest float,
    but 2⁵³ and larger numbers must be exact.
    """
    texts = pa.chunked_array([each.texts() for each in values])
    if FLOAT not in found:
        try:
            return texts.cast(pa.int64())
        except pa.ArrowInvalid:  # beyond 64 bits
            return None
    numbers = texts.cast(pa.float64())
    large = np.flatnonzero(np.abs(np.asarray(numbers)) >= _EXACT).tolist()
    return numbers if all(is_number_of(numbers[row].as_py(), texts[row].as_py()) for row in large) else None


def is_number_of(number: float, text: str) -> bool:
    """Whether a float, written with as many digits as a text, is the number of that text."""
    try:
        written = Decimal(text)
    except ArithmeticError:  # an exponent too large for Decimal
        return False
    if len(text) > _MOST_DIGITS:  # no float has that many digits, so compare exactly
        return Decimal(number) == written
    digits = len("".join(map(str, written.as_tuple().digits)).strip("0")) or 1
    return Decimal(f"{number:.{digits - 1}e}") == written
