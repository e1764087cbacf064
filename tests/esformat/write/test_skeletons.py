"""Templates found in samples of JSON objects, and that they match those objects."""

from __future__ import annotations

import json
import random

import pytest
from payloads import payload

from esformat.format.templates import Kind, Template, Variable
from esformat.write.json_skeletons import MOST_SKELETONS
from esformat.write.skeletons import find_templates
from esformat.write.template_tables import LEAST_ROWS


def _objects(count, **fields):
    """Objects whose fields are functions of their number."""
    return [json.dumps({name: make(i) for name, make in fields.items()}).encode() for i in range(count)]


_TWO = Variable(Kind.PADDED, 2)
_NUMBERS = [Variable(Kind.INTEGER), Variable(Kind.HEX, 4)]


def hex_of(seed, size):
    """Random bytes in hexadecimal."""
    return random.Random(seed).randbytes(size).hex()


def _variables(rows):
    """The variables of the first template of a sample."""
    table = find_templates(rows)
    return [table.variables[slot] for slot in table.templates[0].slots]


@pytest.mark.parametrize(
    ("make", "variables"),
    [
        (lambda i: i * 7 - 99, [Variable(Kind.INTEGER)]),
        (lambda i: f"{i * 7919 % 10**5:05}", [Variable(Kind.PADDED, 5)]),
        (lambda i: f"{i}.{i % 100:02}", [Variable(Kind.DECIMAL, 2)]),
        (lambda i: f"{i * 0x9E3779B97F4A7C15 % 2**64:016x}", [Variable(Kind.HEX, 16)]),
        (lambda i: random.Random(i).randbytes(20).hex(), [Variable(Kind.HEX, n) for n in (16, 16, 8)]),
        (lambda i: f"2024-05-{i % 28 + 1:02}T10:{i % 60:02}:{i % 59:02}", [Variable(Kind.DATE, 2)]),
        (lambda i: f"2024-05-{i % 28 + 1:02} 10:{i % 60:02}:{i % 59:02}.{i % 997:03}Z", [Variable(Kind.DATE, 7)]),
        (lambda i: f"user-{i * 13}", [Variable(Kind.INTEGER)]),
        (lambda i: f"10.{i % 256}.{i // 7}.{i % 3}", [Variable(Kind.INTEGER)] * 4),
        (lambda i: "ab"[i % 2], [Variable(Kind.ENUM, 0, (b"a", b"b"))]),
        (lambda i: i % 2, [Variable(Kind.ENUM, 0, (b"0", b"1"))]),
        (lambda i: [True, None, "x"][i % 3], [Variable(Kind.ENUM, 0, (b"true", b'"x"', b"null"))]),
        (lambda i: f"word {i} of {i * 3}", [Variable(Kind.INTEGER)] * 2),
        (lambda i: f"00-{hex_of(i, 16)}-{hex_of(-i, 8)}-01", [_TWO, *[Variable(Kind.HEX, 16)] * 3, _TWO]),
        (
            lambda i: f"{hex_of(i, 10)}{' ' * (i % 3 + 1)}",
            [Variable(Kind.HEX, 16), Variable(Kind.HEX, 4), Variable(Kind.ENUM, 0, (b"", b" ", b"  "))],
        ),
        (lambda i: f"{'ab'[i % 2]}/{i}/{hex_of(i, 2)}!", [Variable(Kind.ENUM, 0, (b"a", b"b")), *_NUMBERS]),
        (lambda i: f"{i}/w{'o' * (i % 5)}rd!{i}", [Variable(Kind.STRING)]),
        (lambda i: "always", []),
    ],
)  # fmt: skip
def test_kinds(make, variables):
    """Each field gets the variables that fit it; constant text is part of the literals."""
    assert _variables(_objects(400, value=make, other=lambda i: f"{i}!{i}"))[:-1] == variables


def test_a_template():
    """Literals have keys, quotes and the common parts of values; the last template matches any row."""
    table = find_templates(_objects(200, n=lambda i: i, user=lambda i: f"user-{i}"))
    assert table.templates[0] == Template((b'{"n": ', b', "user": "user-', b'"}'), (0, 1))
    assert table.templates[-1] == Template((b"", b""), (len(table.variables) - 1,))
    assert table.variables[-1] == Variable(Kind.STRING)


def test_the_same_path_is_the_same_variable():
    """The same path is the same variable in objects with and without a field before it."""
    rows = _objects(200, n=lambda i: i) + _objects(100, a=lambda i: i, n=lambda i: i)
    table = find_templates(rows)
    assert table.templates[0].slots[0] == table.templates[1].slots[1]


def test_values_that_are_seen_once():
    """A field with rare values also gets a template with strings, in which other fields keep their enumerations."""
    rows = _objects(400, page=lambda i: f"/{'ab' * (i % 30)}" if i < 399 else "/rare", kind=lambda i: "xy"[i % 2])
    table = find_templates(rows)
    kinds = [[table.variables[slot].kind for slot in template.slots] for template in table.templates]
    assert kinds[:3] == [[Kind.ENUM, Kind.ENUM], [Kind.STRING, Kind.ENUM], [Kind.STRING, Kind.STRING]]


def test_the_same_sample_the_same_templates():
    """The same sample has the same templates; a large sample is inspected throughout."""
    rows = [payload(random.Random(n)) for n in range(2000)]
    assert find_templates(rows) == find_templates(list(rows))
    many = _objects(20_000, n=lambda i: i, late=lambda i: "a" if i < 19_000 else "b")
    assert any(b"b" in variable.values for variable in find_templates(many).variables)


@pytest.mark.parametrize(
    "rows",
    [[], [b""] * 100, [b"{}"] * 100, [b"%d" % i * (i % 40) for i in range(100)],
     [b'{"a": %d}' % i for i in range(LEAST_ROWS - 1)], [b'{"%d": 1}' % i for i in range(1000)], [b'{"a": '] * 100],
)  # fmt: skip
def test_no_templates(rows):
    """Without objects, or without two alike, there are no templates."""
    assert find_templates(rows) is None


def test_many_shapes():
    """Only the most frequent shapes get templates; if those are too few of the rows, there are none."""
    even = [b'{"%s": %d}' % (b"k" * (n % 200 + 1), n) for n in range(8000)]
    assert find_templates(even) is None
    lengths = [size for size in range(1, 201) for _ in range(4000 // size)]
    rows = [b'{"%s": %d}' % (b"k" * size, n) for n, size in enumerate(lengths)]
    table = find_templates(rows)
    kept = {len(template.literals[0]) - len(b'{"": ') for template in table.templates if len(template.literals) == 2}
    assert set(range(1, 41)) <= kept
    assert max(kept) < MOST_SKELETONS
    assert len(table.templates) <= 3 * MOST_SKELETONS + 1


def test_lists_of_any_length_are_one_value():
    """A list of varying length is one value if its elements would make too many shapes."""
    rows = _objects(600, tags=lambda i: [f"t{n}" for n in range(i % 50)], n=lambda i: i)
    table = find_templates(rows)
    assert len(table.templates) <= 4
