"""A segment file over HTTP: its anatomy, and verification of every byte."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pyarrow as pa
import pytest
from clicks import click_table
from served import ANY_PORT, served

import aggregator
from aggregator.server import RunningServer, Settings
from esformat.parts import anatomy

PATH = "/v1/topics/clicks/segments"


@pytest.fixture
def server(tmp_path):
    with served(tmp_path / "data") as running:
        topic = running.catalog.create_topic("clicks", indexes=["type"])
        topic.append(click_table(1_000))
        running.catalog.seal("clicks")
        yield running


@pytest.fixture
def web(server):
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def test_anatomy(server, web):
    """The parts of the file are listed; the name of an erased space is not shown."""
    (segment,) = web.get(PATH).json()["segments"]
    number = segment["segment"]
    found = web.get(f"{PATH}/{number}").json()
    expected = anatomy(server.catalog.topic("clicks").segment_file(number))
    assert (found["segment"], found["events"], found["size_bytes"]) == (number, 1_000, segment["bytes"])
    assert [part["bytes"] for part in found["parts"]] == [part.bytes for part in expected.parts]
    assert [each["name"] for each in found["columns"]] == [each.name for each in expected.columns]
    space = found["parts"][0]["facts"]["first_space"]
    assert space == expected.parts[0].facts["first_space"]
    server.catalog._backend.scheduler.stop()
    server.catalog.topic("clicks").erase(space)
    assert "first_space" not in web.get(f"{PATH}/{number}").json()["parts"][0]["facts"]


def test_what_columns_hold(server, web):
    """Nulls, minimum, maximum and lengths equal the events'; a segment with events being erased is refused."""
    odd = server.catalog.create_topic("odd", indexes=["n"])
    rows = {"f": [1.5, None, -2.0], "n": [7, 7, 2**60], "t": ["b", None, "a" * 300], "l": [[1], None, [2, 3]],
            "d": [b"\xff", b"", b"x"], "b": [True, False, None]}  # fmt: skip
    odd.append(pa.table({"space": ["u", "v", "u"], "timestamp": [5, 6, 7], **rows}))
    server.catalog.seal("odd")
    (segment,) = odd.segments()
    path = f"/v1/topics/odd/segments/{segment['segment']}/columns"
    found = {each.pop("name"): each for each in web.get(path).json()["columns"]}
    ends = {name: (each["least"], each["greatest"]) for name, each in found.items()}
    assert ends == {
        "space": ("u", "v"), "grouping": ("", ""), "record_index": ("0", "2"), "f": ("-2", "1.5"),
        "timestamp": ("1970-01-01T00:00:00.000005Z", "1970-01-01T00:00:00.000007Z"), "n": ("7", str(2**60)),
        "t": ("a" * 120, "b"), "l": (None, None), "d": ("", "\ufffd"), "b": ("false", "true"),
    }  # fmt: skip
    assert {name for name, each in found.items() if each["nulls"] == 1} == {"f", "t", "l", "b"}
    assert (found["n"]["different"], found["space"]["different"], found["f"]["different"]) == (2, 2, None)
    assert (found["t"]["mean_bytes"], found["n"]["mean_bytes"]) == (150.5, None)
    server.catalog._backend.scheduler.stop()
    odd.erase("u")
    assert web.get(path).status_code == 409


@pytest.mark.usefixtures("unshipped")
def test_segments_that_lie_in_the_store_alone(tmp_path):
    """Segments that are only in the store answer like local files."""
    settings = replace(Settings(), http=replace(Settings().http, bind=ANY_PORT))
    with (
        aggregator.open(tmp_path / "data", store=(tmp_path / "bucket").as_uri()) as catalog,
        RunningServer(catalog, settings) as server, httpx.Client(base_url=server.url, timeout=60) as web,
    ):  # fmt: skip
        topic = catalog.create_topic("clicks", indexes=["type"])
        topic.append(click_table(1_000))
        catalog.seal("clicks")
        (segment,) = topic.segments()
        paths = [f"{PATH}/{segment['segment']}", f"{PATH}/{segment['segment']}/columns"]
        before = [web.get(path).json() for path in paths]
        catalog.store.push()
        catalog.store.evict(keep_local={"bytes": 0})
        assert not list((tmp_path / "data" / "segments").glob("*/*.esdb"))
        after = [web.get(path).json() for path in paths]
        assert [{**each, "file": ""} for each in after] == [{**each, "file": ""} for each in before]
        assert web.post(f"{paths[0]}/verify").json()["ok"]


def test_verification(server, web):
    """An intact file and one with a wrong byte are reported as such."""
    (segment,) = web.get(PATH).json()["segments"]
    path = f"{PATH}/{segment['segment']}/verify"
    assert web.post(path).json() == {
        "ok": True, "events": 1_000, "blocks": web.post(path).json()["blocks"], "size_bytes": segment["bytes"],
        "problems": [],
    }  # fmt: skip
    file = server.catalog.topic("clicks").segment_file(segment["segment"])
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    file.write_bytes(damaged)
    report = web.post(path).json()
    assert not report["ok"]
    assert "checksum" in report["problems"][0]["what"]


@pytest.mark.parametrize("number", ["99", "-1", "x", "9" * 40, "%C2%B2"])
def test_no_such_segment(web, number):
    """Anything that is not a segment is refused."""
    assert web.get(f"{PATH}/{number}").json()["type"].endswith("no-such-segment")
    assert web.post(f"{PATH}/{number}/verify").status_code == 404
