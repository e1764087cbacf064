"""`Settings`: what a server is told to do. Frozen values with safe defaults; reading them from files is elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Http:
    """How HTTP is spoken.

    bind: host and port, port 0 takes a free one. max_append_bytes: of a request body, as sent and as decompressed.
    max_page: records of one page of plateau's routes. stall_s: what a client may take for its headers, for the next
    piece of its body, or to read the next piece of an answer. drain_s: what open requests get when the server stops.
    """

    bind: str = "127.0.0.1:3030"
    max_append_bytes: int = 10_240_000
    max_page: int = 10_000
    max_header_bytes: int = 65_536
    stall_s: float = 20.0
    keep_alive_s: float = 75.0
    drain_s: float = 20.0


@dataclass(frozen=True, slots=True)
class Work:
    """How much is done at once; what comes on top is refused with 429.

    append_threads, read_threads: threads for each kind of catalog call. waiting: calls of each kind that may wait.
    """

    append_threads: int = 8
    read_threads: int = 4
    waiting: int = 32


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that a server can be told."""

    http: Http = field(default_factory=Http)
    work: Work = field(default_factory=Work)
