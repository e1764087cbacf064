"""Query parameters and bodies of plateau's routes, validated: malformed ones are refused, never ignored."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter

import pyarrow as pa

from aggregator import InvalidRequestError
from aggregator.base.names import check_name
from aggregator.lql import Regex, RegexError
from aggregator.server.plateau.paging import Wanted
from aggregator.server.plateau.projection import Focus

DEFAULT_PAGE = 1000
MAX_EXPRESSIONS = 20
"""Limit of regular expressions in the partition filters of a request."""
_INDEXED = re.compile(r"(.+?)\[(\d{0,6})\]", re.ASCII)
_FOCUS = ("dataset", "dataset.exclude", "dataset.separator", "dataset.max_bytes")
_PAGE = ("page_size", "time.start", "time.end", "partition_filter", *_FOCUS)
PARTITION_PARAMETERS = ("start", *_PAGE)  # the partition is fixed, but its clients send a filter anyway
TOPIC_PARAMETERS = ("order", "page_bytes", *_PAGE)  # page_bytes has no effect, as in plateau
_LISTS = ("dataset", "dataset.exclude", "partition_filter")
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)")
_MAX_INDEX = 2**63 - 1

Given = dict[str, list[str]]


def invalid(why: str) -> InvalidRequestError:
    """Return the error for an invalid query, in plateau's words; the hint says what is wrong."""
    return InvalidRequestError("invalid query", hint=why)


def parameters(pairs: Iterable[tuple[str, str]], known: Collection[str]) -> Given:
    """Return values by name; `name[0]`, `name[]` and a repeated `name` are lists, ordered by number.

    Raises InvalidRequestError.
    """
    found: dict[str, list[tuple[int, str]]] = {}
    for name, value in pairs:
        indexed = _INDEXED.fullmatch(name)
        plain = indexed[1] if indexed else name
        if plain not in known or (indexed and plain not in _LISTS):
            raise invalid(f"unknown parameter {name[:100]!r}; known parameters: {', '.join(known)}")
        values = found.setdefault(plain, [])
        if values and plain not in _LISTS:
            raise invalid(f"duplicate parameter {plain!r}")
        values.append((int(indexed[2]) if indexed and indexed[2] else len(values), value))
    return {name: [value for _, value in sorted(values, key=itemgetter(0))] for name, values in found.items()}


def wanted(given: Given, max_page: int, max_bytes: int) -> Wanted:
    """Return the page that the parameters ask for. Raises InvalidRequestError."""
    start = _time(given, "time.start", round_up=True)
    end = _time(given, "time.end", round_up=False)
    if start is not None and end is not None and start > end:
        raise invalid("the time range ends before it begins: time.start must be before time.end")
    order = (one(given, "order") or "asc").lower()
    if order not in ("asc", "desc"):
        raise invalid(f"order must be asc or desc, not {order[:100]!r}")
    size = whole(given, "page_size")
    whole(given, "page_bytes")
    focus = Focus(
        tuple(given.get("dataset", ())),
        tuple(given.get("dataset.exclude", ())),
        one(given, "dataset.separator"),
        whole(given, "dataset.max_bytes"),
    )
    return Wanted(
        min(DEFAULT_PAGE if size is None else size, max_page),
        max_bytes,
        start,
        None if end is None else end + 1,
        order == "desc",
        focus,
    )


def one(given: Given, name: str) -> str | None:
    """Return the value of a parameter that is not a list."""
    return given[name][0] if name in given else None


def whole(given: Given, name: str, least: int = 0) -> int | None:
    """Return a whole number; None if it is absent. Raises InvalidRequestError."""
    text = one(given, name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and least <= int(text) <= _MAX_INDEX):
        raise invalid(f"{name} must be a whole number from {least}, not {text[:100]!r}")
    return int(text)


def _time(given: Given, name: str, *, round_up: bool) -> int | None:
    """Return a time in µs; finer digits are rounded into the range. Raises InvalidRequestError."""
    text = one(given, name)
    if text is None:
        return None
    match = _RFC3339.fullmatch(text.replace(" ", "+") if text.count(" ") == 1 and "T" in text.upper() else text)
    try:
        if match is None:
            raise ValueError
        date, time, fraction, zone = match.groups()
        moment = dt.datetime.fromisoformat(f"{date}T{time}{zone.upper().replace('Z', '+00:00')}")
    except ValueError:
        raise invalid(f"{name} must be a time such as 2026-03-01T08:00:00Z, not {text[:100]!r}") from None
    digits = (fraction or "").ljust(9, "0")
    seconds = (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(seconds=1)
    return seconds * 1_000_000 + int(digits[:6]) + (round_up and digits[6:] > "000")


def matching(partitions: Sequence[str], filters: Sequence[str] | None) -> list[str]:
    """Return the partitions with those names or that match a `regex:…`; an invalid pattern is a name, as in plateau.

    Raises InvalidRequestError for too many patterns.
    """
    if filters is None:
        return list(partitions)
    chosen = {text for text in filters if not text.startswith("regex:")}
    if sum(text.startswith("regex:") for text in filters) > MAX_EXPRESSIONS:
        raise invalid(f"partition_filter has more than {MAX_EXPRESSIONS} regular expressions")
    names = pa.array(partitions, pa.string())
    for text in filters:
        if text.startswith("regex:"):
            try:
                regex = Regex(text.removeprefix("regex:"))
            except RegexError:
                chosen.add(text)
                continue
            chosen.update(names.filter(regex.matches(names)).to_pylist())
    return [name for name in partitions if name in chosen]


def positions(body: bytes) -> Mapping[str, int]:
    """Return where to continue, by partition, from a JSON object of record indexes; an empty body and null are {}.

    Raises InvalidRequestError.
    """
    if body.strip() in (b"", b"null"):
        return {}
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise invalid('the body is not JSON: send {"partition": next record index}, or {}') from None
    if not isinstance(found, dict):
        raise invalid("the body must be a JSON object of record indexes by partition")
    for name, index in found.items():
        check_name(name, "partition")
        if isinstance(index, bool) or not isinstance(index, int | float) or not 0 <= index <= _MAX_INDEX or index % 1:
            raise invalid(f"the record index of partition {name[:100]!r} must be a whole number from 0")
    return {name: int(index) for name, index in found.items()}  # 5.0 is a whole number in JSON
