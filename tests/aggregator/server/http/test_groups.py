"""Groups of routes that are built on their first request."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import httpx
import pytest
from served import served
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Match, Route
from waiting import until

import aggregator
from aggregator.server import Settings
from aggregator.server.app import _LATE, GROUPS
from aggregator.server.context import Context
from aggregator.server.control.operation import operation
from aggregator.server.http.groups import Group, Routes


def told(text):
    @operation("open", "Tell a word", tag="test")
    async def tell(request: Request) -> Response:
        return PlainTextResponse(text)

    return tell


@pytest.fixture
def made():
    """How often each group was built."""
    return {"first": 0, "second": 0}


@pytest.fixture
def groups(tmp_path, made):
    def first(context):
        made["first"] += 1
        return [Route("/both", told("got")), Route("/first", told("first"))]

    def second(context):
        made["second"] += 1
        return [Route("/both", told("posted"), methods=["POST"]), Route("/{name}", told("any"))]

    with aggregator.open(tmp_path) as catalog:
        context = Context.of(catalog, Settings())
        yield [Group(first, context), Group(second, context)]
        context.close()


def ask(groups, method, path):
    async def go():
        transport = httpx.ASGITransport(Starlette(routes=groups))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            answer = await client.request(method, path)
            return answer.status_code, answer.text

    return asyncio.run(go())


def test_a_group_waits_for_its_first_request(groups, made):
    """A group is built once, by a request that no earlier group takes."""
    assert made == {"first": 0, "second": 0}
    for _ in range(2):
        assert ask(groups, "GET", "/first") == (200, "first")
    assert made == {"first": 1, "second": 0}
    assert ask(groups, "GET", "/both") == (200, "got")
    for _ in range(2):
        assert ask(groups, "GET", "/other") == (200, "any")
    assert made == {"first": 1, "second": 1}


def test_groups_answer_as_one_list_of_routes(groups):
    """A path whose method belongs to another group is answered by that group; a method of no group is refused."""
    assert ask(groups, "POST", "/both") == (200, "posted")
    assert ask(groups, "DELETE", "/both")[0] == 405
    assert ask(groups, "GET", "/no/such")[0] == 404
    assert [route.path for route in Routes(groups)] == ["/both", "/first", "/both", "/{name}"]


def test_threads_make_a_group_once(groups, made):
    """The first thread builds a group, and the others wait for it."""
    start = threading.Barrier(8)

    def match(_):
        start.wait()
        return groups[0].matches({"type": "http", "path": "/first", "method": "GET"})[0]

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(match, range(8))) == {Match.FULL}
    assert made["first"] == 1


def test_a_server_makes_all_groups_a_moment_after_its_start(tmp_path, monkeypatch):
    """A server builds all groups soon after its start without a request; before that, only those requested."""
    monkeypatch.setattr("aggregator.server.app.WARM_S", 3600.0)
    with served(tmp_path) as server:
        assert httpx.get(f"{server.url}/ok").status_code == 200
        assert [group._made is not None for group in server.routes.groups] == [name == "health" for name in GROUPS]
    monkeypatch.setattr("aggregator.server.app.WARM_S", 0.0)
    with served(tmp_path) as server:
        until(lambda: all(group._made is not None for group in server.routes.groups))


def test_what_a_server_loads_after_its_start_is_there():
    """Every name that the server loads after its start exists."""
    assert all(callable(getattr(import_module(module), name)) for module, name in _LATE)
