"""Query parameters and members of JSON bodies, validated; unknown names are refused."""

from __future__ import annotations

import base64
import binascii
import csv
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import orjson
from starlette.requests import Request

from aggregator.base.names import check_name
from aggregator.model import DEFAULT_PARTITION
from aggregator.server.bodies.formats import Names
from aggregator.server.bodies.shared.media import JSON, TEXT, media_of
from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.bodies.shared.times import TIME_UNITS, TimeReader
from aggregator.server.context import Context
from aggregator.server.http.body import read_plain
from esformat import InvalidEventError

_WHOLE = re.compile(r"-?[0-9]{1,19}")
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")


class Params:
    """The query parameters of a request, each at most once."""

    def __init__(self, request: Request, known: Iterable[str]) -> None:
        """known: the allowed names. Raises ProblemError (400) for any other, or for a duplicate."""
        known = tuple(known)
        self._given: dict[str, str] = {}
        for name, value in request.query_params.multi_items():
            if name not in known:
                raise wrong(f"unknown parameter {name[:40]!r}", f"known parameters: {', '.join(known) or 'none'}")
            if name in self._given:
                raise wrong(f"duplicate parameter {name!r}", "send it once")
            self._given[name] = value

    def text(self, name: str, default: str | None = None) -> str | None:
        """Return the text of a parameter."""
        return self._given.get(name, default)

    def partition(self) -> str:
        """Return the name of the partition to append to; "0" if it is absent. Raises InvalidRequestError if empty."""
        return check_name(self._given.get("partition", DEFAULT_PARTITION), "partition")

    def flag(self, name: str) -> bool:
        """Return true or false; false if it is absent."""
        given = self._given.get(name, "false").lower()
        if given not in (*_TRUE, *_FALSE):
            raise wrong(f"{name} is {given[:40]!r}", "expected true or false")
        return given in _TRUE

    def number(self, name: str, *, low: int = 0, high: int = 2**63 - 1) -> int | None:
        """Return a whole number from `low` to `high`, both included; None if it is absent."""
        given = self._given.get(name)
        if given is None:
            return None
        digits = given.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 20 and low <= int(given) <= high):
            raise wrong(f"{name} is {given[:40]!r}", f"expected a whole number from {low} to {high}")
        return int(given)

    def seconds(self, name: str, *, high: float) -> float:
        """Return seconds from 0 to `high`; 0 if it is absent."""
        given = self._given.get(name, "0")
        try:
            found = float(given)
        except ValueError:
            found = -1.0
        if not 0 <= found <= high:
            raise wrong(f"{name} is {given[:40]!r}", f"expected seconds from 0 to {high:g}")
        return found

    def time(self, name: str) -> int | None:
        """Return a time in µs; None if it is absent.

        It is ISO 8601 text, or a number since 1970 in `time_unit`; without a unit, its size determines it.
        """
        given, unit = self._given.get(name), self.time_unit()
        if unit == "us" and given is not None and _WHOLE.fullmatch(given):
            return int(given)  # any value that events can have, even beyond the calendar's years
        try:
            return TimeReader(unit).read(given, name, up=True)
        except InvalidEventError as error:
            raise wrong(
                error.message,
                "such as 2026-03-01T08:00:00Z; in a URL, write + as %2B; ?time_unit= is the unit of a number",
            ) from None

    def time_unit(self) -> str | None:
        """Return the unit of numeric times; None if their size determines it."""
        return self.one_of("time_unit", TIME_UNITS)

    def one_of(self, name: str, known: Sequence[str]) -> str | None:
        """Return one of the known words; None if it is absent."""
        given = self._given.get(name)
        if given is not None and given not in known:
            raise wrong(f"{name} is {given[:40]!r}", f"expected one of {', '.join(known)}")
        return given

    def names(self, name: str) -> list[str] | None:
        """Return a list of names, separated and quoted as in CSV; None if it is absent."""
        given = self._given.get(name)
        if given is None:
            return None
        try:
            return [part for part in next(csv.reader([given])) if part]
        except csv.Error as error:
            raise wrong(f"{name} is {given[:40]!r}: {error}", 'quote such names as in CSV: "a,b"') from None

    def key(self, name: str, *, binary: bool) -> Any:
        """Return a space or grouping: text, or bytes for a topic with binary keys.

        Bytes are the UTF-8 of the text, or come from the parameter `…_base64`.
        """
        encoded = self._given.get(f"{name}_base64")
        if encoded is None:
            given = self._given.get(name)
            return given.encode() if binary and given is not None else given
        if not binary:
            raise ProblemError(
                409, "other-keys", f"{name}_base64 is for topics with binary keys", f"send {name} instead"
            )
        try:
            return base64.b64decode(
                encoded, altchars=b"-_" if "-" in encoded or "_" in encoded else None, validate=True
            )
        except (binascii.Error, ValueError):
            raise wrong(f"{name}_base64 is not base64") from None


def names_in(params: Params) -> Names:
    """Return the body's names for the time (`ts`) and the message (`msg`). Raises ProblemError (400)."""
    names = Names(params.text("ts") or None, params.text("msg") or None)
    keys = ("space", "grouping")
    if names.time in keys or names.message in keys or (names.time is not None and names.time == names.message):
        raise wrong("ts and msg name the same column, or the column of a key", "name two other columns")
    return names


async def json_object(request: Request, context: Context, known: Sequence[str]) -> dict[str, Any]:
    """Return the members of a body that is a JSON object; none if it is empty. Unknown members are refused.

    Raises ProblemError: 400, and what `read_plain` raises.
    """
    body = await read_plain(request, context)
    try:
        found = orjson.loads(body) if body.strip() else {}  # rejects lone surrogates, which `json` accepts
    except orjson.JSONDecodeError:
        raise ProblemError(400, "invalid-body", "the body is not JSON") from None
    if not isinstance(found, dict):
        raise ProblemError(400, "invalid-body", "the body is not a JSON object")
    odd = next((name for name in found if name not in known), None)
    if odd is not None:
        raise ProblemError(400, "invalid-body", f"unknown member {odd[:40]!r}", f"known members: {', '.join(known)}")
    return found


async def statement_in(
    request: Request, context: Context, known: Collection[str], example: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the members of a body that has a query: a JSON object, or the text of the query alone.

    known: the allowed members. Raises ProblemError: 400, 415, and what `read_plain` raises.
    """
    media = media_of(request.headers.get("content-type"))
    if media not in (JSON, TEXT):
        raise ProblemError(
            415, "unsupported-media-type", f"Content-Type {media[:80]!r} is not supported", f"send {JSON} or {TEXT}"
        )
    body = await read_plain(request, context)
    try:
        text = body.decode()
        found = json.loads(text) if media == JSON else {"query": text}
    except (ValueError, RecursionError):
        raise ProblemError(400, "invalid-body", f"the body is not {media}") from None
    if not isinstance(found, dict) or not isinstance(found.get("query"), str):
        raise ProblemError(400, "invalid-body", "the body has no query", f"such as {json.dumps(example)}")
    odd = next((name for name in found if name not in known), None)
    if odd is not None:
        raise wrong(f"unknown member {odd[:40]!r}", f"known members: {', '.join(known)}")
    return found


def limit_in(body: Mapping[str, Any], most: int = 2**62) -> int | None:
    """Return the member `limit`, from 1 to `most`; None if it is absent or null. Raises ProblemError (400)."""
    limit = body.get("limit")
    if isinstance(limit, float) and limit.is_integer():  # 5.0 is a whole number in JSON
        limit = int(limit)
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= most):
        raise wrong("limit must be a whole number", f"expected a number from 1 to {most}")
    return limit


def wrong(detail: str, hint: str | None = None) -> ProblemError:
    """Return the refusal of a parameter or header."""
    return ProblemError(400, "invalid-parameter", detail, hint)


def header(request: Request, name: str) -> str | None:
    """Return a header decoded as UTF-8, as shells and our clients send it. Raises ProblemError (400)."""
    given = request.headers.get(name)
    try:
        return None if given is None else given.encode("latin-1").decode()
    except UnicodeDecodeError:
        raise wrong(f"the header {name} is not UTF-8") from None


def idempotency_key(request: Request) -> tuple[str | None, int | None]:
    """Return producer and sequence of the header `Idempotency-Key: producer:sequence`; None twice if it is absent."""
    given = header(request, "idempotency-key")
    if given is None:
        return None, None
    producer, colon, sequence = given.strip().rpartition(":")
    digits = sequence.removeprefix("-")
    if not colon or not producer or not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
        raise wrong(f"Idempotency-Key is {given[:80]!r}", "expected producer:sequence, such as web-1:17")
    return producer, int(sequence)
