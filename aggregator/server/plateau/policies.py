"""The roll and retention policies of topics of plateau's clients."""

from __future__ import annotations

import logging
from dataclasses import replace

from aggregator import Catalog, Retention, Roll
from aggregator.server.plateau.definition import SCHEMA_COLUMN
from aggregator.storage.segments.file import STREAM_FRAME_BYTES

_log = logging.getLogger("aggregator.server")


def take_policies(catalog: Catalog, roll: Roll | None, retention: Retention | None) -> None:
    """Apply the configured policies to all topics of plateau's clients, as plateau does when it starts."""
    wanted = for_pages(roll or Roll()), retention or Retention()
    for name in catalog.topics():
        topic = catalog.topic(name)
        if (topic.roll, topic.retention) != wanted and SCHEMA_COLUMN in topic.scan().schema.names:
            topic.set_policy(roll=wanted[0], retention=wanted[1])
            _log.info("roll and retention of a topic changed to the configured ones", extra={"topic": name})


def for_pages(roll: Roll) -> Roll:
    """Return the policy with large frames: records are read in pages, and never looked up by space."""
    return roll if roll.frame_bytes else replace(roll, frame_bytes=STREAM_FRAME_BYTES)
