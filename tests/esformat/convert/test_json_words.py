"""What becomes bytes is taken out of lines as it is written; the others are left, and a broken line stays one."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from esformat.convert.json_words import Words

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
    ("{}", {}, "{}"),
    ('{"dd":1,"d d":2}', {}, '{"dd":1,"d d":2}'),
]


@pytest.mark.parametrize(("line", "found", "left"), CASES)
def test_take(line, found, left):
    """Objects, arrays, numbers and truth values are their own text."""
    assert Words(["d", 'k"é']).take(line) == (found, left)


@pytest.mark.parametrize("line", ["", "1", "[]", '{"d":{"a":1,"a":2}}', '{"d":{"a":"\\ud800"}}', '{"d":}', '{"d":"'])
def test_no_value(line):
    """Where there is no object, or no value that a line may have, nothing is taken."""
    with pytest.raises(ValueError):  # noqa: PT011 - of several kinds; nobody sees them
        Words(["d"]).take(line)


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
    found, left = Words(["d", "é"]).take(line)
    taken = {name: value for name, value in members.items() if name in ("d", "é")}
    assert json.loads(left) == {
        name: None if name in taken and not isinstance(value, str) else value for name, value in members.items()
    }
    assert found.keys() == taken.keys()
    for name, value in taken.items():
        text = json.dumps(value, separators=separators, ensure_ascii=ascii_only)
        assert found[name] == (None if value is None else (value if isinstance(value, str) else text).encode())


@given(st.text(st.sampled_from('{}[]",:d\\1.n '), max_size=12), st.integers(0, 30))
@example("", 0)
def test_broken_lines_stay_broken(noise, at):
    """What is left is valid JSON only where the line was."""
    whole = '{"x":[1],"d":{"a":1.5},"y":"z"}'
    line = whole[:at] + noise + whole[at + len(noise) // 2 :]
    with suppress(ValueError):
        _, left = Words(["d"]).take(line)
        assert _is_json(left) == _is_json(line)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
