"""Statements in a text: where each ends, and what may come next while one is typed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from aggregator.lql.parse.tag_set import bare
from aggregator.lql.parse.tokens import KEYWORDS
from aggregator.lql.text.quoting import quote

_QUOTED = r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|`(?:[^`]|``)*`"
_PIECE = re.compile(rf"{_QUOTED}|\{{(?:[^}}\"'`]|{_QUOTED})*\}}|(?P<end>;)|[^;\"'`{{]+|.+", re.DOTALL)
_WORD = re.compile(r"[\w./:-]*$")
_BEHIND_NAME = re.compile(r"(?P<name>[\w./:-]+)\s*(?:=|!=|LIKE|PREFIX|SUFFIX|CONTAINS)\s*[\w./:-]*$", re.IGNORECASE)
_IN_BRACES = re.compile(r"\{(?:[^}]*,)?\s*[\w./:-]*$")
_PIPE = re.compile(r"\bPIPE\s+[\w./:-]*$", re.IGNORECASE)
MAX_SHOWN = 200
"""Completions that are offered at a time."""


def split(text: str) -> tuple[list[str], str]:
    """The statements that end with a semicolon, and what comes behind the last of them."""
    ended: list[str] = []
    begin = 0
    for piece in _PIECE.finditer(text):
        if piece["end"]:
            ended.append(text[begin : piece.start()].strip())
            begin = piece.end()
    return [one for one in ended if one], text[begin:]


def completions(
    before: str, streams: Iterable[Mapping[str, str]], pipes: Iterable[str] = ()
) -> Iterator[tuple[str, int]]:
    """What the word at the end of `before` may become: each with how many characters of `before` it replaces."""
    found = _WORD.search(before)
    word = found[0] if found else ""
    behind = _BEHIND_NAME.search(before)
    if _PIPE.search(before):
        candidates = sorted(pipes)
    elif behind is not None:
        candidates = sorted({tags[behind["name"]] for tags in streams if behind["name"] in tags})
        candidates = [value if bare(value) else quote(value) for value in candidates]
    else:
        names = sorted({name for tags in streams for name in tags})
        in_braces = _IN_BRACES.search(before) is not None
        candidates = [*names, *([] if in_braces else [*sorted(KEYWORDS), "msg", "ts", "fields:"])]
    fitting = [one for one in candidates if one.lower().startswith(word.lower()) and one != word]
    for one in fitting[:MAX_SHOWN]:
        yield one, len(word)
