# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Values at a path of JSON documents, found without building the documents.

Accepts what Python's `json.loads` accepts (RFC 8259, and NaN, Infinity and -Infinity as numbers): of equal keys of an
object the last one counts, and a document that is broken anywhere has no values.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.libc.string import memcmp, memcpy

MISSING, NULL, FALSE, TRUE, INTEGER, FLOAT, STRING, ESCAPED, ARRAY, OBJECT = range(10)
MOST_LEVELS = 512
"""Documents whose values are nested deeper count as broken."""

_MISSING = cython.declare(cython.int, 0)
_NULL = cython.declare(cython.int, 1)
_FALSE = cython.declare(cython.int, 2)
_TRUE = cython.declare(cython.int, 3)
_INTEGER = cython.declare(cython.int, 4)
_FLOAT = cython.declare(cython.int, 5)
_STRING = cython.declare(cython.int, 6)
_ESCAPED = cython.declare(cython.int, 7)
_ARRAY = cython.declare(cython.int, 8)
_OBJECT = cython.declare(cython.int, 9)
_LEVELS = cython.declare(cython.int, 512)
_MOST_STEPS = cython.declare(cython.int, 100)
_NOWHERE = cython.declare(cython.longlong, 0x7FFF_FFFF_FFFF_FFFF)
NOWHERE = 0x7FFF_FFFF_FFFF_FFFF
"""The array position of a step that is a key."""
KINDS = 10
_KINDS = cython.declare(cython.int, 10)

EACH = b"\xff"
"""The key of a field that stands for the elements of an array: no UTF-8 text contains this byte."""
_each: bytes = EACH
_EACH = cython.declare(cython.p_uchar, cython.cast(cython.p_uchar, PyBytes_AS_STRING(_each)))
_BASIS = cython.declare(cython.ulonglong, 0xCBF29CE484222325)  # FNV-1a: Fowler, Noll, Vo
_PRIME = cython.declare(cython.ulonglong, 0x00000100000001B3)
_ONES = cython.declare(cython.ulonglong, 0x0101010101010101)
_HIGH = cython.declare(cython.ulonglong, 0x8080808080808080)
_QUOTES = cython.declare(cython.ulonglong, 0x2222222222222222)
_SLASHES = cython.declare(cython.ulonglong, 0x5C5C5C5C5C5C5C5C)
_SPACES = cython.declare(cython.ulonglong, 0x2020202020202020)

Tree = cython.struct(
    most=cython.longlong,
    number=cython.longlong,  # of fields; the first is the document
    left_out=cython.longlong,
    parents=cython.p_longlong,
    edges=cython.p_longlong,  # of keys, one more than fields
    keys=cython.p_uchar,  # without escapes
    room=cython.longlong,  # for keys, in bytes
    counts=cython.p_longlong,  # KINDS for each field
    slots=cython.p_longlong,  # fields by the hash of parent and key, -1 for empty slots
    slots_mask=cython.longlong,
    seen=cython.p_longlong,  # by field, the number of the last object that had it
    objects=cython.longlong,  # read so far
    change=cython.longlong,  # of counts, for each value: 1, or -1 to take a document back
    repeats=cython.bint,  # whether an object had equal keys
)
"""The fields found: each has a parent and a key; see EACH."""

Path = cython.struct(
    steps=cython.int,
    keys=cython.p_uchar,  # of all steps, concatenated
    edges=cython.longlong[101],
    places=cython.longlong[100],
    kind=cython.int,
    start=cython.p_uchar,
    end=cython.p_uchar,
    tree=cython.pointer(Tree),  # NULL when following a path; otherwise values are counted, and a step is a field
)
"""A path, and what was found there in the document that is being read."""

Names = cython.struct(
    count=cython.longlong,
    keys=cython.p_uchar,
    edges=cython.pointer(cython.const[cython.longlong]),  # of keys, one more than names
)


def find_values(
    data: cython.const[cython.uchar][::1],
    edges: cython.const[cython.longlong][::1],
    keys: list[bytes],
    places: list[int],
    starts: cython.longlong[::1],
    ends: cython.longlong[::1],
    kinds: cython.uchar[::1],
) -> None:
    """Find the position and kind of the value at a path in each document.

    Document i is data[edges[i]:edges[i + 1]]. Step k of the path is the value of keys[k] (UTF-8) in an object and, in
    an array, the value at places[k], counted from 0 or, if negative, from the end. `kinds` becomes MISSING if there is
    no value; otherwise the value is data[starts[i]:ends[i]], for strings without the quotes.

    Raises ValueError if an edge is out of bounds, an output is too short, or a path has more than 100 steps.
    """
    n: cython.Py_ssize_t = edges.shape[0] - 1
    i: cython.Py_ssize_t
    if n < 0 or not n == starts.shape[0] == ends.shape[0] == kinds.shape[0]:
        raise ValueError("one place for each document is needed")
    if len(keys) > _MOST_STEPS or len(keys) != len(places):
        raise ValueError("a path has at most 100 steps, each with a key and a place")
    _check_edges(edges, data.shape[0])
    joined: bytes = b"".join(keys)
    path = cython.declare(Path)
    path.steps = len(keys)
    path.tree = cython.NULL
    path.keys = cython.cast(cython.p_uchar, cython.cast(cython.p_char, joined))
    path.edges[0] = 0
    for i in range(path.steps):
        path.edges[i + 1] = path.edges[i] + len(keys[i])
        path.places[i] = places[i]
    if not data.shape[0]:
        for i in range(n):
            kinds[i] = _MISSING
        return
    at: cython.p_uchar = cython.cast(cython.p_uchar, cython.address(data[0]))
    with cython.nogil:
        for i in range(n):
            path.kind = _MISSING
            if not _is_document(cython.address(path), at + edges[i], at + edges[i + 1]):
                path.kind = _MISSING
            kinds[i] = path.kind
            if path.kind != _MISSING:
                starts[i] = path.start - at
                ends[i] = path.end - at


def count_fields(
    data: cython.const[cython.uchar][::1],
    edges: cython.const[cython.longlong][::1],
    kinds: cython.const[cython.uchar][::1],
    parents: cython.longlong[::1],
    key_edges: cython.longlong[::1],
    keys: cython.uchar[::1],
    counts: cython.longlong[::1],
    slots: cython.longlong[::1],
    seen: cython.longlong[::1],
    state: cython.longlong[::1],
    repeats: cython.uchar[::1],
) -> None:
    """Count the values of each field, by kind, in the documents whose `kinds` is not MISSING.

    Field i has the parent parents[i] and the key keys[key_edges[i]:key_edges[i + 1]], in UTF-8 without escapes; the
    elements of an array are one field with the key EACH. Field 0 is the document. Pass the six tables and the state
    again with the next documents. Raises ValueError if their sizes do not fit.

    counts[10 * i + kind]: incremented for each value.
    state[0]: the number of fields, initially 1.
    state[1]: incremented for each value whose field had no room in `parents` or in `keys`.
    state[2]: the number of objects read.
    slots: initially -1 everywhere; its size is a power of two and at least twice that of `parents`.
    seen: initially 0 everywhere; as large as `parents`.
    repeats[i]: set to 1 if an object of document i has equal keys; nothing of that document is counted then.
    """
    n: cython.Py_ssize_t = edges.shape[0] - 1
    most: cython.Py_ssize_t = parents.shape[0]
    i: cython.Py_ssize_t
    if (
        n < 0
        or kinds.shape[0] != n
        or repeats.shape[0] != n
        or most < 1
        or keys.shape[0] < 1
        or state.shape[0] != 3
        or not 1 <= state[0] <= most
    ):
        raise ValueError("one kind for each document and room for one field are needed")
    if key_edges.shape[0] != most + 1 or counts.shape[0] != KINDS * most or seen.shape[0] != most:
        raise ValueError("a table has more or fewer fields than another")
    if slots.shape[0] < 2 * most or slots.shape[0] & (slots.shape[0] - 1):
        raise ValueError("as many slots as a power of two are needed, twice as many as fields")
    _check_edges(edges, data.shape[0])
    _check_edges(key_edges[: state[0] + 1], keys.shape[0])
    for i in range(slots.shape[0]):
        if not -1 <= slots[i] < state[0]:
            raise ValueError("a slot names no field")
    if not data.shape[0]:
        return
    tree = cython.declare(Tree)
    tree.most, tree.number, tree.left_out = most, state[0], state[1]
    tree.parents, tree.edges = cython.address(parents[0]), cython.address(key_edges[0])
    tree.keys, tree.room = cython.address(keys[0]), keys.shape[0]
    tree.counts, tree.slots, tree.slots_mask = cython.address(counts[0]), cython.address(slots[0]), slots.shape[0] - 1
    tree.seen, tree.objects = cython.address(seen[0]), state[2]
    path = cython.declare(Path)
    path.steps, path.kind = -1, _MISSING
    path.tree = cython.address(tree)
    at: cython.p_uchar = cython.cast(cython.p_uchar, cython.address(data[0]))
    with cython.nogil:
        for i in range(n):
            if kinds[i] == _MISSING:
                continue
            tree.change, tree.repeats = 1, False
            _is_document(cython.address(path), at + edges[i], at + edges[i + 1])
            if tree.repeats:
                repeats[i], tree.change = 1, -1
                _is_document(cython.address(path), at + edges[i], at + edges[i + 1])
    state[0], state[1], state[2] = tree.number, tree.left_out, tree.objects


def without_members(
    data: cython.const[cython.uchar][::1],
    edges: cython.const[cython.longlong][::1],
    keys: cython.const[cython.uchar][::1],
    key_edges: cython.const[cython.longlong][::1],
    lengths: cython.longlong[::1],
) -> bytes:
    """Remove members with certain keys, and the space around them, from objects; leave everything else unchanged.

    Document i is data[edges[i]:edges[i + 1]], and key k (UTF-8) is keys[key_edges[k]:key_edges[k + 1]]. Returns the
    resulting documents, concatenated, and stores their sizes in `lengths`. Documents that are not objects stay
    unchanged. Raises ValueError if an edge is out of bounds, or if there are more or fewer lengths than documents.
    """
    n: cython.Py_ssize_t = edges.shape[0] - 1
    i: cython.Py_ssize_t
    left: cython.longlong = 0
    if n < 0 or lengths.shape[0] != n or key_edges.shape[0] < 1:
        raise ValueError("one length for each document and the edges of keys are needed")
    _check_edges(edges, data.shape[0])
    _check_edges(key_edges, keys.shape[0])
    if not data.shape[0]:
        lengths[:] = 0
        return b""
    names = cython.declare(Names)
    names.count, names.edges = key_edges.shape[0] - 1, cython.address(key_edges[0])
    at: cython.p_uchar = cython.cast(cython.p_uchar, cython.address(data[0]))
    names.keys = cython.cast(cython.p_uchar, cython.address(keys[0])) if keys.shape[0] else at
    made: bytes = PyBytes_FromStringAndSize(cython.NULL, data.shape[0])  # no document grows
    out: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(made))
    with cython.nogil:
        for i in range(n):
            lengths[i] = _copy_without(cython.address(names), at + edges[i], at + edges[i + 1], out + left)
            left += lengths[i]
    return made[:left]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _copy_without(
    names: cython.pointer(Names), start: cython.p_uchar, end: cython.p_uchar, out: cython.p_uchar
) -> cython.longlong:
    """Write the document [start, end) without the members; return its new size, which is at most the old one."""
    path = cython.declare(Path)  # an empty path
    kind: cython.int = _MISSING
    key: cython.p_uchar
    before: cython.p_uchar  # where the member before ends
    size: cython.longlong = 1
    path.steps, path.tree = 0, cython.NULL
    start = _behind_space(start, end)
    while end > start and _is_space((end - 1)[0]):
        end -= 1
    before = start + 1
    at: cython.p_uchar = before
    while start < end and start[0] == 123:  # left if the document is broken
        at = _behind_space(at, end)
        if at < end and at[0] == 125 and at + 1 == end:
            out[0] = 123
            memcpy(out + size, before, end - before)
            return size + (end - before)
        if before > start + 1:
            if at >= end or at[0] != 44:
                break
            at = _behind_space(at + 1, end)
        if at >= end or at[0] != 34:
            break
        key = at + 1
        at = _string(key, end, cython.address(kind))
        if at == cython.NULL:
            break
        is_named: cython.bint = _is_one(names, key, at - 1, kind == _ESCAPED)
        at = _behind_space(at, end)
        if at >= end or at[0] != 58:
            break
        at = _value(cython.address(path), _behind_space(at + 1, end), end, -1, 1)
        if at == cython.NULL:
            break
        if not is_named:
            before = before if size > 1 else key - 1  # including the comma, if it follows another member
            memcpy(out + size, before, at - before)
            size += at - before
        before = at
    memcpy(out, start, end - start)
    return end - start


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _is_one(names: cython.pointer(Names), at: cython.p_uchar, end: cython.p_uchar, escaped: cython.bint) -> cython.bint:
    """Whether a key, without its quotes, is one of some names."""
    i: cython.longlong
    for i in range(names.count):
        if _is_key(names.keys + names.edges[i], names.edges[i + 1] - names.edges[i], at, end, escaped):
            return True
    return False


def outline(lines: cython.const[cython.uchar][::1]) -> tuple[int, bool, bool]:
    """For lines of JSON: how deep brackets nest; whether a null, or anything else that begins with n, is outside of all
    brackets; and whether a list begins with one.

    After a broken string, the rest of a line is read as if outside of strings: the depth may be too high, and the
    others may be wrongly true.
    """
    at: cython.Py_ssize_t = 0
    n: cython.Py_ssize_t = lines.shape[0]
    start: cython.p_uchar
    behind: cython.p_uchar
    level: cython.longlong = 0
    deepest: cython.longlong = 0
    bare: cython.bint = False
    first: cython.bint = False
    whole: cython.bint = True
    kind: cython.int = _MISSING
    before: cython.uchar = 0
    letter: cython.uchar
    if not n:
        return 0, False, False
    start = cython.cast(cython.p_uchar, cython.address(lines[0]))
    with cython.nogil:
        while at < n:
            letter = start[at]
            at += 1
            if letter == 34 and whole:  # "
                behind = _string(start + at, start + n, cython.address(kind))
                if behind == cython.NULL:
                    whole = False
                else:
                    at = behind - start
            elif letter == 10:
                level, whole = 0, True
            elif letter == 123 or letter == 91:  # { [
                level += 1
                deepest = max(deepest, level)
            elif letter == 125 or letter == 93:  # } ]
                level -= 1
            elif letter == 110:  # n
                bare = bare or level <= 0
                first = first or before == 91
            if letter > 32:
                before = letter
    return deepest, bare, first


def has_odd_numbers(text: cython.const[cython.uchar][::1]) -> bool:
    """Whether a number in a JSON text may lose digits as a 64-bit integer or as a float, or may be one that Python
    writes differently. Ignores everything after a broken string.
    """
    kind: cython.int = _MISSING
    odd: cython.bint = False
    if not text.shape[0]:
        return False
    at: cython.p_uchar = cython.cast(cython.p_uchar, cython.address(text[0]))
    end: cython.p_uchar = at + text.shape[0]
    with cython.nogil:
        while at < end and not odd:
            if at[0] == 34:  # "
                at = _string(at + 1, end, cython.address(kind))
                if at == cython.NULL:
                    break
            elif at[0] == 45 or 48 <= at[0] <= 57:
                at = _behind_plain_number(at, end)
                odd = at == cython.NULL
            else:
                at += 1
    return odd


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _behind_plain_number(at: cython.p_uchar, end: cython.p_uchar) -> cython.p_uchar:
    """The end of a number that has at most fifteen digits, or is an integer of 64 bits; NULL for other numbers, and for
    -0 and those with an exponent, a trailing zero, or four zeros after `0.`, which Python writes with an exponent.
    """
    minus: cython.bint = at[0] == 45
    digits: cython.p_uchar = at + minus
    at = _behind_digits(digits, end)
    whole: cython.Py_ssize_t = at - digits
    fraction: cython.Py_ssize_t
    if at < end and (at[0] | 32) == 101:  # e, E
        return cython.NULL
    if at >= end or at[0] != 46:
        return cython.NULL if whole > 19 - minus or (minus and digits[0] == 48) else at
    digits = at + 1
    at = _behind_digits(digits, end)
    fraction = at - digits
    if whole > 7 or not 1 <= fraction <= 8 or (at < end and (at[0] | 32) == 101):
        return cython.NULL
    if fraction > 1 and (at - 1)[0] == 48:
        return cython.NULL
    if (digits - 2)[0] == 48 and whole == 1 and fraction >= 4 and memcmp(digits, b"0000", 4) == 0:
        return cython.NULL
    return at


@cython.cfunc
@cython.exceptval(-1)
def _check_edges(edges: cython.const[cython.longlong][::1], size: cython.Py_ssize_t) -> cython.int:
    i: cython.Py_ssize_t
    for i in range(edges.shape[0] - 1):
        if not 0 <= edges[i] <= edges[i + 1] <= size:
            raise ValueError("a document or a key is outside its bytes")
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _field(
    tree: cython.pointer(Tree), parent: cython.int, at: cython.p_uchar, end: cython.p_uchar, escaped: cython.bint
) -> cython.int:
    """The field with a key, as it is between its quotes, in a parent; created if it is new. -1 if there is no room."""
    mixed: cython.ulonglong = (_BASIS ^ cython.cast(cython.ulonglong, parent)) * _PRIME
    key: cython.p_uchar = at
    utf8 = cython.declare(cython.uchar[4])
    size: cython.int = 0
    i: cython.int
    while key < end:
        if not escaped:
            mixed = (mixed ^ key[0]) * _PRIME
            key += 1
            continue
        key = _behind_character(key, end, utf8, cython.address(size))
        for i in range(size):
            mixed = (mixed ^ utf8[i]) * _PRIME
    slot: cython.longlong = cython.cast(cython.longlong, mixed ^ mixed >> 32) & tree.slots_mask
    field: cython.longlong
    while tree.slots[slot] >= 0:  # at most half of them are taken
        field = tree.slots[slot]
        key = tree.keys + tree.edges[field]
        if tree.parents[field] == parent and _is_key(key, tree.edges[field + 1] - tree.edges[field], at, end, escaped):
            return cython.cast(cython.int, field)
        slot = (slot + 1) & tree.slots_mask
    field = tree.number
    if field >= tree.most or end - at > tree.room - tree.edges[field]:  # no key grows
        tree.left_out += tree.change
        return -1
    key = tree.keys + tree.edges[field]
    while at < end:
        at = _behind_character(at, end, utf8, cython.address(size))
        memcpy(key, utf8, size)
        key += size
    tree.edges[field + 1] = key - tree.keys
    tree.parents[field] = parent
    tree.slots[slot] = field
    tree.number += 1
    return cython.cast(cython.int, field)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _is_document(path: cython.pointer(Path), at: cython.p_uchar, end: cython.p_uchar) -> cython.bint:
    """Whether [at, end) is one valid JSON document."""
    at = _value(path, _behind_space(at, end), end, 0, 0)
    return at != cython.NULL and _behind_space(at, end) == end


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _behind_space(at: cython.p_uchar, end: cython.p_uchar) -> cython.p_uchar:
    while at < end and _is_space(at[0]):
        at += 1
    return at


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _is_space(letter: cython.uchar) -> cython.bint:
    return letter == 32 or letter == 10 or letter == 13 or letter == 9


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _value(
    path: cython.pointer(Path), at: cython.p_uchar, end: cython.p_uchar, step: cython.int, level: cython.int
) -> cython.p_uchar:
    """The end of the value that begins at `at`; NULL if it is broken.

    step: how many steps of the path lead to this value; -1 if it is not on the path.
    """
    start: cython.p_uchar = at
    kind: cython.int = _MISSING
    if at >= end:
        return cython.NULL
    wanted: cython.bint = step == path.steps
    inner: cython.int = -1 if wanted else step
    if at[0] == 34:  # "
        at = _string(at + 1, end, cython.address(kind))
    elif at[0] == 123:  # {
        kind = _OBJECT
        at = _object(path, at + 1, end, inner, level + 1)
    elif at[0] == 91:  # [
        kind = _ARRAY
        at = _array(path, at + 1, end, inner, level + 1)
    else:
        at = _plain(at, end, cython.address(kind))
    if path.tree != cython.NULL:
        if step >= 0:
            path.tree.counts[_KINDS * step + kind] += path.tree.change
    elif wanted and at != cython.NULL:
        path.kind = kind
        path.start, path.end = start, at
        if kind in (_STRING, _ESCAPED):
            path.start, path.end = start + 1, at - 1
    return at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _object(
    path: cython.pointer(Path), at: cython.p_uchar, end: cython.p_uchar, step: cython.int, level: cython.int
) -> cython.p_uchar:
    """Like `_value`, for an object whose `{` was read."""
    key: cython.p_uchar
    kind: cython.int = _MISSING
    inner: cython.int
    number: cython.longlong = 0
    if level > _LEVELS:
        return cython.NULL
    if path.tree != cython.NULL:
        path.tree.objects += 1
        number = path.tree.objects
    at = _behind_space(at, end)
    if at < end and at[0] == 125:
        return at + 1
    while True:
        if at >= end or at[0] != 34:
            return cython.NULL
        key = at + 1
        at = _string(key, end, cython.address(kind))
        if at == cython.NULL:
            return cython.NULL
        inner = -1
        if step < 0:
            pass
        elif path.tree != cython.NULL:
            inner = _field(path.tree, step, key, at - 1, kind == _ESCAPED)
            if inner >= 0:
                path.tree.repeats |= path.tree.seen[inner] == number
                path.tree.seen[inner] = number
        elif _is_step(path, step, key, at - 1, kind == _ESCAPED):
            inner = step + 1
            path.kind = _MISSING  # the last of equal keys counts, whatever the others contained
        at = _behind_space(at, end)
        if at >= end or at[0] != 58:
            return cython.NULL
        at = _value(path, _behind_space(at + 1, end), end, inner, level)
        if at == cython.NULL:
            return cython.NULL
        at = _behind_space(at, end)
        if at >= end:
            return cython.NULL
        if at[0] == 125:
            return at + 1
        if at[0] != 44:
            return cython.NULL
        at = _behind_space(at + 1, end)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _array(
    path: cython.pointer(Path), at: cython.p_uchar, end: cython.p_uchar, step: cython.int, level: cython.int
) -> cython.p_uchar:
    """Like `_value`, for an array whose `[` was read."""
    count: cython.longlong = 0
    place: cython.longlong = _NOWHERE
    if level > _LEVELS:
        return cython.NULL
    if path.tree != cython.NULL:
        if step >= 0:
            step = _field(path.tree, step, _EACH, _EACH + 1, False)
        return _values(path, at, end, step, _NOWHERE, level, cython.address(count))
    if step >= 0:
        place = path.places[step]
    if place >= 0:
        return _values(path, at, end, step, place, level, cython.address(count))
    behind: cython.p_uchar = _values(path, at, end, -1, _NOWHERE, level, cython.address(count))
    if behind != cython.NULL and count + place >= 0:
        _values(path, at, end, step, count + place, level, cython.address(count))
    return behind


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _values(
    path: cython.pointer(Path),
    at: cython.p_uchar,
    end: cython.p_uchar,
    step: cython.int,
    place: cython.longlong,
    level: cython.int,
    count: cython.p_longlong,
) -> cython.p_uchar:
    """Read the values of an array and count them; the one at `place` is on the path. Returns the end, after `]`."""
    inner: cython.int
    count[0] = 0
    at = _behind_space(at, end)
    if at < end and at[0] == 93:
        return at + 1
    while True:
        inner = step if path.tree != cython.NULL else step + 1 if step >= 0 and count[0] == place else -1
        at = _value(path, at, end, inner, level)
        if at == cython.NULL:
            return cython.NULL
        count[0] += 1
        at = _behind_space(at, end)
        if at >= end:
            return cython.NULL
        if at[0] == 93:
            return at + 1
        if at[0] != 44:
            return cython.NULL
        at = _behind_space(at + 1, end)


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _string(at: cython.p_uchar, end: cython.p_uchar, kind: cython.p_int) -> cython.p_uchar:
    """The end of a string after its closing quote; its opening quote was read. `kind` tells whether it has escapes."""
    word: cython.ulonglong = 0
    quotes: cython.ulonglong
    slashes: cython.ulonglong
    kind[0] = _STRING
    while True:
        while end - at >= 8:  # eight bytes at a time, unless one is a quote, a backslash or a control character
            memcpy(cython.address(word), at, 8)
            quotes = word ^ _QUOTES
            slashes = word ^ _SLASHES
            if (((quotes - _ONES) & ~quotes) | ((slashes - _ONES) & ~slashes) | ((word - _SPACES) & ~word)) & _HIGH:
                break
            at += 8
        while at < end and at[0] != 34 and at[0] != 92 and at[0] >= 32:
            at += 1
        if at >= end or at[0] < 32:
            return cython.NULL
        if at[0] == 34:
            return at + 1
        kind[0] = _ESCAPED
        if end - at < 2:
            return cython.NULL
        if at[1] == 117:  # u
            if end - at < 6 or _hex(at + 2) < 0:
                return cython.NULL
            at += 6
        elif _unescaped(at[1]) != 0:
            at += 2
        else:
            return cython.NULL


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _unescaped(letter: cython.uchar) -> cython.uchar:
    """The character that a letter after a backslash stands for; 0 if the letter is not allowed there."""
    if letter == 34 or letter == 92 or letter == 47:  # " \ /
        return letter
    if letter == 110:  # n
        return 10
    if letter == 116:  # t
        return 9
    if letter == 114:  # r
        return 13
    if letter == 98:  # b
        return 8
    return 12 if letter == 102 else 0  # f


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _hex(at: cython.p_uchar) -> cython.int:
    """The number of four hexadecimal digits; -1 if one is not a digit."""
    number: cython.int = 0
    i: cython.int
    digit: cython.int
    for i in range(4):
        digit = at[i]
        if 48 <= digit <= 57:
            digit -= 48
        elif 97 <= (digit | 32) <= 102:
            digit = (digit | 32) - 87
        else:
            return -1
        number = number << 4 | digit
    return number


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _plain(at: cython.p_uchar, end: cython.p_uchar, kind: cython.p_int) -> cython.p_uchar:
    """Like `_value`, for a number or a word."""
    minus: cython.bint = at[0] == 45
    if minus:
        at += 1
    if at < end and 48 <= at[0] <= 57:
        return _number(at, end, kind)
    kind[0] = _FLOAT
    if end - at >= 8 and memcmp(at, b"Infinity", 8) == 0:
        return at + 8
    if minus:
        return cython.NULL
    if end - at >= 3 and memcmp(at, b"NaN", 3) == 0:
        return at + 3
    if end - at >= 4 and memcmp(at, b"null", 4) == 0:
        kind[0] = _NULL
        return at + 4
    if end - at >= 4 and memcmp(at, b"true", 4) == 0:
        kind[0] = _TRUE
        return at + 4
    if end - at >= 5 and memcmp(at, b"false", 5) == 0:
        kind[0] = _FALSE
        return at + 5
    return cython.NULL


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _number(at: cython.p_uchar, end: cython.p_uchar, kind: cython.p_int) -> cython.p_uchar:
    """The end of a number whose first digit is at `at`.

    A point or an e without a digit after it is not part of the number: `1.` has the number `1`.
    """
    behind: cython.p_uchar
    kind[0] = _INTEGER
    at = at + 1 if at[0] == 48 else _behind_digits(at, end)
    if at < end and at[0] == 46:
        behind = _behind_digits(at + 1, end)
        if behind > at + 1:
            kind[0] = _FLOAT
            at = behind
    if at < end and (at[0] | 32) == 101:  # e, E
        behind = at + 2 if end - at >= 2 and (at[1] == 43 or at[1] == 45) else at + 1
        if behind < end and 48 <= behind[0] <= 57:
            kind[0] = _FLOAT
            at = _behind_digits(behind, end)
    return at


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _behind_digits(at: cython.p_uchar, end: cython.p_uchar) -> cython.p_uchar:
    while at < end and 48 <= at[0] <= 57:
        at += 1
    return at


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _is_step(
    path: cython.pointer(Path), step: cython.int, at: cython.p_uchar, end: cython.p_uchar, escaped: cython.bint
) -> cython.bint:
    """Whether a key, without its quotes, is that of a step of the path."""
    return _is_key(path.keys + path.edges[step], path.edges[step + 1] - path.edges[step], at, end, escaped)


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _is_key(
    key: cython.p_uchar, size: cython.longlong, at: cython.p_uchar, end: cython.p_uchar, escaped: cython.bint
) -> cython.bint:
    """Whether a key, as it is between its quotes, equals `key`, which is UTF-8."""
    if not escaped:
        return end - at == size and memcmp(at, key, size) == 0
    return _is_escaped_key(at, end, key, key + size)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _is_escaped_key(
    at: cython.p_uchar, end: cython.p_uchar, key: cython.p_uchar, key_end: cython.p_uchar
) -> cython.bint:
    """Whether a valid string with escapes equals a key in UTF-8 (with unpaired surrogates as three bytes)."""
    size: cython.int = 0
    utf8 = cython.declare(cython.uchar[4])
    while at < end:
        at = _behind_character(at, end, utf8, cython.address(size))
        if key_end - key < size or memcmp(key, utf8, size) != 0:
            return False
        key += size
    return key == key_end


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _behind_character(
    at: cython.p_uchar, end: cython.p_uchar, utf8: cython.p_uchar, size: cython.p_int
) -> cython.p_uchar:
    """The end of a byte or an escape of a valid string. Writes what it stands for, at most four bytes, to `utf8`."""
    code: cython.int
    low: cython.int
    if at[0] != 92:
        utf8[0], size[0] = at[0], 1
        return at + 1
    if at[1] != 117:
        utf8[0], size[0] = _unescaped(at[1]), 1
        return at + 2
    code = _hex(at + 2)
    at += 6
    if 0xD800 <= code < 0xDC00 and end - at >= 6 and at[0] == 92 and at[1] == 117:
        low = _hex(at + 2)
        if 0xDC00 <= low < 0xE000:
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
            at += 6
    size[0] = _as_utf8(code, utf8)
    return at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _as_utf8(code: cython.int, utf8: cython.p_uchar) -> cython.int:
    """Write a character, at most four bytes; return their number."""
    if code < 0x80:
        utf8[0] = code
        return 1
    if code < 0x800:
        utf8[0] = 0xC0 | code >> 6
        utf8[1] = 0x80 | code & 0x3F
        return 2
    if code < 0x10000:
        utf8[0] = 0xE0 | code >> 12
        utf8[1] = 0x80 | code >> 6 & 0x3F
        utf8[2] = 0x80 | code & 0x3F
        return 3
    utf8[0] = 0xF0 | code >> 18
    utf8[1] = 0x80 | code >> 12 & 0x3F
    utf8[2] = 0x80 | code >> 6 & 0x3F
    utf8[3] = 0x80 | code & 0x3F
    return 4
