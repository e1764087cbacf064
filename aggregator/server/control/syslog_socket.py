"""The sockets that syslog comes to; of datagrams the buffer, and what was dropped before and behind it."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

_TABLES = (Path("/proc/net/udp"), Path("/proc/net/udp6"))
_INODE, _DROPS = 9, 12  # columns of these
_READ_BYTES = 1 << 16


@dataclass(slots=True)
class Datagrams:
    """Of a running listener: how large the buffer of its socket is, and how many datagrams the kernel dropped, as far
    as it tells, because the buffer was full.
    """

    buffer_bytes: int | None = None
    kernel_drops: int = 0


def bound_socket(host: str, port: int, kind: socket.SocketKind, option: int, value: int) -> socket.socket:
    """A socket at an address, with one option of it. At `::` it has IPv4 as well. Raises OSError."""
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
    """The size of a socket's receive buffer. Linux doubles what was asked for, for what it keeps beside the data."""
    given = made.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    return given // 2 if os.uname().sysname == "Linux" else given


def kernel_drops(made: socket.socket) -> int | None:
    """How many datagrams for a socket the kernel has dropped so far; None where it does not tell."""
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
    """Datagrams that the kernel still holds, at most so many, each with the address that it came from."""
    found: list[tuple[bytes, str]] = []
    while len(found) < most:
        try:
            data, address = made.recvfrom(_READ_BYTES)
        except OSError:  # there are no more
            break
        found.append((data, address[0]))
    return found
