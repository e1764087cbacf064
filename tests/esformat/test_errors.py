"""Errors: whose fault they are, what they say, and that they survive the way between processes."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

import esformat
from esformat import errors

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.EsdbError)]

ALSO = {
    errors.InvalidEventError: ValueError,
    errors.UsageError: ValueError,
    errors.UnknownIndexError: KeyError,
    errors.SpaceNotFoundError: KeyError,
    errors.ClosedError: ValueError,
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_survives(kind):
    """Message, path, offset and hint, through pickle and copy."""
    error = kind("it broke", path="a.esdb", offset=17, hint="restore it")
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is kind
        assert (other.message, other.path, other.offset, other.hint) == ("it broke", "a.esdb", 17, "restore it")
        assert str(other) == str(error) == "a.esdb: it broke (at byte 17); restore it"


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({}, "it broke"),
        ({"path": "a"}, "a: it broke"),
        ({"offset": 0}, "it broke (at byte 0)"),
        ({"hint": "try"}, "it broke; try"),
    ],
)
def test_messages(facts, text):
    """Only what is known; KeyErrors too read as text, not as a quoted key."""
    for kind in KINDS:
        assert str(kind("it broke", **facts)) == text


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_is_exported(kind):
    """Callers catch what they can name."""
    assert getattr(esformat, kind.__name__) is kind
    assert issubclass(kind, errors.EsdbError)


@pytest.mark.parametrize(("kind", "builtin"), ALSO.items(), ids=lambda kind: kind.__name__)
def test_errors_of_the_caller_are_pythons_too(kind, builtin):
    """So that code that knows only Python's errors handles them."""
    assert issubclass(kind, builtin)


def test_the_tree_in_the_docstring():
    """Every error stands in the tree that opens the module, below its parent."""
    lines = errors.__doc__.splitlines()
    named = [name for line in lines for name in (kind.__name__ for kind in KINDS) if f" {name} " in f"{line} "]
    assert sorted(named) == sorted(kind.__name__ for kind in KINDS)


def test_damage_is_not_the_callers_fault():
    """Errors of the bytes are no ValueError, which callers catch for bad arguments."""
    for kind in (errors.CorruptSegmentError, errors.ChecksumMismatchError, errors.UnsupportedVersionError):
        assert not issubclass(kind, ValueError | KeyError)
    assert issubclass(errors.ChecksumMismatchError, errors.CorruptSegmentError)
