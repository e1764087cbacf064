"""What kinds of load there are, apart from what makes it: a command shows them without loading that."""

from __future__ import annotations

BODIES = ("arrow", "jsonl")
COMPRESSIONS = ("none", "gzip", "zstd")
INTERFACES = ("native", "plateau")
