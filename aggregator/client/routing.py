"""`RoutingClient`: appends to several servers, each the writer of its own catalog, through one interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from aggregator.base.result import Closing
from aggregator.client.client import Client
from aggregator.client.streams import tags_text
from aggregator.client.writing.writer import Writer
from aggregator.errors import InvalidRequestError
from aggregator.model import DEFAULT_PARTITION, STREAMS_TOPIC, Receipt
from aggregator.storage.files.checksum import checksum64

_PORTS = {"http": ":80", "https": ":443"}


class RoutingClient(Closing):
    """Sends each partition of a topic, and each stream, to one of several servers, always to the same.

    The names alone determine the server (rendezvous hashing): all clients with the same addresses, in any order and
    with or without a trailing slash, choose the same one. A server that is added gets its share of the partitions, and
    no other partition moves; stored events stay where they are. Thread-safe; close it, or use it as a context manager.
    """

    def __init__(self, servers: Sequence[str | Sequence[str]], **options: Any) -> None:
        """servers: the address of each; for one with followers a list, the writer first. options: of `Client`.

        Raises InvalidRequestError, OSError.
        """
        names = [_spelled(given if isinstance(given, str) else given[0]) for given in servers if given]
        if not names or len(names) < len(servers) or len(set(names)) < len(names):
            raise InvalidRequestError("pass the address of each server once")
        with ExitStack() as opened:
            made = [
                (name, opened.enter_context(Client(given, **options)))
                for name, given in zip(names, servers, strict=True)
            ]
            self._clients = dict(made)
            self._opened = opened.pop_all()

    def __repr__(self) -> str:
        return f"<aggregator.client.RoutingClient of {len(self._clients)} servers>"

    @property
    def clients(self) -> Mapping[str, Client]:
        """A client for each server, by address, for reading from them one by one."""
        return dict(self._clients)

    def client_of(self, topic: str, name: str) -> Client:
        """Return the client of the server that has a partition, or a stream (by the text of its tags)."""
        key = f"{topic}\0{name}\0".encode()
        return self._clients[max(self._clients, key=lambda server: checksum64(key + server.encode()))]

    def create_topic(self, name: str, **settings: Any) -> None:
        """Create a topic on every server, unless it exists with the same settings. See `Client.create_topic`."""
        for client in self._clients.values():
            client.create_topic(name, **settings)

    def append(self, topic: str, events: Any, partition: str = DEFAULT_PARTITION, **named: Any) -> Receipt:
        """Append events to a partition, on the server that has it. See `RemoteTopic.append`."""
        return self.client_of(topic, partition).topic(topic).append(events, partition, **named)

    def writer(self, topic: str, partition: str = DEFAULT_PARTITION, **options: Any) -> Writer:
        """Return a background writer for a partition. See `RemoteTopic.writer`."""
        return self.client_of(topic, partition).topic(topic).writer(partition, **options)

    def write(self, tags: Mapping[str, str], records: Any, topic: str = STREAMS_TOPIC, **named: Any) -> Receipt:
        """Store records in a stream, on the server that has it. See `Client.write`."""
        return self.client_of(topic, tags_text(tags)).write(tags, records, topic, **named)

    def close(self) -> None:
        """Close every connection. Close writers first."""
        self._opened.close()


def _spelled(url: str) -> str:
    """Return an address in canonical form."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.rstrip("/").partition("/")
    port = _PORTS.get(scheme.lower(), "")
    return f"{scheme.lower()}://{host.lower().removesuffix(port)}{slash}{path}"
