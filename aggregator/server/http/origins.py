"""Client addresses and hosts behind trusted proxies, and allowed browser origins.

A proxy reports in `X-Forwarded-For`, `X-Forwarded-Host` or `Forwarded` (RFC 7239) what the client sent it. Anybody can
send such headers, so only those from addresses in `http.trusted_proxies` are believed.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Headers = Sequence[tuple[bytes, bytes]]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
EXPOSED = "Aggregator-Position, Aggregator-Gone, Retry-After, X-Iteration-Status, X-Max-Request-Size"
"""Response headers that scripts of other origins may read."""
_PORTS = {"http": ":80", "https": ":443"}
_TCHAR = r"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_TOKENS = re.compile(rf"{_TCHAR}+(?:[ \t]*,[ \t]*{_TCHAR}+)*".encode())
_PAIR = re.compile(rf'(?<!{_TCHAR})({_TCHAR}++)=(?:"((?:[^"\\]|\\.|(?!))*+)"|([^;,\s"]*+))')
_MAX_HOPS = 100


@dataclass(frozen=True, slots=True)
class ClientAddress:
    """A client: its address, and the host names, in lower case, by which it may know this server."""

    address: str
    hosts: tuple[str, ...]


def client_of(peer: str, headers: Headers, trusted: Sequence[Network]) -> ClientAddress:
    """Return the client of a connection from `peer`, using what proxies report as far as they are trusted."""
    hosts = _values(headers, b"host")[:1]
    if not _is_one_of(peer, trusted):
        return ClientAddress(peer, tuple(hosts))
    forwarded = list(_forwarded(headers))
    addresses = _values(headers, b"x-forwarded-for") or [pair for name, pair in forwarded if name == "for"]
    hosts += _values(headers, b"x-forwarded-host") or [pair for name, pair in forwarded if name == "host"]
    address = peer
    for text in reversed(addresses[-_MAX_HOPS:]):
        found = _address(text)
        if found is None:
            break
        address = found
        if not _is_one_of(found, trusted):
            break
    return ClientAddress(address, tuple(host.lower() for host in hosts))


def is_same_origin(origin: str, hosts: Sequence[str]) -> bool:
    """Whether pages of that origin came from this server, because it names one of the hosts."""
    scheme, _, host = origin.lower().partition("://")
    port = _PORTS.get(scheme, "")
    return bool(host) and any(host.removesuffix(port) == known.lower().removesuffix(port) for known in hosts)


def origin_allowed(origin: bytes, allowed: Sequence[str]) -> bool:
    """Whether pages of another site's origin may send requests: it is one of `allowed`, or any is."""
    return "*" in allowed or origin.decode("latin-1").lower() in allowed


def cors_headers(origin: bytes | None, allowed: Sequence[str]) -> list[tuple[bytes, bytes]]:
    """Return headers that let a browser show the response to pages of that origin, if they may send requests."""
    vary = [(b"vary", b"Origin")] if allowed else []
    if origin is None or not origin_allowed(origin, allowed):
        return vary
    return [(b"access-control-allow-origin", origin), (b"access-control-expose-headers", EXPOSED.encode()), *vary]


def preflight_headers(headers: Headers, methods: Sequence[str]) -> list[tuple[bytes, bytes]]:
    """Return the headers that answer a CORS preflight: the allowed methods and the requested headers."""
    wanted = dict(headers).get(b"access-control-request-headers", b"").strip()
    allowed = [(b"access-control-allow-headers", wanted)] if _TOKENS.fullmatch(wanted) else []
    return [
        (b"access-control-allow-methods", ", ".join(methods).encode()),
        *allowed,
        (b"access-control-max-age", b"600"),
        (b"vary", b"Access-Control-Request-Method, Access-Control-Request-Headers"),
    ]


def _is_one_of(address: str, networks: Sequence[Network]) -> bool:
    if not networks:
        return False
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return any((mapped or found) in network for network in networks)


def _values(headers: Headers, name: bytes) -> list[str]:
    """Return the members of a header that is a list, over all its lines."""
    lines = [value.decode("latin-1") for known, value in headers if known == name]
    return [part.strip() for line in lines for part in line.split(",") if part.strip()]


def _forwarded(headers: Headers) -> Iterator[tuple[str, str]]:
    """Yield the names and values in `Forwarded`, in order."""
    for known, value in headers:
        if known == b"forwarded":
            for name, quoted, plain in _PAIR.findall(value.decode("latin-1")):
                yield name.lower(), re.sub(r"\\(.)", r"\1", quoted) or plain


def _address(text: str) -> str | None:
    """Return the client address that a proxy reports, without its port; None for anything else."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None
