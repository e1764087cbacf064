"""plateau's routes through PlateauClient."""

from __future__ import annotations

import pyarrow as pa
import pytest
from breaking_proxy import BreakingProxy, Fate

from aggregator import InvalidRequestError, TopicNotFoundError
from aggregator.client import PlateauClient, Retry, Span, TruncatedAnswerError, UnavailableError
from esformat import UsageError


def records(first, count, **more):
    return pa.table({"time": range(first, first + count), "n": range(first, first + count), **more})


@pytest.fixture
def topic(server):
    with PlateauClient(server.url) as client:
        yield client.topic("clicks")


def test_append_and_read(server, topic):
    """Appended records are read in spans, in pages and by continuation, by partition and over all partitions."""
    assert topic.append(records(0, 2500), "a") == Span(0, 2500)
    assert topic.append(records(2500, 10), "b") == Span(0, 10)
    assert topic.append(records(2510, 10), "b") == Span(10, 20)
    assert topic.partitions() == {"a": Span(0, 2500), "b": Span(0, 20)}
    pages = list(topic.records("a").pages())
    assert [(len(page.table), page.status) for page in pages] == [
        (1000, "RecordLimited"), (1000, "RecordLimited"), (500, "All"),
    ]  # fmt: skip
    assert topic.records("a", 2400).to_table()["n"].to_pylist() == list(range(2400, 2500))
    assert sorted(topic.iterate().to_table()["n"].to_pylist()) == list(range(2520))
    assert topic.iterate(partition_filter=["regex:^b"], columns=["n"]).to_table().column_names == ["n"]
    assert topic.iterate(begin={"a": 2490}, partition_filter=["a"]).to_pandas().shape[0] == 10
    newest = next(topic.iterate(order="desc", page_size=5).pages())
    assert newest.table["n"].to_pylist() == [2499, 2498, 2497, 2496, 2495]
    with PlateauClient(server.url) as client:
        assert "clicks" in client.topics()


def test_schema_change(topic):
    """A page ends where the schema changes; the pages together have all columns."""
    topic.append(records(0, 10))
    topic.append(records(10, 10, kind=["x"] * 10))
    assert [page.status for page in topic.records().pages()] == ["SchemaChange", "All"]
    table = topic.records().to_table()
    assert (len(table), table["kind"].null_count) == (20, 10)
    assert {tuple(batch.schema.names) for batch in topic.records().batches()} == {("time", "n"), ("time", "n", "kind")}


def test_mistakes(topic):
    """Mistakes raise the other client's errors; an absent topic is empty."""
    assert (topic.records().to_table().shape, list(topic.iterate().batches()), topic.partitions()) == ((0, 0), [], {})
    with pytest.raises(InvalidRequestError):
        topic.append(pa.table({"n": [1]}))
    with pytest.raises(UsageError):
        topic.records(colour="red")
    with pytest.raises(UsageError, match="page_size must be at least 1"):
        topic.iterate(page_size=0)  # would never advance
    topic.append(records(0, 10))
    with pytest.raises(InvalidRequestError):
        topic.records(time_start="noon").to_table()


def test_an_append_that_may_be_stored_is_not_repeated(server, topic):
    """A refused connection is retried; a lost answer raises, because these routes do not recognise retries."""
    topic.append(records(0, 10))
    with (
        BreakingProxy(server.url, lambda _: Fate(down_bytes=10)) as proxy,
        PlateauClient(proxy.url, retry=Retry(first_s=0.001)) as client,
    ):
        with pytest.raises(UnavailableError) as caught:
            client.topic("clicks").append(records(10, 10))
        assert caught.value.maybe_stored
        assert proxy.connections == 1
    assert topic.partitions()["0"].end == 20


def test_another_server(server):
    """An answer that is not a page raises an error."""
    with (
        BreakingProxy(server.url, lambda _: Fate()) as proxy,
        PlateauClient(proxy.url + "/v1/topics/x/..") as client,
        pytest.raises((TruncatedAnswerError, InvalidRequestError, TopicNotFoundError)),
    ):
        client.topic("activity").partitions()
