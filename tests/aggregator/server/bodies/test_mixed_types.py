"""Mixed value types in a column follow one rule for Python rows, JSON over HTTP, JSON files and Arrow."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import httpx
import pyarrow as pa
import pytest
from click.testing import CliRunner
from effort import share_of
from served import ANY_PORT

import aggregator
import esformat
from aggregator.cli import main
from aggregator.server import RunningServer, Settings

BIG = 2**60 + 1
STEPS = {
    "a price that is missing": ([1.5], ["n/a"], [2.5]),
    "an object and a text": ([{"a": 1}], ["x"]),
    "objects of several shapes": ([{"a": 1}], [{"a": "x", "b": None}]),
    "lists": ([[1]], [["x"]]),
    "a truth value beside whole numbers": ([1], [True], [1.5]),
    "a whole number beside truth values": ([True], [1]),
    "a fraction beside whole numbers": ([1], [1.5], [2]),
    "whole numbers in a column of floats": ([1.5], [2]),
    "no value first": ([None], [1.5]),
    "no value later": ([1], [None], [2]),
    "a large number beside floats": ([1.5], [BIG]),
    "a fraction beside large numbers": ([BIG], [1.5], [3]),
    "a text in front of numbers": (["x"], [7]),
    "several kinds in one batch": ([1.5, "n/a", True, {"a": [1, "x"]}],),
    "whole numbers and fractions in one batch": ([1, 1.5],),
    "objects of several shapes in one batch": ([{"a": 1}, {"a": "x"}],),
}  # fmt: skip


def of_columns(values):
    """The values as an Arrow array; None if Arrow cannot represent them in one column."""
    try:
        return pa.array(values)
    except pa.ArrowException:
        return None


def rows(values):
    return [{"space": "s", "timestamp": 1, "v": value} for value in values]


def lines(values):
    return "".join(json.dumps(row) + "\n" for row in rows(values))


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    settings = Settings()
    settings = replace(settings, http=replace(settings.http, bind=ANY_PORT))
    path = tmp_path_factory.mktemp("mixed")
    with aggregator.open(path) as catalog, RunningServer(catalog, settings) as server:
        yield catalog, server


def by_python(running, name, values):
    running[0].topic(name).append(rows(values))


def by_arrow(running, name, values):
    times = pa.array([1] * len(values), pa.int64())
    running[0].topic(name).append(pa.table({"space": ["s"] * len(values), "timestamp": times, "v": of_columns(values)}))


def by_http(running, name, values):
    headers = {"content-type": "application/x-ndjson"}
    answer = httpx.post(f"{running[1].url}/v1/topics/{name}/events", content=lines(values), headers=headers)
    if answer.status_code == 400:
        raise esformat.InvalidEventError(answer.json()["detail"])
    answer.raise_for_status()


def by_command(running, name, values):
    options = ["--input-format", "jsonl", "--space", "space", "--timestamp", "timestamp"]
    done = CliRunner().invoke(main, ["append", running[1].url, name, "-", *options], input=lines(values))
    if done.exit_code:
        raise esformat.InvalidEventError(done.output)


WAYS = {"Arrow": by_arrow, "HTTP": by_http, "command": by_command}


def outcome(running, name, way, steps):
    """Which batches are accepted, and the column's type and values in a scan."""
    topic = running[0].create_topic(name)
    accepted = []
    for values in steps:
        try:
            way(running, name, values)
            accepted.append(True)
        except esformat.InvalidEventError:
            accepted.append(False)
    table = topic.scan().to_table()
    return accepted, table.schema.field("v").type, table["v"].to_pylist()


@pytest.mark.parametrize(("kind", "way"), share_of(product(STEPS, WAYS), 2))
def test_one_rule_for_all_ways_in(running, request, kind, way):
    """Every way in accepts and refuses the same batches as Python rows, with the same type and values."""
    steps = STEPS[kind]
    if way == "Arrow" and any(of_columns(values) is None for values in steps):
        pytest.skip("Arrow has no such column")
    name = f"t{abs(hash(request.node.name))}"
    assert outcome(running, name, WAYS[way], steps) == outcome(running, f"{name}-python", by_python, steps)
