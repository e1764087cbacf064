"""Templates found in a sample of a column: of JSON objects, or of lines of text that look alike."""

from __future__ import annotations

from collections.abc import Sequence

from esformat.format.templates import TemplateTable
from esformat.write.json_skeletons import json_skeletons
from esformat.write.line_skeletons import line_skeletons
from esformat.write.template_tables import Skeleton, Tables, covered

MOST_ROWS = 8192
"""Rows of a sample that are looked at, spread over it."""
MOST_ROW_BYTES = 8 << 10
ONE_OF_MANY = 1000.0
_PRIME = 2_654_435_761


def find_templates(rows: Sequence[bytes], scale: float = ONE_OF_MANY) -> TemplateTable | None:
    """The templates of a sample; None where most rows share no skeletons.

    scale: how many times as many rows the file has, about: what the sample has once, a large file has often.
    """
    looked_at = _spread(rows)
    sample = [row for row in looked_at if len(row) <= MOST_ROW_BYTES]
    objects = [row for row in sample if row[:1] == b"{"]
    rest: list[Skeleton] = []
    if 2 * len(objects) >= len(looked_at):
        found = json_skeletons(objects)
    else:
        found, rest = line_skeletons(sample)
    if not found or 2 * covered([*found, *rest]) < len(looked_at):
        return None
    return Tables(found, rest, scale * len(rows) / len(sample)).table()


def _spread(rows: Sequence[bytes]) -> Sequence[bytes]:
    """So many rows, from all over the sample, in no rhythm that its rows could have, too; the same ones each time."""
    step = -(-len(rows) // MOST_ROWS)
    if step < 2:
        return rows
    return [rows[at + at * _PRIME // len(rows) % step] for at in range(0, len(rows) - step + 1, step)]
