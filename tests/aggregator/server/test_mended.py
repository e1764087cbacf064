"""What was kept otherwise than it came is counted, and told now and then."""

from __future__ import annotations

import logging

from aggregator.server.mended import REFUSED, TAGS_CUT, Mended


def test_told_now_and_then(caplog):
    """Each is counted; the log tells the first at once, then all of ten seconds together."""
    now = 100.0
    mended = Mended(lambda: now)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            mended.tell(TAGS_CUT)
        mended.tell(REFUSED, "too large")
        assert [record.message for record in caplog.records] == [
            "1 log records: tags were too long: cut, and whole in the fields"
        ]
        caplog.clear()
        now += 10
        mended.tell(REFUSED, "odd")
    assert sorted(record.message for record in caplog.records) == [
        "2 log records: could not be stored (odd)",
        "2 log records: tags were too long: cut, and whole in the fields",
    ]
    assert mended.counts == {TAGS_CUT: 3, REFUSED: 2}
