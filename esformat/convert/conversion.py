"""`convert`: convert a file to another format, and back without a difference."""

from __future__ import annotations

import base64
import io
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

import esformat
from esformat import customerio
from esformat.convert.arrow_reader import invalid_rows
from esformat.convert.errors import InputError
from esformat.convert.formats import CONVERSION_FORMATS, format_by_name, refuse_compressed
from esformat.convert.load import InputOptions, Load
from esformat.convert.roles import Roles
from esformat.convert.sinks import grouped, write_batches
from esformat.convert.source import Input, Source
from esformat.convert.transfer import METADATA, Transfer, by_share, from_columnar, from_go, from_segment
from esformat.convert.typed_files import read_typed
from esformat.customerio.open_file import OpenFile
from esformat.errors import EsdbError
from esformat.format.schema import without_keys
from esformat.io.location import name_of, publication_of, source_of
from esformat.io.publish import STDOUT, Streamed, finished_file, naming
from esformat.io.source import CountingSource

_TEXT = ("csv", "jsonl")
_GO_KINDS = {"go-esdb": "archive", "go-stream": "stream"}
_SEGMENT_MAGIC = b"\x89ESDB"
_KEPT = "stdin of esdb"  # the name of the temporary copy of standard input
_STREAM_MAGIC = b"ESDBstream"
_ARROW_FILE_MAGIC = b"ARROW1"
_BATCH_ROWS = 64 * 1024
_COPY_BYTES = 1 << 20
STDIN = "-"

Progress = Callable[[int, int], None]  # bytes of the source read so far, and the total; zeros if unknown


@dataclass(frozen=True, slots=True)
class Conversion:
    """Settings of a conversion.

    source_format, target_format: of CONVERSION_FORMATS; None: by the name and first bytes of the file.
    schema: a file that supplies the columns, indexes and key type for reading CSV and JSON lines.
    roles: the roles of the columns in a file that no conversion wrote.
    allow_loss: write CSV and JSON lines even if reading them would not restore every value.
    """

    source_format: str | None = None
    target_format: str | None = None
    schema: str | None = None
    roles: Roles | None = None
    allow_loss: bool = False
    overwrite: bool = False


_DEFAULTS = Conversion()
_ROLES = Roles(space="space", timestamp="timestamp")


def convert(
    source: Input,
    target: str,
    how: Conversion = _DEFAULTS,
    *,
    progress: Progress | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> int:
    """Convert the events of the file `source` to the file `target`; return their number.

    "-" is standard input or output, whose format must be given.

    progress: called from time to time with the bytes of the source read so far, and the total; zeros if unknown.
    note: called with each line about something that a user may not expect.
    The target appears only when it is complete. Source segments and targets may be URIs of a store, except for files of
    the Go ESDB. Raises UsageError, InputError, InvalidEventError for events that the target format cannot represent,
    CorruptSegmentError, OSError.
    """
    if source == STDIN:
        with _kept_input() as kept:
            return convert(kept, target, how, progress=progress, note=note)
    read = how.source_format or _source_format(source)
    refuse_compressed(target)
    written = how.target_format or _target_format(target)
    if how.target_format is None and target.lower().endswith(".json"):
        raise esformat.UsageError(
            f"{target}: a name that ends in .json means a JSON array, which is not read back",
            hint="name it .jsonl, or give --format jsonl, for JSON lines",
        )
    for format_ in (read, written):
        if format_ not in CONVERSION_FORMATS:
            raise esformat.UsageError(f"invalid format {format_!r}: expected one of {', '.join(CONVERSION_FORMATS)}")
    if target == STDOUT and written in ("esdb", *_GO_KINDS):
        with finished_file(target) as whole:
            return convert(source, whole, replace(how, target_format=written), progress=progress, note=note)
    named = _named_roles(how.roles)
    with opened(source, read, how.schema) as transfer:
        if transfer is not None:
            if named:
                raise esformat.UsageError(
                    f"{named} does not apply: {name_of(source)} {_why_not(read, how.schema)}",
                    hint="leave it out; `esdb reindex` makes other indexes" if named == "--index" else "leave it out",
                )
            with naming(target):
                return _write(_with_progress(transfer, progress), target, written, how)
    if written != "esdb":
        raise InputError(
            "does not define its columns",
            path=name_of(source),
            hint="give --schema FILE, the segment that it came from, or convert it to .esdb first"
            if read in _TEXT
            else "convert it to .esdb first",
        )
    return _load(source, target, read, how, progress, note)


@contextmanager
def _kept_input() -> Iterator[str]:
    """Copy standard input to a temporary file, since its format and columns are read before its rows."""
    with closing(Source(STDIN)) as source, tempfile.TemporaryDirectory(prefix="esdb-") as folder:
        path = Path(folder) / _KEPT
        with path.open("wb") as file, source.open() as stream:
            while chunk := stream.read(_COPY_BYTES):
                file.write(chunk)
        try:
            yield str(path)
        except EsdbError as error:
            if error.path == str(path):
                error.path = source.path
            raise


def _named_roles(roles: Roles | None) -> str:
    """The first option that assigns a role to a column and differs from its default; "" if none does."""
    if roles is None:
        return ""
    given = {
        "--space": roles.space != _ROLES.space,
        "--timestamp": roles.timestamp != _ROLES.timestamp,
        "--grouping": roles.grouping is not None,
        "--index": bool(roles.indexes),
    }
    return next((option for option, is_given in given.items() if is_given), "")


def _why_not(format_: str, schema: str | None) -> str:
    return f"is read with the columns of {schema}" if format_ in _TEXT else "defines its own columns"


def _with_progress(transfer: Transfer, progress: Progress | None) -> Transfer:
    def batches() -> Iterator[pa.RecordBatch]:
        done = 0
        for batch in transfer.batches():
            yield batch
            done += len(batch)
            if progress is not None:
                progress(*transfer.read(done))

    return replace(transfer, batches=batches)


def _source_format(source: Input) -> str:
    """Detect the format of a file by its name or first bytes: `.esdb` may be a segment or an archive of the Go ESDB."""
    name = name_of(source).lower()
    piped = name.endswith(_KEPT)
    if name.endswith((".esdb", ".esdbstream")) or piped:
        file = source_of(source)
        start = file.read_at(0, min(file.size, len(_STREAM_MAGIC)))
        if start.startswith(_SEGMENT_MAGIC):
            return "esdb"
        if start == _STREAM_MAGIC:
            return "go-stream"
        if not piped:
            return "go-esdb"
        raise esformat.UsageError(
            "cannot tell the format of standard input", hint=f"give --input-format {'|'.join(CONVERSION_FORMATS)}"
        )
    return _target_format(name_of(source), "--input-format")


def _target_format(path: str, option: str = "--format") -> str:
    name = path.lower()
    if name.endswith(".esdb"):
        return "esdb"
    if name.endswith(".esdbstream"):
        return "go-stream"
    found = format_by_name(path)
    if found not in CONVERSION_FORMATS:
        raise esformat.UsageError(
            f"cannot tell a format from the name {path!r}", hint=f"give {option} {'|'.join(CONVERSION_FORMATS)}"
        )
    return found


# ------------------------------------------------------------ from


@contextmanager
def opened(path: Input, format_: str, schema: str | None = None) -> Iterator[Transfer | None]:
    """Yield the events of a file; None if its columns are unknown. `schema`: a file that supplies them for text."""
    with ExitStack() as stack:
        if format_ == "esdb":
            yield from_segment(stack.enter_context(esformat.open(path)))
        elif format_ in _GO_KINDS:
            counted = CountingSource(source_of(path))
            file: OpenFile[Any] = customerio.open(counted)
            stack.enter_context(file)
            yield from_go(file, lambda _: (min(counted.bytes_read, counted.size), counted.size))
        elif format_ in _TEXT:
            yield None if schema is None else stack.enter_context(_text(path, format_, schema))
        else:
            source = stack.enter_context(closing(Source(path)))
            yield _parquet(source, stack) if format_ == "parquet" else _arrow(source, stack)


@contextmanager
def _text(path: Input, format_: str, schema: str) -> Iterator[Transfer]:
    with opened(schema, _source_format(schema)) as model:
        if model is None:
            raise InputError(
                "does not contain columns, indexes and keys",
                path=schema,
                hint="--schema takes a segment, or a Parquet or Arrow file that one was converted to",
            )
    with closing(Source(path)) as source:
        kinds = model.schema
        yield Transfer(
            kinds,
            model.indexes,
            model.binary_keys,
            lambda: read_typed(source, format_, kinds),
            model.properties,
            _position(source),
        )


def _position(source: Source) -> Callable[[int], tuple[int, int]]:
    return lambda _: (source.position_bytes(), source.size_bytes)


def _parquet(source: Source, stack: ExitStack) -> Transfer | None:
    stream = stack.enter_context(source.open_seekable())
    file = stack.enter_context(pa.parquet.ParquetFile(stream))
    schema = _written_schema(file)
    return from_columnar(
        schema,
        lambda: _cast(_validated(file.iter_batches(_BATCH_ROWS, use_threads=False), source), schema, source),
        source.path,
        by_share(source.size_bytes, file.metadata.num_rows),
    )


def _written_schema(file: Any) -> pa.Schema:
    """The schema that a conversion wrote. Parquet lacks date64 and times in seconds and returns other types."""
    known: pa.Schema = file.schema_arrow
    stored = (file.metadata.metadata or {}).get(b"ARROW:schema")
    if stored is None or METADATA not in (known.metadata or {}):
        return known
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored))).with_metadata(known.metadata)


def _cast(batches: Iterator[pa.RecordBatch], schema: pa.Schema, source: Source) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        try:
            yield batch if batch.schema.equals(schema) else batch.cast(schema)
        except (pa.ArrowException, ValueError) as error:
            raise InputError(f"its columns do not match its schema: {error}", path=source.path) from error


def _arrow(source: Source, stack: ExitStack) -> Transfer | None:
    stream = stack.enter_context(source.open_seekable())
    start = stream.read(len(_ARROW_FILE_MAGIC))
    stream.seek(0)
    if start != _ARROW_FILE_MAGIC:
        reader = stack.enter_context(pa.ipc.open_stream(stream))
        return from_columnar(reader.schema, lambda: _validated(reader, source), source.path, _position(source))
    file = stack.enter_context(pa.ipc.open_file(stream))
    numbers = range(file.num_record_batches)
    batches = lambda: _validated(map(file.get_batch, numbers), source)  # noqa: E731 - called later
    return from_columnar(file.schema, batches, source.path, _position(source))


def _validated(batches: Any, source: Source) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        try:
            batch.validate(full=True)
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise invalid_rows("its rows are damaged", error, batch.schema.names, source.path) from error
        yield batch


# ------------------------------------------------------------ to


def _write(transfer: Transfer, target: str, format_: str, how: Conversion) -> int:
    if format_ == "esdb":
        return _write_segment(transfer, target, how)
    if format_ in _GO_KINDS:
        stream = pa.RecordBatchReader.from_batches(transfer.schema, transfer.batches())
        names = transfer.go_index_names()
        return customerio.write(target, stream, kind=_GO_KINDS[format_], index_names=names, overwrite=how.overwrite)
    publication = Streamed() if target == STDOUT else publication_of(target, overwrite=how.overwrite)
    try:
        batches = transfer.batches()
        if format_ in _TEXT and not how.allow_loss:
            batches = _checked_round_trip(batches, transfer.schema, format_)
        form = "arrows" if format_ == "arrow" and (target == STDOUT or target.endswith(".arrows")) else format_
        try:
            count = write_batches(batches, transfer.described(), form, publication.file)
        except esformat.UsageError as error:
            raise esformat.InvalidEventError(error.message, path=target, hint=error.hint) from error
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # from the operating system, not from Arrow
            raise esformat.InvalidEventError(f"{format_} cannot hold a column: {error}", path=target) from error
        publication.commit()
    except BaseException:
        publication.abort()
        raise
    return count


def _write_segment(transfer: Transfer, target: str, how: Conversion) -> int:
    keys = "binary" if transfer.binary_keys else "text"
    with esformat.create(
        target,
        schema=without_keys(transfer.schema),
        indexes=transfer.indexes,
        keys=keys,
        properties=transfer.properties,
        overwrite=how.overwrite,
    ) as writer:
        for batch in transfer.batches():
            writer.add_table(batch)
    return writer.num_events


def _checked_round_trip(batches: Iterator[pa.RecordBatch], schema: pa.Schema, format_: str) -> Iterator[pa.RecordBatch]:
    """Yield each batch once its text, read back, restores it. Raises InvalidEventError if it does not."""
    for batch in grouped(batches):
        text = io.BytesIO()
        write_batches([batch], schema, format_, text)
        source = _Text(text.getvalue())
        lost = "a row"
        try:
            again = pa.Table.from_batches(read_typed(source, format_, schema), schema=schema)
            same = [_bits(again[name].combine_chunks()).equals(_bits(batch[name])) for name in schema.names]
            lost = next((f"column {n!r}" for n, kept in zip(schema.names, same, strict=True) if not kept), "")
        except InputError as error:
            lost = error.message
        if lost:
            raise esformat.InvalidEventError(
                f"{format_} would lose values: {lost}",
                hint="convert to Parquet or Arrow, or allow the loss with --allow-loss",
            )
        yield batch


def _bits(column: pa.Array) -> pa.Array:
    """View floats as integers of the same bits: then NaN equals itself, and -0.0 differs from 0.0."""
    return column.view(f"int{column.type.bit_width}") if pa.types.is_floating(column.type) else column


class _Text(Source):
    """A source of text in memory."""

    def __init__(self, data: bytes) -> None:
        self.path = "<text>"
        self._data = data

    @contextmanager
    def open(self) -> Iterator[pa.NativeFile]:
        """Open the text."""
        yield pa.BufferReader(self._data)


def _load(
    source: Input, target: str, format_: str, how: Conversion, progress: Progress | None, note: Callable[[str], None]
) -> int:
    """Load a file that no conversion wrote into a segment, as `esdb write` does."""
    roles = how.roles or _ROLES
    with Load([source], roles, InputOptions(format=format_), progress=progress) as load:
        summary = load.write(
            lambda _: esformat.create(target, indexes=roles.indexes, keys=roles.keys, overwrite=how.overwrite)
        )
    for each in summary.notes:
        note(each)
    if format_ in _TEXT and not _named_roles(roles):
        note(
            f"types were guessed and nothing is indexed; if {name_of(source)} came from a segment, "
            "name that with --schema"
        )
    return summary.num_events
