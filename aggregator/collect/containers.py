"""Unwrap lines of container runtimes: Docker's JSON and CRI.

A long line is split into parts, each with its own wrapping. The parts are joined, separately for stdout and stderr.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from aggregator.lql.parse.columns import as_text
from aggregator.lql.text.predicate import as_string

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_DOCKER_KEYS = ({"log", "stream", "time"}, {"log", "stream", "time", "attrs"})
_MARKS = {"docker": (b'"stream"',), "cri": (b" stdout ", b" stderr ")}
_TAILS = (1 << 16, 1 << 20)
_LOOK = 1 << 16


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """Lines without their wrapping. streams: 0 for a line without wrapping, 1 stdout, 2 stderr. times: null for a line
    without wrapping. whole: the line ends here; otherwise it is a part that continues.
    """

    messages: pa.Array
    times: pa.Array
    streams: I64
    whole: Mask

    def without_empty(self) -> Unwrapped:
        """Remove the line ends that were inside the wrapping, and empty lines."""
        messages = pc.ascii_rtrim(as_string(self.messages), characters="\r\n").view(pa.binary())
        filled = np.asarray(pc.greater(pc.binary_length(messages), 0))
        if filled.all():
            return replace(self, messages=messages)
        rows = pa.array(filled)
        return Unwrapped(messages.filter(rows), self.times.filter(rows), self.streams[filled], self.whole[filled])

    @property
    def stream_names(self) -> pa.Array:
        """The streams by name, null for lines that had no wrapping."""
        return pa.array(["stdout", "stderr"]).take(pa.array(self.streams - 1, mask=self.streams == 0))


def may_hold(data: bytes, kind: str) -> bool:
    """Whether lines may be wrapped, judging by the first and the last bytes of the data."""
    marks = _MARKS["docker"] + _MARKS["cri"] if kind == "auto" else _MARKS.get(kind, ())
    return any(data.find(mark, 0, _LOOK) >= 0 or data.find(mark, max(0, len(data) - _LOOK)) >= 0 for mark in marks)


def unwrap(lines: pa.Array, kind: str) -> Unwrapped:
    """Remove the wrapping from lines (binary); lines without wrapping do not change. kind: one of KINDS."""
    made = Unwrapped(
        lines, pa.nulls(len(lines), pa.string()), np.zeros(len(lines), np.int64), np.ones(len(lines), bool)
    )
    if kind in ("auto", "docker"):
        made = _with_docker(made)
    return _with_cri(made) if kind in ("auto", "cri") else made


def _with_cri(made: Unwrapped) -> Unwrapped:
    """Unwrap lines such as `2026-03-01T08:00:00.123456789Z stdout F message`."""
    held = _Bytes(made.messages)
    space = held.find(b" ")
    log = held.starts + space + 10
    fits = (made.streams == 0) & (space >= 20) & (space <= 35) & (log - 1 <= held.ends)
    fits &= held.has(held.starts + 4, b"-") & held.has(held.starts + 10, b"T") & held.has(held.starts + space + 7, b" ")
    fits &= held.has(log - 2, b"F") | held.has(log - 2, b"P")
    fits &= held.has(log - 1, b" ") | (log - 1 == held.ends)
    streams = held.streams(held.starts + space + 1)
    rows = np.flatnonzero(fits & (streams > 0))
    if not len(rows):
        return made
    starts, ends = held.starts[rows], held.ends[rows]
    messages, times = held.slices(np.minimum(log[rows], ends), ends), held.slices(starts, starts + space[rows])
    return _put(made, rows, messages, times, streams[rows], ~held.has(log[rows] - 2, b"P"))


def _with_docker(made: Unwrapped) -> Unwrapped:
    """Unwrap {"log":"message","stream":"stdout","time":"2026-03-01T08:00:00.123456789Z"}; messages have a newline."""
    begins = np.asarray(pc.starts_with(made.messages, '{"'))
    if not begins.any():
        return made
    held = _Bytes(made.messages)
    behind = held.find(b'","stream":"')  # quotes inside the text are escaped by a backslash
    end = held.starts + behind
    streams = held.streams(end + 12)
    fits = begins & (behind > 0) & (streams > 0) & (end + 49 < held.ends)
    fits &= behind == held.find(b'","')  # otherwise other members come first
    fits &= held.has(held.starts, b'{"log":"') & held.has(end + 18, b'","time":"') & held.has(held.ends - 2, b'"}')
    whole = held.has(end - 2, b"\\n")
    fits &= ~(whole & held.has(end - 3, b"\\"))  # an escaped backslash: left to the JSON parser
    rows = np.flatnonzero(fits)
    rows = rows[held.quote_behind(end[rows] + 28) == held.ends[rows] - 2]  # the time is the last member
    if len(rows):
        cut = end[rows] - 2 * whole[rows]
        texts, times = held.slices(held.starts[rows] + 8, cut), held.slices(end[rows] + 28, held.ends[rows] - 2)
        made = _put(made, rows, _unescaped(texts), times, streams[rows], whole[rows])
    return _with_other_json(made, begins & ~fits)


class _Bytes:
    """Lines as one array of bytes, with the start and end of each."""

    def __init__(self, lines: pa.Array) -> None:
        _, offsets, data = lines.buffers()
        bounds = np.frombuffer(offsets, np.int32)[lines.offset : lines.offset + len(lines) + 1].astype(np.int64)
        self._lines, self._buffer = lines, data
        held = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        self._data = np.concatenate([held, np.zeros(64, np.uint8)])
        self.starts, self.ends = bounds[:-1], bounds[1:]

    def find(self, text: bytes) -> I64:
        """Return the position of a text in each line, -1 if not found."""
        return np.asarray(pc.find_substring(self._lines, text)).astype(np.int64)

    def has(self, places: I64, text: bytes) -> Mask:
        """Whether a text is at the given place, one per line."""
        places = np.maximum(places, 0)
        found: Mask = self._data.take(places) == text[0]
        for step, letter in enumerate(text[1:], 1):
            found &= self._data.take(places + step) == letter
        return found

    def streams(self, places: I64) -> I64:
        """1 for places with "stdout", 2 for "stderr", else 0."""
        places = np.minimum(places, len(self._data) - 8)
        return np.where(self.has(places, b"std"), self.has(places + 3, b"out") + 2 * self.has(places + 3, b"err"), 0)

    def quote_behind(self, places: I64) -> I64:
        """The first quotation mark at or after each place; the place itself if there is none within 40 bytes."""
        windows = np.lib.stride_tricks.sliding_window_view(self._data, 40)[places]
        found: I64 = places + (windows == ord('"')).argmax(axis=1)
        return found

    def slices(self, begins: I64, ends: I64) -> pa.Array:
        """The bytes between two places, one pair per line; the pairs must be in ascending order."""
        offsets = np.empty(2 * len(begins), np.int32)
        offsets[0::2], offsets[1::2] = begins, ends
        both = pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), self._buffer])
        return both.take(pa.array(np.arange(0, len(offsets) - 1, 2)))


def _with_other_json(made: Unwrapped, candidates: Mask) -> Unwrapped:
    """Unwrap, one by one, Docker objects that have other spaces or another order of members."""
    likely = np.asarray(pc.match_substring(made.messages, '"log"'))
    found = []
    for row in np.flatnonzero(candidates & likely).tolist():
        try:
            held = json.loads(made.messages[row].as_py())
        except (ValueError, RecursionError):
            continue
        if not isinstance(held, dict) or set(held) not in _DOCKER_KEYS or held["stream"] not in ("stdout", "stderr"):
            continue
        if isinstance(held["log"], str) and isinstance(held["time"], str):
            text, time = (held[name].encode("utf-8", "replace") for name in ("log", "time"))
            found.append((row, text.removesuffix(b"\n"), time, 1 + (held["stream"] == "stderr"), text.endswith(b"\n")))
    if not found:
        return made
    rows, texts, times, streams, whole = zip(*found, strict=True)
    logs, moments = pa.array(texts, pa.binary()), pa.array(times, pa.binary())
    return _put(made, np.array(rows), logs, moments, np.array(streams), np.array(whole))


def _put(made: Unwrapped, rows: I64, logs: pa.Array, times: pa.Array, streams: I64, whole: Mask) -> Unwrapped:
    """Return `made` with the given rows replaced by what was unwrapped."""
    codes, ends = made.streams.copy(), made.whole.copy()
    codes[rows], ends[rows] = streams, whole
    if len(rows) == len(codes):
        return Unwrapped(logs, as_text(times), codes, ends)
    fits = np.zeros(len(codes), np.bool_)
    fits[rows] = True
    mask = pa.array(fits)
    moments = pc.replace_with_mask(made.times, mask, as_text(times))
    return Unwrapped(pc.replace_with_mask(made.messages, mask, logs), moments, codes, ends)


def _unescaped(texts: pa.Array) -> pa.Array:
    """Decode the contents of JSON strings to bytes; a lone surrogate becomes a question mark."""
    escaped = pc.match_substring(texts, "\\")
    if not escaped.true_count:
        return texts
    some = texts.filter(escaped).to_pylist()
    try:
        plain = json.loads(b'["' + b'","'.join(some) + b'"]', strict=False)
    except (ValueError, UnicodeDecodeError):
        plain = [_one_unescaped(text) for text in some]
    return pc.replace_with_mask(
        texts, escaped, pa.array([text.encode("utf-8", "replace") for text in plain], pa.binary())
    )


def _one_unescaped(text: bytes) -> str:
    try:
        return str(json.loads(b'"' + text.decode("utf-8", "replace").encode() + b'"', strict=False))
    except ValueError:
        return text.decode("utf-8", "replace")


# ------------------------------------------------------------ parts of lines


def join(found: Unwrapped, first_line: str | None) -> Unwrapped:
    """Join parts to lines and, if first_line is given, lines to records; per stream, in the order of their starts."""
    if found.whole.all() and first_line is None:
        return found
    order, begins = _begins(found)
    made = _joined(found, order, begins, b"")
    if first_line is None or not len(made.streams):
        return made
    order = np.argsort(made.streams, kind="stable")
    streams = made.streams[order]
    begins = np.asarray(pc.match_substring_regex(as_string(made.messages), first_line)).copy()[order]
    begins[0] = True
    begins[1:] |= streams[1:] != streams[:-1]
    return _joined(made, order, begins, b"\n")


def _begins(found: Unwrapped) -> tuple[I64, Mask]:
    """The row numbers, stream by stream, and which of them begin a line."""
    order = np.argsort(found.streams, kind="stable")
    streams, whole = found.streams[order], found.whole[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = whole[:-1] | (streams[1:] != streams[:-1])
    return order, begins


def _joined(found: Unwrapped, order: I64, begins: Mask, between: bytes) -> Unwrapped:
    """Join each row that begins with the rows up to the next that begins, in the order of their first rows."""
    if begins.all():
        return found
    first = np.flatnonzero(begins)
    offsets = pa.array(np.append(first, len(order)), pa.int32())
    lists = pa.ListArray.from_arrays(offsets, found.messages.take(pa.array(order)))
    back = np.argsort(order[first], kind="stable")
    rows = pa.array(order[first][back])
    messages = pc.binary_join(lists, pa.scalar(between, pa.binary())).take(pa.array(back))
    last = np.append(first[1:], len(order)) - 1
    whole = found.whole[order[last]][back]
    return Unwrapped(messages, found.times.take(rows), found.streams[np.asarray(rows)], whole)


def closed_length(data: bytes, kind: str, first_line: str | None, max_bytes: int) -> int:
    """Number of leading bytes, in complete raw lines, whose records are finished; all bytes if a record is too long."""
    for size in (*_TAILS, len(data)):
        begin = 0 if size >= len(data) else data.find(b"\n", len(data) - size) + 1
        held = _open_since(data[begin:], kind, first_line)
        if held != 0 or begin == 0:
            end = len(data) if held is None else begin + held
            return end if len(data) - end <= max_bytes else len(data)
    raise AssertionError("all data was searched")


def _open_since(data: bytes, kind: str, first_line: str | None) -> int | None:
    """The start of the first record that may continue after the data; None if all are finished."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1
    starts = np.append(0, ends)[:-1]
    if not len(starts):
        return None
    offsets = np.append(starts, len(data)).astype(np.int32)
    lines = pa.BinaryArray.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    found = unwrap(pc.ascii_rtrim(as_string(lines), characters="\r\n").view(pa.binary()), kind)
    order, begins = _begins(found)
    begin_of = order[np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))]
    waits = []
    for stream in np.unique(found.streams).tolist():
        rows = np.flatnonzero(found.streams[order] == stream)
        last = order[rows[-1]]
        if found.whole[last] and (first_line is None or last != len(starts) - 1):
            continue
        if first_line is None:
            waits.append(int(starts[begin_of[rows[-1]]]))
        else:  # the record of the last line
            own = rows[begins[rows]]
            texts = found.messages.take(pa.array(order[own]))
            firsts = np.flatnonzero(np.asarray(pc.match_substring_regex(as_string(texts), first_line)))
            waits.append(int(starts[order[own[firsts[-1]]]]) if len(firsts) else 0)
    return min(waits, default=None)
