"""The fields of JSON documents: their paths, and how many values of each kind they have."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esformat.core import json_paths
from esformat.format.arrays import bytes_of
from esformat.format.json_values import valid_text

MOST_FIELDS = 4096
_MOST_KEY_BYTES = 1 << 20
_SLOTS = 2 * MOST_FIELDS
_NAMES = ("", "null", "boolean", "boolean", "integer", "number", "string", "string", "array", "object")
_PLAIN = re.compile(r"[^\s.\[\]\"'$\ud800-\udfff]+")


@dataclass(frozen=True, slots=True)
class PayloadField:
    """A field of JSON payloads.

    path: for example `$.user.id`; all elements of an array together are `$.items[*]`.
    kinds: the number of its values by kind, for those that occur: null, boolean, integer, number (with a fraction or an
        exponent), string, array and object. If an object has a key twice, only the last value counts.
    """

    path: str
    kinds: dict[str, int]

    @property
    def count(self) -> int:
        """The number of its values."""
        return sum(self.kinds.values())


@dataclass(frozen=True, slots=True)
class PayloadFields:
    """The fields of payloads, sorted by path.

    payloads, no_json: the number of payloads examined, and how many of them are not JSON.
    left_out: the number of values whose fields are missing here, because there are more than 4,096 fields.
    """

    fields: tuple[PayloadField, ...]
    payloads: int
    no_json: int
    left_out: int


class FieldCounts:
    """Counts the fields of documents: the tables that the compiled counter fills."""

    def __init__(self) -> None:
        self._alike: Counter[bytes] = Counter()
        self._parents, self._edges = np.zeros(MOST_FIELDS, np.int64), np.zeros(MOST_FIELDS + 1, np.int64)
        self._keys, self._slots = np.zeros(_MOST_KEY_BYTES, np.uint8), np.full(_SLOTS, -1, np.int64)
        self._counts, self._seen = np.zeros(json_paths.KINDS * MOST_FIELDS, np.int64), np.zeros(MOST_FIELDS, np.int64)
        self._state = np.array([1, 0, 0], np.int64)
        self._payloads = self._json = 0

    def add(self, documents: pa.Array) -> None:
        """Count the fields of one array of documents."""
        texts = valid_text(documents)
        kinds, repeats = self._count(texts)
        self._payloads += len(documents) - documents.null_count
        self._json += int(np.count_nonzero(kinds))
        if repeats.any():
            again = texts.filter(pa.array(repeats)).to_pylist()
            self._count(pa.array(map(_without_repeats, again), pa.large_string()))

    def _count(self, documents: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
        """Count the fields of documents. Returns their kinds, and which have equal keys and were left out."""
        edges, raw = bytes_of(documents)
        data, n = np.frombuffer(raw, np.uint8), len(documents)
        places, kinds, repeats = np.zeros(n, np.int64), np.zeros(n, np.uint8), np.zeros(n, np.uint8)
        json_paths.find_values(data, edges, [], [], places, places.copy(), kinds)
        tables = (self._parents, self._edges, self._keys, self._counts, self._slots, self._seen, self._state)
        json_paths.count_fields(data, edges, kinds, *tables, repeats)
        return kinds, repeats.view(np.bool_)

    def add_alike(self, document: bytes, count: int) -> None:
        """Count `document` as `count` documents, which have the same fields, with values of the same kinds."""
        self._alike[document] += count

    def found(self) -> PayloadFields:
        """The fields so far. Keys that are the same text, escaped or not, are one field."""
        fields, left_out = self._counted()
        payloads, of_json = self._payloads, self._json
        for document, count in self._alike.items():
            one = FieldCounts()
            one.add(pa.array([document], pa.binary()))
            found, more = one._counted()
            payloads, of_json, left_out = payloads + count, of_json + count * one._json, left_out + count * more
            for path, kinds in found.items():
                if path not in fields and len(fields) >= MOST_FIELDS:
                    left_out += count * sum(kinds.values())
                    continue
                held = fields.setdefault(path, {})
                for name, number in kinds.items():
                    held[name] = held.get(name, 0) + count * number
        listed = tuple(PayloadField(path, _in_order(kinds)) for path, kinds in sorted(fields.items()) if kinds)
        return PayloadFields(listed, payloads, payloads - of_json, left_out)

    def _counted(self) -> tuple[dict[str, dict[str, int]], int]:
        """The counts by path and kind, and the number of values left out."""
        paths: list[str] = ["$"]
        counts: dict[str, dict[str, int]] = {}
        number = int(self._state[0])
        edges = self._edges[: number + 1].tolist()
        keys = self._keys[: edges[-1]].tobytes()
        for field in range(number):
            if field:
                paths.append(paths[self._parents[field]] + _step(keys[edges[field] : edges[field + 1]]))
            held = counts.setdefault(paths[field], {})
            of_kinds = self._counts[json_paths.KINDS * field : json_paths.KINDS * (field + 1)].tolist()
            for name, count in zip(_NAMES, of_kinds, strict=True):
                if count:
                    held[name] = held.get(name, 0) + count
        return {path: kinds for path, kinds in counts.items() if kinds}, int(self._state[1])


def _without_repeats(document: str) -> str:
    """A document with the same fields and kinds of values, without all but the last of equal keys."""
    return json.dumps(json.loads(document, parse_int=lambda _: 0))  # Python refuses integers of many digits


def _in_order(kinds: dict[str, int]) -> dict[str, int]:
    return {name: kinds[name] for name in dict.fromkeys(_NAMES) if name in kinds}


def _step(key: bytes) -> str:
    if key == json_paths.EACH:
        return "[*]"
    name = key.decode("utf-8", "surrogatepass")
    if _PLAIN.fullmatch(name):
        return f".{name}"
    quoted = json.dumps(name, ensure_ascii=False)
    return f"[{quoted.encode('utf-8', 'backslashreplace').decode()}]"  # escapes unpaired surrogates
