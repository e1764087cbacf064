"""Canonical texts of tag sets, processed by column, without a `TagSet` object for each: every row may have its own."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from aggregator.lql.parse.tag_set import written
from aggregator.lql.text.quoting import unquote

_PLAIN = r"\A[0-9A-Za-z_./:@%+*?!#$&()<>|~^;\[\]-]+\z"  # certainly written without quotes
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_EITHER = rf'(?:[^=,{{}}"]+|{_QUOTED})'


def tag_values(texts: pa.Array, name: str) -> pa.Array:
    """The value of one tag in each set, null if it is missing. texts: canonical, or null."""
    texts = texts.cast(pa.large_string())
    key = re.escape(written(name))
    # In a text without quotes, everything that looks like a tag is one.
    found = _extracted(texts, rf"[{{,]{key}=(?P<value>[^,}}]*)")
    quoted = pc.match_substring(texts, '"').fill_null(False)
    if quoted.true_count == 0:
        return found
    whole = rf"(?s)\A\{{(?:{_EITHER}={_EITHER},)*{key}=(?P<value>{_EITHER})"
    return pc.replace_with_mask(found, quoted, _meant(_extracted(texts.filter(quoted), whole)))


def tag_lists(texts: pa.Array) -> pa.Array:
    """The tags of each set without the surrounding braces, null if there are none. texts: canonical, or null."""
    inner = pc.utf8_slice_codeunits(texts.cast(pa.large_string()), 1, -1)
    return pc.if_else(pc.equal(inner, ""), None, inner)


def each_written(texts: pa.Array) -> pa.Array:
    """Texts quoted as necessary for a tag list, as large_string; nulls stay."""
    texts = texts.cast(pa.large_string())
    odd = pc.invert(pc.match_substring_regex(texts, _PLAIN)).fill_null(False)
    if odd.true_count == 0:
        return texts
    encoded = texts.filter(odd).dictionary_encode()
    quoted = list(map(written, encoded.dictionary.to_pylist()))
    return pc.replace_with_mask(texts, odd, pa.array(quoted, pa.large_string()).take(encoded.indices))


def _extracted(texts: pa.Array, pattern: str) -> pa.Array:
    return pc.struct_field(pc.extract_regex(texts, pattern), "value")


def _meant(values: pa.Array) -> pa.Array:
    """The values without quotes and escapes."""
    encoded = values.dictionary_encode()
    meant = [unquote(value[1:-1]) if value[:1] == '"' else value for value in encoded.dictionary.to_pylist()]
    return pa.array(meant, pa.large_string()).take(encoded.indices)
