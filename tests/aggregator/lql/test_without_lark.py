"""Parsing needs lark; the aggregator, tag sets and compiled conditions do not."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
sys.modules["lark"] = None  # as if it were not installed
import aggregator
from aggregator.lql import LqlError, TagSet, TagTable, parse_statement
assert str(TagSet.parse("b=1,a=2")) == "{a=2,b=1}"
assert TagTable([TagSet.of({"a": "1"})]).select(TagSet.of({"a": "1"})).tolist() == [0]
try:
    parse_statement("SELECT")
except LqlError as error:
    print(error.hint)
"""


def test_without_lark():
    """Without lark everything else works, and the error says what to install."""
    run = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert "esformat[lql]" in run.stdout
