"""Take a pyarrow filter apart: an `Expression` as the steps that evaluate it.

pyarrow has no API to inspect an `Expression`, but pickling serialises one as an Arrow file: its columns contain the
literals, and its schema metadata lists the elements of the expression in order. Unlike Substrait, the alternative, this
covers every function, type and cast, so a conjunct that is not understood does not hide the others. The form is
internal to pyarrow, so anything unexpected is reported as not understood, never guessed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a field nested in one; `path` lists the names from the column down."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    scalar: pa.Scalar


@dataclass(frozen=True, slots=True)
class Call:
    """A compute function of the `arity` operands before it. options: a struct with pyarrow's names, or None."""

    function: str
    arity: int
    options: pa.StructScalar | None = None


Step = Field | Literal | Call


def take_apart(expression: pc.Expression) -> list[Step] | None:
    """The steps of an expression, operands before their function; None if it is not understood."""
    try:
        (stored,) = expression.__reduce__()[1]
        batch = pa.ipc.open_file(stored).get_batch(0)
        return _steps(iter(_metadata(batch.schema)), batch)
    except (pa.ArrowException, ValueError, TypeError, IndexError, KeyError, StopIteration):
        return None  # e.g. a field named by its position, which pyarrow does not serialise


def _steps(items: Iterator[tuple[str, str]], batch: pa.RecordBatch) -> list[Step]:
    """Raises ValueError or another error if the items do not describe one expression."""
    steps: list[Step] = []
    open_calls: list[tuple[str, int]] = []  # the function, and the number of finished operands before it
    operands = 0
    options: pa.StructScalar | None = None
    for key, value in items:
        if key == "call":
            open_calls.append((value, operands))
        elif key == "field_ref":
            steps.append(Field((value,)))
            operands += 1
        elif key == "nested_field_ref":
            steps.append(Field(tuple([_name(next(items)) for _ in range(int(value))])))
            operands += 1
        elif key == "literal":
            steps.append(Literal(batch.column(int(value))[0]))
            operands += 1
        elif key == "options":
            options = batch.column(int(value))[0]
        elif key == "end":
            function, before = open_calls.pop()
            if function != value:
                raise ValueError(f"{function} ends as {value}")
            steps.append(Call(function, operands - before, options))
            operands, options = before + 1, None
        else:
            raise ValueError(f"unknown item {key}")
    if operands != 1 or open_calls:
        raise ValueError("the expression is cut short")
    return steps


def _name(item: tuple[str, str]) -> str:
    key, value = item
    if key != "field_ref":
        raise ValueError(f"a nested field is made of {key}")
    return value


# ---------------------------------------------------------------- schema metadata with repeated keys


class _CSchema(ctypes.Structure):
    """The beginning of an ArrowSchema of the Arrow C data interface."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


def _metadata(schema: pa.Schema) -> list[tuple[str, str]]:
    """Keys and values in order. `Schema.metadata` is a dict, which keeps one of several equal keys."""
    capsule = schema.__arrow_c_schema__()
    at = _CSchema.from_address(_capsule_pointer(capsule, b"arrow_schema")).metadata
    if at is None:
        return []

    def integer() -> int:
        nonlocal at
        at += 4
        return ctypes.c_int32.from_address(at - 4).value

    def text() -> str:
        nonlocal at
        length = integer()
        at += length
        return ctypes.string_at(at - length, length).decode()

    return [(text(), text()) for _ in range(integer())]
