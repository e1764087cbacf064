"""Copies of partitions as plateau's replication makes them, from and to a server that is killed meanwhile."""

from __future__ import annotations

import contextlib
import signal

import httpx
import pyarrow as pa
import pytest
from effort import long, share_of
from served import Spawned, served

from tests.aggregator.server.plateau.test_plateau import records, send


class Copy:
    """A copy of a partition: continues in the source at the record index where the target ends, because the target has
    the source's first records under the same indexes.
    """

    def __init__(self, source, target, topic, page_size=1000):
        """source, target: clients of servers."""
        self._source, self._target, self._topic, self._page_size = source, target, topic, page_size
        found = target.get(f"/topic/{topic}").json()["partitions"]
        self._next = found["p"]["end"] if "p" in found else 0

    def run(self, most=10):
        """Copy page after page to the end. Returns the number of pages, or `most` if there are more."""
        for pages in range(most):
            table = numbers(self._source, self._topic, self._next, self._page_size)
            if not len(table):
                return pages
            plain = table.replace_schema_metadata(None)
            self._next = send(self._target, plain, self._topic, "p")["end"]
        return most


def numbers(web, topic, start, page_size=10_000):
    """The numbers of a page."""
    arrow = {"accept": "application/vnd.apache.arrow.file"}
    where = f"/topic/{topic}/partition/p/records"
    answer = web.get(where, params={"start": start, "page_size": page_size}, headers=arrow)
    return pa.ipc.open_file(pa.py_buffer(answer.content)).read_all()


@long
@pytest.mark.parametrize("durability", share_of(["none", "interval"], 2))
def test_copies_go_on_after_a_kill(tmp_path, web_of, durability):
    """Each record is copied once, whether source or target was killed, by a continued copy and by a new one, although
    the killed server does not sync.
    """
    with served(tmp_path / "stays") as server, contextlib.ExitStack() as stack:
        stays = web_of(server)
        killed = stack.enter_context(Spawned(tmp_path / "killed", "--durability", durability))
        web = stack.enter_context(httpx.Client(base_url=killed.url, timeout=120))
        pairs = {"out": (web, stays), "in": (stays, web)}
        for topic, (source, target) in pairs.items():
            send(source, records(2500), topic, "p")
            assert Copy(source, target, topic).run() == 3
            send(source, records(300, 2500), topic, "p")
        address = killed.url.removeprefix("http://")
        assert killed.stop(signal.SIGKILL) == -signal.SIGKILL
        stack.enter_context(Spawned(tmp_path / "killed", "--durability", durability, "--bind", address))
        web.close()
        web = stack.enter_context(httpx.Client(base_url=killed.url, timeout=120))
        for topic, (source, target) in {"out": (web, stays), "in": (stays, web)}.items():
            assert send(source, records(700, 2800), topic, "p") == {"start": 2800, "end": 3500}
            assert Copy(source, target, topic).run() == 1
            assert numbers(target, topic, 0)["n"].to_pylist() == [*range(3500)]
