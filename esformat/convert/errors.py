"""Errors of reading input files. They name the file and the line or row, and say what is wrong and what to do."""

from __future__ import annotations

from esformat import EsdbError


class InputError(EsdbError, ValueError):
    """An input cannot be read: it is missing, damaged, in another format, or lacks a required column."""


class BadRowError(InputError):
    """A row cannot become an event, and bad rows are set to stop the load."""
