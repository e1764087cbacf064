"""Settings have one name in files, environment and flags; unknown or invalid ones are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggregator import InvalidRequestError, Retention
from aggregator.server.config.settings import Settings
from aggregator.server.config.sources import (
    KEYS,
    default_files,
    gather,
    read_environment,
    read_file,
    read_pairs,
    settings_of,
)

PLATEAU_YAML = """
data_path: /var/lib/plateau
http:
  bind: 0.0.0.0:3030
  max_append_bytes: 10240000
  max_page: 5000
catalog:
  checkpoint_interval: 500ms
  retain: 100GiB
partition:
  retain: {max_bytes: 1GiB, max_segment_count: 100, max_age: 7d}
  roll: {max_bytes: 10MiB, max_rows: 100000, max_duration: 1m}
"""
PLATEAU_TOML = """
data_path = "/var/lib/plateau"
[http]
bind = "0.0.0.0:3030"
max_append_bytes = 10_240_000
max_page = 5000
[catalog]
checkpoint_interval = "500ms"
retain.max_bytes = "100GiB"
[partition]
retain = { max_bytes = "1GiB", max_segment_count = 100, max_age = "7d" }
roll = { max_bytes = "10MiB", max_rows = 100000, max_duration = "1m" }
"""


@pytest.mark.parametrize(("name", "text"), [("plateau.yaml", PLATEAU_YAML), ("plateau.toml", PLATEAU_TOML)])
def test_plateaus_files(tmp_path, name, text):
    """Files of plateau, in both formats, are found in place and mean the same here."""
    (tmp_path / name).write_text(text)
    assert default_files(tmp_path) == [tmp_path / name]
    settings = settings_of(read_file(tmp_path / name))
    assert settings.data_path == Path("/var/lib/plateau")
    assert (settings.http.bind, settings.http.max_append_bytes, settings.http.max_page) == (
        "0.0.0.0:3030", 10_240_000, 5000,
    )  # fmt: skip
    assert settings.catalog.checkpoint_interval_s == 0.5
    assert settings.catalog.limits.max_bytes == 100 << 30
    assert settings.retention == Retention(partition_bytes=1 << 30, age_us=7 * 86_400_000_000, partition_segments=100)
    assert settings.roll.to_json() == {
        "rows": 100_000, "bytes": 10 << 20, "age_us": 60_000_000, "frame_bytes": None,
    }  # fmt: skip


def test_sources():
    """Environment and flags use the same names; without any, the defaults apply."""
    environment = {
        "PLATEAU__HTTP__BIND": "a:1",
        "AGGREGATOR__http__max_page": "7",
        "AGGREGATOR_TOKEN": "x",
        "HOME": "/",
    }
    assert read_environment(environment) == {"http.bind": "a:1", "http.max_page": "7"}
    values = read_environment(environment) | read_pairs(["http.max_page=8", "log.requests=yes", "http.stall=5s"])
    settings = settings_of(values)
    assert (settings.http.max_page, settings.log.requests, settings.http.stall_s) == (8, True, 5.0)
    assert settings_of({}) == Settings()


def test_gather(tmp_path):
    """Flags override --set, which overrides the environment, which overrides the file."""
    (tmp_path / "aggregator.toml").write_text(
        "syslog = 'a:1'\n[http]\nmax_page = 1\nstall = 1\ndrain = 1\nbind = 'a:1'"
    )
    settings = gather(
        None, tmp_path, {"PLATEAU__http__max_page": "2", "AGGREGATOR__http__stall": "2", "PLATEAU__http__bind": "b:2"},
        ["http.stall=3", "http.bind=c:3"], {"http.bind": "d:4", "syslog": None},
    )  # fmt: skip
    http = settings.http
    assert (http.drain_s, http.max_page, http.stall_s, http.bind, settings.syslog) == (1, 2, 3, "d:4", "a:1")


WRONG = {
    "http.max_pages": "1", "http": "x", "http.max_page": "0", "http.stall": "soon", "log.level": "loud",
    "log.requests": "maybe", "catalog.durability": "perhaps", "partition.roll.max_rows": "-1", "tls.key": "key.pem",
    "http.max_append_bytes": "many", "tls.client_ca": "ca.pem", "data_path": "",
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name):
    """An unknown key is an error that names the nearest key; a value of the wrong type is an error, too."""
    with pytest.raises(InvalidRequestError) as refused:
        settings_of(read_pairs([f"{name}={WRONG[name]}"]))
    if name == "http.max_pages":
        assert "http.max_page" in str(refused.value.hint)


@pytest.mark.parametrize("text", ["[", "- a", "a: [", "x: " + "y" * 2_000_000])
def test_files_that_are_refused(tmp_path, text):
    """A file that cannot be read is named in the error."""
    path = tmp_path / "plateau.yaml"
    path.write_text(text)
    with pytest.raises(InvalidRequestError, match=r"plateau\.yaml"):
        read_file(path)


def test_every_key_has_a_place():
    """Every key sets its field."""
    samples = {"log.level": "error", "log.format": "json", "catalog.durability": "none",
               "catalog.checkpoint_interval": "2s", "catalog.sealing": "thread",
               "catalog.file_mode": "0640", "http.cors_origins": "https://a.example",
               "http.trusted_proxies": "10.0.0.0/8"}  # fmt: skip
    values = {name: samples.get(name, "1") for name in KEYS} | {"http.public": "true", "log.requests": "true"}
    settings = settings_of(values)
    assert settings.http.stall_s == settings.http.keep_alive_s == settings.http.drain_s == 1
    assert (settings.tokens, settings.syslog, settings.tls.client_ca) == (Path("1"), "1", Path("1"))
    parts = (settings.http, settings.work, settings.tls, settings.log, settings.catalog)
    assert all(getattr(part, f) != getattr(type(part)(), f) for part in parts for f in part.__dataclass_fields__)
