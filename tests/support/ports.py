"""Unused ports of this machine, for servers that need a fixed port and for servers that are down."""

from __future__ import annotations

import contextlib
import random
import socket

_FROM, _TO = 15_000, 30_000  # below those that the system assigns to connections and listeners


def free_port() -> int:
    """A port that is free for TCP and UDP, and stays so."""
    while True:
        port = random.SystemRandom().randrange(_FROM, _TO)
        with contextlib.suppress(OSError), socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
            tcp.bind(("127.0.0.1", port))
            tcp.listen()
            udp.bind(("127.0.0.1", port))
            return port
