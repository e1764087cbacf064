"""OTLP export requests: storing the records and creating the response, for both HTTP and gRPC."""

from __future__ import annotations

from collections.abc import Callable

from aggregator.server.bodies.otlp.message import read_records, success
from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.bodies.shared.records import Refusal, Target, make_stream_topic, store
from aggregator.server.context import Context


def export(context: Context, read: Callable[[], bytes], media: str, target: Target) -> bytes:
    """Store the records of a request and return the response. For threads of `context.appends`.

    read: returns the decompressed body. Raises ProblemError, InvalidEventError, and what else storing raises.
    """
    names = context.settings.otlp.tags
    with context.counting("otlp") as count:
        items = context.understand(lambda: read_records(read(), media, names, count))
        if target.producer is not None and any("ts" not in record for _, record in items):
            raise ProblemError(400, "invalid-event", "with an Idempotency-Key each record needs a time")
        make_stream_topic(context.catalog, target.topic, context.settings)
        outcomes = store(context.catalog, items, target, count)
    refusals = [outcome for outcome in outcomes if isinstance(outcome, Refusal)]
    return success(len(refusals), refusals[0].reason if refusals else "", media)
