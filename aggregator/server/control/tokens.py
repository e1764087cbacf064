"""Tokens: random, stored as hashes in a file that is re-read when it changes, compared in constant time.

A token is `agg_<id>_<secret>`. The secret has 256 random bits, so a plain SHA-256 resists guessing. It is sent as
`Bearer`, or by clients that do not support this as `Basic` (the password is the token, the user is ignored) or `ApiKey`
(the token; or `id:key` in base64, where the key is the token, or id and key are the token's two parts).
"""

from __future__ import annotations

import base64
import datetime as dt
import fcntl
import hashlib
import hmac
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aggregator import InvalidRequestError
from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.control.access import ANYBODY, Access, check
from aggregator.server.control.operation import Operation, Scope
from aggregator.storage.files.layout import replaced
from aggregator.storage.files.modes import create_directory

FILE = "tokens.json"
SCOPES: tuple[Scope, ...] = ("read", "write", "admin")
_PREFIX = "agg"
_LOOK_AGAIN_S = 1.0
_log = logging.getLogger("aggregator.server")
_SCHEMES = ("bearer", "basic", "apikey")
_CHALLENGE = 'Bearer realm="aggregator"'


@dataclass(frozen=True, slots=True)
class Token:
    """A stored token. `digest` is the SHA-256 of its secret, in hexadecimal. Times are ISO 8601, UTC."""

    id: str
    name: str
    digest: str
    scopes: tuple[str, ...]
    topics: tuple[str, ...] | None
    created: str
    expires: str | None = None

    @classmethod
    def from_json(cls, stored: Any) -> Token:
        """Parse a stored token. Raises KeyError, TypeError or ValueError if `create` cannot have written it."""
        topics = stored["topics"]
        token = cls(
            str(stored["id"]),
            str(stored["name"]),
            str(stored["digest"]),
            tuple(map(str, stored["scopes"])),
            None if topics is None else tuple(map(str, topics)),
            str(stored["created"]),
            stored["expires"],
        )
        if token.expires is not None:
            dt.datetime.fromisoformat(token.expires)
        return token

    @property
    def end(self) -> dt.datetime | None:
        """When the token expires; None: never."""
        return None if self.expires is None else dt.datetime.fromisoformat(self.expires)


def read_tokens(path: Path) -> list[Token]:
    """Return the tokens in a file. Raises InvalidRequestError if it is damaged, OSError."""
    try:
        return [Token.from_json(stored) for stored in json.loads(path.read_text("utf-8"))["tokens"]]
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidRequestError(
            f"the token file cannot be read: {error!r}", path=str(path), hint="restore it, or create new tokens"
        ) from None


def create(
    path: Path,
    name: str,
    scopes: Sequence[str],
    topics: Sequence[str] | None = None,
    expires: dt.datetime | None = None,
) -> str:
    """Create a token and return it in full; only its hash is stored. Raises InvalidRequestError, OSError."""
    wrong = [scope for scope in scopes if scope not in SCOPES]
    if wrong or not scopes:
        raise InvalidRequestError(
            f"unknown scope {wrong[0]!r}" if wrong else "a token needs a scope", hint="use read, write, admin"
        )
    if not name:
        raise InvalidRequestError("a token needs a name", hint="name the program or person that uses it")
    token, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    now = dt.datetime.now(dt.UTC)
    made = Token(
        token,
        name,
        _digest(secret),
        tuple(dict.fromkeys(scopes)),
        None if topics is None else tuple(topics),
        now.isoformat(timespec="seconds"),
        None if expires is None else expires.isoformat(timespec="seconds"),
    )
    create_directory(path.parent)  # tokens may come before the first start
    with _editing(path) as tokens:
        if any(name in (other.id, other.name) for other in tokens):
            raise InvalidRequestError(
                f"a token {name!r} already exists",
                hint="revoke it with `aggregator token revoke`, or choose another name",
            )
        tokens.append(made)
    return f"{_PREFIX}_{token}_{secret}"


def revoke(path: Path, id_or_name: str) -> list[Token]:
    """Revoke tokens by id or name; servers notice within seconds. Raises InvalidRequestError if none matches."""
    with _editing(path) as tokens:
        gone = [token for token in tokens if id_or_name in (token.id, token.name)]
        if not gone:
            raise InvalidRequestError(f"no token {id_or_name!r}", hint="see `aggregator token list`")
        tokens[:] = [token for token in tokens if token not in gone]
    return gone


@contextmanager
def _editing(path: Path) -> Iterator[list[Token]]:
    """Yield the tokens of a file for changes, then replace the file; only its owner can read it."""
    lock = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tokens = read_tokens(path) if path.exists() else []
        yield tokens
        with replaced(path, 0o600) as file:
            file.write(json.dumps({"tokens": [asdict(token) for token in tokens]}, indent=2).encode())
    finally:
        os.close(lock)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class Authority:
    """Decides what the bearer of a token may do. If there is no token file, everybody may do everything."""

    def __init__(self, path: Path | None) -> None:
        """path: the token file. Raises InvalidRequestError, OSError."""
        self.now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
        self.changes = 0
        """How often the tokens were loaded. If this number changes, earlier decisions may be outdated."""
        self._path = path
        self._tokens: dict[str, Token] | None = None
        self._seen: tuple[int, int] | None = None
        self._looked = 0.0
        self._trouble: str | None = None
        self._reload_if_changed()

    @property
    def requires_token(self) -> bool:
        """Whether tokens are required."""
        return self._tokens is not None

    def access(self, header: str | None) -> Access:
        """Return the access that an Authorization header grants. Raises ProblemError (401)."""
        self.reload_if_due()
        if self._tokens is None:
            return ANYBODY
        scheme, _, given = (header or "").partition(" ")
        if scheme.lower() not in _SCHEMES:
            raise _refused("a bearer token is required", "send it in a header, such as `Authorization: Bearer agg_…`")
        prefix, _, rest = _token_in(scheme.lower(), given.strip()).partition("_")
        token_id, _, secret = rest.partition("_")
        found = self._tokens.get(token_id)
        expected = "0" * 64 if found is None else found.digest
        right = hmac.compare_digest(_digest(secret), expected)
        if not right or found is None or prefix != _PREFIX or (found.end is not None and self.now() >= found.end):
            raise _refused("the token is unknown or has expired")
        return Access(frozenset(found.scopes), found.topics, found.name, found.end)

    def reload_if_due(self) -> None:
        """Reload the file if it changed; checks at most once a second."""
        if time.monotonic() - self._looked > _LOOK_AGAIN_S:
            self._reload()

    def _reload(self) -> None:
        """Reload the file. If it cannot be read, log it and keep the tokens; if there were none, nobody has access."""
        trouble = None
        try:
            self._reload_if_changed()
        except (InvalidRequestError, OSError) as error:
            trouble = str(error)
            if self._tokens is None:
                self._take({})
            if trouble != self._trouble:
                _log.error("cannot read the token file; the tokens read before stay valid", extra={"trouble": trouble})
        self._trouble = trouble

    def _reload_if_changed(self) -> None:
        """Reload the file if it changed. If tokens were loaded and the file is now missing, nobody has access."""
        self._looked = time.monotonic()
        if self._path is None:
            return
        try:
            status = self._path.stat()
        except FileNotFoundError:
            if self._tokens:
                self._take({})
            return
        seen = (status.st_mtime_ns, status.st_ino)
        if seen != self._seen:
            self._take({token.id: token for token in read_tokens(self._path)})
            self._seen = seen

    def _take(self, tokens: dict[str, Token]) -> None:
        self._tokens = tokens
        self.changes += 1


class TokenCheck:
    """The current permission of a long request, whose token may be revoked, changed or expire meanwhile."""

    def __init__(self, authority: Authority, header: str | None, access: Access, operation: Operation) -> None:
        """access: what the authority just returned for the header."""
        self.access = access
        self.topic: str | None = None  # the one in the path
        self._authority, self._header, self._operation = authority, header, operation
        self._changes = authority.changes

    def check(self) -> None:
        """Raise ProblemError (401 or 403) if the request would now be refused. Cheap while nothing changed."""
        self._authority.reload_if_due()
        expires = self.access.expires
        if self._authority.changes != self._changes or (expires is not None and self._authority.now() >= expires):
            self._changes = self._authority.changes
            self.access = self._authority.access(self._header)
            check(self.access, self._operation, self.topic)


def _token_in(scheme: str, given: str) -> str:
    """Return the token in the rest of an Authorization header, or a string that is not a token."""
    if scheme == "bearer" or (scheme == "apikey" and given.startswith(f"{_PREFIX}_")):
        return given
    try:
        first, colon, second = base64.b64decode(given, validate=True).decode().partition(":")
    except ValueError:
        return ""
    if scheme == "apikey" and colon and not second.startswith(f"{_PREFIX}_"):
        return f"{_PREFIX}_{first}_{second}"
    return second


def _refused(detail: str, hint: str | None = None) -> ProblemError:
    return ProblemError(401, "unauthorized", detail, hint, WWW_Authenticate=_CHALLENGE)
