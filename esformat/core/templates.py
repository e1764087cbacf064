# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The templates of a column, checked: `rendering.py` renders values with them, `matching.py` splits values by them.

A template is literals with slots between them; a slot shows the value that a variable has in the row. Section 9 of
`spec/format.md` describes how each kind of variable is rendered.
"""

import array as arrays
from typing import Any

import cython
from cython.cimports.cpython import array
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.esformat.core.packs import PackHead, fill_numbers, read_pack_head

from esformat.core.bytes_nodes import read_values
from esformat.errors import CorruptSegmentError, UnsupportedVersionError

STRING, ENUM, INTEGER, PADDED, DECIMAL, HEX, DATE = range(7)
_STRING = cython.declare(cython.int, 0)
_ENUM = cython.declare(cython.int, 1)
_INTEGER = cython.declare(cython.int, 2)
_PADDED = cython.declare(cython.int, 3)
_DECIMAL = cython.declare(cython.int, 4)
_HEX = cython.declare(cython.int, 5)
_DATE = cython.declare(cython.int, 6)

DATE_FORMS = 10
_MOST = cython.declare(cython.Py_ssize_t, 0x7FFF_FFFF)
_SLACK = cython.declare(cython.Py_ssize_t, 32)
_LONGS = cython.declare(array.array, arrays.array("q"))
MOST_SLOTS = 1024
"""Most slots of one template."""
MOST_TEMPLATES = 4096
"""Most templates of a column, and most variables."""
MOST_ENTRIES = 1 << 17
"""Most values of all variables together, and most slots of all templates."""
HEAD_BYTES = 8
SLACK_BYTES = 32
"""Zeros after texts: this many bytes are copied at a time, and no number is longer."""


@cython.cfunc
def _copied(numbers: cython.const[cython.longlong][::1]) -> bytes:
    """Copy numbers to the memory of an int32 array. Raises OverflowError for one that is negative or too large."""
    n: cython.Py_ssize_t = numbers.shape[0]
    i: cython.Py_ssize_t
    made: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * n + 4)
    out: cython.p_int = cython.cast(cython.p_int, PyBytes_AS_STRING(made))
    for i in range(n):
        if not 0 <= numbers[i] < _MOST:
            raise OverflowError("a number of a template is out of bounds")
        out[i] = cython.cast(cython.int, numbers[i])
    return made


@cython.cfunc
def _edges(counts: cython.const[cython.longlong][::1]) -> bytes:
    """The cumulative sums of counts, starting with 0, as the memory of an int32 array."""
    n: cython.Py_ssize_t = counts.shape[0]
    i: cython.Py_ssize_t
    total: cython.longlong = 0
    made: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * n + 4)
    out: cython.p_int = cython.cast(cython.p_int, PyBytes_AS_STRING(made))
    for i in range(n):
        out[i] = cython.cast(cython.int, total)
        if not 0 <= counts[i] < _MOST - total:
            raise OverflowError("a count of a template is out of bounds")
        total += counts[i]
    out[n] = cython.cast(cython.int, total)
    return made


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _u32(data: cython.p_const_uchar) -> cython.Py_ssize_t:
    return data[0] | data[1] << 8 | data[2] << 16 | cython.cast(cython.Py_ssize_t, data[3]) << 24


@cython.cfunc
def _read(
    body: object,
    view: cython.const[cython.uchar][::1],
    at: cython.pointer(cython.Py_ssize_t),
    count: cython.Py_ssize_t,
    most: cython.longlong,
    summed: cython.bint,
    plain: object,
) -> bytes:
    """The numbers of the pack at a byte, or their cumulative sums starting with 0, as the memory of an int32 array;
    `at` becomes the byte after the pack.

    Raises CorruptSegmentError unless each number is from 0 to `most`, and all sums are at most MOST_ENTRIES.
    """
    head = cython.declare(PackHead)
    data: cython.p_const_uchar = cython.address(view[0])
    i: cython.Py_ssize_t
    total: cython.longlong = 0
    if not read_pack_head(data, view.shape[0], at[0], count, cython.address(head)):
        raise CorruptSegmentError("the header of packed numbers breaks the format, or they are cut short")
    numbers: array.array = array.clone(_LONGS, count, False)
    number: cython.p_longlong = numbers.data.as_longlongs
    fill_numbers(body, data, cython.address(head), count, plain, 0, number, count)
    made: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * count + 4)
    out: cython.p_int = cython.cast(cython.p_int, PyBytes_AS_STRING(made))
    for i in range(count):
        if not 0 <= number[i] <= most:
            raise CorruptSegmentError(f"a number of a template is not between 0 and {most}")
        if summed:
            out[i] = cython.cast(cython.int, total)
            total += number[i]
            if total > MOST_ENTRIES:
                raise CorruptSegmentError(f"templates have more than {MOST_ENTRIES} values or slots")
        else:
            out[i] = cython.cast(cython.int, number[i])
    out[count] = cython.cast(cython.int, total)
    at[0] = head.end
    return made


@cython.cfunc
def _read_texts(
    body: object, at: cython.pointer(cython.Py_ssize_t), count: cython.Py_ssize_t, plain: object, memory: list[bytes]
) -> bytes:
    """The edges of the texts of a node as the memory of an int32 array; their bytes are appended to `memory`."""
    found, text, end = cython.cast(tuple, read_values(body, at[0], count, plain, plain, SLACK_BYTES))
    edges: array.array = found
    edge: cython.p_longlong = edges.data.as_longlongs
    made: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * count + 4)
    out: cython.p_int = cython.cast(cython.p_int, PyBytes_AS_STRING(made))
    i: cython.Py_ssize_t
    for i in range(count + 1):  # they ascend to at most 2^31 - 1
        out[i] = cython.cast(cython.int, edge[i])
    memory.append(text)
    at[0] = end
    return made


@cython.cfunc
def _ints(memory: bytes) -> cython.p_int:
    return cython.cast(cython.p_int, PyBytes_AS_STRING(memory))


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _numbers_in(memory: bytes) -> cython.Py_ssize_t:
    """The number of values in the memory of an int32 array, which has room for one more."""
    return len(memory) // 4 - 1


@cython.final
@cython.cclass
class Templates:
    """The templates and variables of one column. Everything in it is checked and immutable."""

    count = cython.declare(cython.Py_ssize_t, visibility="readonly")  # type: int
    """Number of templates; a row's code is 0 for null, k for the k-th template."""
    variables = cython.declare(cython.Py_ssize_t, visibility="readonly")  # type: int
    memory = cython.declare(list, visibility="readonly")  # type: list[bytes]
    """Memory for `matching.py` and `rendering.py`: literals, values, first slots, slots, edges of literals, first
    values of variables, edges of values, kinds, parameters; own variables, steps and sizes, as described at the fields
    below. Numbers are memory of int32 arrays; 32 bytes of zeros follow texts.
    """
    _first: cython.p_int  # for each template, its first slot; one more
    _slot: cython.p_int  # for each slot, its variable
    _literal: cython.p_int  # the edges of the literals; template t's are from first[t] + t on
    _text: cython.p_char
    _literal_bytes: cython.p_int  # for each template, the bytes of its literals
    _step: cython.p_int  # eight numbers for each literal: its place, its bytes; of the slot after it the kind (-1 for
    # none), parameter, variable, first value and number of values
    _own_first: cython.p_int  # for each template, the first of its own variables; one more
    _own: cython.p_int  # variables, each once per template
    _kind: cython.p_int
    _parameter: cython.p_int
    _value_first: cython.p_int  # for each variable, the first of its values; one more
    _value: cython.p_int  # the edges of the values
    _values: cython.p_char
    _longest: cython.p_int  # for each variable, the most bytes of a value; 0 for strings
    _row_bytes: cython.p_int  # for each template, the most bytes of a row without its strings
    _short: cython.p_int  # for each template, whether its literals and values have at most SLACK_BYTES each; no strings
    _times: cython.p_int  # for each variable, the most slots of a template that show it

    def __init__(
        self,
        kinds: cython.const[cython.longlong][::1],
        parameters: cython.const[cython.longlong][::1],
        value_counts: cython.const[cython.longlong][::1],
        value_lengths: cython.const[cython.longlong][::1],
        values: bytes,
        slot_counts: cython.const[cython.longlong][::1],
        slots: cython.const[cython.longlong][::1],
        literal_lengths: cython.const[cython.longlong][::1],
        literals: bytes,
    ) -> None:
        """Raises ValueError or OverflowError if the arguments do not fit each other."""
        self.variables, self.count = kinds.shape[0], slot_counts.shape[0]
        if parameters.shape[0] != self.variables or value_counts.shape[0] != self.variables:
            raise ValueError("the variables of templates differ in number")
        padded: bytes = literals + bytes(SLACK_BYTES)
        padded_values: bytes = values + bytes(SLACK_BYTES)
        first: bytes = _edges(slot_counts)
        slot: bytes = _copied(slots)
        literal: bytes = _edges(literal_lengths)
        value_first: bytes = _edges(value_counts)
        value: bytes = _edges(value_lengths)
        self._hold(
            [padded, padded_values, first, slot, literal, value_first, value, _copied(kinds), _copied(parameters)]
        )

    @cython.cfunc
    def _hold(self, memory: list[bytes]) -> object:
        """Take over memory in the order of `memory`, and check that it fits together. Raises ValueError."""
        v: cython.Py_ssize_t
        self.memory = memory
        self._text, self._values = PyBytes_AS_STRING(memory[0]), PyBytes_AS_STRING(memory[1])
        self._first, self._slot, self._literal = _ints(memory[2]), _ints(memory[3]), _ints(memory[4])
        self._value_first, self._value = _ints(memory[5]), _ints(memory[6])
        self._kind, self._parameter = _ints(memory[7]), _ints(memory[8])
        slots: cython.Py_ssize_t = _numbers_in(memory[3])
        values: cython.Py_ssize_t = _numbers_in(memory[6])
        if (
            self._first[self.count] != slots
            or _numbers_in(memory[4]) != slots + self.count
            or self._literal[slots + self.count] != len(memory[0]) - _SLACK
            or self._value_first[self.variables] != values
            or self._value[values] != len(memory[1]) - _SLACK
        ):
            raise ValueError("the parts of templates do not fit each other")
        for v in range(self.variables):
            if not _is_known(self._kind[v], self._parameter[v], self._value_first[v + 1] - self._value_first[v]):
                raise ValueError(f"variable {v} has kind {self._kind[v]} with parameter {self._parameter[v]}")
        self._number()
        return None

    @cython.cfunc
    def _number(self) -> object:
        """List the own variables and literal bytes of each template, and the longest value of each variable."""
        t: cython.Py_ssize_t
        s: cython.Py_ssize_t
        v: cython.Py_ssize_t
        own: cython.Py_ssize_t = 0
        size: cython.Py_ssize_t = self._first[self.count]
        memory: bytes = bytes(4 * (2 * self.count + 2 + size + 2 * self.variables))
        steps: bytes = bytes(32 * (size + self.count) + 4)
        sizes: bytes = bytes(4 * (2 * self.count + self.variables + 1))
        self.memory += [memory, steps, sizes]
        self._step, self._row_bytes = _ints(steps), _ints(sizes)
        self._short = self._row_bytes + self.count
        self._times = self._short + self.count
        self._take(memory)
        seen: cython.p_int = self._own + size  # for each variable, the last template that named it, counted from 1
        for t in range(self.count):
            if self._first[t + 1] - self._first[t] > MOST_SLOTS:
                raise ValueError(f"a template has {self._first[t + 1] - self._first[t]} slots")
            self._own_first[t] = cython.cast(cython.int, own)
            begin: cython.Py_ssize_t = self._first[t] + t
            end: cython.Py_ssize_t = self._first[t + 1] + t + 1
            self._literal_bytes[t] = self._literal[end] - self._literal[begin]
            for s in range(self._first[t], self._first[t + 1]):
                v = self._slot[s]
                if v >= self.variables:
                    raise ValueError(f"a template names variable {v} of {self.variables}")
                if seen[v] != t + 1:
                    seen[v] = cython.cast(cython.int, t + 1)
                    self._own[own] = cython.cast(cython.int, v)
                    own += 1
            self._list_steps(t, begin)
        self._own_first[self.count] = cython.cast(cython.int, own)
        value: cython.p_int = self._value
        longest: cython.int
        for v in range(self.variables):
            longest = _longest(self._kind[v], self._parameter[v])
            for s in range(self._value_first[v], self._value_first[v + 1]):
                longest = max(longest, value[s + 1] - value[s])
            self._longest[v] = longest
        for t in range(self.count):
            self._measure(t)
        return None

    @cython.cfunc
    def _take(self, memory: bytes) -> object:
        """Set the pointers to the numbers of templates and variables, like `TemplateColumns`."""
        self._literal_bytes = _ints(memory)
        self._longest = self._literal_bytes + self.count
        self._own_first = self._longest + self.variables
        self._own = self._own_first + self.count + 1
        return None

    def shortened(
        self,
        slot_counts: cython.const[cython.longlong][::1],
        slots: cython.const[cython.longlong][::1],
        literal_lengths: cython.const[cython.longlong][::1],
        literals: bytes,
    ) -> Any:
        """The same number of templates of the same variables, each of which shows less: only variables that it showed
        before.

        Use them only with `TemplateRows.shortened`, because rows still have the values of what is not shown. Raises
        ValueError or OverflowError if the parts do not fit.
        """
        if slot_counts.shape[0] != self.count:
            raise ValueError("there are as many templates as before")
        made: Templates = Templates.__new__(Templates)
        made.variables, made.count = self.variables, self.count
        memory: list[bytes] = [literals + bytes(SLACK_BYTES), self.memory[1], _edges(slot_counts), _copied(slots)]
        made._hold([*memory, _edges(literal_lengths), *self.memory[5:9]])
        made._own_those_of(self)
        return made

    @cython.cfunc
    def _own_those_of(self, others: Any) -> object:
        """Own the variables that the templates of `others` own, if any of these templates shows them."""
        whole: Templates = others
        t: cython.Py_ssize_t
        i: cython.Py_ssize_t
        own: cython.Py_ssize_t = 0
        most: cython.Py_ssize_t = whole._own_first[self.count]
        shown: bytes = bytes(self.variables + 1)
        is_shown: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(shown))
        for t in range(self.count):
            for i in range(self._own_first[t], self._own_first[t + 1]):
                if not whole._shows(t, self._own[i]):
                    raise ValueError("a shortened template shows a variable that it did not show")
                is_shown[self._own[i]] = 1
        before: bytes = self.memory[9]
        memory: bytes = before[: 4 * (self.count + self.variables)] + bytes(4 * (self.count + 1 + most + 1))
        self.memory[9] = memory
        self._take(memory)
        for t in range(self.count):
            for i in range(whole._own_first[t], whole._own_first[t + 1]):
                if is_shown[whole._own[i]]:
                    self._own[own] = whole._own[i]
                    own += 1
            self._own_first[t + 1] = cython.cast(cython.int, own)
        return None

    @cython.cfunc
    def _measure(self, t: cython.Py_ssize_t) -> object:
        """Bound the size of a row of a template, and count how often it shows its variables."""
        s: cython.Py_ssize_t
        e: cython.Py_ssize_t
        times: cython.int
        size: cython.Py_ssize_t = self._literal_bytes[t]
        for s in range(self._first[t], self._first[t + 1]):
            size += self._longest[self._slot[s]]
        self._row_bytes[t] = cython.cast(cython.int, min(size, _MOST))
        self._short[t] = True
        for s in range(self._first[t] + t, self._first[t + 1] + t + 1):
            self._short[t] &= self._literal[s + 1] - self._literal[s] <= _SLACK
        for s in range(self._first[t], self._first[t + 1]):
            self._short[t] &= self._kind[self._slot[s]] != _STRING and self._longest[self._slot[s]] <= _SLACK
        for s in range(self._own_first[t], self._own_first[t + 1]):
            times = 0
            for e in range(self._first[t], self._first[t + 1]):
                times += self._slot[e] == self._own[s]
            self._times[self._own[s]] = max(self._times[self._own[s]], times)
        return None

    @cython.cfunc
    def _list_steps(self, t: cython.Py_ssize_t, begin: cython.Py_ssize_t) -> object:
        """List the steps to render a template, whose literals begin at `begin`."""
        v: cython.Py_ssize_t
        s: cython.Py_ssize_t
        step: cython.p_int = self._step + 8 * begin
        for s in range(self._first[t], self._first[t + 1] + 1):
            step[0] = self._literal[s + t]
            step[1] = self._literal[s + t + 1] - self._literal[s + t]
            step[2] = -1
            if s < self._first[t + 1]:
                v = self._slot[s]
                step[2], step[3], step[4] = self._kind[v], self._parameter[v], cython.cast(cython.int, v)
                step[5], step[6] = self._value_first[v], self._value_first[v + 1] - self._value_first[v]
            step += 8
        return None

    def kind(self, variable: cython.Py_ssize_t) -> int:
        """The kind of a variable."""
        if not 0 <= variable < self.variables:
            raise IndexError("no such variable")
        return self._kind[variable]

    def that_show(self, variable: cython.Py_ssize_t) -> list[int]:
        """The codes of the templates that show a variable."""
        return [t + 1 for t in range(self.count) if self._shows(t, variable)]

    @cython.cfunc
    def _shows(self, t: cython.Py_ssize_t, variable: cython.Py_ssize_t) -> cython.bint:
        """Whether a template shows a variable."""
        i: cython.Py_ssize_t
        shown: cython.bint = False
        for i in range(self._own_first[t], self._own_first[t + 1]):
            shown |= self._own[i] == variable
        return shown

    def add_counts(
        self,
        codes: cython.const[cython.longlong][::1],
        low: cython.Py_ssize_t,
        high: cython.Py_ssize_t,
        counts: cython.longlong[::1],
    ) -> int:
        """Add the number of values of each variable in rows [low, high) to `counts`; return how many slots the rows
        show.

        Raises IndexError for a code without a template, ValueError for rows or counts that do not exist.
        """
        if not 0 <= low <= high <= codes.shape[0] or counts.shape[0] != self.variables:
            raise ValueError("fewer rows than requested")
        per_template: bytes = bytes(8 * (self.count + 1))
        of: cython.p_longlong = cython.cast(cython.p_longlong, PyBytes_AS_STRING(per_template))
        i: cython.Py_ssize_t
        t: cython.Py_ssize_t
        code: cython.longlong
        shown: cython.longlong = 0
        wrong: cython.int = 0
        with cython.nogil:
            for i in range(low, high):
                code = codes[i]
                if not 0 <= code <= self.count:
                    wrong = 1
                    break
                of[code] += 1
        if wrong:
            raise IndexError("a row names a missing template")
        for t in range(self.count):
            if of[t + 1]:
                shown += of[t + 1] * (self._first[t + 1] - self._first[t])
                for i in range(self._own_first[t], self._own_first[t + 1]):
                    counts[self._own[i]] += of[t + 1]
        return shown


@cython.cfunc
def _is_known(kind: cython.int, parameter: cython.int, values: cython.int) -> cython.bint:
    """Whether a kind can have this parameter and number of values."""
    if values and kind != _ENUM:
        return False
    if kind in (_PADDED, _DECIMAL):
        return 1 <= parameter <= 18
    if kind == _HEX:
        return 1 <= parameter <= 16
    if kind == _DATE:
        return parameter < DATE_FORMS
    return kind <= _INTEGER and parameter == 0


@cython.cfunc
def _longest(kind: cython.int, parameter: cython.int) -> cython.int:
    """The most bytes of a number of a kind; 0 for other kinds."""
    if kind == _INTEGER:
        return 20
    if kind == _DECIMAL:
        return 22  # a sign, 19 digits, one more before the point, the point
    if kind == _DATE:
        return 26
    return parameter if kind in (_PADDED, _HEX) else 0


def read_templates(body: Any, count: cython.Py_ssize_t, plain: Any) -> Templates:
    """Decode the `count` templates of a column in a dictionary block, which occupy all of `body`.

    plain: a decompressor. `esformat/format/templates.py` writes them. Raises CorruptSegmentError,
    UnsupportedVersionError.
    """
    view: cython.const[cython.uchar][::1] = body
    size: cython.Py_ssize_t = view.shape[0]
    if size < HEAD_BYTES or _u32(cython.address(view[0])) != size - HEAD_BYTES:
        raise CorruptSegmentError("the templates of a column do not have the length that they say")
    variables: cython.Py_ssize_t = _u32(cython.address(view[4]))
    if variables > MOST_TEMPLATES or not 0 < count <= MOST_TEMPLATES:
        raise CorruptSegmentError(f"a column has {count} templates of {variables} variables")
    at: cython.Py_ssize_t = HEAD_BYTES
    place: cython.pointer(cython.Py_ssize_t) = cython.address(at)
    texts: list[bytes] = []
    kind: bytes = _read(body, view, place, variables, 0xFF, False, plain)
    parameter: bytes = _read(body, view, place, variables, 0xFF, False, plain)
    value_first: bytes = _read(body, view, place, variables, MOST_ENTRIES, True, plain)
    _refuse_newer(_ints(kind), _ints(parameter), variables)
    value: bytes = _read_texts(body, place, _ints(value_first)[variables], plain, texts)
    first: bytes = _read(body, view, place, count, MOST_SLOTS, True, plain)
    slots: cython.Py_ssize_t = _ints(first)[count]
    slot: bytes = _read(body, view, place, slots, max(variables - 1, 0), False, plain)
    literal: bytes = _read_texts(body, place, slots + count, plain, texts)
    if at != size:
        raise CorruptSegmentError("the templates of a column are longer than their parts")
    made: Templates = Templates.__new__(Templates)
    made.variables, made.count = variables, count
    try:
        made._hold([texts[1], texts[0], first, slot, literal, value_first, value, kind, parameter])
    except ValueError as error:
        raise CorruptSegmentError(f"the templates of a column break the format: {error}") from None
    return made


@cython.cfunc
@cython.exceptval(-1)
def _refuse_newer(kind: cython.p_int, parameter: cython.p_int, variables: cython.Py_ssize_t) -> cython.int:
    """Raise UnsupportedVersionError for a kind, or a form of dates, that is newer."""
    v: cython.Py_ssize_t
    for v in range(variables):
        if kind[v] > _DATE or (kind[v] == _DATE and parameter[v] >= DATE_FORMS):
            raise UnsupportedVersionError(
                "templates have a variable of an unknown kind", hint="read the file with a newer esformat"
            )
    return 0
