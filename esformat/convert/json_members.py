"""Taking members out of JSON objects. The text of the others stays: numbers keep their digits, keys their order."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]  # the stubs leave it out

import pyarrow as pa
import pyarrow.compute as pc

_SPACE = re.compile(r"[ \t\r\n]*")
_PLAIN_NAME = re.compile(r"\w+", re.ASCII)
_SCALAR = r'(?:"(?:[^"\\]|\\.)*"|[^",}\s]+)'
_DECODER = json.JSONDecoder()


def without(objects: pa.StringArray, names: Collection[str]) -> pa.StringArray:
    """Give each of `objects`, which are valid JSON objects, without its members called one of `names`."""
    objects = pc.ascii_trim_whitespace(objects)
    if not names:
        return objects
    if not all(_PLAIN_NAME.fullmatch(name) for name in names):
        return _each_without(objects, names)
    flat = pc.and_(pc.equal(pc.count_substring(objects, "{"), 1), pc.equal(pc.count_substring(objects, "["), 0))
    if pc.all(flat).as_py():
        return _flat_without(objects, names)
    nested = _each_without(objects.filter(pc.invert(flat)), names)
    return pc.replace_with_mask(_flat_without(objects, names), pc.invert(flat), nested)


def _flat_without(objects: pa.StringArray, names: Collection[str]) -> pa.StringArray:
    """Do it by pattern, for objects of texts and numbers only.

    A quote before a plain name opens a text, since one that closes a text comes before a comma, colon or brace; with a
    comma or brace before it, it opens a key. So the patterns meet keys only, never the inside of a text.
    """
    member = rf'"(?:{"|".join(names)})"\s*:\s*{_SCALAR}'
    objects = pc.replace_substring_regex(objects, rf",\s*{member}", "")
    return pc.replace_substring_regex(objects, rf"^\{{\s*{member}\s*(?:,\s*)?", "{")


def _each_without(objects: pa.StringArray, names: Collection[str]) -> pa.StringArray:
    return pa.array([_without(text, names) for text in objects.to_pylist()], pa.string())


def _without(text: str, names: Collection[str]) -> str:
    kept, end = "", 1
    for name, before, start, end in _members(text):
        if name not in names:
            kept += text[before:end] if kept else text[start:end]
    return "{" + kept + text[end:]


def _members(text: str) -> Iterator[tuple[str, int, int, int]]:
    """Yield the members of an object: name, and where the comma before it, itself, and what follows it begin."""
    before = 1
    while True:
        start = _after_space(text, before)
        if text[start] == ",":
            start = _after_space(text, start + 1)
        if text[start] == "}":
            return
        name, end = scanstring(text, start + 1)
        value = _after_space(text, _after_space(text, end) + 1)
        _, end = _DECODER.raw_decode(text, value)
        yield name, before, start, end
        before = end


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
