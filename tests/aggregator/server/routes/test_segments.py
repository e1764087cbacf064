"""A segment as a file, over HTTP: its anatomy, and a check of every byte."""

from __future__ import annotations

import httpx
import pytest
from clicks import click_table
from served import served

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
    """What the file has; the name of an erased space is not told."""
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


def test_verification(server, web):
    """A sound file, and one with a byte that is wrong."""
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
    """Whatever is asked for that is none."""
    assert web.get(f"{PATH}/{number}").json()["type"].endswith("no-such-segment")
    assert web.post(f"{PATH}/{number}/verify").status_code == 404
