"""Fields of JSON payloads as columns agree with the payloads, even if those are stored by templates."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from effort import examples
from field_counts import count_fields
from hypothesis import given
from hypothesis import strategies as st

import esformat
from esformat.read.decode import block_group

PATHS = ["$.url", "$.n", "$.user.id", "$.tags[-1]", '$["odd key"]', "$.none"]
TEXTS = st.sampled_from(["/cart", "/list", "é", 'a"b', "\\", "x" * 40, "", "17", "\n"])
SCALARS = TEXTS | st.integers(-5, 10**6) | st.floats(0, 100).map(lambda x: round(x, 2)) | st.booleans() | st.none()
CLICKS = st.fixed_dictionaries({"url": TEXTS, "n": SCALARS}, optional={
    "user": st.fixed_dictionaries({"id": SCALARS}), "tags": st.lists(SCALARS, max_size=3), "odd key": SCALARS,
})  # fmt: skip


def payload_of(document, number, odd):
    """A payload, mostly ordinary JSON, sometimes with other spaces, escapes, keys or no JSON at all."""
    ways = (
        lambda: json.dumps(document, ensure_ascii=False), lambda: json.dumps(document, separators=(",", ":")),
        lambda: json.dumps({**document, "n": number}), lambda: json.dumps([document]), lambda: f"line {number}",
        lambda: json.dumps(document)[:-1], lambda: f'{{"url":"/cart","url":{number}}}', lambda: '{"url":"\\u002fcart"}',
    )  # fmt: skip
    return ways[odd]().encode()


@pytest.fixture
def rendered_whole(monkeypatch):
    """Record the payloads that are rendered although only their fields are needed."""
    counted = []

    class Counted(block_group.JsonValues):
        def __init__(self, documents, steps):
            counted.append(len(documents))
            super().__init__(documents, steps)

    monkeypatch.setattr(block_group, "JsonValues", Counted)
    return counted


def test_nothing_else_is_rendered(tmp_path, rendered_whole):
    with esformat.create(tmp_path / "x.esdb", templates=True) as writer:
        for n in range(9000):
            writer.add("s", json.dumps({"url": f"/{n % 5}", "n": n}).encode(), timestamp=n)
    with esformat.open(tmp_path / "x.esdb") as segment:
        table = segment.scan(columns=["timestamp"]).to_table(fields=PATHS)
    assert table["$.n"].to_pylist() == table["timestamp"].cast("int64").to_pylist()
    assert table["$.url"].to_pylist()[:6] == ["/0", "/1", "/2", "/3", "/4", "/0"]
    assert rendered_whole == []


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()], ids=str)
def test_payloads_of_few_values(tmp_path, kind):
    """Payloads with few distinct values, stored as codes if they are text, have the right fields."""
    with esformat.create(tmp_path / "x.esdb", schema=pa.schema([pa.field("data", kind)])) as writer:
        texts = [f'{{"a":{n % 3}}}' for n in range(5000)]
        writer.add_table(
            pa.table({"space": ["s"] * 5000, "timestamp": range(5000), "data": pa.array(texts).cast(kind)})
        )
    for opened in (esformat.open(tmp_path / "x.esdb"), esformat.open_many([tmp_path / "x.esdb"])):
        with opened:
            assert opened.scan().to_table(fields=["$.a"])["$.a"].to_pylist() == [n % 3 for n in range(5000)]
            assert [field.kinds for field in opened.scan().payload_fields().fields] == [
                {"object": 5000},
                {"integer": 5000},
            ]


def test_a_file_without_payloads(tmp_path):
    """A file without payloads has null fields among other files; alone, a query for fields is refused."""
    columns = {"space": [f"s{n % 20}" for n in range(5000)], "timestamp": range(5000), "x": range(5000)}
    schema = pa.schema([pa.field("x", pa.int64())])
    with esformat.create(tmp_path / "0.esdb", schema=schema) as writer:
        writer.add_table(pa.table(columns))
    with esformat.create(tmp_path / "1.esdb", schema=schema.append(pa.field("data", pa.binary()))) as writer:
        writer.add_table(pa.table({**columns, "data": [b'{"a":"v%d"}' % n for n in range(5000)]}))
    with esformat.open_many([tmp_path / "0.esdb", tmp_path / "1.esdb"]) as both:
        assert both.scan().payload_fields().payloads == 5000
        for scan in (both.scan(), both.scan(columns=["x"]), both.scan(columns=["data"])):
            found = scan.to_table(fields=["$.a"])["$.a"]
            assert (len(found), found.null_count) == (10_000, 5000)
    with esformat.open(tmp_path / "0.esdb") as alone, pytest.raises(esformat.UsageError, match="which is missing"):
        alone.scan().to_table(fields=["$.a"])


@examples(40)
@given(st.data())
def test_as_of_payloads(tmp_path_factory, data):
    """Fields are right in one file and several, for all events and some, in both directions."""
    shapes = data.draw(st.lists(st.tuples(CLICKS, st.integers(0, 7)), min_size=1, max_size=4))
    plain = data.draw(st.sampled_from([1, 2, 2500, 9999]))
    rows = [(n, shapes[n % len(shapes)][0], shapes[n % len(shapes)][1] if n % plain == 0 else 0) for n in range(5000)]
    folder = tmp_path_factory.mktemp("fields")
    paths = [folder / f"{n}.esdb" for n in range(data.draw(st.sampled_from([1, 2, 6])))]
    for at, path in enumerate(paths):
        with esformat.create(path, templates=True) as writer:
            for n, document, odd in rows[at :: len(paths)]:
                writer.add(f"s{n % 3}", payload_of({**document, "i": n}, n, odd), timestamp=n)
    with esformat.open(paths[0]) if len(paths) == 1 else esformat.open_many(paths) as opened:
        for scan in (opened.scan, opened["s1"].scan):
            for options in ({}, {"reverse": True}, {"start": 100, "end": 3700}, {"limit": 7}):
                whole = scan(**options, columns=["timestamp", "data"]).to_table()
                alone = scan(**options, columns=["timestamp"]).to_table(fields=PATHS)
                assert alone["timestamp"].equals(whole["timestamp"])
                expected = esformat.read.payload_columns.with_fields(whole, PATHS)
                fields = scan(**options).payload_fields()
                assert fields == count_fields(whole["data"].chunks)
                for path in PATHS:
                    assert (alone[path].type, alone[path].to_pylist()) == (
                        expected[path].type,
                        expected[path].to_pylist(),
                    )


def test_a_column_that_looks_like_what_was_found(tmp_path):
    """A struct column that looks like an internal result stays unchanged."""
    like = pa.struct([("kind", pa.uint8()), ("text", pa.binary())])
    with esformat.create(
        tmp_path / "x.esdb", schema=pa.schema([pa.field("data", pa.binary()), pa.field("x", like)])
    ) as w:
        w.add_table(
            pa.table({"space": ["s"], "timestamp": [1], "data": [b'{"a":7}'], "x": pa.array([(6, b"t")], like)})
        )
    with esformat.open(tmp_path / "x.esdb") as segment:
        table = segment.scan(columns=["x"]).to_table(fields=["$.a"])
    assert table.to_pylist() == [{"x": {"kind": 6, "text": b"t"}, "$.a": 7}]
