"""A catalog from the outside: topics, appends, reads of sealed and unsealed events, reopening."""

from __future__ import annotations

import datetime as dt
import threading
from functools import partial

import pyarrow as pa
import pytest
from waiting import until

import aggregator
import esformat
from aggregator import PartitionNotFoundError, Roll


@pytest.fixture
def root(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def catalog(root):
    with aggregator.open(root) as catalog:
        yield catalog


def events(*rows):
    """Rows of space, timestamp and a type, as mappings."""
    return [{"space": space, "timestamp": time, "type": kind, "data": b"%d" % time} for space, time, kind in rows]


def seen(scan):
    """A scan's contents in short."""
    return [(event.space, event.timestamp, event.indexes.get("type")) for event in scan]


ROWS = [("a", 5, "page"), ("b", 1, "buy"), ("a", 3, "page"), ("a", 4, "buy")]


@pytest.mark.parametrize("sealed", [False, True])
def test_the_first_example(catalog, sealed):
    """Appended events are read by space, index, time and record index, in both directions, sealed or not."""
    topic = catalog.create_topic("activity", indexes=["type"])
    receipt = topic.append(events(*ROWS))
    assert (receipt.first, receipt.last, len(receipt), receipt.partition) == (0, 3, 4, "0")
    if sealed:
        assert catalog.seal() == 1
    assert seen(topic.scan()) == sorted(ROWS, key=lambda row: row[1])
    assert seen(topic.scan(space="a", reverse=True, limit=2)) == [ROWS[0], ROWS[3]]
    assert seen(topic.scan_index("type", "buy")) == [ROWS[1], ROWS[3]]
    assert seen(topic.scan_index("type", "buy", space="a")) == [ROWS[3]]
    assert seen(topic.scan(start=3, end=5)) == [ROWS[2], ROWS[3]]
    assert seen(topic.read()) == ROWS
    assert seen(topic.read(from_index=2)) == ROWS[2:]
    assert seen(topic.read(from_index=2, reverse=True, limit=2)) == [ROWS[2], ROWS[1]]
    assert [event.columns["record_index"] for event in topic.read(from_index=1)] == [1, 2, 3]
    assert seen(topic.read(start=3, end=5)) == ROWS[2:]
    assert topic.ends() == {"0": 4}
    assert seen(topic.read(from_index=2, start=3, reverse=True, limit=3)) == [ROWS[2], ROWS[0]]
    assert topic.scan().count() == 4
    assert topic.scan(space="a", start=4).count() == 2
    assert topic.scan(space="nobody").count() == 0
    assert next(iter(topic.scan(space="b"))).data == b"1"


def test_all_kinds_of_batches(catalog):
    """Tables, batches, objects with the C stream, events and mappings can be appended."""
    topic = catalog.create_topic("t", indexes=["type"])
    table = pa.table({"space": ["a"], "timestamp": [1], "type": ["x"], "data": [b"1"]})
    topic.append(table)
    topic.append(table.to_batches()[0])
    topic.append(pa.RecordBatchReader.from_batches(table.schema, table.to_batches()))
    topic.append(table.to_pandas())
    topic.append(list(topic.scan(limit=1)))
    topic.append(next(iter(topic.scan())))
    topic.append([{"space": "a", "timestamp": dt.datetime(1970, 1, 1, 0, 0, 0, 1, dt.UTC), "type": "x", "data": b"1"}])
    assert seen(topic.scan()) == [("a", 1, "x")] * 7
    assert topic.append([]).last == 6
    assert len(topic.append(table.slice(0, 0))) == 0


def test_an_unknown_option_of_a_scan(catalog):
    """A mistyped option is refused with the options that scans have."""
    topic = catalog.create_topic("orders", indexes=["type"])
    for scan in (lambda: topic.scan(spce="a"), lambda: topic.scan_index("type", "x", by_index=True)):
        with pytest.raises(TypeError, match=r"a scan has no option '(spce|by_index)': its options are space, grouping"):
            scan()


def test_fields_of_payloads(catalog):
    """Fields of JSON payloads are extracted as typed columns and counted, sealed or not."""
    topic = catalog.create_topic("orders")
    topic.append([{"space": "a", "timestamp": 1, "data": b'{"price": 2, "by": {"id": "x"}}'}])
    catalog.seal()
    topic.append(
        [{"space": "a", "timestamp": 2, "data": b'{"price": 0.5}'}, {"space": "a", "timestamp": 3, "data": b"-"}]
    )
    table = topic.scan(columns=["data"]).to_table(fields=["$.price", "$.by.id"])
    assert table.select([1, 2]).to_pydict() == {"$.price": [2.0, 0.5, None], "$.by.id": ["x", None, None]}
    chosen = topic.scan().to_pandas(fields={"$.price": pa.decimal128(4, 1)})
    assert [str(price) for price in chosen["$.price"][:2]] == ["2.0", "0.5"]
    found = topic.scan().payload_fields()
    assert {field.path: field.kinds for field in found.fields}["$.price"] == {"integer": 1, "number": 1}
    assert (found.payloads, found.no_json) == (3, 1)
    with pytest.raises(esformat.UsageError, match="include data in the columns"):
        topic.scan(columns=["timestamp"]).to_table(fields=["$.price"])
    with pytest.raises(esformat.UsageError, match="include data in the columns"):
        topic.scan(columns=["timestamp"]).payload_fields()


def test_scan_is_a_table_too(catalog):
    """A scan becomes Arrow, pandas or a C stream; columns are selected by name, and the aggregator's own on request."""
    topic = catalog.create_topic("activity", indexes=["type"])
    topic.append(events(*ROWS[:2]), "left")
    catalog.seal()
    topic.append(events(*ROWS[2:]), "right")
    scan = topic.scan(columns=["timestamp", "partition", "record_index"])
    rows = scan.to_table().to_pylist()
    assert [(row["timestamp"].microsecond, row["partition"], row["record_index"]) for row in rows] == [
        (1, "left", 1), (3, "right", 0), (4, "right", 1), (5, "left", 0),
    ]  # fmt: skip
    assert scan.column_names == ("timestamp", "partition", "record_index")
    assert pa.table(topic.scan()).column_names == ["space", "grouping", "timestamp", "type", "data"]
    assert len(topic.scan().to_pandas()) == 4
    assert seen(topic.scan(partition="left")) == [ROWS[1], ROWS[0]]
    for scan in (topic.scan, partial(topic.scan_index, "type", "x"), lambda *, partition: topic.read(partition)):
        with pytest.raises(PartitionNotFoundError, match="no partition 'none' in topic 'activity'; its partitions are"):
            scan(partition="none")
    assert topic.partitions == ("left", "right")
    empty = catalog.create_topic("empty")
    assert empty.scan(partition="0").count() == 0
    with pytest.raises(PartitionNotFoundError, match="it has no events"):
        empty.scan(partition="1")


def test_ties_are_broken_by_partition_and_record_index(catalog):
    """Events with the same time have one order, sealed or not, which reverse scans mirror."""
    topic = catalog.create_topic("t")
    for number in range(12):
        row = {"space": f"s{number % 5}", "timestamp": 7, "grouping": f"g{11 - number}", "data": b"%02d" % number}
        topic.append([row], "xy"[number % 2])
        if number in (3, 8):
            catalog.seal()
    expected = [b"%02d" % number for number in (*range(0, 12, 2), *range(1, 12, 2))]
    assert [event.data for event in topic.scan()] == expected
    assert [event.data for event in topic.scan(reverse=True)] == expected[::-1]
    for limit in range(13):
        assert [event.data for event in topic.scan(limit=limit)] == expected[:limit]
        assert [event.data for event in topic.scan(reverse=True, limit=limit)] == expected[::-1][:limit]


def test_reopening_keeps_everything(root):
    """Sealed and unsealed events, record indexes, topics and policies survive reopening."""
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t", indexes=["type"], roll={"rows": 2, "age": "1h"}, retention={"bytes": "1 GiB"})
        topic.append(events(*ROWS))
        catalog.seal()
        topic.append(events(*ROWS))
        topic.append(events(*ROWS), "other")
    with aggregator.open(root) as catalog:
        topic = catalog.topic("t")
        assert topic.scan().count() == 12
        assert topic.roll == Roll(rows=2, age_us=3_600_000_000)
        assert topic.retention.bytes == 1 << 30
        assert (topic.indexes, topic.partitions) == (("type",), ("0", "other"))
        assert topic.append(events(ROWS[0])).first == 8
        assert topic.append(events(ROWS[0]), "other").first == 4
        assert catalog.topics() == ("t",)


def test_a_batch_is_all_or_nothing(catalog):
    """One invalid event has its batch refused, and record indexes continue as if it had not been sent."""
    topic = catalog.create_topic("t")
    for bad in (
        [{"space": "a", "timestamp": 1}, {"space": "b"}],
        [{"space": "a", "timestamp": 1}, {"space": None, "timestamp": 2}],
        [{"space": "a", "timestamp": dt.datetime(2020, 1, 1)}],
        [{"space": "a", "timestamp": 1, "record_index": 5}],
        [{"space": "x" * 70_000, "timestamp": 1}],
        pa.table({"space": ["a"], "timestamp": pa.array([None], pa.int64())}),
        pa.table({"timestamp": [1]}),
        "text",
        42,
    ):
        with pytest.raises(esformat.InvalidEventError):
            topic.append(bad)
    assert topic.append([{"space": "a", "timestamp": 1}]).first == 0
    assert topic.scan().count() == 1


def test_appended_buffers_may_be_used_again(catalog):
    """Changing the caller's buffer after the append does not change the events."""
    numpy = pytest.importorskip("numpy")
    times = numpy.arange(10)
    topic = catalog.create_topic("t")
    topic.append(pa.table({"space": ["a"] * 10, "timestamp": pa.array(times)}))
    times[:] = 99
    assert [event.timestamp for event in topic.scan()] == list(range(10))


def test_columns_come_and_change(catalog):
    """A new column continues the segment; another type starts a new schema family; both are read as one."""
    topic = catalog.create_topic("t", indexes=["type"])
    base = {"space": ["a"], "timestamp": [1], "type": ["x"]}
    topic.append(pa.table(base | {"n": [5]}))
    topic.append(pa.table(base | {"n": [6], "extra": [1.5]}))
    topic.append(pa.table(base))
    topic.append(pa.table(base | {"n": ["six"]}))
    topic.append(pa.table(base | {"n": [7]}))
    for _ in range(2):
        rows = topic.read().to_table()
        assert rows["n"].to_pylist() == ["5", "6", None, "six", "7"]
        assert rows["extra"].to_pylist() == [None, 1.5, None, None, None]
        assert topic.scan_index("type", "x").count() == 5
        assert topic.scan(columns=["n"]).to_table()["n"].to_pylist() == ["5", "6", None, "six", "7"]
        catalog.seal()
    assert len(list(topic._topic.segments.view())) == 2


@pytest.mark.parametrize(
    ("columns", "read"),
    [
        ([[1], [b"x", b"\xff"]], [b"1", b"x", b"\xff"]),
        ([[1], ["y"], [b"x", b"\xff"]], [b"1", b"y", b"x", b"\xff"]),
        ([[b"x", b"\xff"], ["y"], [1], [True]], [b"x", b"\xff", b"y", b"1", b"true"]),
    ],
)
def test_a_value_reads_the_same_beside_any_others(catalog, columns, read):
    """Numbers, texts and bytes in one column are all read, and a value does not depend on others in the answer."""
    topic = catalog.create_topic("t")
    for values in columns:
        topic.append(pa.table({"space": ["a"] * len(values), "timestamp": [1] * len(values), "v": values}))
    for _ in range(2):
        assert topic.read().to_table()["v"].to_pylist() == read
        assert [topic.read(from_index=row, limit=1).to_table()["v"][0].as_py() for row in range(len(read))] == read
        catalog.seal()


def test_large_and_small_offsets_share_a_schema(catalog):
    """Batches with 64-bit offsets, as in Polars and pandas, share a schema with pyarrow's."""
    topic = catalog.create_topic("t")
    small = pa.table({"space": ["a"], "timestamp": [1], "text": ["x"], "data": [b"1"]})
    large = small.cast(
        pa.schema(
            [
                ("space", pa.large_string()),
                ("timestamp", pa.int64()),
                ("text", pa.large_string()),
                ("data", pa.large_binary()),
            ]
        )
    )
    for table in (large, small, large):
        topic.append(table)
    assert catalog.seal() == 1
    assert topic.scan().to_table()["text"].to_pylist() == ["x"] * 3


def test_names(root):
    """Any text is a valid name and comes back unchanged; no file is outside the catalog's directory."""
    names = [
        "0",
        "007",
        "1e3",
        "a/b",
        "../../x",
        "..",
        ".",
        "a.b",
        "A",
        "a",
        "é",
        "e\u0301",
        "nul\0",
        " ",
        "%2e%2e",
        "con",
    ]
    names += ["x" * 300, "☃" * 300, "'; DROP TABLE topics; --"]
    with aggregator.open(root) as catalog:
        for name in names:
            topic = catalog.create_topic(name)
            topic.append([{"space": name, "timestamp": 1, "grouping": name}], name, producer=name, sequence=1)
        catalog.seal()
    with aggregator.open(root) as catalog:
        assert list(catalog.topics()) == names
        for name in names:
            topic = catalog.topic(name)
            assert topic.partitions == (name,)
            assert [(event.space, event.grouping) for event in topic.scan(space=name)] == [(name, name)]
            assert topic.append(
                [{"space": name, "timestamp": 1, "grouping": name}], name, producer=name, sequence=1
            ).duplicate
    outside = [path for path in root.parent.rglob("*") if root not in path.parents and path != root]
    assert outside == []
    for bad in ("", "x" * 2000, "\ud800", b"bytes", None, 7):
        with aggregator.open(root) as catalog, pytest.raises(aggregator.InvalidRequestError):
            catalog.create_topic(bad)


def test_topics_that_are_not_there(catalog):
    """A missing topic raises KeyError and AggregatorError without being created; names are unique."""
    with pytest.raises(KeyError):
        catalog.topic("t")
    with pytest.raises(aggregator.AggregatorError, match="no topic 't'"):
        catalog.topic("t")
    assert catalog.topics() == ()
    catalog.create_topic("t")
    with pytest.raises(aggregator.TopicExistsError):
        catalog.create_topic("t")
    with pytest.raises(esformat.UnknownIndexError):
        catalog.topic("t").scan_index("type", "x")
    with pytest.raises(esformat.UsageError):
        catalog.topic("t").scan(columns=["nope"])
    for wrong in (
        {"keys": "both"}, {"roll": {"rows": 0}}, {"roll": {"rows": True}}, {"roll": {"speed": 1}},
        {"retention": {"bytes": "much"}}, {"retention": {"segments": True}}, {"retention": {"age": True}},
    ):  # fmt: skip
        with pytest.raises(aggregator.InvalidRequestError):
            catalog.create_topic("u", **wrong)
    assert catalog.topics() == ("t",)


def test_binary_keys(catalog):
    """A topic may have any bytes as keys."""
    topic = catalog.create_topic("t", keys="binary")
    topic.append([{"space": b"\xff\x00", "timestamp": 1}, {"space": b"\xff", "timestamp": 2, "grouping": b"\xfe"}])
    for _ in range(2):
        assert [(e.space, e.grouping) for e in topic.scan()] == [(b"\xff\x00", b""), (b"\xff", b"\xfe")]
        assert topic.scan(space=b"\xff").count() == 1
        catalog.seal()


def test_only_one_writer(root):
    """A second writer is refused immediately with the first one's process; once that is gone, it succeeds."""
    with aggregator.open(root):
        with pytest.raises(aggregator.CatalogLockedError, match=r"process \d+ on ") as caught:
            aggregator.open(root)
        assert caught.value.holder["pid"] > 0
    (root / "writer.lock").write_text('{"pid": 1, "host": "gone"}')
    aggregator.open(root).close()


def test_a_lost_manifest_is_not_replaced(root):
    """If segments exist, a missing manifest is an error with a hint, not an empty catalog."""
    with aggregator.open(root) as catalog:
        catalog.create_topic("t").append(events(*ROWS))
        catalog.seal()
    (root / "manifest.sqlite").unlink()
    with pytest.raises(aggregator.CorruptManifestError, match="rebuild-manifest"):
        aggregator.open(root)
    assert not (root / "manifest.sqlite").exists()


def test_closed(root):
    """A closed catalog says so."""
    catalog = aggregator.open(root)
    topic = catalog.create_topic("t")
    topic.append([{"space": "a", "timestamp": 1}])
    catalog.close()
    catalog.close()
    with pytest.raises(esformat.ClosedError):
        topic.append([{"space": "a", "timestamp": 1}])
    with pytest.raises(esformat.ClosedError):
        catalog.topics()


def test_a_scan_is_a_snapshot(catalog):
    """A scan does not show later events, appended or sealed."""
    topic = catalog.create_topic("t")
    for number in range(5):
        topic.append([{"space": "a", "timestamp": number}])
    under_way = iter(topic.scan(space="a"))
    first = next(under_way)
    topic.append([{"space": "a", "timestamp": 2}])
    catalog.seal()
    topic.append([{"space": "a", "timestamp": 3}])
    assert [first.timestamp, *(event.timestamp for event in under_way)] == [0, 1, 2, 3, 4]
    assert topic.scan().count() == 7


def test_partitions_take_appends_at_once(catalog):
    """Parallel appends to many partitions and topics store every event once, with gapless record indexes."""
    topics = [catalog.create_topic(f"t{number}", roll={"rows": 50}) for number in range(2)]

    def work(seed):
        for number in range(30):
            topics[number % 2].append([{"space": f"s{seed}", "timestamp": number}] * 3, str(number % 3))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for topic in topics:
        assert topic.scan().count() == 270
        for partition in topic.partitions:
            indexes = topic.read(partition).to_table()["record_index"].to_pylist()
            assert indexes == list(range(len(indexes)))


def test_first_appends_to_a_partition_at_once(catalog):
    """Two parallel first appends lose nothing and create one partition."""
    topic = catalog.create_topic("t")
    barrier = threading.Barrier(8)

    def work(number):
        barrier.wait()
        topic.append(pa.table({"space": ["a"], "timestamp": [number], f"column-{number % 4}": [1]}), "new")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert topic.scan().count() == 8
    assert topic.partitions == ("new",)


# ------------------------------------------------------------ retries


def test_retries_are_recognised(root):
    """A retry is recognised before sealing, after it and after reopening: stored once, with the same receipt."""
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        first = topic.append(events(*ROWS), producer="web-1", sequence=17)
        assert not first.duplicate
        for _ in range(2):
            again = topic.append(events(*ROWS), producer="web-1", sequence=17)
            assert (again.first, again.last, again.duplicate) == (0, 3, True)
            catalog.seal()
        assert not topic.append(events(*ROWS), producer="web-2", sequence=17).duplicate
        assert not topic.append(events(*ROWS), "other", producer="web-1", sequence=17).duplicate
        held = catalog._backend.budget.held_bytes
        topic.append(events(*ROWS), "other", producer="web-1", sequence=17)
        assert catalog._backend.budget.held_bytes == held
    with aggregator.open(root) as catalog:
        topic = catalog.topic("t")
        assert topic.append(events(*ROWS), producer="web-1", sequence=17).duplicate
        assert topic.append(events(*ROWS), producer="web-2", sequence=17).first == 4
        assert topic.scan().count() == 12


def test_same_sequence_with_other_events(catalog):
    """Other events under the same sequence are an error and are not stored."""
    topic = catalog.create_topic("t")
    topic.append(events(*ROWS), producer="web-1", sequence=1)
    for other in (events(*ROWS[:3]), events(ROWS[1], *ROWS[1:])):
        with pytest.raises(aggregator.SequenceConflictError, match="other events"):
            topic.append(other, producer="web-1", sequence=1)
    assert topic.scan().count() == 4


def test_sequences_older_than_remembered(catalog):
    """Sequences too old to be recognised are refused; newer ones are accepted."""
    topic = catalog.create_topic("t")
    for sequence in range(70):
        topic.append(events(ROWS[0]), producer="p", sequence=sequence)
    with pytest.raises(aggregator.SequenceConflictError, match="older"):
        topic.append(events(ROWS[0]), producer="p", sequence=2)
    assert topic.append(events(ROWS[0]), producer="p", sequence=30).duplicate
    for wrong in ({"producer": "p"}, {"sequence": 1}, {"producer": "p", "sequence": 1.5}):
        with pytest.raises(esformat.InvalidEventError):
            topic.append(events(ROWS[0]), **wrong)


def test_the_same_retry_from_many_threads(catalog):
    """The same retry from many threads is stored once, whichever comes first."""
    topic = catalog.create_topic("t")
    receipts = []
    barrier = threading.Barrier(8)

    def work():
        barrier.wait()
        receipts.append(topic.append(events(*ROWS), producer="p", sequence=1))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert topic.scan().count() == 4
    assert sorted(receipt.duplicate for receipt in receipts) == [False] + [True] * 7
    assert {receipt.first for receipt in receipts} == {0}


# ------------------------------------------------------------ automatic sealing


def test_sealing_what_is_large(catalog):
    """Partitions with fewer unsealed bytes than `least_bytes` stay unsealed; all events are read anyway."""
    topic = catalog.create_topic("sizes")
    for partition, size in (("small", 10), ("large", 10_000)):
        topic.append([{"space": "s", "timestamp": 1, "data": b"x" * size}], partition=partition)
    assert catalog.seal("sizes", least_bytes=5_000) == 1
    unsealed = {name: facts["unsealed_rows"] for name, facts in topic.stats()["partitions"].items()}
    assert unsealed == {"small": 1, "large": 0}
    assert topic.scan().count() == 2
    assert catalog.seal("sizes", least_bytes=100_000) == 0
    assert catalog.seal("sizes") == 1


@pytest.mark.parametrize("roll", [{"rows": 10}, {"bytes": 100}, {"age": "300ms"}])
def test_sealing_by_itself(catalog, roll):
    """Background sealing follows rows, bytes and age, also of an idle partition; memory is released."""
    topic = catalog.create_topic("t", roll=roll)
    topic.append([{"space": "a", "timestamp": number} for number in range(10)])
    until(lambda: len(topic._topic.segments) == 1 and not topic._topic.partitions["0"].memtable.rows)
    assert topic.scan().count() == 10
    until(lambda: not catalog._backend.budget.held_bytes)  # released right after the segment exists
