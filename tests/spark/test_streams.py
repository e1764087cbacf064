"""Topics as streams, with a real Spark: every event in one micro-batch, also after restarts from the checkpoint."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from clicks import click_table
from effort import long
from waiting import until

import aggregator
import aggregator.spark
from esformat import EsdbError


@pytest.fixture
def catalog(tmp_path, spark):
    aggregator.spark.register(spark)
    with aggregator.open(tmp_path / "data", durability="none") as catalog:
        catalog.create_topic("clicks", indexes=["type"])
        yield catalog


class Sink:
    """Collects batches in their order, for `foreachBatch`."""

    def __init__(self):
        self.batches = []

    def __call__(self, df, number):
        self.batches.append([(row.partition, row.record_index) for row in df.collect()])

    @property
    def events(self):
        return sorted(event for batch in self.batches for event in batch)


def follow(spark, catalog, tmp_path, sink, **options):
    """Read all available events from the checkpoint on."""
    stream = spark.readStream.format("aggregator").options(topic="clicks", columns="partition,record_index", **options)
    query = stream.load(str(catalog.path)).writeStream.foreachBatch(sink)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(600), "the machine is too busy"
        return query.lastProgress
    finally:
        query.stop()


@long
def test_follow_and_restart(spark, catalog, tmp_path):
    """Sealed and unsealed events are read in batches of limited size; a restart continues at the checkpoint.

    Events that are appended between two runs, sealed or merged, change no position.
    """
    table = click_table(1000)
    topic = catalog.topic("clicks")
    topic.append(table.slice(0, 300), "a")
    catalog.seal()
    topic.append(table.slice(300, 100), "a")
    topic.append(table.slice(400, 50), "b")
    first = Sink()
    follow(spark, catalog, tmp_path, first, maxRowsPerTrigger=180)
    assert [len(batch) for batch in first.batches] == [180, 180, 90]
    assert first.events == [("a", n) for n in range(400)] + [("b", n) for n in range(50)]
    catalog.seal()
    topic.append(table.slice(450, 200), "b")
    catalog.seal()
    topic.compact()
    topic.append(table.slice(650, 10), "c")
    again = Sink()
    progress = follow(spark, catalog, tmp_path, again, maxRowsPerTrigger=180)
    assert again.events == [("b", n) for n in range(50, 250)] + [("c", n) for n in range(10)]
    assert json.loads(progress["sources"][0]["endOffset"])["ends"] == {"a": 400, "b": 250, "c": 10}
    nothing = Sink()
    follow(spark, catalog, tmp_path, nothing)
    assert nothing.events == []


@long
def test_batch_that_failed_is_read_again(spark, catalog, tmp_path):
    """A query that dies within a batch reads the same events after its restart, though new ones arrived."""
    topic = catalog.topic("clicks")
    topic.append(click_table(200))
    seen = []

    def dies(df, number):
        seen.append(sorted(row.record_index for row in df.collect()))
        raise RuntimeError("the machine is gone")

    with pytest.raises(Exception, match="the machine is gone"):
        follow(spark, catalog, tmp_path, dies)
    catalog.seal()
    topic.append(click_table(100))
    sink = Sink()
    follow(spark, catalog, tmp_path, sink)
    assert seen == [list(range(200))]
    assert [sorted(index for _, index in batch) for batch in sink.batches] == [list(range(200)), list(range(200, 300))]


def reader(catalog, **options):
    source = aggregator.spark.AggregatorDataSource({"path": str(catalog.path), "topic": "clicks", **options})
    return source.streamReader(source.schema())


def test_offsets(catalog):
    """A stream begins at the oldest event, the newest, or the requested position; offsets of another catalog are
    refused.
    """
    topic = catalog.topic("clicks")
    topic.append(click_table(100), "a")
    opened = [reader(catalog), reader(catalog, position="tail"), reader(catalog, position='{"a": 40}')]
    assert [each.initialOffset()["ends"] for each in opened] == [{}, {"a": 100}, {"a": 40}]
    start = opened[2].initialOffset()
    end = opened[2].latestOffset(start, opened[2].getDefaultReadLimit())
    tasks = opened[2].partitions(start, end)
    read = pa.Table.from_batches([batch for task in tasks for batch in opened[2].read(task)])
    assert len(read) == 60
    assert opened[2].partitions(end, end) == []
    with pytest.raises(EsdbError, match="another catalog or topic"):
        opened[0].latestOffset({**start, "catalog": "0123"}, opened[0].getDefaultReadLimit())
    opened.append(reader(catalog, position='{"z": 1}'))
    with pytest.raises(EsdbError, match="no partition 'z'"):
        opened[-1].initialOffset()
    for wrong in ({"position": "middle"}, {"maxRowsPerTrigger": "0"}, {"maxBytesPerTrigger": "much"}):
        with pytest.raises(EsdbError, match="must be"):
            reader(catalog, **wrong)
    for each in opened:
        each.stop()


def test_a_topic_that_is_made_anew(catalog):
    """The checkpoint of a deleted topic is refused by a new topic of that name, because other events have the same
    record indexes. A renamed topic accepts its checkpoint.
    """
    catalog.topic("clicks").append(click_table(100), "a")
    stream = reader(catalog)
    end = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    catalog.rename_topic("clicks", "visits")
    renamed = reader(catalog, topic="visits")
    assert renamed.latestOffset(end, renamed.getDefaultReadLimit()) == end
    catalog.delete_topic("visits")
    catalog.create_topic("clicks").append(click_table(150), "a")
    with pytest.raises(EsdbError, match="a deleted one of the same name"):
        stream.latestOffset(end, stream.getDefaultReadLimit())
    for each in (stream, renamed):
        each.stop()


def test_files_of_a_batch_stay(catalog):
    """The files of a planned micro-batch stay until the next one is planned, despite merges."""
    topic = catalog.topic("clicks")
    for number in range(3):
        topic.append(click_table(100, seed=number))
        catalog.seal()
    stream = reader(catalog)
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    tasks = stream.partitions(start, end)
    topic.compact()
    assert sum(len(batch) for task in tasks for batch in stream.read(task)) == 300
    assert catalog.stats()["disk"]["waiting_for_scans"] > 0
    stream.latestOffset(end, stream.getDefaultReadLimit())
    catalog.compact()
    assert catalog.stats()["disk"]["waiting_for_scans"] == 0
    stream.stop()


def test_retention_ahead_of_a_stream(tmp_path):
    """Unread events that retention removed end the stream, unless an option accepts their loss.

    A new query reads the remaining events, and erased events are not a loss.
    """
    with aggregator.open(tmp_path / "data", durability="none") as catalog:
        _run_ahead(catalog, catalog.create_topic("clicks"))


def _run_ahead(catalog, topic):
    topic.append(click_table(200))
    begun = reader(catalog)
    start = begun.latestOffset(begun.initialOffset(), begun.getDefaultReadLimit())
    for number in (1, 2):
        topic.append(click_table(100, seed=number))
        catalog.seal()
    topic.erase("customer-2")
    end = begun.latestOffset(start, begun.getDefaultReadLimit())
    left = sum(len(batch) for task in begun.partitions(start, end) for batch in begun.read(task))
    assert 0 < left < 200
    begun.stop()
    topic.set_policy(retention={"segments": 1})
    topic.retain()
    until(lambda: topic.stats()["segments"] == 1)  # the catalog may already be doing it in the background
    with pytest.raises(EsdbError, match="100 events of partition '0' from record index 200 on were removed"):
        begun.partitions(start, end)
    tolerant = reader(catalog, failOnDataLoss="false")
    assert sum(len(batch) for task in tolerant.partitions(start, end) for batch in tolerant.read(task)) < left
    assert tolerant.partitions(tolerant.initialOffset(), end)
    assert begun.partitions(begun.initialOffset(), end)
    for each in (begun, tolerant):
        each.stop()
