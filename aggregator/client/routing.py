"""`RoutingClient`: several servers, each of which writes to a catalog of its own, as one place to append to."""

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
    """Sends each partition of a topic, and each stream, to one of several servers: always to the same, by its name.

    Which one is a matter of the names alone (the highest of the hashes of both): whoever has the same addresses, in
    whatever order and with or without a slash at their end, sends it there. With one server more, that one gets its
    share of the partitions, and no other moves; what is stored stays where it is. Safe to share between threads; close
    it, or use it as a context manager.
    """

    def __init__(self, servers: Sequence[str | Sequence[str]], **options: Any) -> None:
        """servers: the address of each; of one that others follow a list, itself first. options: as of `Client`.

        Raises InvalidRequestError, OSError.
        """
        names = [_spelled(given if isinstance(given, str) else given[0]) for given in servers if given]
        if not names or len(names) < len(servers) or len(set(names)) < len(names):
            raise InvalidRequestError("give the address of each server once")
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
        """A client of each server, by its address: to ask them, one by one."""
        return dict(self._clients)

    def client_of(self, topic: str, name: str) -> Client:
        """The client of the server that has a partition, or a stream by the text of its tags."""
        key = f"{topic}\0{name}\0".encode()
        return self._clients[max(self._clients, key=lambda server: checksum64(key + server.encode()))]

    def create_topic(self, name: str, **settings: Any) -> None:
        """Make a topic on every server, or find that it is there with the same settings. See `Client.create_topic`."""
        for client in self._clients.values():
            client.create_topic(name, **settings)

    def append(self, topic: str, events: Any, partition: str = DEFAULT_PARTITION, **named: Any) -> Receipt:
        """Append events to a partition, on the server that has it. See `RemoteTopic.append`."""
        return self.client_of(topic, partition).topic(topic).append(events, partition, **named)

    def writer(self, topic: str, partition: str = DEFAULT_PARTITION, **options: Any) -> Writer:
        """A writer in the background for a partition. See `RemoteTopic.writer`."""
        return self.client_of(topic, partition).topic(topic).writer(partition, **options)

    def write(self, tags: Mapping[str, str], records: Any, topic: str = STREAMS_TOPIC, **named: Any) -> Receipt:
        """Store records of a stream, on the server that has it. See `Client.write`."""
        return self.client_of(topic, tags_text(tags)).write(tags, records, topic, **named)

    def close(self) -> None:
        """Close every connection. Writers must be closed before."""
        self._opened.close()


def _spelled(url: str) -> str:
    """An address in the one way in which it counts, however it was written."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.rstrip("/").partition("/")
    port = _PORTS.get(scheme.lower(), "")
    return f"{scheme.lower()}://{host.lower().removesuffix(port)}{slash}{path}"
