"""Tag sets, which name streams: any names, any values, one canonical text per set that parses back to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from aggregator.lql.errors import LqlError, Mark
from aggregator.lql.text.quoting import QuotingError, quote, unquote

# Generous for tags, and far below the limit for a key of a segment (64 KiB).
MAX_TAG_BYTES = 4 << 10  # a name, or a value
MAX_TAG_SET_BYTES = 32 << 10  # the canonical text
_BARE = re.compile(r"[\w./:@%+*?!#$&()<>|~^;\[\]-]+")
_SPACE = re.compile(r"\s*")
_BARE_NAME = re.compile(r"[^=,{}\"'`]+")
_BARE_VALUE = re.compile(r"[^=,{}\"]*")
_QUOTED = re.compile(r"\"((?:[^\"\\]|\\.|(?!))*+)\"|`((?:[^`]|``|(?!))*+)`|'([^']*+)'", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TagSet:
    """Tags by name, each at most once. `str()` returns the canonical text, with ascending names: `{ip=::1,name=app1}`.

    Create one with `of` or `parse`. Two sets are equal exactly if their canonical texts are.
    """

    items: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, tags: Mapping[str, str]) -> Self:
        """From names and values. Raises LqlError if one is not text, or too long."""
        if type(tags) is not dict and not isinstance(tags, Mapping):
            raise LqlError(f"tags must be names and values, such as {{'app': 'web'}}, not {type(tags).__name__}")
        for name, value in tags.items():
            _check(name, value)
        made = cls(tuple(sorted(tags.items())))
        size = len(str(made).encode())
        if size > MAX_TAG_SET_BYTES:
            raise LqlError(f"the tags have {size} bytes in total, more than {MAX_TAG_SET_BYTES}")
        return made

    @classmethod
    def cut(cls, tags: Mapping[str, str]) -> tuple[Self, dict[str, str]]:
        """From names and values of any length; also returns the original tags that were cut or left out.

        Names and values are cut at MAX_TAG_BYTES; from a set that is too long, the longest tags are left out.
        """
        short = {_cut(name): _cut(value) for name, value in tags.items()}
        whole = {name: value for name, value in tags.items() if (_cut(name), short[_cut(name)]) != (name, value)}
        sizes = {name: len(written(name).encode()) + len(written(value).encode()) + 2 for name, value in short.items()}
        left = sum(sizes.values())
        for name in sorted(sizes, key=lambda name: -sizes[name]):
            if left <= MAX_TAG_SET_BYTES:
                break
            left -= sizes[name]
            whole.update((known, value) for known, value in tags.items() if _cut(known) == name)
            del short[name]
        return cls.of(short), whole

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `{name=value, …}`; the braces are optional. Raises LqlError."""
        start = _skip(text, 0)
        if text[start : start + 1] == "{":
            tags, end = parse_tag_list(text, start)
        else:
            tags, end = _parse_items(text, start, "")
        end = _skip(text, end)
        if end < len(text):
            raise LqlError("unexpected text after the tags", mark=Mark(text, end, len(text)))
        return cls.of(tags)

    def get(self, name: str, default: str = "") -> str:
        """The value of the tag, or `default`."""
        return next((value for known, value in self.items if known == name), default)

    def as_dict(self) -> dict[str, str]:
        """Values by name, in ascending order of names."""
        return dict(self.items)

    def __str__(self) -> str:
        return "{" + ",".join(f"{written(name)}={written(value)}" for name, value in self.items) + "}"


def parse_tag_list(text: str, start: int) -> tuple[dict[str, str], int]:
    """Read `{name=value, …}` at the brace at `start`: the tags, and where they end. Raises LqlError."""
    return _parse_items(text, start + 1, "}")


def bare(text: str) -> bool:
    """Whether canonical text has `text` without quotes."""
    return _BARE.fullmatch(text) is not None


def written(text: str) -> str:
    """`text` in canonical form: quoted if necessary."""
    return text if bare(text) else quote(text)


def _cut(text: str) -> str:
    return text if len(text) * 4 <= MAX_TAG_BYTES else text.encode()[:MAX_TAG_BYTES].decode("utf-8", "ignore")


def _check(name: object, value: object) -> None:
    for what, given in (("name", name), ("value", value)):
        shown = f"the {what} of tag {name!r}"
        if not isinstance(given, str):
            raise LqlError(f"{shown} is of type {type(given).__name__}, not text")
        try:
            size = len(given.encode())
        except UnicodeEncodeError:
            raise LqlError(f"{shown} has half of a surrogate pair, which UTF-8 cannot encode") from None
        if size > MAX_TAG_BYTES:
            raise LqlError(f"the {what} of tag {str(name)[:40]!r} has {size} bytes, more than {MAX_TAG_BYTES}")


def _parse_items(text: str, at: int, closing: str) -> tuple[dict[str, str], int]:
    """Read items up to `closing`, or to the end of the text if that is empty."""
    tags: dict[str, str] = {}
    at = _skip(text, at)
    if text[at : at + 1] == closing:
        return tags, at + len(closing)
    while True:
        begin = at
        name, at = _read(text, at, _BARE_NAME, "a tag name")
        if text[at : at + 1] != "=":
            raise LqlError(
                "a tag is written name=value",
                mark=Mark(text, at, at + 1),
                hint="quote names that contain special characters",
            )
        value, at = _read(text, _skip(text, at + 1), _BARE_VALUE, "a tag value")
        if name in tags:
            raise LqlError(f"duplicate tag {name!r}", mark=Mark(text, begin, at))
        tags[name] = value
        if text[at : at + 1] == closing:
            return tags, at + len(closing)
        if text[at : at + 1] != ",":
            wanted = f'"," or "{closing}"' if closing else '","'
            raise LqlError(
                f"{wanted} expected after the value of tag {name!r}",
                mark=Mark(text, at, at + 1),
                hint='quote values with special characters: {name="…"}',
            )
        at = _skip(text, at + 1)


def _read(text: str, at: int, bare_form: re.Pattern[str], what: str) -> tuple[str, int]:
    """Read a name or value at `at`; also return the position of the next sign."""
    if text[at : at + 1] in ('"', "`", "'"):
        found = _QUOTED.match(text, at)
        if found is None:
            raise LqlError(f"the quotes around {what} are not closed", mark=Mark(text, at, at + 1))
        try:
            value = _meaning(found)
        except QuotingError as error:
            begin = at + 1 + error.at
            raise LqlError(str(error), mark=Mark(text, begin, begin + error.length)) from None
        return value, _skip(text, found.end())
    found = bare_form.match(text, at)
    if found is None:
        raise LqlError(f"{what} expected", mark=Mark(text, at, at + 1))
    value = found[0].rstrip()
    if not value and bare_form is _BARE_NAME:
        raise LqlError(f"{what} expected", mark=Mark(text, at, at + 1), hint='an empty name is written ""')
    return value, found.end()


def _meaning(found: re.Match[str]) -> str:
    if found[1] is not None:
        return unquote(found[1])
    return found[2].replace("``", "`") if found[2] is not None else found[3]


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
