"""Regular expressions match as Python's `re` where both support them; other and large patterns are refused."""

from __future__ import annotations

import re
import time

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.lql import Regex, RegexError
from aggregator.lql.text.regex import MAX_STEPS

LETTERS = "abkzAKZ019_ -.\n\0é\u00c9ßſKΣσς日🙂"
ATOMS = [
    *("a", "b", "K", "z", "1", " ", "-", "é", "É", "σ", "日", "🙂", "\n", "\0"),
    *(r"\.", r"\\", r"\n", r"\x41", r"\t", "."),
    *("[ab]", "[^ab]", "[a-z]", "[^0-9]", "[-a]", "[]a]", r"[\]a]", "[é-ü]", "[^日]", r"[\n\0]", "[a-cx-z]"),
    *("^", "$", r"\A"),
]
REPETITIONS = ["", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{2,}", "{0,2}?"]
# For these, RE2 means ASCII, and Python does with re.ASCII. Not \B: Python treats the empty text specially.
ASCII_ATOMS = [r"\d", r"\D", r"\w", r"\W", r"\b", r"[\d_]", r"[^\w]"]
FLAGS = ["", "(?s)", "(?i)", "(?m)", "(?is)", "(?im)"]


def parts(atoms: list[str]) -> st.SearchStrategy[str]:
    single = st.builds(_repeated, st.sampled_from(atoms), st.sampled_from(REPETITIONS))
    return st.recursive(
        single,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map("".join),
            st.lists(inner, min_size=2, max_size=3).map(lambda some: f"(?:{'|'.join(some)})"),
            st.builds(lambda one, times: f"({one}){times}", inner, st.sampled_from(REPETITIONS)),
        ),
        max_leaves=6,
    )


def _repeated(atom: str, times: str) -> str:
    return atom if atom in ("^", "$", r"\A", r"\b") else atom + times


def same(pattern: str, flags: int, texts: list[str]) -> None:
    try:
        regex = Regex(pattern)
    except RegexError as error:
        if "too large" not in str(error) and "repetition" not in str(error):  # RE2 limits nested ones
            raise
        return
    # Python's `$` also matches before a final newline: outside of (?m) RE2 means `\Z`
    multiline = "m" in pattern.partition(")")[0] and pattern.startswith("(?")
    meant = pattern if multiline else re.sub(r"(?<!\\)((?:\\\\)*)\$", r"\1\\Z", pattern)
    known = re.compile(meant, flags)
    found = regex.matches(pa.array(texts, pa.string())).to_pylist()
    assert found == [known.search(text) is not None for text in texts], pattern


TEXTS = st.lists(st.text(LETTERS, max_size=12), min_size=1, max_size=8)


@given(flags=st.sampled_from(["", "(?s)", "(?m)", "(?sm)"]), pattern=parts(ATOMS), texts=TEXTS)
def test_as_python(flags, pattern, texts):
    """Character classes, repetitions, groups, alternatives, anchors and lines match as in Python, also multibyte."""
    same(flags + pattern, 0, texts)


@given(flags=st.sampled_from(FLAGS[:2] + FLAGS[3:4]), pattern=parts(ATOMS[:6] + ASCII_ATOMS), texts=TEXTS)
def test_as_python_in_ascii(flags, pattern, texts):
    r"""Shorthands such as `\d` and `\b` mean ASCII only, as in Python with re.ASCII."""
    same(flags + pattern, re.ASCII, texts)


FOLDABLE = [atom for atom in ATOMS if atom not in ("[é-ü]", "[^日]")]


@given(flags=st.sampled_from(["(?i)", "(?is)", "(?im)"]), pattern=parts(FOLDABLE), texts=TEXTS)
def test_case_folding_as_python(flags, pattern, texts):
    """(?i) folds letter by letter, also beyond ASCII: K (Kelvin) is a k, ſ an s, ς a σ."""
    same(flags + pattern, 0, texts)


@given(pattern=st.text("ab(){}[]\\|*+?^$.:-,<>=!#PQEpLxdz0129i", max_size=20))
def test_whatever_is_written(pattern):
    """Any pattern either compiles and runs or raises RegexError."""
    try:
        regex = Regex(pattern)
    except RegexError:
        return
    assert regex.steps <= MAX_STEPS
    assert len(regex.matches(pa.array(["ab", ""]))) == 2


UNKNOWN = [
    ("a(?=b)", 1, "(?=", "look-ahead"),
    ("(?!b)", 0, "(?!", "look-ahead"),
    ("x(?<=a)b", 1, "(?<=", "look-behind"),
    ("(?<!a)b", 0, "(?<!", "look-behind"),
    (r"(a)\1", 3, r"\1", "back reference"),
    ("(?P<n>a)(?P=n)", 8, "(?P=", "back reference"),
    ("(?>a)", 0, "(?>", "atomic"),
    ("(a)(?(1)b)", 3, "(?(", "condition"),
    ("(?#note)", 0, "(?#", "comment"),
    ("ab[c", 2, "[", "not closed"),
]


@pytest.mark.parametrize(("pattern", "at", "wrong", "told"), UNKNOWN)
def test_what_is_not_supported(pattern, at, wrong, told):
    """Syntax of other engines is refused by name, with its place."""
    with pytest.raises(RegexError, match=told) as caught:
        Regex(pattern)
    assert caught.value.at == at
    assert pattern[at : at + caught.value.length] == wrong
    assert f"character {at + 1} of the pattern" in str(caught.value)


LARGE = [
    "((a{1000}){1000})", "(.*a){900}b", "((((((a{10}){10}){10}){10}){10}){10})", r"\pL{1000}", "[\\p{L}]{300}",
    r"(\pL?){1000}", "(?:(?:x{50}){50}){50}", "a{999999999}", "(" * 400 + "a{500}" + "){2}" * 100, "x{2}" + "{2}" * 200,
]  # fmt: skip


@pytest.mark.parametrize("pattern", LARGE, ids=[pattern[:30] for pattern in LARGE])
def test_large_ones_are_refused_cheaply(pattern):
    """A pattern whose repetitions make it large is refused before it is compiled."""
    began = time.thread_time()
    for _ in range(10):
        with pytest.raises(RegexError, match=r"too large|repetition"):
            Regex(pattern)
    assert time.thread_time() - began < 0.2


COMMON = [
    r"^\d{1,3}(?:\.\d{1,3}){3} - \S+ \[[^\]]+\] \"(GET|POST|PUT) ([^ \"]+)[^\"]*\" (\d{3}) (\d+|-)",
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    r"(?i)\b(error|warn(ing)?|fatal|panic|exception|traceback)\b",
    r"[a-zA-Z0-9._%+-]{1,64}@[a-zA-Z0-9.-]{1,100}\.[a-zA-Z]{2,24}",
    r"user=\"[^\"]{0,255}\"", r"\p{Lu}\p{Ll}+", ".{0,300}timeout", r"\Qa.b(c)\E", "(?P<year>\\d{4})",
]  # fmt: skip


@pytest.mark.parametrize("pattern", COMMON)
def test_common_ones_fit(pattern):
    """Common patterns are far from the limit and run over long records."""
    regex = Regex(pattern)
    assert regex.steps < MAX_STEPS
    assert len(regex.matches(pa.array(["x" * 200_000]))) == 1
