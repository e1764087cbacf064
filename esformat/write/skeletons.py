"""Find templates in a sample of a column, for JSON objects or for lines of similar text."""

from __future__ import annotations

from collections.abc import Sequence

from esformat.format.templates import TemplateTable
from esformat.write.json_skeletons import json_skeletons
from esformat.write.line_skeletons import line_skeletons
from esformat.write.template_tables import Skeleton, Tables, covered

MOST_ROWS = 8192
"""Most rows of a sample that are examined, spread over it."""
MOST_ROW_BYTES = 8 << 10
ONE_OF_MANY = 1000.0
_PRIME = 2_654_435_761


def find_templates(rows: Sequence[bytes], scale: float = ONE_OF_MANY) -> TemplateTable | None:
    """The templates of a sample; None if most rows have no skeleton in common.

    scale: approximately how many times as many rows the file has; what occurs once in the sample is frequent in a large
    file.
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
    """At most MOST_ROWS rows from all over the sample, without a rhythm that its rows could have too; deterministic."""
    step = -(-len(rows) // MOST_ROWS)
    if step < 2:
        return rows
    return [rows[at + at * _PRIME // len(rows) % step] for at in range(0, len(rows) - step + 1, step)]
