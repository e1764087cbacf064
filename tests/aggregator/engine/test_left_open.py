"""Programs that end without `close`: no traceback, no loss, and the catalog is closed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from effort import share_of

import aggregator

ROOT = Path(__file__).parents[3]
BEGIN = """
import aggregator
from esformat.parts import hide_pandas
hide_pandas()
catalog = aggregator.open("data", durability="interval")
topic = catalog.create_topic("t", roll={"rows": 10})
for batch in range(60):
    topic.append([{"space": "a", "timestamp": batch}] * 10)
"""
ENDS = {
    "ends": "",
    "fails": "raise SystemExit('sorry')",
    "goes on in a thread": """
import threading, time
def append():
    threading.main_thread().join()
    topic.append([{"space": "late", "timestamp": 1}])
threading.Thread(target=append).start()
""",
    "has let go of it": "del catalog, topic",
}


@pytest.mark.parametrize("end", share_of(ENDS.values(), 4), ids=share_of(ENDS, 4))
def test_without_close(tmp_path, end):
    """A program that ends amid seals and merges prints no traceback, and acknowledged events are there."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + end], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stderr == ("sorry\n" if "sorry" in end else "")
    with aggregator.open(tmp_path / "data") as catalog:
        assert catalog.topic("t").scan().count() == 600 + ("late" in end)
        assert not catalog.problems()
