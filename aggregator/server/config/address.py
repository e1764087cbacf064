"""Addresses to listen on, in the form host:port."""

from __future__ import annotations

import ipaddress

from aggregator import InvalidRequestError


def split_address(bind: str) -> tuple[str, int]:
    """Split "host:port". Raises InvalidRequestError."""
    host, _, port = bind.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise InvalidRequestError(f"invalid address {bind!r}", hint="expected host:port, such as 127.0.0.1:3030")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
