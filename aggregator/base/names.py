"""Names of topics, partitions and producers: any Unicode text, never parts of paths. Also host names."""

from __future__ import annotations

from typing import Any

from aggregator.errors import InvalidRequestError

MAX_NAME_BYTES = 1024


def check_name(name: Any, what: str) -> str:
    """Return the name unchanged. Raises InvalidRequestError if it is not text, empty, too long or not Unicode."""
    if not isinstance(name, str):
        raise InvalidRequestError(f"a {what}'s name must be text, not {type(name).__name__}")
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidRequestError(f"a {what}'s name must be Unicode text, not {name!r}") from None
    if not name:
        raise InvalidRequestError(f"a {what}'s name must not be empty")
    if length > MAX_NAME_BYTES:
        raise InvalidRequestError(f"a {what}'s name has {length} bytes, more than {MAX_NAME_BYTES}")
    return name


def is_unicode(text: str) -> bool:
    """Whether a text can be encoded as UTF-8: a `str` may contain unpaired surrogates, which cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_host(name: str | None) -> None:
    """Raises ValueError for a host name that no system can resolve, such as one with an empty label."""
    (name or "").encode("idna")
