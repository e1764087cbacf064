"""Values at paths of JSON are the same from files, with and without templates, from a catalog, and in LQL."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import aggregator
import esformat
from esformat.format.json_values import parse_path

PATHS = ["$.a", "$.é", '$[""]', '$["odd key"]', "$.a.a", "$.a[0]", "$.a[-1].é", "$[0]"]
KINDS = {"null": "null", "true": "boolean", "false": "boolean", "NaN": "number", "-Infinity": "number"}


class Written(NamedTuple):
    """A JSON value: its kind, its own text, the text of its value, and the values inside, of which the last count."""

    kind: str
    document: str
    text: str | None
    inside: dict[str | int, Written] = {}  # noqa: RUF012  # never changed


def scalar(written: str) -> Written:
    if written[0] == '"':
        return Written("string", written, json.loads(written).encode("utf-8", "replace").decode())
    kind = KINDS.get(written) or ("integer" if written.lstrip("-").isdigit() else "number")
    return Written(kind, written, None if written == "null" else written)


def array(values: list[Written]) -> Written:
    document = f"[{', '.join(value.document for value in values)}]"
    places = enumerate([*values, *values], -len(values))
    return Written("array", document, document, dict(places))


def object_of(members: list[tuple[str, Written]]) -> Written:
    document = "{" + ",".join(f'"{key}" :{value.document}' for key, value in members) + " }"
    return Written("object", document, document, {json.loads(f'"{key}"'): value for key, value in members})


SCALARS = st.sampled_from([
    "0", "-0", "7", "0.10", "1E+2", "1e400", "-1e400", "9007199254740993", "123456789012345678901234567890",
    "0.1000000000000000055", "NaN", "-Infinity", "null", "true", "false", '""', '"a"', '"\\u0061"', '"\\ud83d\\ude00"',
    '"\\ud800"', '"7"', '"1.50"', '"null"', '"[7]"', '"\\n\\\\"', '"é"',
]).map(scalar)  # fmt: skip
KEYS = st.sampled_from(["a", "\\u0061", "é", "\\u00e9", "", "odd key", "0", "\\ud800"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3).map(array) | st.lists(st.tuples(KEYS, inner), max_size=4).map(object_of),
    max_leaves=6,
)
DOCUMENTS = st.lists(st.lists(st.tuples(KEYS, VALUES), max_size=4).map(object_of) | VALUES, min_size=1, max_size=12)
OTHERS = st.lists(st.sampled_from([b"", b'{"a":1', b'{"a":"\xff"}', b'{"a":01}', b"7 7"]), max_size=2)


def at(value: Written | None, path: str) -> str | None:
    """The text of the value at a path."""
    for step in parse_path(path):
        inside = {} if value is None else value.inside
        value = inside.get(step, inside.get(str(step)) if value is not None and value.kind == "object" else None)
    return None if value is None else value.text


def kinds(value: Written) -> Iterator[str]:
    """The kinds of a value and of all values inside."""
    yield value.kind
    for place, inside in value.inside.items():
        if not isinstance(place, int) or place >= 0:
            yield from kinds(inside)


@examples(25)
@given(DOCUMENTS, OTHERS)
def test_everywhere(tmp_path_factory, documents, others):
    """Every door finds the same text, and every field is counted once for each value."""
    folder = tmp_path_factory.mktemp("json")
    payloads = [*(value.document.encode() for value in documents), *others] * 40
    expected = {path: [*(at(value, path) for value in documents), *(None for _ in others)] * 40 for path in PATHS}
    counted = Counter(kind for value in documents for kind in kinds(value))
    table = pa.table({"space": ["s"] * len(payloads), "timestamp": range(len(payloads)), "data": payloads})
    for templates in (False, True):
        with esformat.create(folder / f"{templates}.esdb", templates=templates) as writer:
            writer.add_table(table)
        with esformat.open(folder / f"{templates}.esdb") as segment:
            check(segment.scan(columns=["data"]), expected, counted)
    with aggregator.open(folder / "catalog") as catalog:
        catalog.write({"app": "a"}, [{"ts": at, "msg": payload} for at, payload in enumerate(payloads)])
        for sealed in (False, True):
            if sealed:
                catalog.seal()
            check(catalog.topic("logs").scan(columns=["data"]), expected, counted)
            for path, texts in expected.items():
                groups = catalog.query(f"SELECT COUNT FROM app=a GROUP BY msg{path[1:]}").to_pylist()
                assert dict(map(dict.values, groups)) == Counter(texts)


def check(scan, expected, counted):
    """Compare the fields of a scan with the expected ones."""
    found = scan.to_table(fields=dict.fromkeys(PATHS, pa.string()))
    assert {path: found[path].to_pylist() for path in PATHS} == expected
    numbers = Counter()
    for field in scan.payload_fields().fields:
        numbers.update(field.kinds)
    assert numbers == {kind: 40 * count for kind, count in counted.items()}
