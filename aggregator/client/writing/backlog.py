"""`Backlog`: events waiting to be sent, and the size of the next batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

Row = Mapping[str, Any]
_PIECE_ROWS = 256
"""Limit of single rows in an item: a full queue drops rows from the front of one, and long items make that slow."""


@dataclass(slots=True)
class BacklogItem:
    """Rows as they were added, or a table. size_bytes: their size, approximate for rows."""

    content: list[Row] | pa.Table
    size_bytes: int
    added_s: float

    @property
    def count(self) -> int:
        """Number of events."""
        return len(self.content)

    def split(self, count: int) -> tuple[BacklogItem, BacklogItem]:
        """Return the first `count` events, and the others."""
        share = self.size_bytes * count // max(1, self.count)
        content = self.content
        if isinstance(content, list):
            first, rest = content[:count], content[count:]
        else:
            first, rest = content.slice(0, count), content.slice(count)
        return BacklogItem(first, share, self.added_s), BacklogItem(rest, self.size_bytes - share, self.added_s)

    def cut(self, count: int) -> int:
        """Remove the first `count` events, fewer than all; return their bytes."""
        share = self.size_bytes * count // self.count
        if isinstance(self.content, list):
            del self.content[:count]
        else:
            self.content = self.content.slice(count)
        self.size_bytes -= share
        return share


@dataclass(slots=True)
class Batch:
    """Events that are sent together. start: number of the first, counted over the backlog's life.

    key: producer and sequence under which it was sent, if it was.
    """

    start: int
    items: list[BacklogItem]
    key: tuple[str | None, int | None] = (None, None)

    @property
    def count(self) -> int:
        """Number of events."""
        return sum(item.count for item in self.items)

    @property
    def size_bytes(self) -> int:
        """Size of the events."""
        return sum(item.size_bytes for item in self.items)

    @property
    def events(self) -> list[Row] | pa.Table:
        """The events as they were added: rows, or a table."""
        contents = [item.content for item in self.items]
        if isinstance(contents[0], list):
            return [row for content in contents for row in content]
        return contents[0] if len(contents) == 1 else pa.concat_tables(contents)

    def table(self, table_of: Callable[[Any], pa.Table]) -> pa.Table:
        """Return the events as one table. table_of: converts rows."""
        events = self.events
        return table_of(events) if isinstance(events, list) else events

    def halves(self) -> tuple[Batch, Batch]:
        """Return two batches of about as many events each. Requires more than one event."""
        left, first, rest = self.count // 2, list[BacklogItem](), list(self.items)
        while left:
            item = rest.pop(0)
            if item.count > left:
                item, other = item.split(left)
                rest.insert(0, other)
            first.append(item)
            left -= item.count
        middle = self.start + sum(item.count for item in first)
        return Batch(self.start, first), Batch(middle, rest)


class Backlog:
    """Events in the order in which they were added."""

    def __init__(self) -> None:
        self._items: deque[BacklogItem] = deque()
        self.count = 0
        self.size_bytes = 0
        self.taken = 0
        """Number of the next event to be taken."""

    @property
    def end(self) -> int:
        """Number of the next event to be added."""
        return self.taken + self.count

    @property
    def oldest_s(self) -> float | None:
        """When the oldest event was added; None if there is none."""
        return self._items[0].added_s if self._items else None

    def add_row(self, row: Row, size_bytes: int, now_s: float) -> None:
        """Add one event. Consecutive single events share an item, and its time."""
        last = self._items[-1] if self._items else None
        if last is not None and isinstance(last.content, list) and len(last.content) < _PIECE_ROWS:
            last.content.append(row)
            last.size_bytes += size_bytes
        else:
            self._items.append(BacklogItem([row], size_bytes, now_s))
        self.count += 1
        self.size_bytes += size_bytes

    def add_table(self, table: pa.Table, now_s: float) -> None:
        """Add a table's events."""
        self._items.append(BacklogItem(table, table.nbytes, now_s))
        self.count += len(table)
        self.size_bytes += table.nbytes

    def take(self, max_rows: int, max_bytes: int) -> Batch:
        """Remove and return the oldest events that fit into one batch, at least one. Requires a non-empty backlog.

        Tables are combined only with tables of the same schema, rows only with rows.
        """
        taken: list[BacklogItem] = []
        rows, size = max_rows, max_bytes
        while self._items and rows > 0 and (size > 0 or not taken):
            head = self._items[0]
            if taken and not _go_together(taken[0], head):
                break
            each = max(1, -(-head.size_bytes // head.count))
            fits = max(min(rows, size // each), 0 if taken else 1)
            if not fits:
                break
            self._items.popleft()
            if fits < head.count:
                head, rest = head.split(fits)
                self._items.appendleft(rest)
            taken.append(head)
            rows -= head.count
            size -= head.size_bytes
        batch = Batch(self.taken, taken)
        self._removed(batch.count, batch.size_bytes)
        return batch

    def drop_oldest(self, size_bytes: int) -> int:
        """Remove the oldest events until this many bytes are free; return how many were removed."""
        before = self.taken
        target = self.size_bytes - size_bytes
        while self._items and self.size_bytes > target:
            head = self._items[0]
            few = -(-(self.size_bytes - target) // max(1, head.size_bytes // head.count))
            if few < head.count:
                self._removed(few, head.cut(few))
            else:
                self._items.popleft()
                self._removed(head.count, head.size_bytes)
        return self.taken - before

    def _removed(self, count: int, size_bytes: int) -> None:
        self.taken += count
        self.count -= count
        self.size_bytes -= size_bytes


def _go_together(first: BacklogItem, other: BacklogItem) -> bool:
    rows = isinstance(first.content, list), isinstance(other.content, list)
    return rows == (True, True) or (rows == (False, False) and first.content.schema.equals(other.content.schema))  # type: ignore[union-attr]  # both are tables
