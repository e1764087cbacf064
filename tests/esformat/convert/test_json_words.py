"""Values that become bytes are cut out of lines as written; the other members stay, and a broken line stays broken."""

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
    """The values that are cut out of each line for two names, and the remainder of the line."""
    columns, data, edges = take(pa.array(lines, pa.string()), ["d", 'k"é'], ["d", 'k"é'])
    left = [data[start:end].decode() for start, end in pairwise(edges.tolist())]
    rows = [{name: column[row].as_py() for name, column in columns.items()} for row in range(len(lines))]
    return list(zip(rows, left, strict=True))


@pytest.mark.parametrize(("line", "found", "left"), CASES)
def test_take(line, found, left):
    """Objects, arrays, numbers and booleans are cut out as written; nothing is cut out of a broken line."""
    assert taken(line) == [(found, left)]


def test_lines_together():
    """The result for a line does not depend on the lines around it."""
    nothing: dict[str, bytes | None] = {"d": None, 'k"é': None}
    assert taken(*(line for line, _, _ in CASES)) == [(nothing | found, left) for _, found, left in CASES]


def test_what_stays():
    """A value that is not to be cut stays in the line; its text is returned, too."""
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
    """Each value is returned as written, and the other members stay unchanged."""
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
    """The remainder is valid JSON only if the line was; the next line is unaffected."""
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
