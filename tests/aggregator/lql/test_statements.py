"""The syntax tree of each valid statement, and the error of each invalid one."""

from __future__ import annotations

import pickle

import pytest

from aggregator.lql import LqlError, TagSet, parse_source, parse_statement, parse_where, to_text
from aggregator.lql.parse.tree import (
    And,
    Call,
    Condition,
    CreatePipe,
    DeletePipe,
    DescribePartition,
    DescribePipe,
    Every,
    Explain,
    Name,
    Not,
    Or,
    Position,
    Range,
    Select,
    ShowPartitions,
    ShowPipes,
    Time,
    Truncate,
    Value,
)


def is_(name, op, text, *, number=False):
    return Condition(Name(name), op, Value(text, number))


def tags(**given):
    return TagSet.of(given)


A, B, C = is_("a", "=", "1", number=True), is_("b", "=", "x"), is_("c", "!=", "y")
UPPER_A = Call("UPPER", Name("a"))
MSG_X = is_("msg", "CONTAINS", "x")

STATEMENTS = [
    # SELECT and its clauses
    ("SELECT", Select()),
    ("select;", Select()),
    ("SeLeCt LiMiT 10", Select(limit=10)),
    ("SELECT LIMIT -1", Select(limit=-1)),
    ("SELECT LIMIT -7", Select(limit=-1)),
    ("SELECT LIMIT 0", Select(limit=0)),
    ("SELECT OFFSET 123 LIMIT 100", Select(offset=123, limit=100)),
    ("SELECT LIMIT 100 OFFSET 123", Select(offset=123, limit=100)),
    ("SELECT OFFSET -10", Select(offset=-10)),
    ("SELECT '{ts} {msg}' LIMIT 1", Select(format="{ts} {msg}", limit=1)),
    ('SELECT "{msg}\\n"', Select(format="{msg}\n")),
    ('SELECT ""', Select()),
    ("SELECT '' LIMIT 1", Select(limit=1)),
    ("SELECT FROM a = 1", Select(source=A)),
    ("SELECT FROM {a=1}", Select(source=tags(a="1"))),
    ("SELECT FROM {}", Select(source=TagSet(()))),
    ('SELECT FROM {name="app1",ip=27.3.2.1}', Select(source=tags(name="app1", ip="27.3.2.1"))),
    ('SELECT FROM {a="}"} WHERE msg CONTAINS "}"', Select(source=tags(a="}"), where=is_("msg", "CONTAINS", "}"))),
    ("SELECT WHERE msg CONTAINS 'x'", Select(where=MSG_X)),
    ('SELECT RANGE "-1h"', Select(range=Range(Time("-1h")))),
    ("SELECT RANGE -1.5h", Select(range=Range(Time("-1.5h")))),
    ("SELECT RANGE day", Select(range=Range(Time("day")))),
    ("SELECT RANGE 1550000000000000000", Select(range=Range(Time("1550000000000000000")))),
    ('SELECT RANGE [:"-1h"]', Select(range=Range(None, Time("-1h")))),
    ('SELECT RANGE ["-2h":"-1h"]', Select(range=Range(Time("-2h"), Time("-1h")))),
    ('SELECT RANGE [ "-2h" : ]', Select(range=Range(Time("-2h")))),
    ("SELECT POSITION TAIL", Select(position=Position("tail"))),
    ("SELECT POSITION head", Select(position=Position("head"))),
    ("SELECT POSITION 'tail'", Select(position=Position("tail"))),
    ("SELECT POSITION asdf", Select(position=Position("token", "asdf"))),
    ("SELECT POSITION 'AAAB=='", Select(position=Position("token", "AAAB=="))),
    ("SELECT POSITION limit LIMIT 1", Select(position=Position("token", "limit"), limit=1)),
    ('SELECT POSITION AT "-1h"', Select(position=Position("time", "-1h"))),
    ("SELECT POSITION AT", Select(position=Position("token", "AT"))),
    ("SELECT ORDER BY ts DESC", Select(newest_first=True)),
    ("SELECT ORDER BY ts ASC", Select()),
    ("SELECT ORDER BY ts", Select()),
    ("SELECT COUNT", Select(count=True)),
    ("SELECT COUNT FROM a = 1 WHERE msg CONTAINS x", Select(count=True, source=A, where=MSG_X)),
    ("SELECT COUNT GROUP BY `order`", Select(count=True, group_by=(Name("order"),))),
    ("SELECT COUNT GROUP BY name", Select(count=True, group_by=(Name("name"),))),
    (
        "SELECT COUNT GROUP BY UPPER(name), ts EVERY '5m', msg.user",
        Select(count=True, group_by=(Call("UPPER", Name("name")), Every(300_000_000), Name("msg.user"))),
    ),
    ("SELECT COUNT GROUP BY ts EVERY 1.5h", Select(count=True, group_by=(Every(5_400_000_000),))),
    (
        "SELECT '{msg}' FROM a = 1 RANGE '-1h' WHERE msg CONTAINS x POSITION tail OFFSET -5 LIMIT 5",
        Select(
            format="{msg}",
            source=A,
            range=Range(Time("-1h")),
            where=MSG_X,
            position=Position("tail"),
            offset=-5,
            limit=5,
        ),
    ),
    ("EXPLAIN SELECT FROM a = 1", Explain(Select(source=A))),
    ("explain select count", Explain(Select(count=True))),
    # expressions
    ("SELECT FROM a=1 AND b=x OR c!=y", Select(source=Or((And((A, B)), C)))),
    ("SELECT FROM a=1 AND (b=x OR c!=y)", Select(source=And((A, Or((B, C)))))),
    ("SELECT FROM NOT a=1 AND b=x", Select(source=And((Not(A), B)))),
    ("SELECT FROM NOT (a=1 AND b=x)", Select(source=Not(And((A, B))))),
    ("SELECT FROM ((a=1))", Select(source=A)),
    ("SELECT FROM (a=1 AND b=x) AND c!=y", Select(source=And((A, B, C)))),
    ("SELECT FROM a=1 OR (b=x OR c!=y)", Select(source=Or((A, B, C)))),
    ("SELECT FROM NOT (NOT a=1)", Select(source=Not(Not(A)))),
    ("SELECT FROM a<b", Select(source=is_("a", "<", "b"))),
    ("SELECT FROM a<=b", Select(source=is_("a", "<=", "b"))),
    ("SELECT FROM a>b", Select(source=is_("a", ">", "b"))),
    ("SELECT FROM a>=b", Select(source=is_("a", ">=", "b"))),
    ("SELECT FROM a PREFIX b", Select(source=is_("a", "PREFIX", "b"))),
    ("SELECT FROM a SUFFIX b", Select(source=is_("a", "SUFFIX", "b"))),
    ("SELECT FROM a CONTAINS b", Select(source=is_("a", "CONTAINS", "b"))),
    ("SELECT FROM a like 'b*'", Select(source=is_("a", "LIKE", "b*"))),
    ("SELECT FROM a matches 'b+'", Select(source=is_("a", "MATCHES", "b+"))),
    ("SELECT FROM lower(Upper(a)) = x", Select(source=Condition(Call("LOWER", UPPER_A), "=", Value("x")))),
    # values and names
    ("SELECT FROM a = -1.5e3", Select(source=is_("a", "=", "-1.5e3", number=True))),
    ("SELECT FROM ip = 27.3.2.1", Select(source=is_("ip", "=", "27.3.2.1"))),
    ("SELECT FROM a = '\\\\d\\n\"'", Select(source=is_("a", "=", '\\d\n"'))),
    ("SELECT FROM a MATCHES '\\d\\n\"'", Select(source=is_("a", "MATCHES", '\\d\\n"'))),
    ('SELECT FROM a = "\\u00e5\\t\\x41\\101\\"\\\\"', Select(source=is_("a", "=", 'å\tAA"\\'))),
    ('SELECT FROM a = "\\xc3\\xa5"', Select(source=is_("a", "=", "å"))),
    ("SELECT FROM a = ''", Select(source=is_("a", "=", ""))),
    ("SELECT FROM k8s.io/pod-name_1:x = y", Select(source=is_("k8s.io/pod-name_1:x", "=", "y"))),
    ("SELECT FROM `odd name``s` = y", Select(source=is_("odd name`s", "=", "y"))),
    ("SELECT WHERE fields:`odd name``s` = y", Select(where=is_("fields:odd name`s", "=", "y"))),
    ("SELECT COUNT GROUP BY Fields.`a b`", Select(count=True, group_by=(Name("Fields.a b"),))),
    ("SELECT FROM `` = y", Select(source=is_("", "=", "y"))),
    ("SELECT FROM größe = y", Select(source=is_("größe", "=", "y"))),
    ("SELECT FROM from = x OR c != y", Select(source=Or((is_("from", "=", "x"), C)))),
    ("SELECT FROM limit CONTAINS y", Select(source=is_("limit", "CONTAINS", "y"))),
    ("SELECT FROM NOT not = x LIMIT 1", Select(source=Not(is_("not", "=", "x")), limit=1)),
    ("SELECT FROM like LIKE 'like' LIMIT 1", Select(source=is_("like", "LIKE", "like"), limit=1)),
    ("SELECT FROM a = order ORDER BY ts", Select(source=is_("a", "=", "order"))),
    ("SELECT FROM UPPER(count) = x", Select(source=Condition(Call("UPPER", Name("count")), "=", Value("x")))),
    ("SELECT WHERE fields:a >= 'x'", Select(where=is_("fields:a", ">=", "x"))),
    ("SELECT WHERE status >= 500", Select(where=is_("status", ">=", "500", number=True))),
    ("SELECT WHERE ts >= '2026-03-01'", Select(where=is_("ts", ">=", "2026-03-01"))),
    ("SELECT WHERE msg.a.b = 1", Select(where=is_("msg.a.b", "=", "1", number=True))),
    (
        "SELECT WHERE msg.a[0].b['c d'] = x",
        Select(where=Condition(Name("msg.a", (0, "b", "c d")), "=", Value("x"))),
    ),
    # streams
    ("SHOW PARTITIONS", ShowPartitions()),
    ("show partitions {a=1}", ShowPartitions(tags(a="1"))),
    ("SHOW PARTITIONS a = 1 OFFSET 5 LIMIT 10", ShowPartitions(A, 5, 10)),
    ("SHOW PARTITIONS LIMIT 10", ShowPartitions(limit=10)),
    ("SHOW PARTITIONS limit = 1 LIMIT 2", ShowPartitions(is_("limit", "=", "1", number=True), limit=2)),
    ('DESCRIBE PARTITION {a="1"}', DescribePartition(tags(a="1"))),
    # pipes
    ("SHOW PIPES", ShowPipes()),
    ("SHOW PIPES OFFSET 1 LIMIT 2", ShowPipes(1, 2)),
    ("DESCRIBE PIPE p1", DescribePipe("p1")),
    ("CREATE PIPE p1", CreatePipe("p1")),
    ("CREATE PIPE p1 FROM {a=1}", CreatePipe("p1", tags(a="1"))),
    ("CREATE PIPE p1 FROM a=1 WHERE msg CONTAINS x", CreatePipe("p1", A, MSG_X)),
    ("CREATE PIPE p1 WHERE msg CONTAINS x BACKFILL", CreatePipe("p1", None, MSG_X, True)),
    ("CREATE PIPE 'my pipe'", CreatePipe("my pipe")),
    ("DELETE PIPE p1", DeletePipe("p1")),
    ("DELETE PIPE limit", DeletePipe("limit")),
    # TRUNCATE
    ("TRUNCATE", Truncate()),
    ("TRUNCATE DRYRUN", Truncate(dry_run=True)),
    ("TRUNCATE DRYRUN {a=1}", Truncate(True, tags(a="1"))),
    ("TRUNCATE dryrun = 1", Truncate(source=is_("dryrun", "=", "1", number=True))),
    ("TRUNCATE a=1 MINSIZE 1k MAXSIZE 2MiB", Truncate(source=A, min_size=1000, max_size=2 << 20)),
    ("TRUNCATE MAXSIZE 1.5gb", Truncate(max_size=1_500_000_000)),
    ("TRUNCATE MAXSIZE '10 TB'", Truncate(max_size=10 * 1000**4)),
    ("TRUNCATE MAXSIZE 7b", Truncate(max_size=7)),
    ("TRUNCATE MAXSIZE 1pib", Truncate(max_size=1 << 50)),
    ("TRUNCATE BEFORE '-7d'", Truncate(before=Time("-7d"))),
    ("TRUNCATE BEFORE week MAXDBSIZE 10g", Truncate(before=Time("week"), max_db_size=10 * 1000**3)),
]  # fmt: skip

# Text, the text above the carets, words of the message.
INVALID = [
    ("", "", "empty statement"),
    ("   ;", ";", "no statement begins"),
    ("SELCT", "SELCT", "did you mean SELECT"),
    ("drop table x", "drop", "begin with SELECT"),
    ("SELECT SELECT", "SELECT", "was not expected"),
    ("SELECT FROM", "", "end of the text was not expected"),
    ("SELECT FROM a", "", "an operator"),
    ("SELECT FROM a =", "", "end of the text"),
    ("SELECT FROM a lik b", "lik", "did you mean LIKE"),
    ("SELECT FROM a == b", "==", "write ="),
    ("SELECT FROM a <> b", "<>", "write !="),
    ("SELECT FROM a = b && c = d", "&", "write AND"),
    ("SELECT FROM a = b c = d", "c", "not expected"),
    ("SELECT FROM (a = b", "", "expected )"),
    ("SELECT FROM a = b)", ")", "not expected"),
    ("SELECT FROM not a", "", "an operator"),
    ("SELECT FROM a = 'b", "'", "not closed"),
    ('SELECT FROM a = "\\q"', "\\q", "unknown escape"),
    ('SELECT FROM a = "\\ud800"', "\\ud800", "not a Unicode character"),
    ('SELECT FROM a = "x\\xff"', "x\\xff", "UTF-8"),
    ("SELECT FROM a = #", "#", "unexpected character"),
    ("SELECT FROM msg[0] = x", "msg", "tags have no parts"),
    ("SELECT FROM a LIKE '[x'", "'[x'", "not closed"),
    ("SELECT FROM a LIKE '[z-a]'", "'[z-a]'", "empty range"),
    ("SELECT FROM a LIKE 'x\\\\'", "'x\\\\'", "backslash"),
    ("SELECT FROM a LIKE 'x\\'", "\\", "unknown escape"),
    ("SELECT FROM a = '\\d'", "\\d", "unknown escape"),
    ("SELECT FROM a = matches AND b = '\\d'", "\\d", "unknown escape"),
    ("SELECT WHERE fields: = ''", "fields:", "lacks the name of a field"),
    ("SELECT WHERE fields. = ''", "fields.", "lacks the name of a field"),
    ("SELECT COUNT GROUP BY fields:", "fields:", "lacks the name of a field"),
    ("SELECT '{vars: }'", "'{vars: }'", "lacks the name of a tag"),
    ('SELECT WHERE CONTAINS "a"', "CONTAINS", "write a name before the operator"),
    ('SELECT FROM a = b WHERE CONTAINS "a"', "CONTAINS", "write a name before the operator"),
    ("SELECT WHERE = 5", "=", "write a name before the operator"),
    ("SELECT = 5", "=", 'not expected here; expected "text"'),
    ("SELECT LIMIT = 5", "=", "expected a number"),
    ("SELECT FROM a MATCHES '('", "'('", "missing )"),
    ("SELECT FROM a MATCHES '(?=x)'", "(?=", "look-ahead"),
    ("SELECT FROM a MATCHES 'ab(?<!x)'", "(?<!", "look-behind"),
    ("SELECT FROM a MATCHES '(a)\\1'", "\\1", "back reference"),
    ("SELECT FROM a MATCHES '(?>a)'", "(?>", "atomic"),
    ('SELECT FROM a MATCHES "\\t(?=x)"', '"\\t(?=x)"', "character 2 of the pattern"),
    ("SELECT WHERE msg MATCHES '((a{1000}){1000})'", "{1000}", "too large"),
    ("SELECT WHERE msg MATCHES '(.*a){900}b'", "{900}", "too large"),
    ("SELECT WHERE msg LIKE '" + "?" * 900 + "a*'", "'" + "?" * 900 + "a*'", "glob is too large"),
    ("SELECT '" + "x" * 4001 + "'", "'" + "x" * 4001 + "'", "more than 4000"),
    ("SELECT WHERE msg" + ".a" * 20_000 + " = 1", "msg" + ".a" * 20_000, "20000 steps"),
    ("SELECT WHERE " + " OR ".join(["msg MATCHES '(ab){999}'"] * 20), "'(ab){999}'", "in total"),
    ("SELECT FROM trim(a) = b", "trim", "unknown function"),
    ("SELECT FROM uper(a) = b", "uper", "did you mean UPPER"),
    ("SELECT FROM {a=1", "", "expected after the value"),
    ("SELECT FROM {a}", "}", "name=value"),
    ("SELECT FROM {=1}", "=", "a tag name expected"),
    ("SELECT FROM {a=1,}", "}", "a tag name expected"),
    ("SELECT FROM {a=1,a=2}", "a=2", "duplicate tag"),
    ('SELECT FROM {a="x}', '"', "not closed"),
    ('SELECT FROM {a=b"c}', '"', "quote values"),
    ("SELECT FROM {a={b}}", "{", "quote values"),
    ("SELECT LIMIT x", "x", "expected a number"),
    ("SELECT LIMIT 1.5", "1.5", "invalid whole number"),
    ("SELECT LIMIT 99999999999999999999", "99999999999999999999", "invalid whole number"),
    ("SELECT LIMIT 1 LIMIT 2", "LIMIT", "duplicate clause"),
    ("SELECT RANGE yesterday", "yesterday", "invalid time"),
    ("SELECT RANGE ['-1h' '-2h']", "'-2h'", "expected :"),
    ("SELECT RANGE [:]", "]", "expected"),
    ("SELECT RANGE '2019-02-30'", "'2019-02-30'", "invalid date"),
    ("SELECT RANGE '25:00'", "'25:00'", "time of the day"),
    ("SELECT RANGE '10:00 XYZ'", "'10:00 XYZ'", "unknown time zone"),
    ("SELECT WHERE msg < x", "msg", "cannot be compared with <"),
    ("SELECT WHERE ts CONTAINS x", "ts", "cannot be compared with CONTAINS"),
    ("SELECT WHERE ts > tomorrow", "tomorrow", "invalid time"),
    ("SELECT WHERE UPPER(ts) = x", "ts", "ts is a time"),
    ("SELECT WHERE a[0] = x", "a", "has no parts"),
    ("SELECT WHERE fields:`` = x", "fields:``", "lacks the name of a field"),
    ("SELECT WHERE fields:`a = x", "`", "the quote ` is not closed"),
    ("SELECT WHERE msg..a = x", "msg..a", "a name after each dot"),
    ("SELECT WHERE msg.a > 1e999999", "1e999999", "invalid number"),
    ("SELECT ORDER BY name", "name", "only to ts"),
    ("SELECT COUNT ORDER BY count DESC", "ORDER", "needs groups"),
    ("SELECT ORDER BY count", "ORDER", "needs groups"),
    ("SELECT COUNT GROUP BY ts", "ts", "EVERY"),
    ("SELECT COUNT GROUP BY name EVERY '1h'", "name", "EVERY applies only to ts"),
    ("SELECT COUNT GROUP BY ts EVERY '1y'", "'1y'", "length of time"),
    ("SELECT COUNT GROUP BY at", "at", "expected a name; to use it as a name, put it in backquotes: `at`"),
    ("SELECT GROUP BY name", "SELECT", "SELECT COUNT"),
    ("SELECT COUNT POSITION TAIL", "POSITION", "a COUNT has no order"),
    ("SELECT '{msg'", "'{msg'", "not closed"),
    ("SELECT '{nope}'", "'{nope}'", "unknown placeholder"),
    ("SELECT '{ts.format(%Q)}'", "'{ts.format(%Q)}'", "strftime"),
    ("SELECT POSITION", "", "end of the text"),
    ("EXPLAIN TRUNCATE", "TRUNCATE", "expected SELECT"),
    ("SHOW", "", "PARTITIONS or PIPES"),
    ("SHOW PIPE", "PIPE", "PARTITIONS or PIPES"),
    ("SHOW PARTITIONS OFFSET -1", "OFFSET", "cannot be negative"),
    ("DESCRIBE PARTITION a = 1", "a", "{tags}"),
    ("DESCRIBE PIPE", "", "a name"),
    ("CREATE PIPE ''", "''", "needs a name"),
    ("CREATE PIPE p LIMIT 1", "LIMIT", "BACKFILL"),
    ("TRUNCATE MAXSIZE 10x", "10x", "invalid size"),
    ("TRUNCATE MAXSIZE -1", "-1", "invalid size"),
    ("TRUNCATE MAXSIZE 99999999p", "99999999p", "any disk"),
    ("TRUNCATE BEFORE '1/13/2020'", "'1/13/2020'", "invalid date"),
    ("DELETE p", "p", "expected PIPE"),
    ("SELECT; SELECT", "SELECT", "expected the end"),
    ("SELECT FROM \ud800 = 1", "\ud800", "half of a surrogate pair"),
    ("SELECT FROM " + "(" * 51 + "a=b", "(", "deeper than 50"),
    ("SELECT FROM " + "a=b OR " * 2000 + "a=b", "a", "more than 2000"),
    ("SELECT FROM a MATCHES '" + "x" * 1001 + "'", "'" + "x" * 1001 + "'", "more than 1000"),
]


@pytest.mark.parametrize(("text", "expected"), STATEMENTS, ids=[text for text, _ in STATEMENTS])
def test_statement_means(text, expected):
    """The statement parses to this tree, and so does the tree's text."""
    assert parse_statement(text) == expected
    assert parse_statement(to_text(expected)) == expected


@pytest.mark.parametrize(("text", "underlined", "told"), INVALID, ids=[text[:60] for text, *_ in INVALID])
def test_statement_is_refused(text, underlined, told):
    """The error names and points at the mistake, and survives pickling."""
    with pytest.raises(LqlError) as caught:
        parse_statement(text)
    error = caught.value
    assert told in f"{error.message}; {error.hint}"
    assert text[error.start : error.end] == underlined
    assert error.text == text
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.start, again.end, again.hint) == (str(error), error.start, error.end, error.hint)


def test_caret_stands_under_the_place():
    """Only the line with the mistake is shown, and the carets begin below the mistake."""
    with pytest.raises(LqlError) as caught:
        parse_statement("SELECT\n  FROM a lik b\n  LIMIT 5")
    shown = str(caught.value).split("\n")[1:]
    assert shown == ["    FROM a lik b", "           ^^^"]


def test_caret_in_a_long_line():
    """Of a very long line, only the part around the mistake is shown."""
    with pytest.raises(LqlError) as caught:
        parse_statement("SELECT FROM " + "a = b OR " * 200 + "a lik b" + " OR a = b" * 200)
    line, carets = str(caught.value).split("\n")[1:]
    assert len(line) < 140
    assert line[carets.index("^") : carets.rindex("^") + 1] == "lik"


def test_limits_are_told():
    """Values that are not text and texts that are too long are refused before parsing."""
    with pytest.raises(LqlError, match="not int"):
        parse_statement(5)
    with pytest.raises(LqlError, match="more than 65536"):
        parse_statement("SELECT " + " " * 70_000)
    with pytest.raises(LqlError, match="words and signs"):
        parse_statement("SELECT " + ", " * 25_000)


def test_parts_of_statements():
    """Sources and conditions parse alone, with the same checks."""
    assert parse_source("a = 1") == A
    assert parse_source("{a=1}") == tags(a="1")
    assert parse_where("msg CONTAINS x") == MSG_X
    with pytest.raises(LqlError, match="cannot be compared"):
        parse_where("msg < x")
    with pytest.raises(LqlError, match="was not expected"):
        parse_where("{a=1}")


def test_enough_cases():
    """The tables have more than 100 valid and 70 invalid statements."""
    assert len(STATEMENTS) > 100
    assert len(INVALID) > 70
