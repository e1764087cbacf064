"""plateau's configuration: every name has its effect or is logged as ignored; plateau's defaults apply if its files or
environment are read.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from effort import long
from served import Spawned, served

from aggregator import InvalidRequestError, Retention, Roll
from aggregator.server import Settings
from aggregator.server.config.plateau_settings import NAMES
from aggregator.server.config.sources import default_files, gather, read_pairs, settings_of
from tests.aggregator.server.plateau.test_plateau import ARROW, arrow_file, records

DEFAULTS = """
data_path = "./data"
[http]
bind = "0.0.0.0:3030"
max_append_bytes = 10240000
[http.max_page]
max_records = 10000
max_bytes = 10240000
[catalog]
checkpoint_interval = "1s"
max_open_topics = 128
max_partition_bytes = "3500MiB"
[catalog.retain]
max_segment_count = 10000
max_bytes = "99GiB"
[catalog.partition.retain]
max_segment_count = 10000
max_bytes = "1GiB"
[catalog.partition.roll]
max_bytes = "100MiB"
max_rows = 100000
[catalog.partition.slog]
write_queue_timeout = "100ms"
write_queue_size = 1
[catalog.partition.slog.chunk_limits]
max_bytes = "1MiB"
max_rows = 1000
[catalog.partition.slog.segment]
durable_checkpoints = true
arrow = true
[catalog.storage]
monitor = true
max_writes = 10000
max_duration = "10s"
min_available = "1GB"
[metrics]
prometheus = "0.0.0.0:9000"
"""
"""plateau 0.5.5's own configuration, printed on starting without one; sizes as in its source."""
WITHOUT_DEFAULT = {
    "catalog.partition.roll.max_duration", "catalog.partition.slog.chunk_limits.max_duration", "replication.period",
    "replication.replicate.hosts", "replication.replicate.topics", "replication.replicate.partitions",
    "replication.backoff.min", "replication.backoff.scale", "replication.backoff.jitter", "replication.backoff.max",
}  # fmt: skip
BY_ITSELF = {"replication.replicate.config.parallel": 8}
"""Defaults within a section that is absent by default."""
EFFECTS = {
    "data_path": ("x", lambda s: s.data_path, Path("x")),
    "http.bind": ("127.0.0.1:1", lambda s: s.http.bind, "127.0.0.1:1"),
    "http.max_append_bytes": ("77", lambda s: s.http.max_append_bytes, 77),
    "http.max_page.max_records": ("7", lambda s: s.http.max_page, 7),
    "http.max_page.max_bytes": ("70", lambda s: s.http.max_page_bytes, 70),
    "catalog.checkpoint_interval": ("1s 500ms", lambda s: s.catalog.checkpoint_interval_s, 1.5),
    "catalog.retain.max_bytes": ("5 GB", lambda s: s.catalog.limits.max_bytes, 5 * 10**9),
    "catalog.partition.retain.max_bytes": ("5MiB", lambda s: s.retention.partition_bytes, 5 << 20),
    "catalog.partition.retain.max_segment_count": ("5", lambda s: s.retention.partition_segments, 5),
    "catalog.partition.roll.max_bytes": ("5MB", lambda s: s.roll.bytes, 5_000_000),
    "catalog.partition.roll.max_rows": ("5", lambda s: s.roll.rows, 5),
    "catalog.partition.roll.max_duration": ("1m 1s", lambda s: s.roll.age_us, 61_000_000),
    "catalog.storage.min_available": ("1.5 GB", lambda s: s.catalog.limits.min_available_bytes, 1_500_000_000),
    "catalog.storage.monitor": ("false", lambda s: s.catalog.limits.min_available_bytes, None),
    "metrics.prometheus": ("127.0.0.1:2", lambda s: s.metrics_bind, "127.0.0.1:2"),
}


def flat(found, prefix=""):
    values = {}
    for name, value in found.items():
        values |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return values


@pytest.fixture
def as_plateau(tmp_path, monkeypatch):
    """Read settings from a `plateau.yaml` with this text, an environment, and --set pairs."""
    monkeypatch.setattr("aggregator.server.config.sources._SYSTEM", tmp_path / "etc")

    def read(text="", environment=None, pairs=(), name="plateau.yaml"):
        (tmp_path / name).write_text(text)
        return gather(None, tmp_path, environment or {}, pairs, {})

    return read


def test_every_name_is_listed():
    """All names and defaults of plateau are listed."""
    defaults = flat(tomllib.loads(DEFAULTS)) | BY_ITSELF
    assert {name: known.default for name, known in NAMES.items() if known.default is not None} == defaults
    assert {name for name, known in NAMES.items() if known.default is None} == WITHOUT_DEFAULT


@pytest.mark.parametrize("name", NAMES)
def test_every_name(name, as_plateau):
    """Each name has its effect wherever it is written, or is reported as ignored with a reason."""
    if name in EFFECTS:
        given, place, value = EFFECTS[name]
        variable = "PLATEAU__" + name.upper().replace(".", "__")
        for settings in (as_plateau(environment={variable: given}), as_plateau(pairs=[f"{name}={given}"])):
            assert (place(settings), settings.ignored) == (value, ())
        assert place(as_plateau()) != value
    else:
        (told,) = as_plateau(environment={"PLATEAU__" + name.replace(".", "__"): "1"}).ignored
        assert told == f"{name} ({NAMES[name].why})"


def test_defaults(as_plateau):
    """An empty plateau file gives plateau's defaults."""
    found = as_plateau()
    http, limits = found.http, found.catalog.limits
    assert (found.data_path, http.bind, http.public) == (Path("data"), "0.0.0.0:3030", True)
    assert (http.max_append_bytes, http.max_page, http.max_page_bytes) == (10_240_000, 10_000, 10_240_000)
    assert (limits.max_bytes, limits.min_available_bytes) == (99 << 30, 10**9)
    assert found.retention == Retention(partition_bytes=1 << 30)
    assert found.roll == Roll(rows=100_000, bytes=100 << 20)
    assert (found.metrics_bind, found.plateau_metrics, found.as_plateau) == ("0.0.0.0:9000", True, True)


def test_defaults_written_down(as_plateau):
    """A file with every default can be read, and ignored names in it are reported."""
    found = as_plateau(DEFAULTS, name="plateau.toml")
    ignored = {name for name, known in NAMES.items() if known.key is None and known.default is not None}
    assert {told.partition(" ")[0] for told in found.ignored} == ignored - set(BY_ITSELF)
    assert found.retention.partition_segments == 10_000
    assert found.roll.age_us == 86_400_000_000  # with a segment limit, not sealed every few minutes


def test_what_takes_a_default_away(as_plateau):
    """A null removes a limit or listener; durations may be {secs, nanos}; unknown names are ignored, as in plateau."""
    found = as_plateau("""
        catalog:
          partition:
            retain: {max_segment_count: null}
            roll: {max_duration: {secs: 60, nanos: 500000000}}
        metrics: {prometheus: null}
        something: {else: 1}
        replication: {period: 1s, replicate: {hosts: [{id: a, url: http://b}], topics: [], partitions: []}}
    """)
    assert (found.retention.partition_segments, found.metrics_bind, found.roll.age_us) == (None, None, 60_500_000)
    assert "something.else (unknown)" in found.ignored
    assert sum(told.startswith("replication.") for told in found.ignored) == 4
    assert as_plateau(environment={"PLATEAU__A__B": "1"}).ignored == ("a.b (unknown)",)


def test_where_they_are_read(tmp_path, monkeypatch):
    """The files of plateau are read in its order, each system file before the local one, or aggregator.toml alone."""
    system, here = tmp_path / "etc", tmp_path / "here"
    monkeypatch.setattr("aggregator.server.config.sources._SYSTEM", system)
    names = ["plateau.yaml", "plateau.toml", "replication.yaml", "replication.toml"]
    for directory in (system, here):
        directory.mkdir()
        for name in names:
            (directory / name).write_text("")
    assert default_files(here) == [place / name for name in names for place in (system, here)]
    (here / "aggregator.toml").write_text("")
    assert default_files(here) == [here / "aggregator.toml"]


def test_environment_alone(tmp_path, monkeypatch):
    """If only the environment configures plateau, its defaults apply; next to an aggregator.toml they do not."""
    monkeypatch.setattr("aggregator.server.config.sources._SYSTEM", tmp_path / "etc")
    environment = {"PLATEAU__data_path": "/d"}
    assert gather(None, tmp_path, environment, (), {}).retention == Retention(partition_bytes=1 << 30)
    assert gather(None, tmp_path, {}, (), {}) == Settings()
    (tmp_path / "aggregator.toml").write_text("")
    assert gather(None, tmp_path, environment, (), {}) == replace(Settings(), data_path=Path("/d"))


@pytest.mark.parametrize(("name", "given"), [
    ("metrics.prometheus", ""), ("catalog.retain.max_bytes", "1 XB"), ("catalog.storage.monitor", "maybe"),
    ("catalog.checkpoint_interval", "1s 2"), ("catalog.partition.roll.max_duration.secs", "-1"),
])  # fmt: skip
def test_values_that_are_refused(as_plateau, name, given):
    """A value of the wrong type is an error, as in plateau."""
    with pytest.raises(InvalidRequestError, match=name.removesuffix(".secs")):
        as_plateau(environment={"PLATEAU__" + name.replace(".", "__"): given})


def test_names_in_other_places():
    """--set also accepts plateau's names; unknown names are errors there."""
    assert settings_of(read_pairs(["catalog.partition.retain.max_bytes=1MiB"])).retention.partition_bytes == 1 << 20
    with pytest.raises(InvalidRequestError, match=r"unknown setting 'catalog\.partitions'"):
        read_pairs(["catalog.partitions=1"])


def test_figures_on_their_own_address(tmp_path):
    """The metrics address serves figures at any path and nothing else."""
    with served(tmp_path, Settings(metrics_bind="127.0.0.1:0", plateau_metrics=True)) as server:
        httpx.put(f"{server.url}/v1/topics/t", json={}).raise_for_status()
        for path in ("/metrics", "/", "/topics"):
            answer = httpx.get(f"{server.metrics_url}{path}")
            assert (answer.status_code, 'topic_bytes{system="plateau",topic="t"}' in answer.text) == (200, True)
        assert httpx.post(f"{server.metrics_url}/topic/t/partition/p", content=b"x").status_code == 405
        assert httpx.get(f"{server.url}/topics").json() == {"topics": [{"name": "t"}]}


@long
def test_serve_with_a_file_of_plateaus(tmp_path, monkeypatch):
    """A server starts with a plateau file and logs the ignored names once."""
    (tmp_path / "plateau.yaml").write_text("""
        data_path: served
        metrics: {prometheus: "127.0.0.1:0"}
        catalog: {max_open_topics: 7, storage: {min_available: 1B}}
    """)
    monkeypatch.chdir(tmp_path)
    server = Spawned(tmp_path / "served")
    try:
        assert httpx.get(f"{server.url}/ok").json() == {"ok": "true"}
        assert httpx.get(f"http://{server.told[-1]['metrics']}/").status_code == 200
    finally:
        assert server.stop() == 0
    told = [line["message"] for line in server.told if "ignored settings" in line["message"]]
    assert told == [f"ignored settings: catalog.max_open_topics ({NAMES['catalog.max_open_topics'].why})"]


@pytest.mark.parametrize("as_plateau", [True, False])
def test_topics_take_what_the_file_says_now(tmp_path, as_plateau):
    """A configuration of plateau applies to its existing topics, too; the aggregator's own only to new topics."""
    old, new = Retention(partition_bytes=1 << 30), Retention(partition_bytes=2 << 30)
    with served(tmp_path / "c", Settings(roll=Roll(rows=1000), retention=old)) as server:
        sent = {"content": arrow_file(records(3)), "headers": {"content-type": ARROW}}
        assert httpx.post(f"{server.url}/topic/t/partition/p", **sent).status_code == 200
        server.catalog.create_topic("ours", retention=old)
        rolled = server.catalog.topic("t").roll
    with served(tmp_path / "c", Settings(roll=Roll(rows=50), retention=new, as_plateau=as_plateau)) as server:
        topic = server.catalog.topic("t")
        assert topic.retention == (new if as_plateau else old)
        assert topic.roll == (replace(rolled, rows=50) if as_plateau else rolled)
        assert server.catalog.topic("ours").retention == old
