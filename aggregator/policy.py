"""Settings of a catalog and its topics: durability, roll, retention, limits. Frozen values, checked on creation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

from aggregator.errors import InvalidRequestError
from esformat.parts import LEAST_FRAME_BYTES, MOST_FRAME_BYTES, parse_duration, parse_size


def checked_size(given: Any, what: str) -> int:
    """Parse a size setting into bytes. Raises InvalidRequestError."""
    return _checked(parse_size, given, what)


def checked_duration(given: Any, what: str) -> int:
    """Parse a duration setting into microseconds. Raises InvalidRequestError."""
    return _checked(parse_duration, given, what)


def _checked(parse: Callable[[Any], int], given: Any, what: str) -> int:
    try:
        return parse(given)
    except ValueError as error:
        raise InvalidRequestError(f"{what}: {error}") from None


@dataclass(frozen=True, slots=True)
class Durability:
    """What an acknowledged append survives.

    store: loss of the machine, if the catalog has a store. fsync: a power cut. interval: a crash of the process; a
    power cut loses at most the last `interval_us`. none: a crash of the process; a power cut loses whatever the kernel
    had not written yet.
    """

    mode: str = "fsync"
    interval_us: int = 1_000_000

    @classmethod
    def of(cls, given: str | Durability) -> Durability:
        """From "store", "fsync", "interval", "none", or "interval:200ms". Raises InvalidRequestError."""
        if isinstance(given, cls):
            return given
        mode, _, length = given.partition(":") if isinstance(given, str) else ("", "", "")
        if mode not in ("store", "fsync", "interval", "none") or (length and mode != "interval"):
            raise InvalidRequestError(f'durability must be "store", "fsync", "interval" or "none", not {given!r}')
        return cls(mode, checked_duration(length, "interval")) if length else cls(mode)

    @property
    def is_synced(self) -> bool:
        """Whether acknowledged appends are on disk."""
        return self.mode in ("store", "fsync")


@dataclass(frozen=True, slots=True)
class _Policy:
    """A policy, with conversions from what users write and to what the manifest stores."""

    @classmethod
    def of(cls, given: Any, before: Self | None = None) -> Self:
        """From an instance, a mapping, or None for the defaults. Raises InvalidRequestError.

        before: limits that a mapping does not name stay as they are here. None: they get their defaults.
        """
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
                    f"{cls.__name__.lower()} has no setting {name!r}",
                    hint=f"known settings: {', '.join(k.removesuffix('_us') for k in known)}",
                )
            if value is None or place == "topics" or (place == name and type(value) is int):
                checked[place] = value
            else:
                checked[place] = (checked_duration if place.endswith("_us") else checked_size)(value, name)
        return cls(**checked) if before is None else replace(before, **checked)

    def to_json(self) -> dict[str, Any]:
        """The form stored in the manifest."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class Roll(_Policy):
    """When the unsealed events of a partition are sealed into a segment: when rows, bytes or age reaches its limit.

    frame_bytes: about how many bytes of payload are compressed together: few for lookups of single events, many for
    searches through all events. None: 4 KiB, or 64 KiB for records of streams. Topics created by plateau's routes have
    64 KiB.
    """

    rows: int = 500_000
    bytes: int = 64 << 20
    age_us: int = 300_000_000
    frame_bytes: int | None = None

    def __post_init__(self) -> None:
        if any(limit is None or limit < 1 for limit in (self.rows, self.bytes, self.age_us)):
            raise InvalidRequestError(
                "roll limits must be at least 1", hint="the defaults are 500,000 rows, 64 MiB and 300 s"
            )
        if self.frame_bytes is not None and not LEAST_FRAME_BYTES <= self.frame_bytes <= MOST_FRAME_BYTES:
            raise InvalidRequestError(f"frame_bytes must be between {LEAST_FRAME_BYTES} and {MOST_FRAME_BYTES}")


@dataclass(frozen=True, slots=True)
class Retention(_Policy):
    """What a topic keeps; None means no limit. The oldest segments are removed soon after a limit is passed. Appends
    are never refused because of these limits.

    bytes, segments: total size and number of the topic's segments. age_us: age by an event's timestamp.
    partition_bytes, partition_segments: the same for each of its partitions.
    """

    bytes: int | None = None
    age_us: int | None = None
    segments: int | None = None
    partition_bytes: int | None = None
    partition_segments: int | None = None

    def __post_init__(self) -> None:
        if min(getattr(self, each.name) or 0 for each in fields(self)) < 0:
            raise InvalidRequestError("retention limits must not be negative")

    @property
    def counts_segments(self) -> bool:
        """Whether it limits the number of segments."""
        return self.segments is not None or self.partition_segments is not None


@dataclass(frozen=True, slots=True)
class Limits(_Policy):
    """Budgets of a catalog; None means no limit.

    memory_bytes: size of unsealed events. log_bytes: size of the log's files. Appends that would exceed either are
        refused.
    max_bytes: size of everything on disk, at least 1 MiB: the oldest segments are removed soon after it is passed.
    min_free_bytes: space to leave free on the disk: if less is free, the oldest segments are removed; if less than half
        of it is free, appends are refused.
    disk_bytes: size of everything on disk, more than max_bytes: appends that could exceed it are refused; nothing is
        removed.
    min_available_bytes: if less is free on the disk, appends are refused; nothing is removed.

    In a catalog with a store, max_bytes and min_free_bytes only remove files that the store also has, and no events.
    """

    memory_bytes: int = 256 << 20
    log_bytes: int = 2 << 30
    max_bytes: int | None = None
    min_free_bytes: int | None = None
    disk_bytes: int | None = None
    min_available_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class KeepLocal(_Policy):
    """Which sealed segments stay on the disk in a catalog with a store: those within both limits.

    bytes: total size of the segments that stay, the newest. age_us: segments with events of this last period stay. None
    means no limit: with neither, all stay.
    topics: topics with limits of their own, by name. Their segments and the others' are counted separately.
    """

    bytes: int | None = None
    age_us: int | None = None
    topics: Mapping[str, KeepLocal] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if min(self.bytes or 0, self.age_us or 0) < 0:
            raise InvalidRequestError("limits of keep_local must not be negative")
        if not isinstance(self.topics, Mapping):
            raise InvalidRequestError(f"topics of keep_local must map names to limits, not {self.topics!r}")
        topics = {name: KeepLocal.of(given) for name, given in self.topics.items()}
        if any(own.topics for own in topics.values()):
            raise InvalidRequestError("a topic of keep_local cannot have topics itself")
        object.__setattr__(self, "topics", topics)  # frozen

    def to_json(self) -> dict[str, Any]:
        """The form stored in the manifest."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Shipping(_Policy):
    """How the log and the manifest of a catalog are uploaded to its store.

    interval_us: time between uploads of acknowledged events. lease_us: how long after a renewal nobody else may write
    to the catalog; it is renewed in time. If the store does not answer until the lease ends, the writer refuses appends
    and another may take over. history_us: how long the store can restore earlier states; erased events stay there as
    long.
    """

    interval_us: int = 1_000_000
    lease_us: int = 10_000_000
    history_us: int = 3600_000_000

    def __post_init__(self) -> None:
        if self.interval_us < 10_000:
            raise InvalidRequestError("ship_interval must be at least 10 ms")
        if self.lease_us < 500_000:
            raise InvalidRequestError("lease must be at least 500 ms")


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where a catalog keeps its segments besides the disk. address: such as s3://bucket/prefix.

    cache_bytes: disk space for data read from segments that only the store has. shipping: how the log is uploaded.
    """

    address: str
    keep_local: KeepLocal = KeepLocal()
    cache_bytes: int = 1 << 30
    shipping: Shipping = Shipping()

    def __post_init__(self) -> None:
        if not isinstance(self.cache_bytes, int) or isinstance(self.cache_bytes, bool) or self.cache_bytes < 0:
            raise InvalidRequestError(f"cache_bytes must be a whole number from 0, not {self.cache_bytes!r}")

    def to_json(self) -> dict[str, Any]:
        """The form stored in the manifest."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """From the result of `to_json`. Raises KeyError, TypeError, ValueError."""
        if not isinstance(stored["address"], str):
            raise TypeError("an address must be text")
        shipping = Shipping(**stored.get("shipping", {}))
        return cls(stored["address"], KeepLocal(**stored["keep_local"]), stored["cache_bytes"], shipping)


@dataclass(frozen=True, slots=True)
class Tuning:
    """Sizes and pauses of an open catalog. The defaults suit everybody; only tests change them.

    log_file_bytes: size at which a new log file begins: log space is freed a file at a time.
    sealed_bytes: about how many bytes are sealed at a time: sealing takes about three times as much memory.
    fan_in: number of neighbouring segments of a level that merge into one of the next: a history then spans at most
        fan_in - 1 segments of each level.
    tick_s: how long a change of the clock or of a policy may go unnoticed.
    seal_back_off_s: first and longest pause before a partition that could not be sealed is tried again; the pause
        doubles each time. The longest is no more than the longest retry delay of refused appends.
        pipe_back_off_s: the same for pipes.
    pipe_slice_rows: maximum rows in a batch of copies. pipe_round_records: a round of a pipe takes segments of a
        partition until it has this many records.
    """

    log_file_bytes: int = 64 << 20
    sealed_bytes: int = 96 << 20
    fan_in: int = 8
    tick_s: float = 1.0
    seal_back_off_s: tuple[float, float] = (0.5, 5.0)
    pipe_back_off_s: tuple[float, float] = (0.5, 30.0)
    pipe_slice_rows: int = 1 << 14
    pipe_round_records: int = 1 << 22
