"""Validation of queries on a Go ESDB file, whose columns are found lazily."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from esformat.customerio.layout import KEY_LAYOUT, Layout, Layouts
from esformat.errors import UnknownIndexError, UsageError
from esformat.event import to_key
from esformat.read.ask.question import Checks


class LayoutChecks(Checks):
    """Checks columns and indexes of a query against a file whose layout is found lazily."""

    def __init__(self, path: str, layouts: Layouts) -> None:
        super().__init__(path, KEY_LAYOUT.schema)
        self.layouts = layouts

    def known_columns(self, names: Sequence[str]) -> Sequence[str]:
        """The known columns, including those of `names` that exist."""
        known: Sequence[str] = self.layouts.naming(names).schema.arrow.names
        return known

    def conditions(self, wanted: Mapping[str, Any]) -> Iterable[tuple[str, bytes]]:
        """Return the indexes with the values to look up. Raises UnknownIndexError, UsageError."""
        layout = self.layouts.naming(wanted)
        return (_condition(layout, self.name, name, value) for name, value in wanted.items())


def _condition(layout: Layout, path: str, name: str, value: Any) -> tuple[str, bytes]:
    """Return the column and value of a condition: in Go, any colon may separate name and value."""
    known = layout.by_name.get(name)
    if isinstance(value, str | bytes) and isinstance(name, str):
        stored, wanted = layout.names.split(layout.names.pair(known.stored if known else to_key(name), to_key(value)))
        if stored in layout.by_stored:
            return layout.indexes[layout.by_stored[stored]].name, wanted
    check_index(layout, path, name)
    if not isinstance(value, str | bytes):
        raise UsageError(f"index {name!r} holds text, not {value!r}")
    return name, to_key(value)


def check_index(layout: Layout, path: str, name: str) -> None:
    """Raise UnknownIndexError if the file has no such index."""
    if name not in layout.by_name:
        known = ", ".join(layout.by_name) or "none"
        raise UnknownIndexError(f"no index {name!r}", path=path, hint=f"the indexes are: {known}")
