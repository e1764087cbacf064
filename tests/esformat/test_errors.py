"""Errors: their kinds and messages, and that they can pass between processes."""

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
    """Message, path, offset and hint survive pickling and copying."""
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
    """A message has only known facts; a KeyError is text, not a quoted key."""
    for kind in KINDS:
        assert str(kind("it broke", **facts)) == text


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_is_exported(kind):
    """Every error is exported, so that callers can catch it."""
    assert getattr(esformat, kind.__name__) is kind
    assert issubclass(kind, errors.EsdbError)


@pytest.mark.parametrize(("kind", "builtin"), ALSO.items(), ids=lambda kind: kind.__name__)
def test_errors_of_the_caller_are_pythons_too(kind, builtin):
    """Errors of the caller are also Python's errors, for code that knows only those."""
    assert issubclass(kind, builtin)


def test_the_tree_in_the_docstring():
    """The tree in the module's docstring names every error."""
    lines = errors.__doc__.splitlines()
    named = [name for line in lines for name in (kind.__name__ for kind in KINDS) if f" {name} " in f"{line} "]
    assert sorted(named) == sorted(kind.__name__ for kind in KINDS)


def test_damage_is_not_the_callers_fault():
    """Damage is not a ValueError or KeyError, which callers catch for bad arguments."""
    for kind in (errors.CorruptSegmentError, errors.ChecksumMismatchError, errors.UnsupportedVersionError):
        assert not issubclass(kind, ValueError | KeyError)
    assert issubclass(errors.ChecksumMismatchError, errors.CorruptSegmentError)
