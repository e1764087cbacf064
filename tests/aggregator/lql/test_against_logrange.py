"""Statements compared with the answers of a real Logrange over the same records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import aggregator
from aggregator.lql import LqlError, parse_statement

REAL = json.loads((Path(__file__).parents[3] / "fixtures/logrange/answers.json").read_text("utf-8"))
ALL = [record["msg"] for record in REAL["records"][:5]]
# Statements with a different answer, and that answer: docs/lql.md lists each kind under "Differences".
DIFFERENT = {
    # a number without quotes compares as a number
    "SELECT FROM name=app1 WHERE fields:status >= 1000": [ALL[1]],
    "SELECT WHERE fields:status = 1000": [ALL[1], "a_b c-d ^caret"],
    # * in a glob matches /
    'SELECT FROM name=app1 WHERE msg LIKE "*[!a]*"': ALL,
    'SELECT FROM name=app1 WHERE msg LIKE "path*"': [ALL[4]],
    # LIMIT -1 means no limit
    "SELECT FROM name=app1 LIMIT -1": ALL,
    # single quotes quote in a tag list, and {} matches all streams
    "SELECT FROM {name='app1'} LIMIT 1": ALL[:1],
    "SELECT FROM {} LIMIT 1": ALL[:1],
    # = and != of ts and msg
    'SELECT FROM name=app1 WHERE ts = "2024-03-01 12:00:03"': [ALL[3]],
    'SELECT FROM name=app1 WHERE msg = "started"': [ALL[0]],
}
DIFFERENT_LINES = {
    'SELECT "{msg.json}" FROM name=app2': '"a_b c-d ^caret""backup"',  # parentheses may be omitted
    # an empty field prints its quotes
    'SELECT "{vars}\\n"': REAL["answers"][[s for s, _ in REAL["answers"]].index('SELECT "{vars}\\n"')][1].replace(
        "name=\n", 'name=""\n'
    ),
    'SELECT "\\xe9\\n" FROM name=app2': None,  # \x is a byte, and this one is not UTF-8
}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    """The records that Logrange had."""
    with aggregator.open(tmp_path_factory.mktemp("c") / "c") as made:
        for record in REAL["records"]:
            made.write(record["tags"], [{"ts": record["ts"], "msg": record["msg"], **record["fields"]}])
        yield made


def printed(catalog: aggregator.Catalog, statement: str) -> str | None:
    """What the shell prints; None if the statement is refused."""
    try:
        end = "" if parse_statement(statement).format else "\n"
        return "".join(line + end for line in catalog.query(statement).lines())
    except LqlError:
        return None


@pytest.mark.parametrize(("statement", "answer"), REAL["answers"], ids=[statement for statement, _ in REAL["answers"]])
def test_statement_answers_as_logrange_did(catalog, statement, answer):
    """Answers and refusals equal Logrange's byte for byte, except for the listed differences."""
    if statement in DIFFERENT:
        wanted = "".join(line + "\n" for line in DIFFERENT[statement])
    else:
        wanted = DIFFERENT_LINES.get(statement, answer)
    if statement in DIFFERENT or statement in DIFFERENT_LINES:
        assert wanted != answer, "no difference any more"
    assert printed(catalog, statement) == wanted


def test_every_difference_was_asked():
    """Every listed difference is in the table."""
    assert {*DIFFERENT, *DIFFERENT_LINES} <= {statement for statement, _ in REAL["answers"]}
