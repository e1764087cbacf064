"""plateau's routes over a real connection: what its clients send and receive."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from effort import long
from served import served

import aggregator
from aggregator.server import Settings
from aggregator.server.config.settings import Http, Work
from aggregator.server.plateau.definitions import Definitions

ARROW = "application/vnd.apache.arrow.file"


def arrow_file(table: pa.Table) -> bytes:
    """A table as clients send it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def records(count: int, first: int = 0, **columns: pa.Array) -> pa.Table:
    """Numbered records, one per second from 1970 on."""
    times = pa.array(range(first * 1000, (first + count) * 1000, 1000), pa.int64())
    return pa.table({"time": times, "n": pa.array(range(first, first + count)), **columns})


def send(web, table, topic="clicks", partition="web-1"):
    """Append and return the span."""
    answer = web.post(
        f"/topic/{topic}/partition/{partition}", content=arrow_file(table), headers={"content-type": ARROW}
    )
    assert answer.status_code == 200, answer.text
    return answer.json()["span"]


def page(answer):
    """An answer's table, status and span."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == ARROW
    table = pa.ipc.open_file(pa.py_buffer(answer.content)).read_all()
    metadata = table.schema.metadata
    assert json.loads(metadata[b"status"]) == json.loads(answer.headers["x-iteration-status"])
    span = json.loads(metadata[b"span"]) if b"span" in metadata else None
    return table, json.loads(answer.headers["x-iteration-status"]), span


def partition(web, start, topic="clicks", partition="web-1", **query):
    """A page of a partition."""
    return page(web.get(f"/topic/{topic}/partition/{partition}/records", params={"start": start, **query},
                        headers={"accept": ARROW}))  # fmt: skip


def topic(web, begin=None, name="clicks", **query):
    """A page of a topic."""
    return page(web.post(f"/topic/{name}/records", params=query, json=begin or {}, headers={"accept": ARROW}))[:2]


def test_append_and_read(web):
    """A first append creates topic and partition; record indexes start at 0; records come back unchanged."""
    sent = records(3)
    assert web.get("/topics").json() == {"topics": []}
    assert send(web, sent) == {"start": 0, "end": 3}
    assert send(web, records(2, 3)) == {"start": 3, "end": 5}
    assert web.get("/topics").json() == {"topics": [{"name": "clicks"}]}
    facts = web.get("/topic/clicks").json()
    assert facts["partitions"] == {"web-1": {"start": 0, "end": 5}}
    assert facts["bytes"] > 0
    table, status, span = partition(web, 0)
    assert table.replace_schema_metadata(None).equals(records(5))
    assert (status, span) == ("All", {"start": 0, "end": 5})
    assert partition(web, 4)[0]["n"].to_pylist() == [4]
    assert partition(web, 5)[1:] == ("All", None)


def test_json(web):
    """Clients that do not request Arrow get a JSON array of rows."""
    send(web, records(2, url=pa.array(["/", None]), score=pa.array([1.5, float("nan")]), raw=pa.array([b"a", b"\xff"]),
                      at=pa.array([0, 1500], pa.timestamp("ms")),
                      f=pa.array([[0.1], [1e30]], pa.list_(pa.float32()))))  # fmt: skip
    for accept in (None, "*/*", "application/json", "application/json; format=pandas-records"):
        web.headers.pop("accept", None)
        headers = {} if accept is None else {"accept": accept}
        answer = web.get("/topic/clicks/partition/web-1/records?start=0", headers=headers)
        assert answer.headers["content-type"] == "application/json; format=pandas-records"
        assert answer.headers["x-iteration-status"] == '"All"'
        assert answer.json() == JSON_RECORDS


def test_a_time_zone_that_nobody_knows(web):
    """Times in an unknown zone are stored; JSON names the column that it cannot represent."""
    table = records(1, at=pa.array([0], pa.timestamp("us", "Nowhere/Land")))
    send(web, table)
    refused = web.get("/topic/clicks/partition/web-1/records?start=0")
    assert (refused.status_code, "'at'" in refused.json()["message"]) == (400, True)
    assert partition(web, 0)[0]["at"].type == table.schema.field("at").type


JSON_RECORDS = [
    {"time": 0, "n": 0, "url": "/", "score": 1.5, "raw": "a", "at": "1970-01-01 00:00:00",
     "f": [0.1]},
    {"time": 1000, "n": 1, "url": None, "score": None, "raw": "/w==", "at": "1970-01-01 00:00:01.500",
     "f": [1e30]},
]  # fmt: skip


NESTED = pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string())]))])
KINDS = {
    "seconds": pa.table({"time": pa.array([-1, 2], pa.timestamp("s"))}),
    "micros": pa.table({"time": pa.array([-1, 2], pa.timestamp("us", "Europe/Paris"))}),
    "nanos": pa.table({"time": pa.array([-1, 1_999], pa.timestamp("ns", "UTC"))}),
    "own names": records(2, **{name: pa.array([b"x", b"y"]) for name in (
        "space", "grouping", "timestamp", "data", "record_index", "partition", "plateau_schema", "n:2", "space:2")}),
    "runs": records(2, r=pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), ["a", None])),
    "large": records(2, s=pa.array(["a", "b"], pa.large_string()), b=pa.array([b"", None], pa.large_binary())),
    "dictionary": records(2, d=pa.array(["a", "b"]).dictionary_encode()),
    "nested": records(2, x=pa.array([{"a": 1, "b": {"c": "d"}}, None], NESTED), y=pa.array([[1.5], []])),
    "our metadata": pa.table({"time": pa.array([1, 2], pa.int64()), "n": pa.array([7, 8])}).cast(pa.schema([
        pa.field("time", pa.int64(), metadata={"aggregator.column": "n", "k": "v"}), pa.field("n", pa.int64())])),
    "metadata": records(2).replace_schema_metadata({"k": "v"}),
    "not null": records(2).cast(pa.schema([pa.field("time", pa.int64(), False), pa.field("n", pa.int64(), False)])),
    "int32 twice": records(2, i=pa.array([1, 2], pa.int32())),
    "lists instead of numbers": records(2, i=pa.array([[1.5], []])),
    "only time": records(2).select(["time"]),
}  # fmt: skip


@pytest.mark.parametrize("sealed", [pytest.param(False, marks=long), True])
def test_any_schema_comes_back(tmp_path, sealed, web_of):
    """Records come back with the schema they were sent with, sealed or not, and after a restart; each schema change
    ends a page.
    """
    with served(tmp_path) as server:
        web = web_of(server)
        for number, table in enumerate([*KINDS.values(), *KINDS.values()]):
            assert send(web, table) == {"start": 2 * number, "end": 2 * number + 2}
        send(web, records(2, i=pa.array(["text", "now"])))
        if sealed:
            server.catalog.seal()
    with served(tmp_path) as server:
        web, start = web_of(server), 0
        for table in [*KINDS.values(), *KINDS.values()]:
            found, status, span = partition(web, start)
            if "k" in str(table.schema.field(0).metadata):  # our names are removed, other metadata is kept
                assert found.schema.field(0).metadata == {b"k": b"v"}
                table = table.cast(pa.schema([table.schema.field(0).with_metadata({"k": "v"}), table.schema.field(1)]))
            plain = {key: value for key, value in found.schema.metadata.items() if key not in (b"status", b"span")}
            assert found.replace_schema_metadata(plain or None).equals(table, check_metadata=True)
            assert (status, span) == ("SchemaChange", {"start": start, "end": start + 2})
            start += 2
        assert partition(web, start)[0]["i"].to_pylist() == ["text", "now"]
        assert send(web, records(1, 9, i=pa.array([9], pa.int32())))["start"] == start + 2
        assert partition(web, start + 2)[0].schema.types == [pa.int64(), pa.int64(), pa.int32()]


def test_pages(web):
    """A page has 1,000 records by default and at most 10,000."""
    send(web, records(10_500))
    found, status, span = partition(web, 0)
    assert (len(found), status, span) == (1000, "RecordLimited", {"start": 0, "end": 1000})
    found, status, span = partition(web, 200, page_size=99_999)
    assert (len(found), status, span) == (10_000, "RecordLimited", {"start": 200, "end": 10_200})
    assert partition(web, 9_500)[1] == "All"
    assert [len(partition(web, 10_499 - more, page_size=1)[0]) for more in (0, 1)] == [1, 1]
    assert topic(web, page_size=7)[1] == {"status": "RecordLimited", "next": {"web-1": 7}}


def test_dictionaries_of_several_batches(web):
    """A page over batches with different dictionaries is an Arrow file with one dictionary per column."""
    for first, values in ((0, ["a", "b"]), (2, ["c", "a"])):
        send(web, records(2, first, d=pa.array(values).dictionary_encode()))
    found = partition(web, 0)[0]
    assert found["d"].to_pylist() == ["a", "b", "c", "a"]
    assert pa.types.is_dictionary(found["d"].type)


def test_bytes_end_a_page(server, web):
    """A page ends with the append that brings it to 10,240,000 bytes, in either order, and no more is read. Its Arrow
    file has one batch for each append, because copies are sent on batch by batch.
    """
    for first in range(0, 10, 2):
        send(web, records(2, first, blob=pa.array([b"x" * 2_100_000] * 2)))
    for sealed in (False, True):
        found, status, span = partition(web, 0)
        assert (found["n"].to_pylist(), status, span) == ([*range(6)], "ByteLimited", {"start": 0, "end": 6})
        assert [len(piece) for piece in found.column("blob").chunks] == [2, 2, 2]
        found, status = topic(web, {"web-1": 1})
        assert (found["n"].to_pylist(), status) == ([*range(1, 6)], {"status": "ByteLimited", "next": {"web-1": 6}})
        assert partition(web, 0, page_size=5)[1:] == ("RecordLimited", {"start": 0, "end": 5})
        found, status = topic(web, order="desc")
        assert (found["n"].to_pylist(), status["next"]) == ([9, 8, 7, 6, 5, 4], {"web-1": 4})
        assert [len(piece) for piece in found.column("blob").chunks] == [2, 2, 2]
        assert partition(web, 6)[1] == "All"
        assert partition(web, 4)[1:] == ("ByteLimited", {"start": 4, "end": 10})
        if not sealed:
            server.catalog.seal()


def test_bytes_of_other_events_end_a_page(server, web):
    """Appends by other routes have no known ends: their page ends with the event that fills it."""
    made = server.catalog.create_topic("clicks")
    made.append([{"space": "a", "timestamp": time, "data": b"x" * 4_000_000} for time in range(4)], "web-1")
    assert partition(web, 0)[1:] == ("ByteLimited", {"start": 0, "end": 3})


def test_the_status_as_text(web):
    """Programs compare the status text: it has no spaces, as in plateau."""
    send(web, records(5))
    answer = web.post("/topic/clicks/records?page_size=3", json={})
    assert answer.headers["x-iteration-status"] == '{"status":"RecordLimited","next":{"web-1":3}}'


def test_projection(web):
    """Columns can be selected, excluded, flattened, and replaced by nulls if they are large."""
    send(web, records(2, x=pa.array([{"a": 1, "b": {"c": "d"}}, None], NESTED), big=pa.array(["x" * 900, "y"])))

    def names(**query):
        return partition(web, 0, **query)[0].column_names

    assert names() == ["time", "n", "x", "big"]
    assert names(**{"dataset[0]": "big", "dataset[1]": "time"}) == ["big", "time"]
    assert names(**{"dataset[0]": "*", "dataset.exclude[0]": "x", "dataset.exclude[1]": "n"}) == ["time", "big"]
    assert names(**{"dataset.separator": "."}) == ["time", "n", "x.a", "x.b.c", "big"]
    flat = partition(web, 0, **{"dataset.separator": "_", "dataset[0]": "x_b_c"})[0]
    assert flat.to_pydict() == {"x_b_c": ["d", None]}
    assert names(**{"dataset[0]": "x"}) == ["a", "b"]
    assert names(dataset="x") == ["a", "b"]
    assert names(**{"dataset[2]": "n", "dataset[10]": "time", "dataset[0]": "big"}) == ["big", "n", "time"]
    assert names(**{"dataset.separator": ".", "dataset[0]": "x.b", "dataset[1]": "n"}) == ["x.b.c", "n"]
    assert names(**{"dataset.separator": "::", "dataset[0]": "x", "dataset.exclude[0]": "x::b"}) == ["x::a"]
    assert names(**{"dataset.separator": ".", "dataset.exclude[0]": "x.b.c"}) == ["time", "n", "x.a", "big"]
    for query, told in (
        ({"dataset": "none"}, '["none"]'),
        ({"dataset": "x.a.z", "dataset.separator": "."}, '["x", "a"]'),
    ):
        answer = web.get("/topic/clicks/partition/web-1/records", params={"start": 0, **query})
        assert (answer.status_code, "invalid path: " in answer.text, told) == (400, True, told)
        assert told in answer.json()["message"]
    small = partition(web, 0, **{"dataset.max_bytes": 500})[0]
    assert small["big"].to_pylist() == [None, None]
    assert small["n"].to_pylist() == [0, 1]


def test_tensors(web):
    """Tensors and fixed-size lists in structs are kept, flattened in JSON, and replaced by nulls if they are large."""
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(8, dtype=np.float32).reshape(2, 2, 2))
    sent = records(2, out=pa.StructArray.from_arrays(
        [tensors, pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), pa.array([[], None], pa.list_(pa.float64()))],
        ["tensor", "fixed", "list"],
    ))  # fmt: skip
    send(web, sent)
    assert partition(web, 0)[0].replace_schema_metadata(None).equals(sent)
    flat = {"dataset[]": "*", "dataset.separator": ".", "dataset.exclude[]": "time"}
    large = {**flat, "dataset.max_bytes": 20}
    rows = [web.post("/topic/clicks/records", params=query, json=None).json() for query in (flat, large)]
    assert rows[0] == [
        {"n": 0, "out.tensor": [0.0, 1.0, 2.0, 3.0], "out.fixed": [1, 2], "out.list": []},
        {"n": 1, "out.tensor": [4.0, 5.0, 6.0, 7.0], "out.fixed": None, "out.list": None},
    ]
    assert [row["out.tensor"] for row in rows[1]] == [None, None]


def test_large_columns_of_appends(web):
    """A column's size counts per append: small ones stay, however many there are."""
    for first, size in ((0, 10), (5, 100), (10, 10)):
        send(web, records(5, first, s=pa.array(["x" * size] * 5)))
    kept, gone = ["x" * 10] * 5, [None] * 5
    for order, query in (("asc", {}), ("desc", {}), ("asc", {"dataset[]": "s"})):
        found, _ = topic(web, order=order, **query, **{"dataset.max_bytes": 100})
        assert found["s"].to_pylist() == [*kept, *gone, *kept]
    assert partition(web, 0, **{"dataset.max_bytes": 100})[0]["n"].to_pylist() == [*range(15)]
    assert partition(web, 3, page_size=3, **{"dataset.max_bytes": 100})[0]["s"].to_pylist() == [kept[0], kept[0], None]


def test_times(web):
    """Time ranges include both ends, work in either order, and may have only one end."""
    send(web, records(10))
    span = {"time.start": "1970-01-01T00:00:03Z", "time.end": "1970-01-01T01:00:05+01:00"}
    found, status, where = partition(web, 0, **span)
    assert found["n"].to_pylist() == [3, 4, 5]
    assert (status, where) == ("All", {"start": 3, "end": 6})
    assert partition(web, 0, page_size=2, **span)[1:] == ("RecordLimited", {"start": 3, "end": 5})
    assert partition(web, 5, page_size=2, **span)[0]["n"].to_pylist() == [5]
    assert partition(web, 0, **{"time.start": "1970-01-01T00:00:08.000000001Z"})[0]["n"].to_pylist() == [9]
    found, status = topic(web, order="desc", page_size=2, **span)
    assert found["n"].to_pylist() == [5, 4]
    assert status == {"status": "RecordLimited", "next": {"web-1": 4}}
    assert topic(web, status["next"], order="desc", **span)[0]["n"].to_pylist() == [3]


def test_topic_iteration(web):
    """A topic is read partition by partition, the one with the least progress first, until the page is full."""
    send(web, records(3), partition="b")
    send(web, records(3, 10), partition="a")
    send(web, records(3, 20), partition="c")
    found, status = topic(web, page_size=4)
    assert found["n"].to_pylist() == [10, 11, 12, 0]
    assert status == {"status": "RecordLimited", "next": {"a": 3, "b": 1, "c": 0}}
    found, status = topic(web, status["next"], page_size=4)
    assert found["n"].to_pylist() == [20, 21, 22, 1]
    found, status = topic(web, status["next"], page_size=4)
    assert found["n"].to_pylist() == [2]
    assert status == {"status": "All", "next": {"a": 3, "b": 3, "c": 3}}
    assert topic(web, status["next"])[1]["status"] == "All"
    assert topic(web, order="desc", page_size=4)[0]["n"].to_pylist() == [22, 21, 20, 2]
    found, status = topic(web, **{"partition_filter[0]": "regex:^[ab]$", "partition_filter[1]": "c"}, page_size=9)
    assert len(found) == 9
    found, status = topic(web, **{"partition_filter[0]": "regex:^[ab]$"})
    assert status == {"status": "All", "next": {"a": 3, "b": 3}}
    assert topic(web, **{"partition_filter[0]": "a"})[0]["n"].to_pylist() == [10, 11, 12]


def test_positions(web):
    """No position means the start; unknown names are returned; in descending order only named partitions take part."""
    send(web, records(2), partition="a")
    send(web, records(2, 10), partition="b")
    for body in (b"", b"null", b" {} "):
        answer = web.post("/topic/clicks/records?page_bytes=100", content=body, headers={"accept": ARROW})
        assert page(answer)[0]["n"].to_pylist() == [0, 1, 10, 11]
    found, status = topic(web, {"a": 1, "gone": 7})
    assert found["n"].to_pylist() == [10, 11, 1]
    assert status == {"status": "All", "next": {"a": 2, "b": 2, "gone": 7}}
    assert topic(web, {"b": 2}, order="DESC")[0]["n"].to_pylist() == [11, 10]
    assert [topic(web, order=order)[0]["n"].to_pylist() for order in ("Asc", "Desc")] == [
        [0, 1, 10, 11],
        [11, 10, 1, 0],
    ]
    assert len(partition(web, 0, partition="a", **{"partition_filter[0]": "b"})[0]) == 2
    assert topic(web, **{"partition_filter[0]": "regex:("})[1]["next"] == {}


def test_a_page_without_room(web):
    """A page of zero records has the columns of the first possible record, if any, and no span."""
    send(web, records(2), partition="a")
    send(web, records(2), partition="b")
    of_all, *told = topic(web, page_size=0)
    assert told == [{"status": "RecordLimited", "next": {"a": 0, "b": 0}}]
    of_one, *told = partition(web, 0, partition="a", page_size=0)
    assert told == ["RecordLimited", None]
    for table in (of_all, of_one):
        assert (len(table), table.column_names) == (0, ["time", "n"])
    assert topic(web, {"b": 2, "a": 2}, page_size=0)[1] == {"status": "All", "next": {"a": 2, "b": 2}}
    assert partition(web, 2, partition="a", page_size=0)[1:] == ("All", None)
    answer = web.get("/topic/clicks/partition/a/records?start=0&page_size=0&dataset[0]=nix")
    assert (answer.status_code, answer.json()["message"]) == (400, 'invalid path: key not found: ["nix"]')


def test_other_schemas_are_passed_over(web):
    """Partitions with the first one's schema are read, even if others between them have another schema."""
    other = records(5, x=pa.array(["y"] * 5))
    for name, table in (("a", records(5)), ("b", other), ("c", records(5)), ("d", other), ("e", records(5))):
        send(web, table, partition=name)
    found, status = topic(web)
    assert len(found) == 15
    assert status == {"status": "SchemaChange", "next": {"a": 5, "b": 0, "c": 5, "d": 0, "e": 5}}
    found, status = topic(web, status["next"])
    assert (len(found), found.column_names, status["status"]) == (10, ["time", "n", "x"], "All")


def test_where_times_end(web):
    """After reading a time range, a reader continues after its last record, or where it was if there was none."""
    send(web, records(10), partition="a")
    send(web, records(2), partition="b")
    span = {"time.start": "1970-01-01T00:00:03Z", "time.end": "1970-01-01T00:00:05Z"}
    found, status = topic(web, **span)
    assert (found["n"].to_pylist(), status) == ([3, 4, 5], {"status": "All", "next": {"a": 6, "b": 0}})
    assert topic(web, status["next"])[0]["n"].to_pylist() == [0, 1, 6, 7, 8, 9]
    assert partition(web, 7, partition="a", **span)[1:] == ("All", None)
    found, status = topic(web, {"a": 99, "b": 1}, order="desc", page_size=10)
    assert (found["n"].to_pylist(), status["next"]) == ([*range(9, -1, -1)], {"a": 0, "b": 1})
    assert topic(web, {"a": 0, "b": 99}, order="desc", page_size=0)[1]["next"] == {"a": 0, "b": 99}


def test_columns_of_one_schema(web):
    """Requested columns must exist in the page's records only; skipped partitions may lack them."""
    send(web, records(2), partition="a")
    send(web, records(2, url=pa.array(["/", "/cart"])).drop(["n"]), partition="b")
    send(web, records(2, 2), partition="c")
    for query in ({"dataset[0]": "n"}, {"dataset[0]": "n", "page_size": 4}):
        found, status = topic(web, **query)
        assert (found.to_pydict(), status["status"]) == ({"n": [0, 1, 2, 3]}, "SchemaChange")
    assert topic(web, **{"dataset[0]": "n", "page_size": 2})[1]["next"] == {"a": 2, "b": 0, "c": 0}
    refused = web.post("/topic/clicks/records?dataset[0]=n", json=status["next"])
    assert (refused.status_code, "key not found" in refused.text) == (400, True)


def test_schemas_of_partitions(web):
    """A page of a topic has one schema; the other partition's follows on the next page."""
    send(web, records(1), partition="a")
    send(web, records(1, x=pa.array(["y"])), partition="b")
    found, status = topic(web)
    assert (found.column_names, status) == (["time", "n"], {"status": "SchemaChange", "next": {"a": 1, "b": 0}})
    found, status = topic(web, status["next"])
    assert (found.column_names, status["status"]) == (["time", "n", "x"], "All")


def test_events_of_other_routes(server, web):
    """Events of other routes are records, too: a time in milliseconds, then their columns."""
    made = server.catalog.create_topic("clicks", indexes=["type"])
    made.append([{"space": "ada", "timestamp": 1_700_000_000_123_456, "type": "page", "data": b"{}"}], "web-1")
    found = partition(web, 0)[0]
    assert found.column_names == ["time", "space", "grouping", "timestamp", "type", "data"]
    assert found["time"].to_pylist() == [1_700_000_000_123]
    assert send(web, records(1)) == {"start": 1, "end": 2}
    assert partition(web, 0)[1] == "SchemaChange"
    assert partition(web, 1)[0].replace_schema_metadata(None).equals(records(1))


def cut_from(table: pa.Table, rows: int) -> bytes:
    """An Arrow file with one batch of the first rows; without batches if negative."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        if rows >= 0:
            writer.write_batch(table.to_batches()[0].slice(0, rows))
    return sink.getvalue().to_pybytes()


BODIES = {
    "no Arrow": (b"hello", "arrow error: Io error: failed to fill whole buffer"),
    "nothing": (b"", "arrow error: Io error: failed to fill whole buffer"),
    "text": (b"hello " * 20, "arrow error: InvalidHeader"),
    "cut": (arrow_file(records(3))[:-200], "arrow error: InvalidFooter"),
    "damaged": (arrow_file(records(3))[:200] + bytes(8) + arrow_file(records(3))[208:], "arrow error: …"),
    "no batches": (cut_from(records(1), -1), "no body provided"),
    "no rows": (cut_from(records(1), 0), "no body provided"),
    "no time": (arrow_file(records(1).select(["n"])), "chunk error: column 0 must be 'time'"),
    "time is second": (arrow_file(records(1).select(["n", "time"])), "chunk error: column 0 must be 'time'"),
    "text times": (arrow_file(pa.table({"time": ["now"]})), "chunk error: column time type i64 != …"),
    "null times": (arrow_file(pa.table({"time": pa.array([1, None], pa.int64())})), "chunk error: …"),
    "null type": (arrow_file(records(1, x=pa.nulls(1))), "schema includes null datatypes"),
    "null type inside": (arrow_file(records(1, x=pa.array([[None]]))), "schema includes null datatypes"),
    "times beyond": (arrow_file(pa.table({"time": pa.array([2**62], pa.int64())})), "chunk error: …"),
    "twice": (
        arrow_file(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["time", "time"])),
        "arrow error: …",
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_that_are_refused(web, name):
    """A body that cannot be stored is refused in plateau's words with a hint, and creates no topic."""
    body, told = BODIES[name]
    answer = web.post("/topic/clicks/partition/web-1", content=body, headers={"content-type": ARROW})
    assert (answer.status_code, answer.json()["code"]) == (400, 400)
    message = answer.json()["message"]
    assert message.startswith(told[:-1]) if told.endswith("…") else message == told
    assert web.get("/topics").json() == {"topics": []}


QUERIES = [
    "", "start=-1", "start=x", "start=1&start=2", "start=0&page_size=many", "start=0&nothing=1",
    "start=0&time.start=yesterday", "start=0&time.start=1970-01-02T00:00:00Z&time.end=1970-01-01T00:00:00Z",
    "start=0&time.start=2026-13-01T00:00:00Z", f"start={2**63}", "start=0&dataset.max_bytes=-1", "start=%00",
]  # fmt: skip
PATHS = {
    "start=0&dataset[0]=unknown": 'invalid path: key not found: ["unknown"]',
    "start=0&dataset.exclude[0]=none&dataset=x": 'invalid path: key not found: ["x"]',
    "start=0&dataset.separator=/&dataset[0]=n/x": 'invalid path: not a struct array: ["n"]',
}
POSITIONS = [b"[]", b"{", b'{"web-1": -1}', b'{"web-1": "x"}', b'{"web-1": true}', b"\xff"]


def test_questions_that_are_refused(web):
    """An invalid parameter or position is an error in plateau's words, with a hint."""
    send(web, records(1))
    part = "/topic/clicks/partition/web-1/records"
    answers = [web.get(f"{part}?{query}") for query in QUERIES]
    answers += [web.post("/topic/clicks/records", content=body) for body in POSITIONS]
    answers.append(web.post("/topic/clicks/records?order=sideways", json={}))
    for answer in answers:
        told = answer.json()
        assert (answer.status_code, told["message"], told["code"]) == (400, "invalid query", 400), answer.request
        assert told["hint"]
    for query, message in PATHS.items():
        assert web.get(f"{part}?{query}").json() == {"message": message, "code": 400}


def test_reads_make_nothing(web):
    """Reading what does not exist returns nothing, as plateau expects before an append, and creates nothing."""
    send(web, records(1))
    assert web.get("/topic/none").json() == {"partitions": {}, "bytes": 0}
    for method, path in [
        ("GET", "/topic/none/partition/x/records?start=0"), ("POST", "/topic/none/records"),
        ("GET", "/topic/clicks/partition/none/records?start=0"),
    ]:  # fmt: skip
        answer = web.request(method, path)
        assert (answer.status_code, answer.json(), "x-iteration-status" in answer.headers) == (200, [], False)
        answer = web.request(method, path, headers={"accept": ARROW})
        assert pa.ipc.open_file(pa.py_buffer(answer.content)).read_all().shape == (0, 0)
    assert web.get("/topics").json() == {"topics": [{"name": "clicks"}]}


def test_other_refusals(web):
    """A wrong content type or an unavailable one is 400; a body over the limit is 413 with the limit."""
    body = arrow_file(records(1))
    assert web.post("/topic/clicks/partition/web-1", content=body).status_code == 400
    for kind, asked in (("application/octet-stream", {}), ("image/png", {"content-type": "image/png"})):
        refused = web.post("/topic/clicks/partition/web-1", content=body, headers=asked)
        assert refused.json()["message"] == f"cannot parse Content-Type '{kind}'"
    refused = web.get("/topic/clicks/partition/a/records?start=0", headers={"accept": "image/png"})
    assert refused.status_code == 400
    assert refused.json()["message"] == "cannot emit requested 'image/png' Accept format"
    for content in (b"x" * 20_971_521, iter([b"x" * 2_048_000] * 11)):  # with a length, and in chunks without one
        answer = web.post("/topic/clicks/partition/web-1", content=content, headers={"content-type": ARROW})
        assert (answer.status_code, answer.text) == (413, "payload too large")
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert answer.headers["x-max-request-size"] == "20971520"


def test_overload(tmp_path, web_of):
    """A full budget is refused with 429 in plateau's words; nothing of the batch is stored, and reads work."""
    with served(tmp_path, Settings(work=Work(append_patience_s=0)), memory_bytes=600_000) as server:
        web = web_of(server)
        body = arrow_file(records(10_000))
        answers = []
        while not answers or (answers[-1].status_code == 200 and len(answers) < 20):
            answers.append(web.post("/topic/t/partition/p", content=body, headers={"content-type": ARROW}))
        assert answers[-1].status_code == 429
        assert answers[-1].json() == {"message": "writer busy", "code": 429}
        assert int(answers[-1].headers["retry-after"]) >= 1
        stored = 10_000 * (len(answers) - 1)
        assert web.get("/topic/t").json()["partitions"] == {"p": {"start": 0, "end": stored}}


def test_a_full_disk(tmp_path, web_of, monkeypatch):
    """With little disk space, appends are refused in plateau's words on its routes and others'; reads work."""
    free = [10**9]
    monkeypatch.setattr("aggregator.engine.ingest.quota.free_bytes", lambda _: free[0])
    with served(tmp_path, min_available_bytes=1_000_000) as server:
        web, body = web_of(server), arrow_file(records(10))
        send(web, records(10))
        free[0] = 1000
        for _ in range(2):  # the second at its headers
            answer = web.post("/topic/clicks/partition/web-1", content=body, headers={"content-type": ARROW})
            assert (answer.status_code, answer.json()["message"]) == (500, "insufficient disk space")
            assert "min_available_bytes" in answer.json()["hint"]
        other = web.post("/v1/topics/clicks/events", json=[{"space": "a", "timestamp": 1}])
        assert (other.status_code, other.json()["type"]) == (429, "/problems/disk-full")
        assert len(partition(web, 0)[0]) == 10
        free[0] = 10**9
        assert send(web, records(10)) == {"start": 10, "end": 20}


def test_limits_from_settings(tmp_path, web_of):
    """Pages and bodies keep to the limits in the settings."""
    with served(tmp_path, Settings(http=Http(max_page=5, max_append_bytes=2000))) as server:
        web = web_of(server)
        send(web, records(10))
        assert len(partition(web, 0, page_size=8)[0]) == 5
        answer = web.post("/topic/t/partition/p", content=arrow_file(records(1000)), headers={"content-type": ARROW})
        assert (answer.status_code, answer.headers["x-max-request-size"]) == (413, "2000")


def test_any_number_of_schemas(tmp_path):
    """A topic accepts more than a thousand schemas."""
    with aggregator.open(tmp_path) as catalog:
        topic = catalog.create_topic("t")
        definitions = Definitions(catalog)
        found = set()
        for number in range(1100):
            schema = pa.schema([("time", pa.int64()), (f"n{number}", pa.int64())])
            found.add(definitions.of_schema(topic, schema, schema).id)
        assert len(found) == 1100


def test_schemas_that_take_turns(web):
    """Each page has records of one schema, without columns of the others."""
    for number in range(30):
        send(web, records(2, 2 * number, **{f"c{number % 3}": pa.array(["a", "b"])}))
    at, pages = 0, 0
    while at < 60:
        found, _, span = partition(web, at)
        assert found.column_names == ["time", "n", f"c{at // 2 % 3}"]
        assert span["start"] == at
        at, pages = span["end"], pages + 1
    assert pages == 30
