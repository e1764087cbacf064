"""Templates found in samples of text lines, and the lines restored from them."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from effort import ALL, examples
from hypothesis import example, given
from hypothesis import strategies as st

import esformat
from esformat.format.templates import Kind
from esformat.write.line_skeletons import line_skeletons
from esformat.write.skeletons import find_templates


def shown(table, number):
    """A template as text, with the kind of each slot."""
    template = table.templates[number]
    parts = [template.literals[0]]
    for slot, literal in zip(template.slots, template.literals[1:], strict=True):
        parts += [b"<" + table.variables[slot].kind.name.lower().encode() + b">", literal]
    return b"".join(parts).decode()


def web_line(rnd, n):
    """A line of a web server's log."""
    path = rnd.choice(["/", "/cart", "/product/1", "/about"]) if n % 9 else f"/page-{rnd.getrandbits(64):x}"
    size = rnd.choice(["-", str(rnd.randrange(10**6))])
    agent = rnd.choice(["curl/8.5", "Mozilla/5.0 (X11; Linux x86_64)", "Mozilla/5.0 (iPhone; CPU iPhone OS 17)"])
    return (
        f"10.{n % 251}.0.{n % 13} - - [17/May/2015:10:{n // 60 % 60:02}:{n % 60:02} +0000] "
        f'"{rnd.choice(["GET", "POST"])} {path} HTTP/1.1" {rnd.choice([200, 404])} {size} "-" "{agent}"'
    ).encode()


def system_line(rnd, n):
    """A line of one of several programs, one of which writes arbitrary text."""
    head = f"Jun {n % 3 + 14} 15:{n // 60 % 60:02}:{n % 60:02} combo "
    kind = rnd.choice([0, 0, 0, 1, 2, 2, 2, 3])
    if kind == 0:
        return (
            f"{head}sshd[{rnd.randrange(9999)}]: Failed password for root from 10.0.0.{n % 255} port {n * 7}".encode()
        )
    if kind == 1:
        return f"{head}kernel: eth{n % 2}: link {rnd.choice(['up', 'down'])}".encode()
    if kind == 2:
        return f"{head}su(pam_unix)[{rnd.randrange(9999)}]: session opened for user u{n % 40} by (uid={n % 3})".encode()
    words = rnd.choices(["alpha", "beta", "gamma", "delta", "eps", "zeta", "eta", "theta"], k=rnd.randrange(1, 12))
    return f"{head}app: {' '.join(words)}".encode()


def lines_of(make, count=3000):
    rnd = random.Random(7)
    return [make(rnd, n) for n in range(count)]


def test_lines_of_a_web_server():
    """Addresses, dates, enumerated words and numbers are found; a `-` instead of a number has its own templates."""
    table = find_templates(lines_of(web_line))
    rest = ' HTTP/1.1" <enum> '
    assert shown(table, 0).startswith('<integer>.<integer>.<integer>.<integer> - - [<date> +0000] "<enum> ')
    made = [shown(table, number) for number in range(len(table.templates))]
    assert any(f'{rest}- "-" "<enum>"' in each for each in made)
    assert any(f'{rest}<integer> "-" "<enum>"' in each for each in made)
    assert made[-1] == "<string>"


def test_lines_of_several_programs():
    """Each program gets templates; other lines share the common head, with the rest as text."""
    table = find_templates(lines_of(system_line))
    made = [shown(table, number) for number in range(len(table.templates))]
    head = "Jun <enum> <enum>:<enum>:<enum> combo "
    assert (
        f"{head}sshd[<integer>]: Failed password for root from <integer>.<integer>.<integer>.<integer> port <integer>"
        in made
    )
    assert f"{head}kernel: <enum> link <enum>" in made
    assert any(each.startswith(f"{head}su(pam_unix)[<integer>]: session opened for user ") for each in made)
    rest = [each for each in made if each.endswith("> <string>") and each.count(" ") < 8]
    assert rest
    assert made.index(rest[0]) > made.index(
        f"{head}sshd[<integer>]: Failed password for root from <integer>.<integer>.<integer>.<integer> port <integer>"
    )


def test_heads_share_variables():
    """The first words of lines are the same variables in all templates."""
    table = find_templates(lines_of(system_line))
    firsts = {template.slots[:3] for template in table.templates[:3]}
    assert len(firsts) == 1


def test_the_same_sample_the_same_templates():
    """The same sample has the same templates."""
    lines = lines_of(system_line)
    assert find_templates(lines) == find_templates(list(lines))


def test_texts_without_anything_in_common():
    """Prose and random bytes have no worthwhile templates."""
    rnd = random.Random(1)
    prose = [
        " ".join("".join(rnd.choices("abcdefghij", k=6)) for _ in range(rnd.randrange(3, 40))).encode()
        for _ in range(999)
    ]
    assert line_skeletons(prose)[0] == []
    noise = [rnd.randbytes(50) for _ in range(999)]
    assert find_templates(noise) is None


@pytest.mark.parametrize("make", [web_line, system_line])
def test_smaller_files_and_the_same_lines(tmp_path, make):
    """Files with templates have the same lines, also those missing from the sample, in at most half the size."""
    lines = [*lines_of(make, 20_000 if ALL else 8_000), b"", b"?", b'a "quoted \\" text', b"\xff\x00", b" two  spaces "]
    table = pa.table({"space": ["a"] * len(lines), "timestamp": range(len(lines)), "data": lines})
    sizes = []
    for templates in (True, False):
        path = tmp_path / f"{templates}.esdb"
        with esformat.create(path, templates=templates) as writer:
            writer.add_table(table)
        with esformat.open(path) as segment:
            assert segment.scan().to_table()["data"].to_pylist() == lines
            assert [event.data for event in segment["a"].scan(reverse=True, limit=5)] == lines[:-6:-1]
        assert esformat.verify(path).ok
        sizes.append(path.stat().st_size)
    assert 3 * sizes[0] < 2 * sizes[1]


words = st.sampled_from(
    [b"a", b"12", b"-", b'"x y"', b"k=1", b"k=22", b"[3]", b"2024-01-02", b"", b'"', b"\\", b"\xff"]
)


@example([b"a a", b'" "x y"'], 32)  # two of the words are adjacent
@examples(200)
@given(st.lists(st.lists(words, max_size=6).map(b" ".join), max_size=12), st.integers(1, 40))
def test_any_lines(lines, times):
    """Any templates that are found match every line of the sample and restore it."""
    table = find_templates(lines * times)
    if table is None:
        return
    assert table.templates[-1].literals == (b"", b"")
    compiled = table.compiled()
    assert compiled.count == len(table.templates)
    for template in table.templates[:-1]:
        kinds = [table.variables[slot].kind for slot in template.slots]
        assert all(
            literal or kind not in (Kind.STRING, Kind.ENUM) or at + 1 == len(kinds)
            for at, (kind, literal) in enumerate(zip(kinds, template.literals[1:], strict=True))
        )
