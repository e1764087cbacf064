"""What becomes bytes is taken out of lines as it is written; the others are left, and a broken line stays one."""

from __future__ import annotations

import json
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from esformat.convert.json_words import take

CASES = [
    ('{"d":{"b":1.50,"a":9},"x":1}', {"d": b'{"b":1.50,"a":9}'}, '{"d":null,"x":1}'),
    (' { "x" : "}" , "d" : [1 , 2] } \n', {"d": b"[1 , 2]"}, ' { "x" : "}" , "d" : null } \n'),
    ('{"x":{"d":[]},"y":["d"],"d":1e400}', {"d": b"1e400"}, '{"x":{"d":[]},"y":["d"],"d":null}'),
    ('{"x":"\\"d\\":5,","d":true}', {"d": b"true"}, '{"x":"\\"d\\":5,","d":null}'),
    ('{"\\u0064":1.0}', {"d": b"1.0"}, '{"\\u0064":null}'),
    ('{"d":"a\\u00e9\\n"}', {"d": "aé\n".encode()}, '{"d":"a\\u00e9\\n"}'),
    ('{"d":null}', {"d": None}, '{"d":null}'),
    ('{"d":"{\\"base64\\":\\"aGk=\\"}"}', {"d": b'{"base64":"aGk="}'}, '{"d":"{\\"base64\\":\\"aGk=\\"}"}'),
    ('{"d":{"base64":"/w=="}}', {"d": b"\xff"}, '{"d":null}'),
    ('{"d":{"base64":"?"}}', {"d": b'{"base64":"?"}'}, '{"d":null}'),
    ('{"d":{"base64":"aGk=","x":1}}', {"d": b'{"base64":"aGk=","x":1}'}, '{"d":null}'),
    ('{"d":["base64"]}', {"d": b'["base64"]'}, '{"d":null}'),
    ('{"k\\"é":{},"x":0,"d":[]}', {'k"é': b"{}", "d": b"[]"}, '{"k\\"é":null,"x":0,"d":null}'),
    ('{"d":{"base64":"aGk=","base64":"aGk="}}', {"d": b'{"base64":"aGk=","base64":"aGk="}'}, '{"d":null}'),
    ('{"d":{"\\u0062ase64":"aGk="}}', {"d": b"hi"}, '{"d":null}'),
    ('{"d":{"base64":"aGk=","x":%s}}' % ("9" * 5000), {"d": b'{"base64":"aGk=","x":%s}' % (b"9" * 5000)}, '{"d":null}'),
    ('{"d":{"a":1,"a":2}}', {"d": b'{"a":1,"a":2}'}, '{"d":null}'),
    ('{"d":{"a":"\\ud800"}}', {"d": b'{"a":"\\ud800"}'}, '{"d":null}'),
    ("{}", {}, "{}"),
    ('{"dd":1,"d d":2}', {}, '{"dd":1,"d d":2}'),
    *((broken, {}, broken) for broken in ["", "1", "[]", '{"d":}', '{"d":"', '{"d":{}} 5', '{"d":[1,]}']),
]


def taken(*lines: str) -> list[tuple[dict[str, bytes | None], str]]:
    """What is taken out of each line, of two names, and what is left of it."""
    columns, data, edges = take(pa.array(lines, pa.string()), ["d", 'k"é'], ["d", 'k"é'])
    left = [data[start:end].decode() for start, end in pairwise(edges.tolist())]
    rows = [{name: column[row].as_py() for name, column in columns.items()} for row in range(len(lines))]
    return list(zip(rows, left, strict=True))


@pytest.mark.parametrize(("line", "found", "left"), CASES)
def test_take(line, found, left):
    """Objects, arrays, numbers and truth values are their own text; of a broken line nothing is taken."""
    assert taken(line) == [(found, left)]


def test_lines_together():
    """Each line has its own, whatever those around it have."""
    nothing: dict[str, bytes | None] = {"d": None, 'k"é': None}
    assert taken(*(line for line, _, _ in CASES)) == [(nothing | found, left) for _, found, left in CASES]


def test_what_stays():
    """A member that is not cut stays where it is, and its text is taken all the same."""
    columns, data, _ = take(pa.array(['{"d":[1],"x":[2]}']), ["d", "x"], ["x"])
    assert (columns["d"].to_pylist(), columns["x"].to_pylist(), data) == ([b"[1]"], [b"[2]"], b'{"d":[1],"x":null}')


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from(["d", "k", "x", 'd"', '"d', ',"d', "\\", "d:", "", " d", "é", "{d", "}"])


@given(
    st.dictionaries(KEYS, JSON, max_size=5),
    st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : ")]),
    st.booleans(),
)
def test_any_object(members, separators, ascii_only):
    """Each is taken with its own text, and the others are as they were."""
    line = json.dumps(members, separators=separators, ensure_ascii=ascii_only)
    ((found, left),) = taken(line)
    mine = {name: value for name, value in members.items() if name == "d"}
    assert json.loads(left) == {
        name: None if name in mine and not isinstance(value, str) else value for name, value in members.items()
    }
    assert found.keys() == mine.keys()
    for name, value in mine.items():
        text = json.dumps(value, separators=separators, ensure_ascii=ascii_only)
        assert found[name] == (None if value is None else (value if isinstance(value, str) else text).encode())


@given(st.text(st.sampled_from('{}[]",:d\\1.n '), max_size=12), st.integers(0, 30))
@example("", 0)
def test_broken_lines_stay_broken(noise, at):
    """What is left is valid JSON only where the line was, and of the line beside it nothing changes."""
    whole = '{"x":[1],"d":{"a":1.5},"y":"z"}'
    line = whole[:at] + noise + whole[at + len(noise) // 2 :]
    (_, left), (found, other) = taken(line, whole)
    assert _is_json(left) == _is_json(line)
    assert (found["d"], other) == (b'{"a":1.5}', '{"x":[1],"d":null,"y":"z"}')


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
