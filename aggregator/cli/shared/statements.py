"""Split text into statements."""

from __future__ import annotations

import re

_QUOTED = r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|`(?:[^`]|``)*`"
_PIECE = re.compile(rf"{_QUOTED}|\{{(?:[^}}\"'`]|{_QUOTED})*\}}|(?P<end>;)|[^;\"'`{{]+|.+", re.DOTALL)


def split(text: str) -> tuple[list[str], str]:
    """Return the statements that end with a semicolon, and the text after the last of them."""
    ended: list[str] = []
    begin = 0
    for piece in _PIECE.finditer(text):
        if piece["end"]:
            ended.append(text[begin : piece.start()].strip())
            begin = piece.end()
    return [one for one in ended if one], text[begin:]
