"""Figures for Prometheus, the dashboard that shows them, and the alerts on them."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import time
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from served import served
from waiting import until

import aggregator
from aggregator.server import RunningServer, Settings
from aggregator.server.bodies.shared.refusals import CHANGES, LOSSES
from aggregator.server.config.settings import Http
from aggregator.server.config.sources import settings_of
from aggregator.server.metrics import figures as module
from aggregator.storage.files.following import Following
from esformat import __version__
from tests.aggregator.server.plateau.test_plateau import arrow_file, records, send

DOCS = Path(__file__).parents[4] / "docs"
DASHBOARD = DOCS / "grafana-dashboard.json"
RULES = DOCS / "prometheus-rules.yml"
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


def test_figures_of_a_store(tmp_path):
    """A catalog with a store has figures for segments there and here, requests and shipping."""
    settings = settings_of({"catalog.store": (tmp_path / "bucket").as_uri(), "catalog.keep_local.bytes": "0"})
    catalog = aggregator.open(
        tmp_path / "data", store=settings.catalog.store, keep_local=settings.catalog.keep_local,
        store_cache=settings.catalog.store_cache,
    )  # fmt: skip
    with catalog, RunningServer(catalog, Settings(http=Http(bind="127.0.0.1:0"))) as server:
        catalog.create_topic("t").append([{"space": "a", "timestamp": 1}])
        catalog.seal()
        until(lambda: catalog.store.status()["evicted"]["segments"] == 1)
        with httpx.Client(base_url=server.url) as web:
            found = figures(web)
    assert found["aggregator_store_segments", ("place", "arrived")] == 1
    assert found["aggregator_store_segments", ("place", "waiting")] == 0
    assert found["aggregator_store_bytes", ("place", "evicted")] > 0
    assert found["aggregator_store_pushed_segments_total",] == 1
    assert found["aggregator_store_requests_total", ("kind", "puts")] >= 1
    assert found["aggregator_store_traffic_bytes_total", ("way", "up")] > 0
    assert found["aggregator_store_trouble",] == 0
    assert found["aggregator_store_lag_bytes",] >= 0
    assert 0 < found["aggregator_store_lease_seconds",] <= 10
    assert found["aggregator_store_epoch",] == 1


def test_figures(server, web):
    """Bytes, records, seals, requests and refusals show by topic and route."""
    send(web, records(100))
    server.catalog.seal()
    send(web, records(50, x=["y"] * 50))
    assert web.get("/v1/topics/none").status_code == 404
    found = figures(web)
    assert not {key[0] for key in found} & PLATEAU
    assert found["aggregator_appended_records_total",] == 150
    assert found["aggregator_appended_bytes_total",] > 150 * 8
    assert found["aggregator_seals_total",] == 1
    one = (("partition", "web-1"), ("topic", "clicks"))
    assert found["aggregator_partition_segments", *one] == 1
    assert found["aggregator_schema_changes_total", *one] == 1
    assert found["aggregator_topic_bytes", one[1]] == found["aggregator_partition_bytes", *one] > 0
    assert found["aggregator_topic_unsealed_rows", one[1]] == 50
    assert 0 <= found["aggregator_seal_lag_seconds", one[1]] < 60
    assert found["aggregator_topic_oldest_seconds", one[1]] > 1e9
    route = ("route", "/topic/{topic}/partition/{partition}")
    assert found["aggregator_requests_total", ("method", "POST"), route, ("status", "200")] == 2
    assert found["aggregator_request_seconds_count", ("method", "POST"), route] == 2
    assert (
        found["aggregator_requests_total", ("method", "GET"), ("route", "/v1/topics/{topic}"), ("status", "404")] == 1
    )
    assert found["aggregator_open_requests",] == 1
    assert found["aggregator_open_requests_by_route", ("route", "/metrics")] == 1
    assert found["aggregator_log_bytes",] > 0
    assert found["aggregator_trouble",] == 0
    assert found["aggregator_arrow_bytes",] >= found["aggregator_unsealed_bytes",] > 0
    for reason in (*LOSSES, *CHANGES):
        name = "aggregator_refused_records_total" if reason in LOSSES else "aggregator_changed_records_total"
        assert found[name, ("reason", reason), ("source", "otlp")] == 0
    (build,) = (dict(key[1:]) for key in found if key[0] == "aggregator_build_info")
    assert (build["version"], build["python"]) == (__version__, platform.python_version())


def test_the_names_of_plateau(tmp_path):
    """If enabled, plateau's names appear next to the aggregator's, labelled as plateau's, with the same values."""
    settings = settings_of({"metrics.plateau": "true"})
    with served(tmp_path / "data", settings) as server, httpx.Client(base_url=server.url) as web:
        send(web, records(100))
        send(web, records(50, x=["y"] * 50))
        server.catalog.seal()
        found = figures(web)
    assert {key[0] for key in found} >= PLATEAU
    topic, partition, system = ("topic", "clicks"), ("partition", "web-1"), ("system", "plateau")
    assert found["slog_thread_records_written", system] == 150
    assert found["slog_roll", system] == found["aggregator_seals_total",] > 0
    assert found["topic_bytes", system, topic] == found["aggregator_topic_bytes", topic] > 0
    assert found["partition_schema_change", partition, system, topic] == 1
    for theirs, ours in (("bytes", "bytes"), ("segments", "segments")):
        assert (
            found[f"partition_size_{theirs}", partition, system, topic]
            == found[f"aggregator_partition_{ours}", partition, topic]
        )


ABBREVIATED = {
    "s", "sec", "secs", "ms", "us", "ns", "min", "h", "hr", "hrs", "d", "b", "kb", "mb", "gb", "tb", "kib", "mib",
}  # fmt: skip
NOT_BASE = {
    "milliseconds", "microseconds", "nanoseconds", "minutes", "hours", "days", "weeks", "bits", "kilobytes",
    "megabytes", "gigabytes", "percent",
}  # fmt: skip


def lint(page: str) -> list[str]:
    """What Prometheus's rules for names and types object to in a page, as in `promtool check metrics`."""
    told = []
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", page, re.MULTILINE))
    for name, kind in kinds.items():
        words = name.split("_")
        if not helps.get(name):
            told.append(f"{name}: no help")
        if kind not in ("gauge", "counter", "histogram", "summary"):
            told.append(f"{name}: no type")
        if (kind == "counter") != (words[-1] == "total"):
            told.append(f"{name}: counters, and nothing else, end in _total")
        if kind in ("gauge", "counter") and words[-1] in ("count", "sum", "bucket"):
            told.append(f"{name}: an ending of histograms")
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or {"gauge", "counter", "histogram", "summary"} & {*words}:
            told.append(f"{name}: written otherwise than names are")
        if {*words} & (ABBREVIATED | NOT_BASE):
            told.append(f"{name}: not in a base unit, written out")
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = {*sample.labels} & {"le", "quantile"}
            if labels and kinds.get(family.name) not in ("histogram", "summary"):
                told.append(f"{sample.name}: has the label {labels}")
            if sample.name not in kinds and kinds.get(family.name) not in ("histogram", "summary"):
                told.append(f"{sample.name}: is not announced")
    return told


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """All figures of a server that has done some of everything."""
    settings = Settings(syslog="127.0.0.1:0")
    with (
        served(tmp_path_factory.mktemp("data") / "d", settings) as server,
        httpx.Client(base_url=server.url, timeout=120) as web,
    ):
        send(web, records(10))
        server.catalog.query("CREATE PIPE one")
        web.post("/_bulk", content=b"{}", headers={"content-type": "application/x-ndjson"})
        server.context.appends.capacity = 0
        web.post("/topic/t/partition/p", content=b"", headers={"content-type": "application/vnd.apache.arrow.file"})
        return web.get("/metrics").text


def test_names_and_types(page):
    """Names and types follow Prometheus's rules, and all but the process's own have the aggregator's prefix."""
    assert lint(page) == []
    names = re.findall(r"^# TYPE (\S+)", page, re.MULTILINE)
    assert len(names) == len({*names}) > 40
    assert all(name.startswith(("aggregator_", "process_")) for name in names)


@pytest.mark.parametrize("line", [
    "# HELP a_total A.\n# TYPE a_total gauge\na_total 1", "# HELP a A.\n# TYPE a counter\na 1",
    "# TYPE a gauge\na 1", "# HELP a_ms A.\n# TYPE a_ms gauge\na_ms 1", "# HELP a A.\n# TYPE a untyped\na 1",
    "# HELP a_count A.\n# TYPE a_count gauge\na_count 1", "# HELP a_gauge A.\n# TYPE a_gauge gauge\na_gauge 1",
    "# HELP a A.\n# TYPE a gauge\na{le=\"1\"} 1", "# HELP aB A.\n# TYPE aB gauge\naB 1", "a 1",
    "# HELP a_minutes A.\n# TYPE a_minutes gauge\na_minutes 1",
])  # fmt: skip
def test_the_rules_are_rules(line):
    """Each kind of fault is found."""
    assert lint(f"{line}\n")


def test_promtool(page):
    """Prometheus's own promtool accepts the figures and alerts."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool")
    told = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, text=True, timeout=60)
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")
    told = subprocess.run([promtool, "check", "rules", RULES], capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stdout + told.stderr


def test_pipes_are_told(server, web, monkeypatch):
    """Each pipe has its progress and whether it fails; if there are many, those furthest behind."""
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


def test_refusals_are_counted(server, web, monkeypatch):
    """A request refused for lack of room counts for its route."""
    server.context.appends.capacity = 0
    monkeypatch.setattr(server.context.waiting_room, "_patience_s", 0.1)
    for _ in range(2):  # the second one before routing
        answer = web.post("/topic/t/partition/p", content=arrow_file(records(1)),
                          headers={"content-type": "application/vnd.apache.arrow.file"})  # fmt: skip
        assert answer.status_code == 429
    route = ("route", "/topic/{topic}/partition/{partition}")
    assert figures(web)["aggregator_requests_shed_total", route] == 2
    assert figures(web)["aggregator_open_requests_by_route", route] == 0


def test_only_the_largest_are_told(server, web, monkeypatch):
    """Thousands of topics do not become thousands of series each; the number left out is reported."""
    monkeypatch.setattr(module, "MAX_LABELLED", 2)
    for number in range(4):
        send(web, records(10 * (number + 1)), topic=f"t{number}")
    found = figures(web)
    assert {key[1][1] for key in found if key[0] == "aggregator_topic_bytes"} == {"t2", "t3"}
    assert found["aggregator_unlisted", ("kind", "topic")] == 2


def named_in(expression: str) -> set[str]:
    """The figures used in an expression."""
    return set(re.findall(r"\b(?:aggregator_|process_|up\b)\w*", expression))


@pytest.fixture(scope="module")
def known(page):
    """The names of all samples, with their labels."""
    found = {"up": {"job", "instance"}}
    found |= {name: {"instance"} for _, name, _, _ in module._of_follower(Following("http://a").lag(0))}
    stored = {key: {"segments": 0, "bytes": 0} for key in ("arrived", "waiting", "evicted", "leaving")}
    stored |= {"cache": {"bytes": 0, "hits": 0, "misses": 0}, "requests": {}, "shipping": None}
    for family in [*module._of_store(stored), *text_string_to_metric_families(page)]:
        for sample in family.samples:
            found.setdefault(sample.name, {"instance"}).update(sample.labels)
    return found


@pytest.mark.parametrize("panel", json.loads(DASHBOARD.read_text())["panels"], ids=lambda panel: panel["title"])
def test_dashboard(known, panel):
    """Every figure on the dashboard exists, and every panel shows one."""
    assert panel["type"] == "row" or panel["targets"]
    for target in panel.get("targets", ()):
        named = named_in(target["expr"])
        assert named, target["expr"]
        assert named <= known.keys(), named - known.keys()


ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_alerts(known, alert):
    """Every figure in an alert exists, with the labels that the alert and its text use."""
    named = named_in(alert["expr"])
    assert named
    assert named <= known.keys(), named - known.keys()
    labels = set.intersection(*(known[name] for name in named))
    used = set(re.findall(r"\$labels\.(\w+)", alert["annotations"]["summary"]))
    used.update(name for names in re.findall(r"by \(([^)]*)\)", alert["expr"]) for name in names.split(", "))
    used.update(re.findall(r"[{,](\w+)=", alert["expr"]))
    assert used <= labels, used - labels
    assert alert["labels"]["severity"] in ("critical", "warning")


def test_alerts_have_names_of_their_own():
    """Alert names are unique."""
    assert len({alert["alert"] for alert in ALERTS}) == len(ALERTS) > 10
