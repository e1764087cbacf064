"""The page that shows a whole file: its lines put together are the file, each at the offset that it says."""

from __future__ import annotations

import re

import make_damaged
from spec_document import ROOT

_LINE = re.compile(r'^ *(?P<offset>\d+)  (?:"(?P<text>.*)"|(?P<hex>[0-9a-f]{2}(?: [0-9a-f]{2})*))(?:  .*)?$')


def test_every_byte_is_shown():
    """Nothing is left out, and nothing stands at another place."""
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
