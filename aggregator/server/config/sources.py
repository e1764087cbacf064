"""Settings from files, the environment and flags; a key has the same name in all of them.

A key is dotted, such as `http.max_page`: tables of a TOML or YAML file, `AGGREGATOR__http__max_page` in the environment
(also plateau's `PLATEAU__http__max_page`), `--set http.max_page=500` on the command line. Precedence, lowest first:
file, environment, flags. An unknown key is refused, except in plateau's own files and environment, where the server
logs that it ignores the key. plateau's names are accepted everywhere; see `plateau_settings`.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any

from aggregator import Durability, InvalidRequestError, KeepLocal, Limits, Retention, Roll
from aggregator.policy import checked_duration, checked_size
from aggregator.server.config import plateau_settings
from aggregator.server.config.settings import Follow, Http, Logs, Otlp, Settings, Store, Tls, Work
from aggregator.storage.files.modes import parse_mode

FILE = "aggregator.toml"
"""Read from the working directory if no file is named. If it does not exist, plateau's files are read."""
_PLATEAU = "PLATEAU__"
PREFIXES = (_PLATEAU, "AGGREGATOR__")
_SYSTEM = Path("/etc")
MAX_FILE_BYTES = 1 << 20

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Key:
    """A key: its parser and its purpose. field: of `Settings`, where its value is stored; "": of the key's own name."""

    parse: Callable[[Any, str], Any]
    help: str
    field: str = ""


def _text(given: Any, name: str) -> str:
    if not isinstance(given, str) or not given:
        raise InvalidRequestError(f"{name} must be text, not {given!r}")
    return given


def _path(given: Any, name: str) -> Path:
    return Path(_text(given, name))


def _whole(given: Any, name: str) -> int:
    text = str(given).replace("_", "")
    if isinstance(given, bool) or not text.isdecimal() or int(text) < 1:
        raise InvalidRequestError(f"{name} must be a whole number from 1, not {given!r}")
    return int(text)


def _flag(given: Any, name: str) -> bool:
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    found = known.get(str(given).lower())
    if found is None:
        raise InvalidRequestError(f"{name} must be true or false, not {given!r}")
    return found


def _size(given: Any, name: str) -> int:
    return checked_size(int(given) if isinstance(given, str) and given.isdecimal() else given, name)


def _seconds(given: Any, name: str) -> float:
    if not isinstance(given, bool) and str(given).replace(".", "", 1).isdecimal():  # seconds if there is no unit
        given = f"{given}s"
    return checked_duration(given, name) / 1_000_000


def _age(given: Any, name: str) -> int:
    return round(_seconds(given, name) * 1_000_000)


def _members(given: Any, name: str) -> list[str]:
    """Return the members of a list, which may also be text separated by commas."""
    members = given.split(",") if isinstance(given, str) else given
    if not isinstance(members, list) or not all(isinstance(member, str) for member in members):
        raise InvalidRequestError(f"{name} must be a list of texts, not {given!r}")
    return [member.strip() for member in members if member.strip()]


def _origins(given: Any, name: str) -> tuple[str, ...]:
    found = tuple(member.lower().removesuffix("/") for member in _members(given, name))
    for origin in found:
        if origin != "*" and not re.fullmatch(r"https?://[^/\s]+", origin):
            raise InvalidRequestError(
                f"{name}: invalid origin {origin!r}", hint="such as https://grafana.example.org, or *"
            )
    return found


def _networks(given: Any, name: str) -> tuple[IPv4Network | IPv6Network, ...]:
    try:
        return tuple(ip_network(member) for member in _members(given, name))
    except ValueError as error:
        raise InvalidRequestError(f"{name}: {error}", hint="such as 10.0.0.0/8 or 192.0.2.7") from None


def _choice(*known: str) -> Callable[[Any, str], str]:
    def parse(given: Any, name: str) -> str:
        if given not in known:
            raise InvalidRequestError(f"{name} must be one of {', '.join(known)}, not {given!r}")
        return str(given)

    return parse


def _names(given: Any, name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_members(given, name)))


def _mode(given: Any, name: str) -> int:
    try:
        return parse_mode(given)
    except InvalidRequestError as error:
        raise InvalidRequestError(error.message.replace("file_mode", name, 1), hint=error.hint) from None


def _durability(given: Any, name: str) -> str:
    Durability.of(given)
    return str(given)


KEYS: Mapping[str, Key] = {
    "data_path": Key(_path, "directory of the catalog"),
    "http.bind": Key(_text, "host:port to listen on"),
    "http.public": Key(_flag, "listen on public addresses without requiring tokens"),
    "http.max_append_bytes": Key(_size, "largest request body, as sent and as decompressed"),
    "http.max_page": Key(_whole, "largest page of plateau's routes, in records"),
    "http.max_page_bytes": Key(_size, "largest page of plateau's routes, in bytes"),
    "http.max_header_bytes": Key(_size, "largest total size of a request's headers"),
    "http.max_connections": Key(_whole, "connections at the same time; more are refused"),
    "http.stall": Key(
        _seconds, "time limit for a client to send headers or the next piece of a body, or to read on", "http.stall_s"
    ),
    "http.keep_alive": Key(_seconds, "how long an idle connection stays open", "http.keep_alive_s"),
    "http.drain": Key(_seconds, "time for open requests when the server stops", "http.drain_s"),
    "http.cors_origins": Key(_origins, "origins whose pages may use the server in a browser; * is any"),
    "http.trusted_proxies": Key(_networks, "addresses and networks of proxies that may name the client"),
    "work.append_threads": Key(_whole, "appends at the same time"),
    "work.read_threads": Key(_whole, "reads at the same time"),
    "work.waiting": Key(_whole, "how many appends, and how many reads, may wait for a thread"),
    "work.patience": Key(_seconds, "about how long they may wait for a thread", "work.patience_s"),
    "work.append_patience": Key(
        _seconds, "how long an append without room waits before it is refused", "work.append_patience_s"
    ),
    "work.slow_reads": Key(_whole, "separate places for slow reads"),
    "work.query_time": Key(_seconds, "time that a read may take for the next piece of its answer", "work.query_s"),
    "work.query_memory": Key(_size, "memory that a read may use to sort and to group", "work.query_bytes"),
    "work.body_bytes": Key(_size, "limit on all request bodies in memory"),
    "tls.certificate": Key(_path, "certificate chain of the server, PEM"),
    "tls.key": Key(_path, "private key of the certificate, PEM"),
    "tls.client_ca": Key(_path, "authorities, PEM; clients need a certificate from one of them"),
    "tokens": Key(_path, "file of the bearer tokens; default: tokens.json in data_path"),
    "log.level": Key(_choice("debug", "info", "warning", "error"), "lowest level that is logged"),
    "log.format": Key(_choice("text", "json"), "one JSON object per line, or text"),
    "log.requests": Key(_flag, "log a line for each request"),
    "catalog.durability": Key(_durability, "fsync, interval, interval:200ms, none or store"),
    "catalog.store": Key(_text, "address of the catalog's object store, such as s3://bucket/prefix"),
    "catalog.ship_interval": Key(_seconds, "how often the log is shipped to the store", "catalog.ship_interval_s"),
    "catalog.lease": Key(_seconds, "how long nobody else may take over the catalog", "catalog.lease_s"),
    "catalog.standby": Key(_flag, "follow the store, and take over when its writer is gone"),
    "catalog.sealing": Key(_choice("process", "thread"), "where segments are written: a separate process, or a thread"),
    "catalog.file_mode": Key(_mode, "mode of the catalog's files, in octal: 0640 lets a group read"),
    "catalog.memory_bytes": Key(_size, "limit on unsealed events in memory", "limits.memory_bytes"),
    "catalog.log_bytes": Key(_size, "limit on the write-ahead log on disk", "limits.log_bytes"),
    "catalog.retain.max_bytes": Key(
        _size, "limit on everything on disk; beyond it the oldest events are removed", "limits.max_bytes"
    ),
    "catalog.min_free_bytes": Key(
        _size, "free space on the disk; with less, the oldest events are removed", "limits.min_free_bytes"
    ),
    "catalog.disk_bytes": Key(
        _size, "hard limit on everything on disk; appends beyond it are refused", "limits.disk_bytes"
    ),
    "catalog.storage.min_available": Key(
        _size, "free space on the disk; with less, appends are refused", "limits.min_available_bytes"
    ),
    "catalog.storage.monitor": Key(_flag, "false turns catalog.storage.min_available off", "catalog.storage_monitor"),
    "catalog.keep_local.bytes": Key(_size, "bytes of sealed segments that stay on the disk", "keep_local.bytes"),
    "catalog.keep_local.age": Key(_age, "age of the events whose segments stay on the disk", "keep_local.age_us"),
    "catalog.store_cache": Key(_size, "disk cache for reads from the store"),
    "catalog.checkpoint_interval": Key(_seconds, "interval of health checks", "catalog.checkpoint_interval_s"),
    "partition.retain.max_bytes": Key(
        _size, "what a partition keeps, for topics that an append creates: bytes", "retention.partition_bytes"
    ),
    "partition.retain.max_segment_count": Key(_whole, "the same: segments", "retention.partition_segments"),
    "partition.retain.max_age": Key(_age, "the same: age", "retention.age_us"),
    "partition.roll.max_bytes": Key(_size, "when events of such topics are sealed into a segment: bytes", "roll.bytes"),
    "partition.roll.max_rows": Key(_whole, "the same: rows", "roll.rows"),
    "partition.roll.max_duration": Key(_age, "the same: age", "roll.age_us"),
    "otlp.grpc": Key(_text, "host:port for OTLP over gRPC"),
    "otlp.tags": Key(_names, "attributes of a resource that become tags of its stream"),
    "follow.url": Key(_text, "address of the server whose catalog this one follows"),
    "follow.token_file": Key(_path, "file with the access token of that server"),
    "follow.ca": Key(_path, "authorities, PEM, to trust for it instead of the system's"),
    "syslog": Key(_text, "host:port for syslog over TCP and UDP"),
    "syslog_tls": Key(_text, "host:port for syslog over TLS, with tls.certificate and tls.key"),
    "syslog_buffer": Key(_size, "kernel's receive buffer for datagrams", "syslog_buffer_bytes"),
    "metrics.prometheus": Key(_text, "host:port of a second listener, for /metrics only", "metrics_bind"),
    "metrics.plateau": Key(_flag, "also export plateau's metrics in /metrics", "plateau_metrics"),
}
_ALIASES = {
    "catalog.retain": "catalog.retain.max_bytes",
    **{name: known.key for name, known in plateau_settings.NAMES.items() if known.key is not None},
}


def read_file(path: Path) -> Values:
    """Read the keys of a TOML or YAML file, chosen by its extension. Raises InvalidRequestError, OSError."""
    if path.stat().st_size > MAX_FILE_BYTES:
        raise InvalidRequestError(f"the file has more than {MAX_FILE_BYTES:,} bytes", path=str(path))
    text = path.read_text("utf-8")
    try:
        found = _parse_yaml(text) if path.suffix in (".yaml", ".yml") else tomllib.loads(text)
    except ValueError as error:
        raise InvalidRequestError(f"the file cannot be read: {' '.join(str(error).split())}", path=str(path)) from None
    if not isinstance(found, dict | None):
        raise InvalidRequestError("the file has no settings", path=str(path))
    return _known(_flat(found or {}, ""), str(path), plateaus=plateau_settings.is_plateaus(path))


def _parse_yaml(text: str) -> Any:
    """Raises ValueError."""
    import yaml  # here: slow to import

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def default_files(directory: Path) -> list[Path]:
    """Return the files that are read if none is named: our own, or else plateau's in `directory` and `/etc`."""
    own = directory / FILE
    return [own] if own.is_file() else plateau_settings.files(directory, _SYSTEM)


def read_environment(environment: Mapping[str, str]) -> Values:
    """Read the keys of the environment. Raises InvalidRequestError."""
    found: Values = {}
    for prefix in PREFIXES:
        names = {
            name[len(prefix) :].replace("__", ".").lower(): name
            for name in sorted(environment)
            if name.upper().startswith(prefix)
        }
        values = {key: environment[name] for key, name in names.items()}
        found |= _known(values, f"environment {prefix}…", plateaus=prefix == _PLATEAU)
    return found


def read_pairs(pairs: Iterable[str]) -> Values:
    """Parse keys from flags of the form `key=value`. Raises InvalidRequestError."""
    found: Values = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign:
            raise InvalidRequestError(f"invalid setting {pair!r}: expected key=value")
        setting = _known({name: value}, "--set")
        if not found.keys().isdisjoint(setting):
            raise InvalidRequestError(f"--set has two values for {name!r}; give one")
        found |= setting
    return found


def gather(
    file: Path | None, directory: Path, environment: Mapping[str, str], pairs: Iterable[str], flags: Mapping[str, Any]
) -> Settings:
    """Return settings from all sources: files, environment, `pairs` from --set, and flags that are not None.

    file: read instead of the files in `directory`. Raises InvalidRequestError, OSError.
    """
    found = default_files(directory) if file is None else [file]
    values: Values = {}
    for each in found:
        values |= read_file(each)
    values |= read_environment(environment) | read_pairs(pairs)
    values |= {name: value for name, value in flags.items() if value is not None}
    as_plateau = any(map(plateau_settings.is_plateaus, found)) if found else _has_plateaus(environment)
    settings = settings_of(plateau_settings.with_defaults(values) if as_plateau else values)
    return replace(settings, as_plateau=as_plateau)


def _has_plateaus(environment: Mapping[str, str]) -> bool:
    return any(name.upper().startswith(_PLATEAU) for name in environment)


def settings_of(values: Values) -> Settings:
    """Return settings with these keys and defaults for all others. Raises InvalidRequestError."""
    parts: dict[str, dict[str, Any]] = {}
    ignored = tuple(plateau_settings.without_effect(name) for name in values if name not in KEYS)
    for name, given in values.items():
        if name in KEYS and given is not None:
            key = KEYS[name]
            part, _, field = (key.field or name).rpartition(".")
            parts.setdefault(part, {})[field] = key.parse(given, name)
    if not parts.get("catalog", {}).pop("storage_monitor", True):
        parts.get("limits", {}).pop("min_available_bytes", None)
    if "keep_local" in parts:
        parts.setdefault("catalog", {})["keep_local"] = KeepLocal(**parts["keep_local"])
    catalog = Store(limits=Limits(**parts.get("limits", {})), **parts.get("catalog", {}))
    settings = Settings(
        http=Http(**parts.get("http", {})),
        work=Work(**parts.get("work", {})),
        tls=Tls(**parts.get("tls", {})),
        log=Logs(**parts.get("log", {})),
        otlp=Otlp(**parts.get("otlp", {})),
        catalog=catalog,
        ignored=ignored,
        follow=Follow(**parts.get("follow", {})),
        **parts.get("", {}),
    )
    if "roll" in parts:
        settings = replace(settings, roll=Roll(**parts["roll"]))
    if "retention" in parts:
        settings = replace(settings, retention=Retention(**parts["retention"]))
    if (settings.tls.certificate is None) != (settings.tls.key is None):
        raise InvalidRequestError("tls.certificate and tls.key must be set together")
    if settings.tls.client_ca is not None and settings.tls.certificate is None:
        raise InvalidRequestError("tls.client_ca needs tls.certificate and tls.key")
    if settings.syslog_tls is not None and settings.tls.certificate is None:
        raise InvalidRequestError("syslog_tls needs a certificate", hint="set tls.certificate and tls.key")
    return settings


def _flat(found: Mapping[Any, Any], prefix: str) -> Values:
    """Return the values by dotted names. None is kept: in plateau's files it removes a default."""
    flat: Values = {}
    for name, value in found.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def _known(values: Values, where: str, *, plateaus: bool = False) -> Values:
    """Return the values by our keys; plateau's names without effect keep their own.

    plateaus: ignore unknown names, as plateau does in its own files and environment.
    """
    known: Values = {}
    for given, value in plateau_settings.with_durations(values).items():
        name = _ALIASES.get(given, given)
        if name not in KEYS and name not in plateau_settings.NAMES and not plateaus:
            close = difflib.get_close_matches(given, [*KEYS, *_ALIASES], 1, 0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"the settings are {', '.join(KEYS)}"
            raise InvalidRequestError(f"{where}: unknown setting {given!r}", hint=hint)
        known[name] = value
    return known
