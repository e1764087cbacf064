"""Small operations take as many instructions as before, whatever else the machine does."""

from __future__ import annotations

import json
import shutil

import pytest
from effort import long

from benchmarks import instructions


@long
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="counts with valgrind")
def test_no_work_takes_a_tenth_more():
    """No operation takes a tenth more. To keep higher counts, run `python -m benchmarks.instructions --keep`, and
    say why they are worth it.
    """
    kept = json.loads(instructions.KEPT.read_text())
    if {name: kept[name] for name in ("python", "machine")} != instructions.machine():
        pytest.skip("another Python or another machine than that of the counts")
    found = instructions.counted()
    assert found.keys() == kept["instructions"].keys()
    assert {name: count for name, count in found.items() if count > 1.1 * kept["instructions"][name]} == {}
