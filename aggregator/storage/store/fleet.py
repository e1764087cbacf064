"""Find the catalogs in a store that match a pattern of addresses."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from urllib.parse import quote, unquote

from aggregator.errors import InvalidRequestError
from aggregator.storage.store.client import Store
from aggregator.storage.store.shipped import MANIFESTS

BUCKET_AT = 2
"""Position of the bucket in an address split by slashes."""
AT_ONCE = 16
"""Folders searched in parallel."""
_ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+")


def catalogs_at(pattern: str) -> list[str]:
    """Addresses of the catalogs that match a pattern: `*`, `?` and `[…]` within a name, `**` for any number of names.
    To match one of these characters literally, percent-encode it: `%5B`.

    A catalog is found once it has a copy of its manifest, so not while its first segments are being uploaded.
    Raises InvalidRequestError, StoreError.
    """
    names = pattern.rstrip("/").split("/")
    fixed = next(place for place, name in enumerate(names) if glob.has_magic(name))
    base, left = "/".join(names[:fixed]), names[fixed:]
    if fixed < BUCKET_AT + 1:
        raise InvalidRequestError("a pattern must name one bucket", path=pattern, hint="name the bucket")
    store = Store(base)
    folders = sorted(set(_matching(store, "", left)))
    with ThreadPoolExecutor(AT_ONCE, "aggregator-find") as threads:
        hold = list(threads.map(lambda folder: _is_catalog(store, folder), folders))
    return sorted(f"{base}/{quote(folder)}" for folder, holds in zip(folders, hold, strict=True) if holds)


def _matching(store: Store, folder: str, names: list[str]) -> Iterator[str]:
    """Folders that match the names of a pattern, starting from a folder."""
    if not names:
        yield folder
        return
    first, rest = names[0], names[1:]
    if first == "**":
        yield from _matching(store, folder, rest)
        if _is_catalog(store, folder):  # it contains no other catalog
            return
    if glob.has_magic(first):
        for below in store.folders(folder):
            if first == "**":
                yield from _matching(store, below, names)
            elif fnmatchcase(below.rpartition("/")[2], _plain(first)):
                yield from _matching(store, below, rest)
    else:
        yield from _matching(store, f"{folder}/{unquote(first)}".lstrip("/"), rest)


def _plain(pattern: str) -> str:
    """A pattern of a name in the syntax of `fnmatch`: percent-encoded characters are literal."""
    return _ESCAPES.sub(lambda found: glob.escape(unquote(found[0])), pattern)


def _is_catalog(store: Store, folder: str) -> bool:
    return bool(folder) and any(True for _ in store.list(f"{folder}/{MANIFESTS}"))
