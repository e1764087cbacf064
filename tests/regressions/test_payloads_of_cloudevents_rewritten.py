"""The `data` of CloudEvents was rewritten: numbers lost digits, and objects lost spaces and repeated keys."""

from __future__ import annotations

import json

import pytest

from aggregator.server.bodies.cloudevents import BATCH, ONE, read_cloud_events
from esformat import InvalidEventError

WORDS = [
    '{"data":123456789012345678901234567890.0}', "1e2", "-0.0", '{"b":1.50,"a":9}', '{ "a" : [ 1 , null ] }', "[]",
    '[1, [2.0], "]"]', '{"a":1,"a":2}', '{"é":"\\u00e9, [}"}', "true", "12345678901234567890", "1e400",
]  # fmt: skip
VALUES = [(word, word.encode()) for word in WORDS] + [
    ('"text"', b'"text"'), ('"\\u00e9"', '"é"'.encode()), ("null", b""),
]  # fmt: skip
HEAD = '"specversion":"1.0","id":"1","source":"/shop","type":"paid"'


def payloads(body: str, media: str) -> list[bytes]:
    return read_cloud_events(body.encode(), media, 5).column("data").to_pylist()


@pytest.mark.parametrize(("written", "payload"), VALUES)
def test_alone(written, payload):
    """The payload is the original text; a string stays JSON as before."""
    assert payloads(f'{{{HEAD},"data":{written}}}', ONE) == [payload]


def test_a_batch():
    """Each event of a batch has its own text, whatever surrounds it."""
    others = ["1.0", "[{},[]]", '{"data":3.0}']
    events = [f'{{ "e" : {json.dumps("], é")}, {HEAD},"data"\t:{written}}}' for written, _ in VALUES]
    assert payloads("\n [" + " ,\r\n".join(events) + "\t] ", BATCH) == [payload for _, payload in VALUES]
    events = [f'{{{HEAD},"data":{other}}}' for other in others]
    assert payloads(f"[{','.join(events)}]", BATCH) == [other.encode() for other in others]
    assert payloads(f'[{{{HEAD}}},{{{HEAD},"data_base64":"aGk="}},{{{HEAD},"data":1.0}}]', BATCH) == [
        b"",
        b"hi",
        b"1.0",
    ]
    assert payloads("[ ]", BATCH) == []


@pytest.mark.parametrize("media", [ONE, BATCH])
@pytest.mark.parametrize("depth", [300, 600, 1000])
def test_deep(media, depth):
    """Data that nests too deeply is refused for its event, as before."""
    event = f'{{{HEAD},"data":{"[" * depth}{"]" * depth}}}'
    with pytest.raises(InvalidEventError, match="event 0: data: it nests too deeply"):
        payloads(event if media == ONE else f"[{event}]", media)
