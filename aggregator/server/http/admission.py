"""`Admission`: refuses an append at its headers, before it has a task, if it may not even wait for room.

An overloaded server mostly sends refusals, so each must cost almost nothing. Only paths of earlier, admitted appends
are refused here, for any token: their routes have established that the path takes appends and who may use it.
"""

from __future__ import annotations

import time

from starlette.responses import Response

from aggregator import OverloadedError
from aggregator.server.bodies.shared.problems import error_response, problem_of
from aggregator.server.context import Context
from aggregator.server.control.requests import FinishedRequest


class Admission:
    """Decides for all connections of one application. Belongs to the event loop's thread."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @property
    def is_crowded(self) -> bool:
        """Whether appends wait for room, so that the body of another one should not be read yet."""
        return self._context.waiting_room.waiting > 0

    def refusal(self, method: bytes, url: bytes, headers: list[tuple[bytes, bytes]]) -> Response | None:
        """Return the response to a request that is refused for lack of room; None if a route must handle it.

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
            return None  # "retry later" would be wrong
        try:
            context.check_room(None if named else length)
        except OverloadedError as error:
            made = error_response(problem_of(error), path)
            context.request_finished(
                FinishedRequest("POST", template, made.status_code, time.perf_counter() - began, len(made.body), "")
            )
            return made
        return None
