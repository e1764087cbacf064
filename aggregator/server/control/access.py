"""`Access`: the permissions of a token, and the check before every route."""

from __future__ import annotations

import datetime as dt
import fnmatch
from dataclasses import dataclass

from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.control.operation import Operation, Scope


@dataclass(frozen=True, slots=True)
class Access:
    """What a request may do.

    topics: names, or patterns such as `logs-*`; None: any. name: of the token, for logs. expires: when the token does;
    None: never.
    """

    scopes: frozenset[str]
    topics: tuple[str, ...] | None = None
    name: str = ""
    expires: dt.datetime | None = None

    def allows(self, scope: Scope, topic: str | None = None) -> bool:
        """Whether the token has the scope and, if a topic is named, may use that topic."""
        if scope != "open" and scope not in self.scopes and "admin" not in self.scopes:
            return False
        return topic is None or self.topics is None or any(_is(topic, known) for known in self.topics)

    def require(self, scope: Scope, topic: str | None = None) -> None:
        """Raise ProblemError (403) unless the token has the scope and may use the topic."""
        if not self.allows(scope):
            raise ProblemError(403, "forbidden", f"this token lacks the scope {scope!r}")
        if not self.allows(scope, topic):
            raise ProblemError(403, "forbidden", f"this token does not cover topic {topic!r}")

    def require_all_topics(self, scope: Scope) -> None:
        """Check an operation whose request names no topic. Raises ProblemError (403)."""
        self.require(scope)
        if self.topics is not None:
            raise ProblemError(403, "forbidden", "this token covers only some topics", "name one of its topics")


def _is(topic: str, known: str) -> bool:
    """Whether a topic matches a name or pattern. Only `*` is special."""
    return fnmatch.fnmatchcase(topic, known.replace("[", "[[]").replace("?", "[?]"))


ANYBODY = Access(frozenset({"read", "write", "admin"}))
"""Access of every request if no tokens are required."""


def check(access: Access, operation: Operation, topic: str | None) -> None:
    """Raise ProblemError if a request with this access may not call the operation. topic: the one in its path."""
    if operation.scope == "open":
        return
    if topic is not None or operation.checks_topics:
        access.require(operation.scope, topic)
    else:
        access.require_all_topics(operation.scope)
