"""Figures for Prometheus, and the dashboard that shows them."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from test_plateau import arrow_file, records, send

from aggregator.server import metrics as module

DASHBOARD = Path(__file__).parents[3] / "docs" / "grafana-dashboard.json"
PLATEAU = {
    "stored_size_bytes", "topic_bytes", "partition_size_bytes", "partition_size_segments", "partition_schema_change",
    "partition_segments_destroyed", "slog_roll", "slog_thread_records_written", "catalog_checkpoint_ms",
}  # fmt: skip


def figures(web):
    """Samples by name and labels."""
    answer = web.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_figures(server, web):
    """What was done shows: bytes, records, seals, requests and refusals, by topic and route."""
    send(web, records(100))
    server.catalog.seal()
    send(web, records(50, x=["y"] * 50))
    assert web.get("/topic/none").status_code == 404
    found = figures(web)
    names = {key[0] for key in found}
    assert names >= PLATEAU
    assert found["slog_thread_records_written",] == 150
    assert found["slog_roll",] == 1
    one = (("partition", "web-1"), ("topic", "clicks"))
    assert found["partition_size_segments", *one] == 1
    assert found["partition_schema_change", *one] == 1
    assert found["topic_bytes", one[1]] == found["partition_size_bytes", *one] > 0
    assert found["aggregator_topic_unsealed_rows", one[1]] == 50
    assert 0 <= found["aggregator_seal_lag_seconds", one[1]] < 60
    assert found["aggregator_topic_oldest_seconds", one[1]] > 1e9
    route = ("route", "/topic/{topic}/partition/{partition}")
    assert found["aggregator_requests_total", ("method", "POST"), route, ("status", "200")] == 2
    assert found["aggregator_request_seconds_count", ("method", "POST"), route] == 2
    assert found["aggregator_requests_total", ("method", "GET"), ("route", "/topic/{topic}"), ("status", "404")] == 1
    assert found["aggregator_open_requests",] == 1
    assert found["aggregator_open_requests_by_route", ("route", "/metrics")] == 1
    assert found["aggregator_log_bytes",] > 0
    assert found["aggregator_trouble",] == 0


def test_pipes_are_told(server, web, monkeypatch):
    """How far each pipe is, those furthest behind where they are many; and whether one fails."""
    catalog = server.catalog
    catalog.query("CREATE PIPE errors WHERE msg CONTAINS ERROR")
    catalog.query("CREATE PIPE none WHERE msg = nothing")
    catalog.write({"app": "a"}, [{"msg": f"{'ERROR' if n < 3 else 'fine'} {n}"} for n in range(10)])
    errors, none = ("pipe", "errors"), ("pipe", "none")
    until = time.monotonic() + 60
    while time.monotonic() < until:
        found = figures(web)
        if found["aggregator_pipe_copied_records_total", errors] == 3 and not any(
            found["aggregator_pipe_lag_records", pipe] for pipe in (errors, none)
        ):
            break
        time.sleep(0.05)
    assert found["aggregator_pipe_copied_records_total", errors] == 3
    assert found["aggregator_pipe_copied_records_total", none] == 0
    assert found["aggregator_pipe_lag_records", errors] == found["aggregator_pipe_lag_records", none] == 0
    assert found["aggregator_pipe_failing", errors] == found["aggregator_pipe_gone_records_total", errors] == 0

    facts = catalog.stats()
    facts["pipes"][0] |= {"lag": 7, "gone": 2, "state": "failing"}
    monkeypatch.setattr(catalog, "stats", lambda: facts)
    monkeypatch.setattr(module, "MAX_LABELLED", 1)
    found = figures(web)
    named = ("pipe", facts["pipes"][0]["name"])
    assert found["aggregator_pipe_lag_records", named] == 7
    assert found["aggregator_pipe_gone_records_total", named] == 2
    assert found["aggregator_pipe_failing", named] == 1
    assert [key for key in found if key[0] == "aggregator_pipe_lag_records"] == [("aggregator_pipe_lag_records", named)]
    assert found["aggregator_unlisted", ("kind", "pipe")] == 1


def test_refusals_are_counted(server, web):
    """A request that is refused for lack of room shows by its route."""
    server.context.appends.capacity = 0
    for _ in range(2):  # the second one before its route is looked for
        answer = web.post("/topic/t/partition/p", content=arrow_file(records(1)),
                          headers={"content-type": "application/vnd.apache.arrow.file"})  # fmt: skip
        assert answer.status_code == 429
    route = ("route", "/topic/{topic}/partition/{partition}")
    assert figures(web)["aggregator_requests_shed_total", route] == 2
    assert figures(web)["aggregator_open_requests_by_route", route] == 0


def test_only_the_largest_are_told(server, web, monkeypatch):
    """Thousands of topics do not become thousands of series each; how many are left out is told."""
    monkeypatch.setattr(module, "MAX_LABELLED", 2)
    for number in range(4):
        send(web, records(10 * (number + 1)), topic=f"t{number}")
    found = figures(web)
    assert {key[1][1] for key in found if key[0] == "topic_bytes"} == {"t2", "t3"}
    assert found["aggregator_unlisted", ("kind", "topic")] == 2


@pytest.mark.parametrize("panel", json.loads(DASHBOARD.read_text())["panels"], ids=lambda panel: panel["title"])
def test_dashboard(known_names, panel):
    """Every figure of the dashboard exists, and every panel shows one."""
    assert panel["type"] == "row" or panel["targets"]
    for target in panel.get("targets", ()):
        named = set(
            re.findall(r"\b(?:aggregator_|process_|topic_|slog_|stored_|partition_|catalog_)\w+", target["expr"])
        )
        assert named, target["expr"]
        assert named <= known_names, named - known_names


@pytest.fixture(scope="module")
def known_names(tmp_path_factory):
    """Names of all figures of a server that has done something."""
    import httpx
    from served import served

    with served(tmp_path_factory.mktemp("data")) as server, httpx.Client(base_url=server.url) as web:
        send(web, records(10))
        server.catalog.query("CREATE PIPE one")
        server.context.appends.capacity = 0
        web.post("/topic/t/partition/p", content=b"", headers={"content-type": "application/vnd.apache.arrow.file"})
        return {key[0] for key in figures(web)}
