"""`Settings`: how a server is configured. Frozen values with safe defaults; reading them from files is elsewhere."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

from aggregator import InvalidRequestError, KeepLocal, Limits, Retention, Roll


@dataclass(frozen=True, slots=True)
class Http:
    """Settings of HTTP.

    bind: host and port, port 0 takes a free one. public: may listen on other than loopback addresses without tokens
    or client certificates. max_append_bytes: of a request body. max_page, max_page_bytes: of one page of plateau's
    routes. max_connections: more are refused. stall_s: what a client may take for its headers, for the next piece of
    its body, or to read on. keep_alive_s: how long an idle connection stays. drain_s: what open requests get at the
    end. cors_origins: of pages that browsers may ask from, besides this server's own; "*": any. trusted_proxies:
    networks whose word is taken for a client's address, and for the host that it asked.
    """

    bind: str = "127.0.0.1:3030"
    public: bool = False
    max_append_bytes: int = 20 << 20
    max_page: int = 10_000
    max_page_bytes: int = 10_240_000
    max_header_bytes: int = 65_536
    max_connections: int = 4000
    stall_s: float = 20.0
    keep_alive_s: float = 75.0
    drain_s: float = 20.0
    cors_origins: tuple[str, ...] = ()
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """How much is done at once; more is refused with 429.

    append_threads, read_threads: threads for each kind of catalog call; more reads at once than processors only get in
    each other's way. waiting: calls of each kind that may wait, and
    patience_s: for about how long, by what calls took of late.
    append_patience_s: how long an append waits before its body is read, where there is no room for it.
    body_bytes: of all request bodies that are being received or stored.
    slow_reads: reads that take longer than a moment have so many places of their own, so that quick ones go on.
    query_s: what a read may take for an answer, or for the next piece of one that is streamed; waiting does not count.
    query_bytes: what it may hold in memory to sort and to group.
    """

    append_threads: int = field(default_factory=lambda: max(4, 2 * (os.cpu_count() or 1)))
    read_threads: int = field(default_factory=lambda: max(2, os.cpu_count() or 1))
    waiting: int = 250
    patience_s: float = 0.25
    append_patience_s: float = 5.0
    body_bytes: int = 256 << 20
    slow_reads: int = field(default_factory=lambda: max(2, (os.cpu_count() or 1) // 2))
    query_s: float = 60.0
    query_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of the server's certificate and key, and of the authorities whose client certificates are asked for."""

    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None

    def context(self) -> ssl.SSLContext:
        """For a server that speaks TLS. Raises OSError for files that cannot be used, InvalidRequestError."""
        if self.certificate is None:
            raise InvalidRequestError("TLS needs a certificate", hint="give tls.certificate and tls.key")
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        made.load_cert_chain(self.certificate, self.key)
        if self.client_ca is not None:
            made.load_verify_locations(self.client_ca)
            made.verify_mode = ssl.CERT_REQUIRED
        return made


OTLP_TAGS = (
    "service.name", "service.namespace", "deployment.environment", "deployment.environment.name", "cloud.region",
    "cloud.availability_zone", "k8s.cluster.name", "k8s.namespace.name", "k8s.deployment.name", "k8s.statefulset.name",
    "k8s.daemonset.name", "k8s.cronjob.name", "k8s.container.name", "container.name",
)  # fmt: skip
"""Attributes of a resource that are tags of a stream by default: what names a service and where it runs. What names one
process, pod or host, such as service.instance.id, is none: each restart would begin a stream.
"""


@dataclass(frozen=True, slots=True)
class Otlp:
    """Settings of OTLP.

    tags: attributes of a resource that name its stream; the others are fields of each record. grpc: host:port to take
    it on over gRPC, with the server's tokens, certificate and limits.
    """

    tags: tuple[str, ...] = OTLP_TAGS
    grpc: str | None = None


@dataclass(frozen=True, slots=True)
class Logs:
    """level: "debug", "info", "warning" or "error". format: "text" or "json". requests: a line for each request."""

    level: str = "info"
    format: str = "text"
    requests: bool = False


@dataclass(frozen=True, slots=True)
class Store:
    """How the catalog is opened. checkpoint_interval_s: how often its health is looked at; see `/ok`.

    durability, sealing, limits, file_mode, store, keep_local, store_cache, ship_interval_s, lease_s: as of
    `aggregator.open`. standby: follow the store first, and open the catalog when its writer is gone.
    """

    durability: str = "fsync"
    sealing: str = "process"
    file_mode: int | None = None
    limits: Limits = field(default_factory=Limits)
    checkpoint_interval_s: float = 1.0
    store: str | None = None
    keep_local: KeepLocal | None = None
    store_cache: int | None = None
    ship_interval_s: float | None = None
    lease_s: float | None = None
    standby: bool = False


@dataclass(frozen=True, slots=True)
class Follow:
    """url: of the server whose catalog is followed; None: of none, the catalog is this server's own. token_file: holds
    its access token. ca: what certifies it, beside what the system trusts.
    """

    url: str | None = None
    token_file: Path | None = None
    ca: Path | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a server.

    tokens: the file of bearer tokens; None: `tokens.json` beside the data, if it is there. roll, retention: of topics
    that an append makes. syslog: host:port to listen on for syslog messages, TCP and UDP; syslog_tls: the same over
    TLS, with the server's certificate. syslog_buffer_bytes: what the kernel is asked to hold of datagrams.
    plateau_metrics: `/metrics` has plateau's figures as well, under plateau's names. metrics_bind: host:port where
    they are given as well, and nothing else. as_plateau: with plateau's defaults. ignored: what was given and has no
    effect, for the log.
    """

    data_path: Path | None = None
    http: Http = field(default_factory=Http)
    work: Work = field(default_factory=Work)
    tls: Tls = field(default_factory=Tls)
    log: Logs = field(default_factory=Logs)
    catalog: Store = field(default_factory=Store)
    otlp: Otlp = field(default_factory=Otlp)
    follow: Follow = field(default_factory=Follow)
    tokens: Path | None = None
    roll: Roll | None = None
    retention: Retention | None = None
    syslog: str | None = None
    syslog_tls: str | None = None
    syslog_buffer_bytes: int = 8 << 20
    plateau_metrics: bool = False
    metrics_bind: str | None = None
    as_plateau: bool = False
    ignored: tuple[str, ...] = ()
