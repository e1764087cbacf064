"""What the options of a collector can be, apart from what acts on them: a command shows them without loading that."""

from __future__ import annotations

FORMATS = ("text", "json", "logfmt", "common", "combined", "regex")
"""Of files."""
TYPES = ("text", "integer", "number", "boolean")
"""Of columns."""
KINDS = ("auto", "docker", "cri", "none")
"""Of wrapping that a container runtime puts around lines."""
