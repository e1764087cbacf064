"""The choices for a collector's options, in a small module so that a command can list them without loading the rest."""

from __future__ import annotations

FORMATS = ("text", "json", "logfmt", "common", "combined", "regex")
"""Formats of lines."""
TYPES = ("text", "integer", "number", "boolean")
"""Types of columns."""
KINDS = ("auto", "docker", "cri", "none")
"""Kinds of wrapping that a container runtime puts around lines."""
