"""`Settings`: the configuration of a server. Frozen values with safe defaults; `sources` reads them from files."""

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

    bind: host and port; port 0 takes a free one.
    public: allow listening on other than loopback addresses without tokens or client certificates.
    max_append_bytes: size limit of a request body.
    max_page, max_page_bytes: size limits of one page of plateau's routes.
    max_header_bytes: size limit of the headers.
    max_connections: further connections are refused.
    stall_s: time that a client has for its headers, for the next piece of its body, or to continue reading.
    keep_alive_s: how long an idle connection stays open.
    drain_s: time that open requests get when the server stops.
    cors_origins: origins, besides this server's own, whose pages may send requests from a browser; "*": any.
    trusted_proxies: networks that are trusted to report a client's address and the host that it requested.
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
    """Limits of concurrent work; requests over a limit are refused with 429.

    append_threads, read_threads: threads for each kind of catalog call. More concurrent reads than processors only slow
        each other down.
    waiting: calls of each kind that may wait.
    patience_s: about how long they may wait, estimated from recent calls.
    append_patience_s: how long an append waits for room before its body is read.
    body_bytes: limit on all request bodies that are being received or stored.
    slow_reads: separate places for reads that take long, so that short ones can proceed.
    query_s: time limit for a read, or for the next piece of a streamed response, without waiting times.
    query_bytes: memory that a read may use to sort and to group.
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
    """The server's certificate and key, and the authorities that client certificates must come from, as files."""

    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Return a TLS context for a server. Raises OSError for unusable files, InvalidRequestError."""
        if self.certificate is None:
            raise InvalidRequestError("TLS needs a certificate", hint="set tls.certificate and tls.key")
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
"""Attributes of a resource that are tags of a stream by default: those that name a service and where it runs.

Attributes that name one process, pod or host, such as service.instance.id, are not among them: each restart would begin
a stream."""


@dataclass(frozen=True, slots=True)
class Otlp:
    """Settings of OTLP.

    tags: attributes of a resource that name its stream; the others become fields of each record. grpc: host:port for
    OTLP over gRPC, with the server's tokens, certificate and limits.
    """

    tags: tuple[str, ...] = OTLP_TAGS
    grpc: str | None = None


@dataclass(frozen=True, slots=True)
class Logs:
    """Settings of the log.

    level: "debug", "info", "warning" or "error". format: "text" or "json". requests: log a line for each request.
    """

    level: str = "info"
    format: str = "text"
    requests: bool = False


@dataclass(frozen=True, slots=True)
class Store:
    """How the catalog is opened.

    checkpoint_interval_s: interval of the health checks; see `/ok`.
    durability, sealing, limits, file_mode, store, keep_local, store_cache, ship_interval_s, lease_s: as in
        `aggregator.open`.
    standby: follow the store first, and open the catalog for writing once its writer is gone.
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
    """Which server to follow.

    url: of the server whose catalog is followed; None: none, the catalog is this server's own. token_file: contains its
    access token. ca: certificate authorities to trust instead of the system's.
    """

    url: str | None = None
    token_file: Path | None = None
    ca: Path | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a server.

    tokens: the file of bearer tokens; None: `tokens.json` in the catalog's directory, if it exists.
    roll, retention: defaults for topics that an append creates.
    syslog: host:port for syslog messages over TCP and UDP.
    syslog_tls: host:port for syslog over TLS, with the server's certificate.
    syslog_buffer_bytes: receive buffer for datagrams that the kernel is asked for.
    plateau_metrics: also export plateau's metrics, under plateau's names, in `/metrics`.
    metrics_bind: host:port of a second listener that serves only metrics.
    as_plateau: plateau's defaults apply.
    ignored: settings without effect, for the log.
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
