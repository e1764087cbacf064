"""A catalog could be read after it was closed, and looked for its files in the process's new working directory."""

from __future__ import annotations

import pytest

import aggregator
from esformat import ClosedError

EVENT = {"space": "a", "timestamp": 1}


@pytest.mark.parametrize("read_only", [False, True])
def test_a_closed_catalog_answers_nothing(tmp_path, read_only):
    """A closed catalog refuses all queries, because its state may be out of date. A scan that has begun continues."""
    with aggregator.open(tmp_path) as catalog:
        catalog.create_topic("t").append([EVENT] * 3)
        catalog.seal()
        catalog.topic("t").append([EVENT] * 2)
    catalog = aggregator.open(tmp_path, read_only=read_only)
    topic = catalog.topic("t")
    begun = iter(topic.scan())
    next(begun)
    scan = topic.scan()
    catalog.close()
    assert len(list(begun)) == 4
    for ask in (
        lambda: list(scan), scan.count, scan.to_table, lambda: scan.schema, lambda: list(topic.scan(space="a")),
        lambda: topic.scan(columns=["space"]), lambda: list(topic.read()), topic.stats, topic.ends, topic.erasures,
        lambda: topic.traces("a"), lambda: topic.partitions,
    ):  # fmt: skip
        with pytest.raises(ClosedError, match="the catalog is closed"):
            ask()


def test_the_process_goes_elsewhere(tmp_path, monkeypatch):
    """A catalog stays at the path where it was opened, under any name, when the working directory changes."""
    monkeypatch.chdir(tmp_path)
    with aggregator.open("data") as catalog, aggregator.open("data", read_only=True) as reading:
        topic = catalog.create_topic("t")
        topic.append([EVENT])
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        catalog.seal()
        topic.append([EVENT])
        topic.erase("b")
        topic.compact()
        assert [len(list(open_.topic("t").scan())) for open_ in (catalog, reading)] == [2, 2]
        assert catalog.stats()["disk"]["segments"] > 0
    assert not list((tmp_path / "elsewhere").iterdir())
    with aggregator.open(tmp_path / "data") as catalog:
        assert catalog.topic("t").scan().count() == 2
        assert catalog.problems() == []
