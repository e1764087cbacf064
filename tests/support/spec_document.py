"""The tables and examples of a page in `spec/`, by default `format.md`."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "spec" / "format.md").read_text("utf-8")

_TABLE = re.compile(r"<!-- table: (?P<name>[\w ]+) -->\n\n(?P<lines>(?:\|.*\n)+)")
_EXAMPLE = re.compile(
    r"<!-- hex: (?P<name>\w[\w ]*?)(?P<facts>(?: \w+=[^ >]+)*) -->\n\n```text\n(?P<hex>[0-9a-f \n]+)```"
)

FIELD_CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i64": "q", "handle": "16s"}


def tables(text: str = TEXT) -> dict[str, list[dict[str, str]]]:
    """Every marked table: its rows by column title, without code marks."""
    found = {}
    for match in _TABLE.finditer(text):
        titles, _, *rows = [_cells(line) for line in match["lines"].splitlines()]
        found[match["name"]] = [dict(zip(titles, row, strict=True)) for row in rows]
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]


def examples(text: str = TEXT) -> list[tuple[str, dict[str, str], bytes]]:
    """Every marked example: its name, facts (`offset=4096`) and bytes."""
    return [
        (match["name"], dict(fact.split("=") for fact in match["facts"].split()), bytes.fromhex(match["hex"]))
        for match in _EXAMPLE.finditer(text)
    ]


def fixed_fields(name: str, text: str = TEXT) -> list[dict[str, str]]:
    """The rows of a table with a fixed offset and size, from its first byte on."""
    return [row for row in tables(text)[name] if row["offset"].isdecimal() and row["size"].isdecimal()]


def struct_format(name: str, text: str = TEXT) -> str:
    """The fixed fields of a table as a format of the `struct` module."""
    codes = [FIELD_CODES.get(row["type"]) or f"{row['size']}s" for row in fixed_fields(name, text)]
    return "<" + "".join(codes)


def numbers(name: str, column: str, text: str) -> dict[str, int]:
    """One column of a table as names, another as numbers."""
    return {row[text]: int(row[column].replace(",", "")) for row in tables()[name]}
