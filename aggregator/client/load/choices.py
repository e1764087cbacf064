"""The choices of load, in a module that a command can load without the generator."""

from __future__ import annotations

BODIES = ("arrow", "jsonl")
COMPRESSIONS = ("none", "gzip", "zstd")
INTERFACES = ("native", "plateau")
