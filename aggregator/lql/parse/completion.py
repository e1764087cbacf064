"""Completions while a statement is typed: words of the language, names, and values after a name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from aggregator.lql.parse.tag_set import bare
from aggregator.lql.parse.tokens import KEYWORDS
from aggregator.lql.parse.tree import FUNCTIONS
from aggregator.lql.text.quoting import NAME, quote

_WORD = re.compile(r"[\w./:-]*$")
_BEHIND_NAME = re.compile(r"(?P<name>[\w./:-]+)\s*(?:=|!=|LIKE|PREFIX|SUFFIX|CONTAINS)\s*[\w./:-]*$", re.IGNORECASE)
_IN_BRACES = re.compile(r"\{(?:[^}]*,)?\s*[\w./:-]*$")
_PIPE = re.compile(r"\bPIPE\s+[\w./:-]*$", re.IGNORECASE)
_MEASURES = ("SUM", "AVG", "MIN", "MAX", "PERCENTILE")
_CALLS = tuple(f"{name}(" for name in (*FUNCTIONS, *_MEASURES))
LOOKED_AT = 500  # characters before the cursor that are searched, because searching takes quadratic time
MAX_SHOWN = 200
"""Completions offered at a time."""


def completions(
    before: str, streams: Iterable[Mapping[str, str]], pipes: Iterable[str] = (), names: Iterable[str] = ()
) -> Iterator[tuple[str, int]]:
    """Completions of the word at the end of `before`, each with the number of characters of `before` that it replaces.

    names: of columns and fields, in addition to the streams' tags.
    """
    before = before[-LOOKED_AT:]
    found = _WORD.search(before)
    word = found[0] if found else ""
    behind = _BEHIND_NAME.search(before)
    if _PIPE.search(before):
        candidates = sorted(pipes)
    elif behind is not None:
        candidates = sorted({tags[behind["name"]] for tags in streams if behind["name"] in tags})
        candidates = [value if bare(value) else quote(value) for value in candidates]
    else:
        known = {name for tags in streams for name in tags}
        in_braces = _IN_BRACES.search(before) is not None
        known |= set() if in_braces else set(names)
        words = [] if in_braces else [*sorted(KEYWORDS), *_CALLS, "msg", "ts", "fields:"]
        candidates = list(dict.fromkeys([*map(_named, sorted(known)), *words]))
    fitting = [one for one in candidates if one.strip("`").lower().startswith(word.lower()) and one != word]
    for one in fitting[:MAX_SHOWN]:
        yield one, len(word)


def _named(name: str) -> str:
    """A name in the syntax of statements."""
    return name if re.fullmatch(NAME, name) else "`" + name.replace("`", "``") + "`"
