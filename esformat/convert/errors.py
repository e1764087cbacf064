"""The errors of reading somebody else's files. They tell file, line or row, what is wrong and what to do."""

from __future__ import annotations

from esformat import EsdbError


class InputError(EsdbError, ValueError):
    """An input cannot be read as asked: missing, damaged, of another format, or without a column it should have."""


class BadRowError(InputError):
    """A row cannot become an event, and bad rows were to stop the work."""
