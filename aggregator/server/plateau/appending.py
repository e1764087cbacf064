"""Appends from plateau's clients: an Arrow file becomes events. Its topic and partition are created if needed."""

from __future__ import annotations

import contextlib

import pyarrow as pa

from aggregator import Catalog, InvalidRequestError, Receipt, Retention, Roll, Topic, TopicExistsError
from aggregator.base.names import check_name
from aggregator.server.bodies.arrow_body import read_arrow
from aggregator.server.plateau.definition import Definition
from aggregator.server.plateau.definitions import Definitions
from aggregator.server.plateau.nullable import loosened, relabelled
from aggregator.server.plateau.policies import for_pages
from esformat import InvalidEventError

_MAGIC = b"ARROW1\x00\x00"


def append(
    catalog: Catalog,
    definitions: Definitions,
    place: tuple[str, str],
    body: pa.Buffer,
    *,
    max_bytes: int,
    roll: Roll | None = None,
    retention: Retention | None = None,
) -> tuple[Receipt, Definition]:
    """Store the records of an Arrow file in a (topic, partition), which is created if it does not exist.

    Return the receipt, and the definition of the records. A refused body creates nothing. Raises InvalidEventError,
    InvalidRequestError, OverloadedError.
    """
    schema, table = _read(body, max_bytes)
    if not len(table):
        raise InvalidEventError("no body provided", hint="the Arrow file has no records")
    schema, table = loosened(schema, table), relabelled(table, loosened(table.schema, table))
    name, partition = check_name(place[0], "topic"), check_name(place[1], "partition")
    if name in catalog.topics():
        topic = catalog.topic(name)
        _check_keys(topic)
    else:
        definitions.draft(schema, table.schema).events(table)  # refuses unstorable records before the topic exists
        with contextlib.suppress(TopicExistsError):  # created by another request
            catalog.create_topic(name, roll=for_pages(roll or Roll()), retention=retention)
        topic = catalog.topic(name)
    definition = definitions.of_schema(topic, schema, table.schema)
    return topic.append(definition.events(table), partition), definition


def _read(body: pa.Buffer, max_bytes: int) -> tuple[pa.Schema, pa.Table]:
    """Return the schema of an Arrow file as it was sent, and its records unpacked. Raises InvalidEventError."""
    _check_ends(body)
    try:
        table = read_arrow(body, max_bytes)
        table.validate(full=True)
        with pa.ipc.open_file(body) as reader:
            return reader.schema, table
    except InvalidEventError as error:
        raise InvalidEventError(f"arrow error: {error.message}", hint=error.hint) from None
    except pa.ArrowException as error:
        raise InvalidEventError(f"arrow error: {' '.join(str(error).split())[:200]}") from None


def _check_ends(body: pa.Buffer) -> None:
    """Check that a file has Arrow's magic at both ends. Raises InvalidEventError in plateau's words."""
    end = _MAGIC.rstrip(b"\0")
    wrong = None
    if body.size < len(_MAGIC):
        wrong = "Io error: failed to fill whole buffer"
    elif body.slice(0, len(_MAGIC)).to_pybytes() != _MAGIC:
        wrong = "InvalidHeader"
    elif body.slice(body.size - len(end)).to_pybytes() != end:
        wrong = "InvalidFooter"
    if wrong is not None:
        raise InvalidEventError(
            f"arrow error: {wrong}", hint="the body is not an Arrow file: use an Arrow IPC file writer"
        )


def _check_keys(topic: Topic) -> None:
    if topic.keys != "text":
        raise InvalidRequestError(f"the topic {topic.name!r} has binary keys", hint="append to it through /v1")
