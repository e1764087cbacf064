"""The page that shows a whole file: its lines, joined, are the file, each at its stated offset."""

from __future__ import annotations

import re

import make_damaged
from spec_document import ROOT

_LINE = re.compile(r'^ *(?P<offset>\d+)  (?:"(?P<text>.*)"|(?P<hex>[0-9a-f]{2}(?: [0-9a-f]{2})*))(?:  .*)?$')


def test_every_byte_is_shown():
    """Every byte is shown, at its offset."""
    page = (ROOT / "spec" / "annotated.md").read_text("utf-8")
    shown = bytearray()
    for line in page.split("```")[1].splitlines():
        found = _LINE.match(line)
        if found is None:
            assert not line.startswith(" "), line
            continue
        assert int(found["offset"]) == len(shown), line
        shown += found["text"].encode() if found["text"] is not None else bytes.fromhex(found["hex"])
    assert bytes(shown) == make_damaged.one_event()
