"""Sockets for syslog: how to open them, the size of the datagram buffer, and what the kernel dropped."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

_TABLES = (Path("/proc/net/udp"), Path("/proc/net/udp6"))
_INODE, _DROPS = 9, 12  # columns of these tables
_READ_BYTES = 1 << 16


@dataclass(slots=True)
class Datagrams:
    """State of a running datagram listener.

    buffer_bytes: size of its socket's receive buffer. kernel_drops: datagrams that the kernel dropped because the
    buffer was full, as far as it reports them.
    """

    buffer_bytes: int | None = None
    kernel_drops: int = 0


def bound_socket(host: str, port: int, kind: socket.SocketKind, option: int, value: int) -> socket.socket:
    """Return a non-blocking socket bound to an address, with one option set. At `::` it takes IPv4 as well. Raises
    OSError.
    """
    family, _, _, _, address = socket.getaddrinfo(host, port, type=kind)[0]
    made = socket.socket(family, kind)
    try:
        made.setsockopt(socket.SOL_SOCKET, option, value)
        made.bind(address)
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made


def given_bytes(made: socket.socket) -> int:
    """Return the size of a socket's receive buffer. Linux doubles the requested size for its own overhead."""
    given = made.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    return given // 2 if os.uname().sysname == "Linux" else given


def kernel_drops(made: socket.socket) -> int | None:
    """Return how many datagrams for a socket the kernel has dropped so far; None if the kernel does not report it."""
    inode = str(os.fstat(made.fileno()).st_ino)
    for table in _TABLES:
        try:
            lines = table.read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            columns = line.split()
            if len(columns) > _DROPS and columns[_INODE] == inode:
                return int(columns[_DROPS])
    return None


def drain(made: socket.socket, most: int) -> list[tuple[bytes, str]]:
    """Return up to `most` datagrams that the kernel still buffers, each with its sender's address."""
    found: list[tuple[bytes, str]] = []
    while len(found) < most:
        try:
            data, address = made.recvfrom(_READ_BYTES)
        except OSError:  # there are no more
            break
        found.append((data, address[0]))
    return found
