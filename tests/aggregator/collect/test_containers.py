"""Container lines are unwrapped before parsing and their parts are joined, however the data is cut into pieces."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest
from effort import share_of

import aggregator
from aggregator.collect import Files
from aggregator.collect.containers import unwrap
from aggregator.collect.events import EventBuilder
from aggregator.collect.lines import measure

TIME, MICROS = "2026-03-01T08:00:00.123456789Z", 1_772_352_000_123_456
NOW = 1_772_366_400_000_000


def docker(text, stream="stdout", time=TIME, **more):
    return json.dumps({"log": text, "stream": stream, **more, "time": time}, separators=(",", ":"), ensure_ascii=False)


def cri(text, stream="stdout", part="F", time=TIME):
    return f"{time} {stream} {part} {text}"


def rows_of(lines, *, file="/var/log/a.log", counted=False, **files):
    """The rows of these lines or bytes."""
    data = lines if isinstance(lines, bytes) else ("\n".join(lines) + "\n").encode()
    table, counts = EventBuilder(Files(path=("x",), file_tag="", **files)).events(
        data, file, skipping=False, now_us=NOW
    )
    rows = [row | {"fields": dict(row["fields"] or [])} for row in table.to_pylist()]
    return (rows, counts) if counted else rows


@pytest.mark.parametrize("wrap", [lambda text: docker(text + "\n"), cri])
def test_formats_inside(wrap):
    """A wrapped line is parsed as if it were not wrapped; if it contains no time, the runtime's is used."""
    line = 'level=warn msg="a \\"b\\" c" took=7'
    (row,) = rows_of([wrap(line)], format="logfmt", fields=("level", "msg"), columns={"took": "integer"})
    assert (row["data"], row["took"]) == (line.encode(), 7)
    assert row["fields"] == {"level": "warn", "msg": 'a "b" c', "stream": "stdout"}
    assert row["timestamp"].isoformat() == "2026-03-01T08:00:00.123456+00:00"
    line = '{"at": "2026-03-01T07:00:00Z", "level": "warn", "log": "x"}'
    (row,) = rows_of([wrap(line)], format="json", time="at", fields=("level", "log"))
    assert (row["data"], row["timestamp"].hour) == (line.encode(), 7)
    assert row["fields"] == {"level": "warn", "log": "x", "stream": "stdout"}
    (row,) = rows_of([wrap("E db: gone")], format="regex", pattern=r"^(?P<level>\w) (?P<unit>\w+): (?P<msg>.*)$")
    assert (row["data"], row["fields"]) == (
        b"gone",
        {"level": "error", "level_text": "E", "unit": "db", "stream": "stdout"},
    )
    (row,) = rows_of([wrap("2020-01-01 00:00:00 the runtime's time is exact")])
    assert row["timestamp"].year == 2026


@pytest.mark.parametrize("text", [
    "plain", "", "two\twords \\ and \"quotes\"", "ends with a backslash \\", "ends with \\n", "\\\\n",
    "Z\u00fcrich \U0001f600",
    '","stream":"stderr","time":"x"}', "\x1b[31mred\x1b[0m", " spaces ", "\u2028 \x7f \x00",
])  # fmt: skip
def test_text_of_docker(text):
    """Any text survives Docker's JSON, read by the collector's parser and by a JSON parser."""
    turned = json.dumps({"stream": "stdout", "time": TIME, "log": f"{text}\n"})
    spaced = json.dumps(json.loads(docker(text + "\n")))
    for line in (
        docker(f"{text}\n"),
        docker(f"{text}\r\n"),
        docker(f"{text}\n", attrs={"tag": "a{b}"}),
        turned,
        spaced,
    ):
        rows = rows_of([line])
        assert [row["data"] for row in rows] == ([text.encode()] if text else [])
        assert [row["fields"] for row in rows] == [{"stream": "stdout"}] * len(rows)


def test_other_lines_stay_as_they_are():
    """JSON with other keys, lookalike text, and everything when unwrapping is off stay unchanged."""
    odd = ['{"log":"a\\n","stream":"stdout","time":"x","level":"info"}', '{"log":"a\\n","stream":"file","time":"x"}',
           f'{{"log":"a","level":"info","stream":"stdout","time":"{TIME}"}}',
           '{"log":5,"stream":"stdout","time":"x"}', f"{TIME} stdout X a", f"{TIME} stdfoo F a", f"{TIME} stdout F",
           'a stdout F b', '{"log":"a', "{"]  # fmt: skip
    rows = rows_of([*odd, cri("x")])
    assert [row["data"].decode() for row in rows] == [*(line for line in odd if not line.endswith("stdout F")), "x"]
    line = docker("a\n")
    assert [row["data"].decode() for row in rows_of([line, cri("b")], container="none")] == [line, cri("b")]
    assert [row["data"].decode() for row in rows_of([line, cri("b")], container="cri")] == [line, "b"]
    assert [row["data"].decode() for row in rows_of([line, cri("b")], container="docker")] == ["a", cri("b")]


def test_json_is_no_logfmt():
    """JSON read as logfmt is stored whole, marked and counted; no fields are taken from it by chance."""
    lines = ['{"log":"level=info msg=\\"x\\" \\n","other":1}', '{"a": "b level=info"}', "level=info", "x{ level=info"]
    rows, counts = rows_of(lines, format="logfmt", fields=("level",), counted=True)
    assert [row["fields"].get("parse_error") for row in rows] == ["logfmt", "logfmt", None, None]
    assert counts.failed == 2


def test_parts_are_joined():
    """Parts of a line are joined per stream; a part that never ends becomes a line at the end of a piece."""
    lines = [cri("a", part="P"), cri("1", "stderr", "P"), cri("b", part="P"), cri("2", "stderr"), cri("c"), cri("d"),
             cri("e", part="P")]  # fmt: skip
    assert [row["data"] for row in rows_of(lines)] == [b"abc", b"12", b"d", b"e"]
    lines = [
        docker("a"),
        docker("1", "stderr"),
        docker("b"),
        docker("2\n", "stderr"),
        docker("c\n"),
        docker("\\n"),
        docker("\n"),
    ]
    assert [row["data"] for row in rows_of(lines)] == [b"abc", b"12", b"\\n"]


def test_parts_are_bounded():
    """Joined parts above the limit keep their beginning and are counted."""
    lines = [cri("x" * 50, part="P")] * 4 + [cri("end"), cri("next")]
    rows, counts = rows_of(lines, max_line_bytes=120, counted=True)
    assert [row["data"] for row in rows] == [b"x" * 120, b"next"]
    assert counts.cut == 1


def test_records_of_several_lines():
    """First lines are recognised inside the wrapping; streams do not mix."""
    lines = [cri("boom"), cri("  at x"), cri("err", "stderr"), cri("  at y"), cri("  at e", "stderr"),
             cri("on", part="P"), cri("ly")]  # fmt: skip
    records = [b"boom\n  at x\n  at y", b"err\n  at e", b"only"]
    assert [row["data"] for row in rows_of(lines, multiline=r"^\S")] == records
    plain = ["boom stdout x", "  at x", "on"]
    assert [row["data"] for row in rows_of(plain, multiline=r"^\S")] == [b"boom stdout x\n  at x", b"on"]


@pytest.mark.parametrize("multiline", share_of([None, r"^\S"], 2))
def test_pieces(multiline):
    """Records are the same however the data is cut into pieces; none is torn."""
    chance = random.Random(3)
    files = Files(path=("x",), max_line_bytes=2000, multiline=multiline, file_tag="")
    builder, read = EventBuilder(files), 2 * files.max_line_bytes + 2
    for _ in share_of(range(40), 3):
        lines = []
        for _ in range(chance.randrange(2, 150)):
            wrap, stream = (
                chance.choice([docker, cri]),
                chance.choice(["stdout", "stderr"] if multiline is None else ["stdout"]),
            )
            for part in "PF" if chance.random() < 0.2 else "F":
                text = chance.choice(["a", " b", "c" * 30])
                lines.append(docker(text + "\n" * (part == "F"), stream) if wrap is docker else cri(text, stream, part))
        data = ("\n".join(lines) + "\n").encode()
        at, texts = 0, []
        while at < len(data):
            some = data[at : at + read + chance.randrange(900)]
            piece = measure(some, files.cutting, complete=at + len(some) == len(data))
            table, _ = builder.events(some[: piece.length], "f", skipping=False, now_us=NOW)
            texts += table["data"].to_pylist()
            at += piece.length
            assert piece.length > 0
        whole, _ = builder.events(data, "f", skipping=False, now_us=NOW)
        assert sorted(texts) == sorted(whole["data"].to_pylist())


def test_a_part_waits_for_its_end():
    """A piece ends before a record that may continue, in either stream, unless everything is taken."""
    closed = cri("a") + "\n"
    waiting = closed + cri("b", part="P") + "\n" + cri("c", "stderr") + "\n"
    cutting = Files(path=("x",)).cutting
    assert measure(waiting.encode(), cutting).length == len(closed)
    assert measure(waiting.encode(), cutting, complete=True).length == len(waiting)
    assert measure((waiting + cri("d") + "\n").encode(), cutting).length == len(waiting + cri("d") + "\n")
    small = Files(path=("x",), max_line_bytes=64).cutting
    assert measure(waiting.encode(), small).length == len(waiting)


def test_tags_of_the_path():
    """Named groups of a path pattern become tags; a path without a match has none; explicit tags take precedence."""
    pattern = r"/pods/(?P<namespace>[^_/]+)_(?P<pod>[^_/]+)_[^/]+/(?P<container>[^/]+)/"
    path = "/var/log/pods/shop_web-7d9f_6f1c2a/nginx/0.log"
    (row,) = rows_of([cri("x")], file=path, path_tags=pattern, tags={"app": "shop", "pod": "set"})
    assert row["space"] == "{app=shop,container=nginx,namespace=shop,pod=set}"
    (row,) = rows_of([cri("x")], file="/var/log/x.log", path_tags=pattern)
    assert row["space"] == "{}"
    for wrong in ("(", "no group", "(a)"):
        with pytest.raises(aggregator.InvalidRequestError):
            Files(path=("x",), path_tags=wrong)


def test_nothing_to_unwrap():
    """Empty input and lines that are not wrapped stay unchanged."""
    for lines in ([], [b""], [b"x"]):
        found = unwrap(pa.array(lines, pa.binary()), "auto")
        assert (found.messages.to_pylist(), found.streams.any()) == (lines, False)
