"""Members of JSON lines that become bytes: texts unescaped, other values word for word, bytes from {"base64": …}."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from esformat.convert.json_values import parse_value
from esformat.convert.typed_text import bytes_of

_SPACE = r"[ \t\r\n]*+"
_TEXT = r'"(?:[^"\\]++|\\.)*+"'
_SCALAR = rf'(?:{_TEXT}|[^\s"\[\]{{}},]++)'


class Words:
    """Takes such members out of objects. What is left is valid JSON just where the line was."""

    def __init__(self, names: Collection[str]) -> None:
        """Take the members that are called one of `names`, at the top level."""
        self._asked = frozenset(names)
        self._names = {json.dumps(name, ensure_ascii=False): name for name in names}
        asked = "|".join(map(re.escape, self._names))
        # members of other plain names with a text or number, then perhaps the beginning of one that is asked for
        other = rf'{_SPACE}(?!(?:{asked}){_SPACE}:)"[^"\\]*+"{_SPACE}:{_SPACE}{_SCALAR}{_SPACE},'
        self._other_value = re.compile(rf'(?:{asked})\s*+:\s*+[^"n\s]'.encode())
        self._up_to_next = re.compile(rf"(?:{other})*+{_SPACE}(?:({asked}){_SPACE}:{_SPACE})?+")

    def likely_in(self, lines: bytes) -> bool:
        """Whether one of the members seems to have another value than a text or null somewhere; only a guess."""
        return bool(self._asked) and self._other_value.search(lines) is not None

    def of(self, members: Mapping[str, Any], line: bytes) -> dict[str, bytes | None]:
        """Give those of the members of a line."""
        values = {name: members[name] for name in self._asked & members.keys()}
        if not all(isinstance(value, str) for value in values.values()):
            return self.take(line.decode())[0]
        return {name: value.encode() for name, value in values.items()}

    def take(self, line: str) -> tuple[dict[str, bytes | None], str]:
        """Give the members by name, and the line with null in place of those that are no text. Raises ValueError.

        The line may be broken, but is not nested deeply.
        """
        found: dict[str, bytes | None] = {}
        left, kept = "", 0
        at = _after_space(line, 0)
        if not line.startswith("{", at):
            raise ValueError("no object")
        while len(found) < len(self._asked):
            name, start = self._next(line, at + 1)
            if name is None:
                break
            value, end = parse_value(line, start)
            if name in self._asked:
                found[name] = value.encode() if isinstance(value, str) else _as_bytes(value, line[start:end])
                if not isinstance(value, str):
                    left, kept = left + line[kept:start] + "null", end
            at = _after_space(line, end)
            if not line.startswith(",", at):
                break
        return found, left + line[kept:]

    def _next(self, line: str, at: int) -> tuple[str | None, int]:
        """The next member that is asked for or is not plain, and where its value begins; None where there is none."""
        met = self._up_to_next.match(line, at)
        assert met is not None  # it matches nothing, too
        if met[1] is not None:
            return self._names[met[1]], met.end()
        at = met.end()
        if not line.startswith('"', at):
            return None, at
        name, end = parse_value(line, at)
        at = _after_space(line, end)
        if not line.startswith(":", at):
            raise ValueError("no value")
        return name, _after_space(line, at + 1)


def _as_bytes(value: object, written: str) -> bytes | None:
    if value is None:
        return None
    found = bytes_of(value)
    return written.encode() if found is None else found


_SPACES = re.compile(_SPACE)


def _after_space(line: str, at: int) -> int:
    met = _SPACES.match(line, at)
    return met.end() if met else at
