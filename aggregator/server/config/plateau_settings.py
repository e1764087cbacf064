"""plateau's configuration: every name that it knows, its default, and its meaning here.

Values from plateau's files and environment get plateau's defaults, so that a server started in plateau's place behaves
as plateau did. `docs/from-plateau.md` explains this to its users.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aggregator import InvalidRequestError

Values = dict[str, Any]
STEMS = ("plateau", "replication")
"""Names of plateau's files without the extension."""
_ENDINGS = ("yaml", "yml", "toml")
_COUNT = "partition.retain.max_segment_count"
_DURATION = "partition.roll.max_duration"
_LONG = "1d"


@dataclass(frozen=True, slots=True)
class Name:
    """A name in plateau's configuration.

    default: plateau's; None: it has none. key: our name; None: it has no effect, for the reason `why`. implied: the
    default also applies here.
    """

    default: Any
    key: str | None = None
    why: str = ""
    implied: bool = True


_QUEUE = "the write-ahead log replaces the queue in front of plateau's writer"
_REPLICATION = "this server starts no replication: let plateau's replication, or a script, read from it"
_CHECKS = "free space is checked before every append"

NAMES: Mapping[str, Name] = {
    "data_path": Name("./data", "data_path"),
    "http.bind": Name("0.0.0.0:3030", "http.bind"),
    "http.max_append_bytes": Name(10_240_000, "http.max_append_bytes"),
    "http.max_page.max_records": Name(10_000, "http.max_page"),
    "http.max_page.max_bytes": Name(10_240_000, "http.max_page_bytes"),
    "catalog.checkpoint_interval": Name("1s", "catalog.checkpoint_interval"),
    "catalog.retain.max_bytes": Name("99GiB", "catalog.retain.max_bytes"),
    "catalog.retain.max_segment_count": Name(10_000, why="plateau itself ignores it"),
    "catalog.max_open_topics": Name(128, why="unused topics cost almost nothing here"),
    "catalog.max_partition_bytes": Name("3500MiB", why="catalog.memory_bytes limits unsealed events in memory"),
    "catalog.partition.retain.max_bytes": Name("1GiB", "partition.retain.max_bytes"),
    # the default is out of reach: 10,000 segments of 100,000 rows exceed 1 GiB. A count prevents merging
    "catalog.partition.retain.max_segment_count": Name(10_000, _COUNT, implied=False),
    "catalog.partition.roll.max_bytes": Name("100MiB", "partition.roll.max_bytes"),
    "catalog.partition.roll.max_rows": Name(100_000, "partition.roll.max_rows"),
    "catalog.partition.roll.max_duration": Name(None, _DURATION),
    "catalog.partition.slog.write_queue_timeout": Name("100ms", why=_QUEUE),
    "catalog.partition.slog.write_queue_size": Name(1, why=_QUEUE),
    "catalog.partition.slog.chunk_limits.max_bytes": Name("1MiB", why=_QUEUE),
    "catalog.partition.slog.chunk_limits.max_rows": Name(1000, why=_QUEUE),
    "catalog.partition.slog.chunk_limits.max_duration": Name(None, why=_QUEUE),
    "catalog.partition.slog.segment.durable_checkpoints": Name(True, why="see catalog.durability"),
    "catalog.partition.slog.segment.arrow": Name(True, why="segments have another format here"),
    "catalog.storage.monitor": Name(True, "catalog.storage.monitor"),
    "catalog.storage.min_available": Name("1GB", "catalog.storage.min_available"),
    "catalog.storage.max_writes": Name(10_000, why=_CHECKS),
    "catalog.storage.max_duration": Name("10s", why=_CHECKS),
    "metrics.prometheus": Name("0.0.0.0:9000", "metrics.prometheus"),
    "replication.period": Name(None, why=_REPLICATION),
    "replication.replicate.config.parallel": Name(8, why=_REPLICATION),
    "replication.replicate.hosts": Name(None, why=_REPLICATION),
    "replication.replicate.topics": Name(None, why=_REPLICATION),
    "replication.replicate.partitions": Name(None, why=_REPLICATION),
    "replication.backoff.min": Name(None, why=_REPLICATION),
    "replication.backoff.scale": Name(None, why=_REPLICATION),
    "replication.backoff.jitter": Name(None, why=_REPLICATION),
    "replication.backoff.max": Name(None, why=_REPLICATION),
}


def is_plateaus(path: Path) -> bool:
    """Whether a file is one of plateau's, by its name."""
    return path.stem in STEMS


def files(directory: Path, system: Path) -> list[Path]:
    """Return plateau's files that exist; later ones take precedence. system: `/etc`."""
    candidates = (place / f"{stem}.{ending}" for stem in STEMS for ending in _ENDINGS for place in (system, directory))
    return [path for path in candidates if path.is_file()]


def with_defaults(values: Values) -> Values:
    """Return values by our keys, completed with plateau's defaults."""
    defaults = {
        name.key: name.default
        for name in NAMES.values()
        if name.key is not None and name.implied and name.default is not None
    }
    defaults |= {"metrics.plateau": True, "http.public": True}
    if values.get(_COUNT) is not None:  # else small segments reach the count, and are removed too early
        defaults[_DURATION] = _LONG
    return defaults | values


def with_durations(values: Values) -> Values:
    """Replace durations written as `secs` and `nanos` by text. Raises InvalidRequestError."""
    found = dict(values)
    for name in [name for name in values if name.endswith((".secs", ".nanos"))]:
        whole = name.rpartition(".")[0]
        parts = [str(found.pop(f"{whole}.{part}", values.get(f"{whole}.{part}", 0))) for part in ("secs", "nanos")]
        if not all(part.isdecimal() for part in parts) or len(parts[1]) > 9:
            raise InvalidRequestError(f"{whole}.secs and .nanos must be whole numbers from 0", hint="such as 60 and 0")
        found[whole] = f"{parts[0]}.{parts[1]:>09}s"
    return found


def without_effect(name: str) -> str:
    """Return why a name has no effect here, for the server's log."""
    return f"{name} ({NAMES[name].why})" if name in NAMES else f"{name} (unknown)"
