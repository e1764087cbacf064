"""Payloads of JSON lines were rewritten in a type common to all rows, and some texts were decoded as base64."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import aggregator
import esformat
from aggregator.cli import root as aggregator_root
from aggregator.server.bodies.formats import Names, read_events
from aggregator.server.bodies.shared.media import JSON, LINES
from esformat.cli import root
from esformat.convert import Conversion, Load, Roles, convert_file, records

WORDS = [
    '{"b":1.50,"a":9}', "{}", '{"a":1,"z":12345678901234567890.12}', '{ "a" : [ 1 , null ] }', "[1, 2.0]", "1e400",
    '{"a":1,"a":2}', '{"a":"\\ud800"}', "-0.0", "true", '{"é":"\\u00e9"}',
    '{"t":"2026-01-01"}', "12345678901234567890", '{"base64":1}',
]  # fmt: skip
VALUES = [(word, word.encode()) for word in WORDS] + [
    ('"text"', b"text"), ('"2026-01-01"', b"2026-01-01"), ('"7"', b"7"), ('"\\u00e9\\n"', "é\n".encode()),
    ('"{\\"base64\\":\\"aGk=\\"}"', b'{"base64":"aGk="}'), ('{"base64":"aGk="}', b"hi"), ('{"base64":"/w=="}', b"\xff"),
]  # fmt: skip
MIXED = ',"x":%s'
"""A column of two types, so that lines are parsed singly."""


def lines_of(values, more=""):
    rows = [
        f'{{"space":"a","timestamp":{time},"data":{value}{more % ("1" if time % 2 else "[]") if more else ""}}}\n'
        for time, value in enumerate(values, 1)
    ]
    return "".join(rows).encode()


def payloads(path):
    with esformat.open(path) as segment:
        return [event.data for event in segment.scan()]


@pytest.mark.parametrize("more", ["", MIXED], ids=["fast", "one by one"])
@pytest.mark.parametrize("block_bytes", [40, 300, 8 << 20])
def test_word_for_word(tmp_path, monkeypatch, more, block_bytes):
    """Each payload is its original text, whatever the other rows and wherever blocks end."""
    monkeypatch.setattr(records, "BLOCK_BYTES", block_bytes)
    given = [value for value, _ in VALUES]
    expected = [payload for _, payload in VALUES]
    (tmp_path / "in.jsonl").write_bytes(lines_of([*given, *given[::-1]], more))
    assert root.run(["write", str(tmp_path / "out.esdb"), str(tmp_path / "in.jsonl")]) == 0
    assert payloads(tmp_path / "out.esdb") == [*expected, *expected[::-1]]
    convert_file(str(tmp_path / "in.jsonl"), str(tmp_path / "converted.esdb"))
    assert payloads(tmp_path / "converted.esdb") == [*expected, *expected[::-1]]


@pytest.mark.parametrize(("written", "payload"), [*VALUES, ("null", b"")])
def test_alone(tmp_path, written, payload):
    """A single row has its original text, too."""
    (tmp_path / "in.jsonl").write_bytes(lines_of([written]))
    assert root.run(["write", str(tmp_path / "out.esdb"), str(tmp_path / "in.jsonl")]) == 0
    assert payloads(tmp_path / "out.esdb") == [payload]


def test_broken_lines(tmp_path, capfd):
    """A broken line is reported as before, and the others are kept."""
    good = lines_of(['{"a":1.0}', "5"])
    bad = [b'{"space":"a","timestamp":1,"data":{"a":}}\n', b'{"space":"a","timestamp":1,"data":1.5.3}\n',
           b'{"space":"a","timestamp":1,"data":{},"data":[]}\n',
           b'{"space":"a","timestamp":1 "data":{}}\n']  # fmt: skip
    (tmp_path / "in.jsonl").write_bytes(good + b"".join(bad) + good)
    run = ["write", str(tmp_path / "out.esdb"), str(tmp_path / "in.jsonl"), "--on-error", "skip"]
    assert root.run(run) == 0
    assert payloads(tmp_path / "out.esdb") == [b'{"a":1.0}', b'{"a":1.0}', b"5", b"5"]
    assert f"{len(bad)} bad rows left out" in capfd.readouterr().out


def test_names(tmp_path):
    """A key may be written with escapes; a nested member with the same name is another."""
    lines = ['"d\\u0061ta":{"a":1.0}', '"x":{"data":{"b":1.0}},"data":[1.0]', '"x":{"data":{"b":1.0}}']
    for number, chosen in enumerate([lines, lines[:1], lines[2:]]):
        path = tmp_path / f"{number}.jsonl"
        path.write_text("".join(f'{{"space":"a","timestamp":1,{line}}}\n' for line in chosen))
        with Load([str(path)], Roles(space="space", timestamp="timestamp")) as load:
            (batch,) = load.batches()
        found = batch.column("data").to_pylist() if "data" in batch.schema.names else None
        assert found == [[b'{"a":1.0}', b"[1.0]", b""], [b'{"a":1.0}'], None][number]


def test_a_payload_with_another_role(tmp_path):
    """A column used twice has the type of its values as an index, and its text as the payload."""
    (tmp_path / "in.jsonl").write_text('{"space":"a","timestamp":1,"n":7}\n{"space":"a","timestamp":2,"n":8}\n')
    roles = Roles(space="space", timestamp="timestamp", data="n", indexes=("n",))
    with Load([str(tmp_path / "in.jsonl")], roles) as load:
        (batch,) = load.batches()
    assert (batch.column("n").to_pylist(), batch.column("data").to_pylist()) == ([7, 8], [b"7", b"8"])


def test_keys_that_are_bytes(tmp_path):
    """Text in binary keys stays text, even if it looks like base64."""
    texts = ['{"base64":"aGk="}', {"base64": "/w=="}, "plain", 5]
    rows = [{"space": text, "timestamp": 1, "v": text} for text in texts]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = ["write", str(tmp_path / "out.esdb"), str(tmp_path / "in.jsonl"), "--keys", "binary", "--type", "v=binary"]
    assert root.run(run) == 0
    with esformat.open(tmp_path / "out.esdb") as segment:
        found = [(event.space, event.columns["v"]) for event in segment.scan()]
    assert sorted(found) == sorted((each, each) for each in [b'{"base64":"aGk="}', b"\xff", b"plain", b"5"])


def test_many_names_are_no_columns(tmp_path):
    """Rows with distinct member names use no more memory than their text."""
    words = [f'{{"key-{number}":{number}}}' for number in range(2000)]
    (tmp_path / "in.jsonl").write_bytes(lines_of(words))
    with Load([str(tmp_path / "in.jsonl")], Roles(space="space", timestamp="timestamp")) as load:
        batches = list(load.batches())
    assert sum(batch.nbytes for batch in batches) < 1 << 20
    assert [value.as_py().decode() for batch in batches for value in batch.column("data")] == words


def test_import(tmp_path):
    """`import` into a topic has the same results."""
    (tmp_path / "in.jsonl").write_bytes(lines_of([value for value, _ in VALUES]))
    assert aggregator_root.run(["init", str(tmp_path / "catalog")]) == 0
    assert aggregator_root.run(["import", str(tmp_path / "catalog"), "t", str(tmp_path / "in.jsonl")]) == 0
    with aggregator.open(tmp_path / "catalog") as catalog:
        assert [event.data for event in catalog.topic("t").scan()] == [payload for _, payload in VALUES]


@pytest.mark.parametrize("between", [",", " \t,\r\n"])
def test_json_arrays_over_http(between):
    """Events in a JSON array have the payloads that they have on lines."""
    valid = [(value, payload) for value, payload in VALUES if "\\ud800" not in value]
    lines = lines_of([value for value, _ in valid], MIXED).decode().splitlines()
    body = f"[{between.join(lines)}]" if between == "," else f"\n[{between.join(lines)}\n]\n"
    table = read_events(pa.py_buffer(body.encode()), JSON, types={}, binary_keys=False, max_bytes=1 << 20)
    assert table["data"].to_pylist() == [payload for _, payload in valid]


def test_a_json_object_of_many_lines():
    """Line ends between the values of a payload become spaces."""
    body = pa.py_buffer(b'{\n "space": "a",\n "timestamp": 1,\n "data": {\r\n  "a": "\\n"\n }\n}\n')
    table = read_events(body, JSON, types={}, binary_keys=False, max_bytes=1 << 20)
    assert table["data"].to_pylist() == [b'{    "a": "\\n"  }']


@pytest.mark.parametrize("name", ["data", "message"])
def test_over_http(name):
    """A body of lines is read alike, also if one has bytes or the payload has another name."""
    body = lines_of([value for value, _ in VALUES], MIXED).replace(b'"data":', f'"{name}":'.encode())
    names = Names() if name == "data" else Names(message=name)
    table = read_events(pa.py_buffer(body), LINES, types={}, binary_keys=False, max_bytes=1 << 20, names=names)
    assert table["data"].to_pylist() == [payload for _, payload in VALUES]


def test_over_http_what_is_no_base64():
    """Invalid base64 is refused with its line."""
    body = pa.py_buffer(lines_of(["1.50", '{"base64":"?"}']))
    with pytest.raises(esformat.InvalidEventError, match="line 2: data is not base64"):
        read_events(body, LINES, types={}, binary_keys=False, max_bytes=1 << 20)


ODD = [b'{"base64":"aGk="}', b'{"base64":"?"}', b'{"base64": 1}', b"\xff", b'"', b"plain"]


def test_scanned_and_written_again(tmp_path):
    """JSON lines written by a scan are read back unchanged, even text that looks like base64."""
    with esformat.create(tmp_path / "a.esdb") as writer:
        for time, payload in enumerate(ODD):
            writer.add("a", payload, timestamp=time)
    scan = ["scan", str(tmp_path / "a.esdb"), "-o", str(tmp_path / "a.jsonl")]
    assert root.run(scan) == 0
    assert root.run(["write", str(tmp_path / "b.esdb"), str(tmp_path / "a.jsonl")]) == 0
    assert payloads(tmp_path / "b.esdb") == ODD
    convert_file(str(tmp_path / "a.esdb"), str(tmp_path / "c.jsonl"))
    convert_file(str(tmp_path / "c.jsonl"), str(tmp_path / "c.esdb"), Conversion(schema=str(tmp_path / "a.esdb")))
    assert payloads(tmp_path / "c.esdb") == ODD


def test_csv_does_not_tell_them_apart(tmp_path, capfd):
    """CSV cannot distinguish such a text: a conversion refuses it, and a scan warns."""
    with esformat.create(tmp_path / "a.esdb") as writer:
        for time, payload in enumerate([*ODD, ODD[0]]):
            writer.add("a", payload, timestamp=time)
    with pytest.raises(esformat.InvalidEventError, match="csv would lose values"):
        convert_file(str(tmp_path / "a.esdb"), str(tmp_path / "a.csv"))
    assert root.run(["scan", str(tmp_path / "a.esdb"), "-o", str(tmp_path / "b.csv")]) == 0
    told = "column 'data': 2 texts look like base64 and are read back from CSV as bytes"
    assert told in capfd.readouterr().err
