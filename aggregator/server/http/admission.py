"""`Admission`: an append that may not even wait for room is refused at its headers, before there is a task for it.

Refusals are most of what a server does then, so each must cost next to nothing. Only paths that an append was
let through to are refused here, by any token: whether a path is one, and who may use it, their routes have said.
"""

from __future__ import annotations

import time

from starlette.responses import Response

from aggregator import OverloadedError
from aggregator.server.bodies.shared.problems import answer, problem_of
from aggregator.server.context import Context
from aggregator.server.control.requests import Told


class Admission:
    """Decides for the connections of one application. Belongs to the event loop's thread."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @property
    def is_crowded(self) -> bool:
        """Whether appends wait for room, so that the body of another one is not to be read yet."""
        return self._context.waiting_room.waiting > 0

    def refusal(self, method: bytes, url: bytes, headers: list[tuple[bytes, bytes]]) -> Response | None:
        """The answer to a request that is refused for lack of room; None for one that a route has to see.

        headers: names in lower case.
        """
        began = time.perf_counter()
        context = self._context
        path = url.partition(b"?")[0].decode("latin-1")
        template = context.append_paths.get(path)
        if method != b"POST" or template is None or not context.waiting_room.is_full:
            return None
        length, named = 0, False
        for name, value in headers:
            named |= name == b"idempotency-key"
            if name == b"content-length":
                length = int(value[:20]) if value.isdigit() else 0
        if length > context.settings.http.max_append_bytes:
            return None  # "later" would be wrong
        try:
            context.check_room(None if named else length)
        except OverloadedError as error:
            made = answer(problem_of(error), path)
            context.tell(Told("POST", template, made.status_code, time.perf_counter() - began, len(made.body), ""))
            return made
        return None
