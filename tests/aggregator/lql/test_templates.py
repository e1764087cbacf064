"""The output of format strings and time layouts."""

from __future__ import annotations

import datetime as dt
import json

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from aggregator.lql import Columns, LqlError, TagSet, Template
from aggregator.lql.text.layout import Layout

MOMENT = dt.datetime(2026, 3, 1, 8, 5, 7, 250_000, dt.UTC)
LAST = dt.datetime(1999, 12, 31, 23, 59, 59, tzinfo=dt.UTC)
BATCH = pa.record_batch(
    {
        "timestamp": pa.array([MOMENT, LAST, None], pa.timestamp("us", "UTC")),
        "data": pa.array([b"one", b'say "hi"\n', None]),
        "space": pa.array(["{app=web,zone=eu}", "{app=db}", "{app=web,zone=eu}"]).dictionary_encode(),
        "status": pa.array([200, None, 404]),
        "who": pa.array(["ada l", None, ""]),
        "grouping": pa.array(["", "", ""]),
    }
)  # fmt: skip
COLUMNS = Columns(BATCH.schema)

TEMPLATES = [
    ("{msg}", ["one", 'say "hi"\n', ""]),
    ("", ["", "", ""]),
    ("text", ["text"] * 3),
    ("{msg}\n", ["one\n", 'say "hi"\n\n', "\n"]),
    ("{ MSG }", ["one", 'say "hi"\n', ""]),
    ("{msg.json()}", ['"one"', '"say \\"hi\\"\\n"', '""']),
    ("{msg.json}", ['"one"', '"say \\"hi\\"\\n"', '""']),
    ("{ts}", ["2026-03-01T08:05:07Z", "1999-12-31T23:59:59Z", ""]),
    ("{ts.format(2006-01-02)}", ["2026-03-01", "1999-12-31", ""]),
    ("{ts.format('15:04:05.000')}|", ["08:05:07.250|", "23:59:59.000|", "|"]),
    ("{ts.format(%d/%m/%y)}", ["01/03/26", "31/12/99", ""]),
    ("{vars}", ['app=web,zone=eu,status=200,who="ada l"', "app=db", 'app=web,zone=eu,status=404,who=""']),
    ("{vars:zone}", ["eu", "", "eu"]),
    ("{vars:status}", ["200", "", "404"]),
    ("{vars:who}-{vars:app}", ["ada l-web", "-db", "-web"]),
    ("{vars:nope}", ["", "", ""]),
    ("{{{vars:app}}}", ["{web}}", "{db}}", "{web}}"]),
    ("{}}}{{}", ["}}}{}"] * 3),
    ("{{{vars:app}{}", ["{web}", "{db}", "{web}"]),
    ("a } b", ["a } b"] * 3),
]


@pytest.mark.parametrize(("text", "expected"), TEMPLATES, ids=[text for text, _ in TEMPLATES])
def test_template_prints(text, expected):
    """A template prints one text per row."""
    assert Template.compile(text).render(BATCH, COLUMNS).to_pylist() == expected
    assert Template.compile(text).render(BATCH.slice(0, 0), COLUMNS).to_pylist() == []


def test_fields_in_a_map():
    """Fields in the map print like those with a column."""
    more = pa.array([[("q", "x"), ("who", "other")], None, []], pa.map_(pa.string(), pa.string()))
    batch = BATCH.append_column("more", more)
    columns = Columns(batch.schema, extra="more")
    assert Template.compile("{vars:q}|{vars:who}").render(batch, columns).to_pylist() == ["x|ada l", "|", "|"]
    assert Template.compile("{vars}").render(batch, columns)[0].as_py().endswith(",q=x,who=other")


@pytest.mark.parametrize("names", [["space", "status", "who"], ["space", "more"], ["space"], ["status"], []])
def test_records_without_tags_and_fields(names):
    """A record of the stream without tags that has no fields prints nothing in their place."""
    batch = pa.record_batch({
        "timestamp": BATCH["timestamp"], "data": BATCH["data"], "space": ["{}", "{}", "{app=db}"],
        "status": pa.array([None, 5, None], pa.int64()), "who": pa.nulls(3, pa.string()),
        "more": pa.array([None, [], [("q", "x")]], pa.map_(pa.string(), pa.string())),
    }).select(["timestamp", "data", *names])  # fmt: skip
    columns = Columns(
        batch.schema, tags="space" if "space" in names else None, extra="more" if "more" in names else None
    )
    found = ["", "status=5" if "status" in names else "", "app=db" if "space" in names else ""]
    found[2] += ",q=x" if "more" in names else ""
    assert Template.compile("{vars}").render(batch, columns).to_pylist() == found
    messages = ["one", 'say "hi"\n', ""]
    expected = [f"{text} {message}" for text, message in zip(found, messages, strict=True)]
    assert Template.compile("{vars} {msg}").render(batch, columns).to_pylist() == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [("{msg", "character 1"), ("a{b}", "placeholder {b}"), ("{}}{", "character 4"), ("{ts.format(%Q)}", "strftime"),
     ("{vars:a}" * 300, "more than 200"), ("{vars:}", "lacks the name of a tag"), ("{ts.format(%)}", "strftime")],
)  # fmt: skip
def test_no_template(text, told):
    """An invalid template is refused when compiled."""
    with pytest.raises(LqlError, match=told):
        Template.compile(text)


LAYOUTS = [
    ("2006-01-02T15:04:05.000000Z07:00", "2026-03-01T08:05:07.250000Z"),
    ("Mon Jan _2 15:04:05 2006", "Sun Mar  1 08:05:07 2026"),
    ("Monday, 02-Jan-06 15:04:05 MST", "Sunday, 01-Mar-26 08:05:07 UTC"),
    ("January 2, 2006 at 3:04pm (MST)", "March 1, 2026 at 8:05am (UTC)"),
    ("02 Jan 06 15:04 -0700", "01 Mar 26 08:05 +0000"),
    ("1/2/06 3:4:5 PM -07:00", "3/1/26 8:5:7 AM +00:00"),
    ("15:04:05.9", "08:05:07.2"),
    ("15:04:05.999999999", "08:05:07.25"),
    ("15:04:05,000", "08:05:07,250"),
    ("002", "060"),
    # as Go's time.Format prints them
    ("backup_2006-01-02", "backup_2026-03-01"),
    ("_2/1/06 3:04:05.000 PM", " 1/3/26 8:05:07.250 AM"),
    ("__2|_2006|__2006", " 60|_2026| 60026"),
    ("Jan January Janet Mon Monday Month", "Mar March Janet Sun Sunday Month"),
    ("Z07 Z0700 Z070000 Z07:00:00 -07:00:00 -070000", "Z Z Z Z +00:00:00 +000000"),
    ("05.000000000000", "07.250000000"),
    ("05.0001", "07.0003"),
    ("%H:%M:%S", "08:05:07"),
    ("%% %Y", "% 2026"),
    ("", ""),
    ("no time", "no time"),
]


@pytest.mark.parametrize(("layout", "expected"), LAYOUTS, ids=[layout for layout, _ in LAYOUTS])
def test_layout(layout, expected):
    """The example date prints like this in each layout."""
    micros = pa.array([(MOMENT - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)])
    assert Layout.of(layout).render(micros).to_pylist() == [expected]


def test_layout_of_midnight():
    """A single zero is kept."""
    assert Layout.of("15:4:5 3PM").render(pa.array([0])).to_pylist() == ["00:0:0 12AM"]


@examples(100)
@given(st.lists(st.datetimes(dt.datetime(1000, 1, 1), dt.datetime(9999, 12, 31)), max_size=5))
def test_rfc3339_reads_back(moments):
    """Python reads back the printed time."""
    micros = [(moment - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1) for moment in moments]
    printed = Layout.rfc3339().render(pa.array(micros, pa.int64())).to_pylist()
    assert [dt.datetime.fromisoformat(text).replace(tzinfo=None) for text in printed] == moments


def test_times_out_of_the_ordinary():
    """Years beyond four digits, null times, and slices of an array are printed correctly."""
    day = 86_400_000_000
    micros = pa.array([-62_135_596_800_000_000, None, 253_402_300_800_000_000, -1, 59 * day], pa.int64())
    layout = Layout.of("2006-01-02 15:04:05 é")
    assert layout.render(micros.slice(3)).to_pylist() == ["1969-12-31 23:59:59 é", "1970-03-01 00:00:00 é"]
    assert layout.render(micros.slice(1, 1)).to_pylist() == [None]
    assert layout.render(micros)[0].as_py() == "0001-01-01 00:00:00 é"
    assert layout.render(micros)[2].as_py() == "10000-01-01 00:00:00 é"
    assert layout.render(micros.slice(0, 0)).to_pylist() == []


odd_text = st.text(st.sampled_from('ab= ,"{}\\\n/é'), max_size=4)


@examples(100)
@given(st.lists(st.none() | st.lists(st.tuples(odd_text, st.none() | odd_text), max_size=3), min_size=1, max_size=6))
def test_all_fields_are_written_as_in_a_tag_list(rows):
    """`{vars}` prints each name and value as in a tag list, quoted if necessary, for any slice of a batch."""

    def written(text):
        return str(TagSet.of({"": text}))[len('{""=') : -1]

    def expected(row):
        return ",".join(f"{written(name)}={written(value or '')}" for name, value in row or ())

    maps = pa.array([[("x", "y")], *rows], pa.map_(pa.string(), pa.string())).slice(1)
    batch = pa.record_batch({"timestamp": pa.nulls(len(rows), pa.int64()), "data": [b""] * len(rows), "more": maps})
    columns = Columns(batch.schema, tags=None, extra="more")
    assert Template.compile("{vars}").render(batch, columns).to_pylist() == [expected(row) for row in rows]


READS = [
    ("{msg}", ["data"]),
    ("text", []),
    ("{ts.format(2006)} {msg.json()}", ["timestamp", "data"]),
    ("{vars:who}", ["space", "who"]),
    ("{vars:nope}", ["space"]),
    ("{vars}", ["space", "status", "who"]),
]


@pytest.mark.parametrize(("text", "read"), READS, ids=[text for text, _ in READS])
def test_columns_that_are_read(text, read):
    """A batch with only the columns that the template reads prints the same."""
    template = Template.compile(text)
    assert template.reads(COLUMNS) == read
    assert template.render(BATCH.select(read), COLUMNS) == template.render(BATCH, COLUMNS)


@examples(100)
@given(st.lists(st.text(max_size=10), max_size=5))
def test_json_reads_back(texts):
    """The JSON string decodes to the message."""
    batch = pa.record_batch({"timestamp": pa.nulls(len(texts), pa.int64()), "data": pa.array(texts, pa.string())})
    printed = Template.compile("{msg.json()}").render(batch, Columns(batch.schema, tags=None)).to_pylist()
    assert [json.loads(text) for text in printed] == texts


def test_times_beyond_any_calendar():
    """Times and dates for which Arrow writes wrong years, or an error message, are plain numbers."""
    batch = pa.record_batch({
        "timestamp": pa.array([1 << 60, 0, -(1 << 60)]).view(pa.timestamp("us")), "data": [b""] * 3,
        "at": pa.array([1 << 60, None, 0]).view(pa.timestamp("us", "UTC")),
        "day": pa.array([0, None, 2**31 - 1], pa.int32()).view(pa.date32()),
    })  # fmt: skip
    texts = Template.compile("{ts} {ts.format(2006)} {vars}").render(batch, Columns(batch.schema)).to_pylist()
    far = 1 << 60
    assert texts[0] == f"{far} {far} at={far},day=1970-01-01"
    assert texts[1].startswith("1970-01-01T00:00:00Z 1970 ")
    assert texts[2].startswith(f"-{far} -{far} at=1970-01-01T00:00:00Z,day={2**31 - 1}")
