"""An index lookup finds all events whose value, as reads show it, is the requested one, whatever type is stored."""

from __future__ import annotations

import json
from decimal import Decimal

import httpx
import pyarrow as pa
import pytest
from effort import examples
from hypothesis import example, given
from hypothesis import strategies as st
from served import ANY_PORT

import aggregator
from aggregator.server import RunningServer, Settings
from aggregator.server.config.settings import Http
from esformat import UsageError

TEXTS = (
    "5", "05", " 5", "+5", "5.0", "5e0", "0x5", "٥", "0", "-0", "-7", "", "true", "True", "1", "x",
    "9223372036854775808", "18446744073709551615", "99999999999999999999",
)  # fmt: skip
WHOLE = st.sampled_from([0, 1, 5, -7, 127])
NUMBERS = {
    pa.int8(): WHOLE,
    pa.int64(): WHOLE | st.sampled_from([1 << 53, (1 << 63) - 1, -1 << 63]),
    pa.uint64(): st.sampled_from([0, 5, 1 << 63, (1 << 64) - 1]),
}
KINDS = NUMBERS | {pa.string(): st.sampled_from(TEXTS), pa.bool_(): st.booleans(), pa.null(): st.none()}
BATCHES = st.lists(
    st.sampled_from(list(KINDS)).flatmap(
        lambda kind: st.tuples(
            st.just(kind),
            st.lists(st.tuples(st.sampled_from("ab"), st.none() | KINDS[kind]), min_size=1, max_size=4),
            st.sampled_from(["seal", ""]),
        )
    ),
    min_size=1,
    max_size=5,
)


@pytest.fixture(scope="module")
def served_catalog(tmp_path_factory):
    """A catalog for all examples, each of which has its own topic, and a client of its server."""
    settings = Settings(http=Http(bind=ANY_PORT))
    with (
        aggregator.open(tmp_path_factory.mktemp("families") / "c", durability="none") as catalog,
        RunningServer(catalog, settings) as server,
        httpx.Client(base_url=server.url, timeout=120) as web,
    ):
        yield catalog, web


def as_text(value):
    """A value as reads show it in a column of several types."""
    return ("false", "true")[value] if isinstance(value, bool) else str(value)


@examples(200)
@given(BATCHES, st.sampled_from(TEXTS))
@example([(pa.int64(), [("a", 5), ("b", 7)], "seal"), (pa.string(), [("a", "x5"), ("b", "5")], "")], "05")
@example([(pa.bool_(), [("a", True)], ""), (pa.int64(), [("a", 1)], "")], "true")
@example([(pa.int64(), [("a", 5)], "seal"), (pa.uint64(), [("a", 5)], "")], "5")
def test_a_lookup_equals_a_filter_of_the_full_scan(served_catalog, batches, other):
    """The same events are found through Python and HTTP, sealed and unsealed, for every value of the topic."""
    catalog, web = served_catalog
    name = f"t{len(catalog.topics())}"
    given_values, first = {}, 0
    topic = catalog.create_topic(name, indexes=["code"])
    for kind, rows, then in batches:
        values = [value for _, value in rows]
        times = pa.array(range(first, first + len(rows)), pa.timestamp("us", "UTC"))
        topic.append(pa.table({"space": [s for s, _ in rows], "timestamp": times, "code": pa.array(values, kind)}))
        given_values |= {(type(value), value): value for value in values if value is not None}
        first += len(rows)
        if then:
            catalog.seal()
    shown = topic.scan().to_table()
    rows = list(zip(*(shown[column].to_pylist() for column in ("timestamp", "space", "code")), strict=True))
    is_text = shown.schema.field("code").type == pa.string()
    asked = [*given_values.values(), *topic.index_values("code"), *([other] if is_text else [])]
    for value in asked:
        wanted = as_text(value) if is_text else value
        found = [row for row in rows if row[2] == wanted]
        scan = topic.scan_index("code", value)
        table = scan.to_table()
        assert [*zip(*(table[c].to_pylist() for c in ("timestamp", "space", "code")), strict=True)] == found, value
        assert scan.count() == sum(scan.histogram().counts) == len(found)
        assert len(list(topic.scan_index({"code": value}, reverse=True))) == len(found)
        for space in "ab":
            mine = [row for row in found if row[1] == space]
            assert [event.indexes["code"] for event in topic.scan_index("code", value, space=space)] == [
                row[2] for row in mine
            ]
            assert topic.scan_index("code", value, space=space, limit=9).to_table().num_rows == len(mine)
        answer = web.get(f"/v1/topics/{name}/index/code", params={"value": as_text(value)})
        assert answer.status_code == 200, answer.text
        assert [as_text(json.loads(line)["code"]) for line in answer.text.splitlines()] == [
            as_text(row[2]) for row in found
        ]
        histogram = web.get(f"/v1/topics/{name}/histogram", params={"index": "code", "value": as_text(value)}).json()
        assert sum(histogram["counts"]) == len(found)


def test_two_indexes_and_types_no_event_has(tmp_path):
    """All conditions are converted; a value that the index can show in no type is an error."""
    with aggregator.open(tmp_path) as catalog:
        topic = catalog.create_topic("t", indexes=["code", "ok"])
        topic.append([{"space": "a", "timestamp": 1, "code": 5, "ok": True}])
        topic.append([{"space": "a", "timestamp": 2, "code": "5", "ok": "true"}])
        for conditions in ({"code": "5", "ok": "true"}, {"code": 5, "ok": True}, {"code": 5, "ok": "true"}):
            assert topic.scan_index(conditions).count() == 2, conditions
        for value in (5.0, None, b"5", Decimal(5)):
            with pytest.raises(UsageError, match="index 'code' holds values of type int64 or string, not"):
                topic.scan_index({"code": value})
        with pytest.raises(UsageError, match="index 'code' holds values of type int64 or string, not True"):
            topic.scan_index("code", True)
