"""Several servers with separate catalogs: each partition belongs to one of them, always the same."""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest
from served import served

import aggregator
from aggregator import InvalidRequestError
from aggregator.client import RoutingClient

ADDRESSES = [f"http://127.0.0.1:{port}" for port in (1, 2, 3, 4)]


def homes(servers, count=400):
    with RoutingClient(servers) as client:
        names = {id(each): url for url, each in client.clients.items()}
        return {name: names[id(client.client_of("t", str(name)))] for name in range(count)}


def test_each_partition_has_one_server():
    """The order of addresses does not matter and shares are even; an added server takes over only its own share."""
    three = homes(ADDRESSES[:3])
    assert homes(ADDRESSES[2::-1]) == three
    assert min(Counter(three.values()).values()) > 90
    four = homes(ADDRESSES)
    moved = [name for name in three if three[name] != four[name]]
    assert {four[name] for name in moved} == {ADDRESSES[3]}
    assert 60 < len(moved) < 140


def test_what_was_spread_is_read_as_one(tmp_path):
    """Appends, writers and streams go to their servers; the catalogs together contain everything once."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(served(tmp_path / name)) for name in ("a", "b", "c")]
        with RoutingClient([server.url for server in servers]) as client:
            client.create_topic("t", indexes=["type"])
            for number in range(12):
                for _ in range(2):
                    client.append("t", [{"space": "s", "timestamp": number}], str(number), producer="p", sequence=1)
                client.write({"app": str(number)}, [{"ts": number, "msg": "m"}])
            with client.writer("t", "12") as writer:
                writer.add("s", timestamp=12)
        with aggregator.open_many(f"{tmp_path}/*") as many:
            table = many.topic("t").scan(columns=["timestamp", "partition"]).to_table()
            assert table["timestamp"].cast("int64").to_pylist() == list(range(13))
            assert len({name.partition("/")[0] for name in table["partition"].to_pylist()}) > 1
            assert many.topic("logs").scan().count() == len(many.streams()) == 12


def test_an_address_is_written_in_several_ways():
    """A trailing slash or an explicit default port in an address does not change the server that is chosen."""
    plain = homes(["http://one", "http://two:3030/base", "https://three"])
    others = homes(["HTTP://One:80/", "http://two:3030/base/", "https://three:443"])
    assert others == plain


@pytest.mark.parametrize("servers", [[], ["http://a", "http://a"], ["http://a", "http://a/"], [[]], ["ftp://a"]])
def test_addresses_are_checked(servers):
    with pytest.raises(InvalidRequestError):
        RoutingClient(servers)
