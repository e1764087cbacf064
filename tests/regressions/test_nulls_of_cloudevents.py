"""A CloudEvent with a null `time` was refused with a misleading hint, and so were bytes with a null `data`.

In the JSON format of CloudEvents null counts as absent.
"""

from __future__ import annotations

import json

import pytest

from aggregator.server.bodies.cloudevents import ONE, read_cloud_events
from esformat import InvalidEventError

EVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "paid"}


@pytest.mark.parametrize("nulls", [
    {"time": None}, {"data": None}, {"data_base64": None}, {"subject": None, "datacontenttype": None, "trace": None},
])  # fmt: skip
def test_nulls_are_absent(nulls):
    """An event is the same with nulls and without, including its columns."""
    plain, with_nulls = (read_cloud_events(json.dumps(each).encode(), ONE, 5) for each in (EVENT, EVENT | nulls))
    assert with_nulls.equals(plain)


@pytest.mark.parametrize(("members", "payload"), [
    ({"data": None, "data_base64": "AP8="}, b"\0\xff"), ({"data": [5], "data_base64": None}, b"[5]"),
])  # fmt: skip
def test_bytes_beside_a_null(members, payload):
    """Of `data` and `data_base64`, the one that is not null is the payload."""
    found = read_cloud_events(json.dumps(EVENT | members).encode(), ONE, 5)
    assert found.column("data").to_pylist() == [payload]


def test_a_null_time_is_none_with_a_key():
    """With an idempotency key, a null time is refused: a retried batch needs times."""
    with pytest.raises(InvalidEventError, match="event 0: the time is missing"):
        read_cloud_events(json.dumps(EVENT | {"time": None}).encode(), ONE, None)
