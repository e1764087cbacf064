"""Settings of a catalog and its topics: durability, roll, retention, limits. Frozen values, checked when made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from aggregator.errors import InvalidRequestError
from esformat.parts import LEAST_FRAME_BYTES, MOST_FRAME_BYTES, parse_duration, parse_size


def checked_size(given: Any, what: str) -> int:
    """The bytes that a setting gives. Raises InvalidRequestError."""
    return _checked(parse_size, given, what)


def checked_duration(given: Any, what: str) -> int:
    """The microseconds that a setting gives. Raises InvalidRequestError."""
    return _checked(parse_duration, given, what)


def _checked(parse: Callable[[Any], int], given: Any, what: str) -> int:
    try:
        return parse(given)
    except ValueError as error:
        raise InvalidRequestError(f"{what}: {error}") from None


@dataclass(frozen=True, slots=True)
class Durability:
    """What an acknowledged append survives.

    store: the loss of the machine, of a catalog with a store. fsync: a power cut. interval: a crash of the process; a
    power cut costs at most the last `interval_us`. none: a crash of the process; a power cut costs what the kernel had
    not written yet.
    """

    mode: str = "fsync"
    interval_us: int = 1_000_000

    @classmethod
    def of(cls, given: str | Durability) -> Durability:
        """From "fsync", "interval", "none", or "interval:200ms". Raises InvalidRequestError."""
        if isinstance(given, cls):
            return given
        mode, _, length = given.partition(":") if isinstance(given, str) else ("", "", "")
        if mode not in ("store", "fsync", "interval", "none") or (length and mode != "interval"):
            raise InvalidRequestError(f'durability must be "store", "fsync", "interval" or "none", not {given!r}')
        return cls(mode, checked_duration(length, "interval")) if length else cls(mode)

    @property
    def is_synced(self) -> bool:
        """Whether what is acknowledged is on disk."""
        return self.mode in ("store", "fsync")


@dataclass(frozen=True, slots=True)
class _Policy:
    """A policy as users write it and as the manifest keeps it."""

    @classmethod
    def of(cls, given: Any) -> Self:
        """From one of its kind, a mapping, or None for the defaults. Raises InvalidRequestError."""
        if given is None:
            return cls()
        if isinstance(given, cls):
            return given
        if not isinstance(given, dict):
            raise InvalidRequestError(f"{cls.__name__.lower()} must be a mapping, not {type(given).__name__}")
        known = [f.name for f in fields(cls)]
        checked = {}
        for name, value in given.items():
            place = next((k for k in known if k in (name, f"{name}_us")), None)
            if place is None:
                raise InvalidRequestError(
                    f"{cls.__name__.lower()} has no {name!r}",
                    hint=f"it has {', '.join(k.removesuffix('_us') for k in known)}",
                )
            if value is None or place == "topics" or (place == name and isinstance(value, int)):
                checked[place] = value
            else:
                checked[place] = (checked_duration if place.endswith("_us") else checked_size)(value, name)
        return cls(**checked)

    def to_json(self) -> dict[str, Any]:
        """As the manifest keeps it."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class Roll(_Policy):
    """When the unsealed events of a partition become a segment: at whichever of rows, bytes and age comes first.

    frame_bytes: how many bytes of their payloads are compressed together, about: few for lookups of single events, many
    for searches through all of them. None: 4 KiB, or 64 KiB where they are records of streams. Topics that plateau's
    routes make have 64 KiB.
    """

    rows: int = 500_000
    bytes: int = 64 << 20
    age_us: int = 300_000_000
    frame_bytes: int | None = None

    def __post_init__(self) -> None:
        if any(limit is None or limit < 1 for limit in (self.rows, self.bytes, self.age_us)):
            raise InvalidRequestError("roll limits are at least 1", hint="leave out those that the defaults are for")
        if self.frame_bytes is not None and not LEAST_FRAME_BYTES <= self.frame_bytes <= MOST_FRAME_BYTES:
            raise InvalidRequestError(f"frame_bytes must lie between {LEAST_FRAME_BYTES} and {MOST_FRAME_BYTES}")


@dataclass(frozen=True, slots=True)
class Retention(_Policy):
    """What a topic keeps: None is no limit. The oldest segments go, soon after a limit is passed; appends are never
    refused because of one.

    bytes, segments: of its segments, and how many. age_us: by an event's timestamp.
    partition_bytes, partition_segments: the same of each of its partitions.
    """

    bytes: int | None = None
    age_us: int | None = None
    segments: int | None = None
    partition_bytes: int | None = None
    partition_segments: int | None = None

    def __post_init__(self) -> None:
        if min(getattr(self, each.name) or 0 for each in fields(self)) < 0:
            raise InvalidRequestError("retention limits are not negative")

    @property
    def counts_segments(self) -> bool:
        """Whether it limits how many segments there are."""
        return self.segments is not None or self.partition_segments is not None


@dataclass(frozen=True, slots=True)
class Limits(_Policy):
    """Budgets of a catalog; None is no limit.

    memory_bytes: of unsealed events. log_bytes: of the log's files. Appends that these have no room for are refused.
    max_bytes: of everything on disk, at least 1 MiB: the oldest segments go soon after it is passed.
    min_free_bytes: what is left free on the disk: the oldest segments go where there is less, and appends are refused
        where there is less than half of it.
    disk_bytes: of everything on disk, more than max_bytes: nothing is removed, appends that could pass it are refused.
    min_available_bytes: appends are refused where less is free on the disk; nothing is removed for it.

    Of a catalog with a store, max_bytes and min_free_bytes remove files that lie there as well, and no events.
    """

    memory_bytes: int = 256 << 20
    log_bytes: int = 2 << 30
    max_bytes: int | None = None
    min_free_bytes: int | None = None
    disk_bytes: int | None = None
    min_available_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class KeepLocal(_Policy):
    """Which sealed segments stay on the disk, of a catalog whose segments lie in a store as well: the newest, in all so
    many bytes; those with events of the last `age_us`. None is no limit: with neither, all stay.

    topics: by name those that have limits of their own instead, in which the others' segments do not count.
    """

    bytes: int | None = None
    age_us: int | None = None
    topics: Mapping[str, KeepLocal] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if min(self.bytes or 0, self.age_us or 0) < 0:
            raise InvalidRequestError("limits of keep_local are not negative")
        if not isinstance(self.topics, Mapping):
            raise InvalidRequestError(f"topics of keep_local have limits by name, not {self.topics!r}")
        topics = {name: KeepLocal.of(given) for name, given in self.topics.items()}
        if any(own.topics for own in topics.values()):
            raise InvalidRequestError("a topic of keep_local has no topics")
        object.__setattr__(self, "topics", topics)  # frozen

    def to_json(self) -> dict[str, Any]:
        """As the manifest keeps it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Shipping(_Policy):
    """How the log and the manifest of a catalog go to its store.

    interval_us: so often, what was acknowledged since. lease_us: for so long nobody else may write to the catalog; it
    is renewed in time. A writer that the store does not answer takes nothing more in when it is over, and another may
    take over then. history_us: for so long the store knows how it was before; what was erased stays there as long.
    """

    interval_us: int = 1_000_000
    lease_us: int = 10_000_000
    history_us: int = 3600_000_000

    def __post_init__(self) -> None:
        if self.interval_us < 10_000:
            raise InvalidRequestError("ship_interval is at least 10 ms")
        if self.lease_us < 500_000:
            raise InvalidRequestError("a lease is at least 500 ms long")


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where a catalog keeps its segments besides the disk. address: such as s3://bucket/prefix.

    cache_bytes: of the disk, for what is read of segments that are only there. shipping: how the log goes there.
    """

    address: str
    keep_local: KeepLocal = KeepLocal()
    cache_bytes: int = 1 << 30
    shipping: Shipping = Shipping()

    def __post_init__(self) -> None:
        if not isinstance(self.cache_bytes, int) or isinstance(self.cache_bytes, bool) or self.cache_bytes < 0:
            raise InvalidRequestError(f"cache_bytes must be a whole number from 0, not {self.cache_bytes!r}")

    def to_json(self) -> dict[str, Any]:
        """As the manifest keeps it."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """From what `to_json` gave. Raises KeyError, TypeError, ValueError."""
        if not isinstance(stored["address"], str):
            raise TypeError("an address is text")
        shipping = Shipping(**stored.get("shipping", {}))
        return cls(stored["address"], KeepLocal(**stored["keep_local"]), stored["cache_bytes"], shipping)


@dataclass(frozen=True, slots=True)
class Tuning:
    """Sizes and pauses of a catalog at work that are right for everybody; tests take others.

    log_file_bytes: a log file of this size is followed by a new one: space comes back in such pieces.
    sealed_bytes: about so many are sealed at once: sealing takes about three times as much memory.
    fan_in: so many neighbours of a level merge into one of the next: a history then lies in at most one fewer of each.
    tick_s: how long a change of the clock or of a policy may go unnoticed.
    seal_back_off_s: how long a partition that could not be sealed is left alone, twice as long each time, and at most:
        no longer than an append that is refused meanwhile is told to wait. pipe_back_off_s: the same for pipes.
    pipe_slice_rows: a batch of copies has at most so many. pipe_round_records: a round of a pipe takes segments of a
        partition until it has so many.
    """

    log_file_bytes: int = 64 << 20
    sealed_bytes: int = 96 << 20
    fan_in: int = 8
    tick_s: float = 1.0
    seal_back_off_s: tuple[float, float] = (0.5, 5.0)
    pipe_back_off_s: tuple[float, float] = (0.5, 30.0)
    pipe_slice_rows: int = 1 << 14
    pipe_round_records: int = 1 << 22
