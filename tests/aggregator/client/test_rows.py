"""Single events for the client's writers: wrong ones are refused when added, not later."""

from __future__ import annotations

import pytest

from aggregator.client.writing.rows import row_of
from esformat import InvalidEventError


def test_what_an_event_is():
    """Index and column values are next to the keys; absent values are left out."""
    assert row_of("a", b"x", 1, "g", {"type": "t"}, {"n": 2}) == {
        "space": "a", "timestamp": 1, "data": b"x", "grouping": "g", "type": "t", "n": 2,
    }  # fmt: skip
    assert row_of(b"a", None, 1, None, None, None) == {"space": b"a", "timestamp": 1}


@pytest.mark.parametrize(("space", "data", "message"), [
    (1, b"", "a space must be str or bytes, not int"), (None, b"", "not NoneType"),
    ("a", "text", "data must be bytes, not str"),
])  # fmt: skip
def test_wrong_types(space, data, message):
    """Wrong types are refused with the type that was passed."""
    with pytest.raises(InvalidEventError, match=message):
        row_of(space, data, 1, None, None, None)
