"""Events in memory in any order, and access to their rows in the order of a segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esformat.format.arrays import is_bytes
from esformat.format.data_block import key_bytes
from esformat.format.order import I64, Ranked, merge_order, rank, sort_order
from esformat.format.schema import EventSchema
from esformat.write.block_encoder import NULL, UNKNOWN, Coded, Column, SortedRows, row_bytes, rows_are_small

SortKey = tuple[bytes, bytes, int]
"""Space, grouping and timestamp of an event."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Pairs of space and grouping as numbers that sort like the pairs: key // len(groupings) is the space's place."""

    spaces: pa.Array
    groupings: pa.Array

    @classmethod
    def number(cls, spaces: pa.ChunkedArray, groupings: pa.ChunkedArray) -> tuple[Keys, I64]:
        """Number the pairs; return the keys and the number of each pair."""
        space, grouping = rank(spaces), rank(groupings)
        keys = cls(space.values.cast(pa.binary()), grouping.values.cast(pa.binary()))
        return keys, space.ranks * max(1, len(grouping.values)) + grouping.ranks

    def spaces_of(self, numbers: I64) -> pa.Array:
        """The spaces of numbered pairs."""
        return self.spaces.take(pa.array(numbers // max(1, len(self.groupings))))

    def groupings_of(self, numbers: I64) -> pa.Array:
        """The groupings of numbered pairs."""
        return self.groupings.take(pa.array(numbers % max(1, len(self.groupings))))

    def lengths(self, numbers: I64) -> I64:
        """The total bytes of space and grouping of numbered pairs."""
        spaces, groupings = (
            np.asarray(pc.binary_length(keys)).astype(np.int64) for keys in (self.spaces, self.groupings)
        )
        return spaces[numbers // max(1, len(groupings))] + groupings[numbers % max(1, len(groupings))]


class OrderedRows:
    """Rows in order of arrival with the permutation `order` that sorts them, None if they are sorted."""

    def __init__(
        self, schema: EventSchema, keys: Keys, numbers: I64, timestamps: I64, columns: list[pa.Array],
        order: I64 | None, *, continues: bool = False,
    ) -> None:  # fmt: skip
        """`numbers`: the key of each row; `continues`: whether the first row's run began before these rows."""
        self.count = len(timestamps)
        self.schema = schema
        self.order = order
        self.columns = columns
        self._keys = keys
        self._numbers = self._take(numbers)
        self._timestamps = self._take(timestamps)
        fresh = self._numbers[1:] != self._numbers[:-1]
        self._run_starts = np.append(True, fresh).nonzero()[0] if self.count else np.zeros(0, np.int64)
        self._continues = continues
        self._ranked: dict[int, Ranked] = {}
        self._codes: dict[int, Coded] = {}

    @classmethod
    def of_tables(cls, tables: list[pa.Table], schema: EventSchema) -> OrderedRows:
        """The events of checked tables. Empties the list: each column is released as soon as it is one array."""
        chunks = [[chunk for table in tables for chunk in table[name].chunks] for name in schema.arrow.names]
        tables.clear()
        kinds = schema.arrow.types
        spaces, groupings, times = (pa.chunked_array(chunks[place], kinds[place]) for place in range(3))
        keys, numbers = Keys.number(spaces, groupings)
        timestamps = _numbers(times)
        columns = []
        for place in range(3, len(kinds)):
            columns.append(_whole(pa.chunked_array(chunks[place], kinds[place])))
            chunks[place] = []
        return cls(schema, keys, numbers, timestamps, columns, sort_order(numbers, timestamps))

    @classmethod
    def of_parts(cls, parts: Sequence[SortedRows], schema: EventSchema) -> OrderedRows:
        """The rows of sorted parts, one after another; among equal keys and times, those of the earlier part come
        first.

        Columns of the parts must contain values, not codes.
        """
        spaces = pa.concat_arrays([part.spaces for part in parts])
        groupings = pa.concat_arrays([part.groupings for part in parts])
        keys, of_runs = Keys.number(pa.chunked_array([spaces]), pa.chunked_array([groupings]))
        rows = np.concatenate([np.diff(part.run_starts, append=len(part.timestamps)) for part in parts])
        numbers = np.repeat(of_runs, rows)
        timestamps = np.concatenate([part.timestamps for part in parts])
        columns = [
            _whole(pa.chunked_array([part.columns[place] for part in parts], field.type))
            for place, field in enumerate(schema.fields)
        ]
        order = merge_order(numbers, timestamps)
        return cls(schema, keys, numbers, timestamps, columns, order, continues=parts[0].continues)

    def _take(self, numbers: I64) -> I64:
        return numbers if self.order is None else numbers[self.order]

    # ------------------------------------------------------------ values and codes

    def ranked(self, place: int) -> Ranked:
        """The ranks of a column's values, in order of arrival."""
        if place not in self._ranked:
            self._ranked[place] = rank(pa.chunked_array([self.columns[place]]))
        return self._ranked[place]

    def sorted_ranks(self, place: int) -> Ranked:
        """The ranks of a column's values, in sorted order."""
        ranked = self.ranked(place)
        return Ranked(self._take(ranked.ranks), ranked.values)

    def store_as_codes(self, place: int, values: pa.Array) -> None:
        """Make `rows` return a column as codes, its positions in `values`, from now on."""
        ranked = self.ranked(place)
        known = pc.index_in(ranked.values, value_set=values).fill_null(UNKNOWN)
        code_of = np.append(np.asarray(known).astype(np.int64), NULL)  # rank -1 is null
        codes = code_of[ranked.ranks]
        unknown = len(codes) and int(codes.min()) == UNKNOWN
        self._codes[place] = Coded(codes, self.columns[place] if unknown else None)

    # ------------------------------------------------------------ rows in order

    def rows(self, first: int, last: int, *, plain: bool = False) -> SortedRows:
        """Rows [first, last) in sorted order, at least one; `plain`: return no column as codes."""
        a = int(np.searchsorted(self._run_starts, first, side="right")) - 1
        b = int(np.searchsorted(self._run_starts, last, side="left"))
        keys = self._numbers[self._run_starts[a:b]]
        return SortedRows(
            timestamps=self._timestamps[first:last],
            run_starts=np.maximum(self._run_starts[a:b], first) - first,
            spaces=self._keys.spaces_of(keys),
            groupings=self._keys.groupings_of(keys),
            columns=[self._column(place, first, last, plain) for place in range(len(self.columns))],
            continues=bool(self._run_starts[a] < first) or (a == 0 and self._continues),
        )

    def _column(self, place: int, first: int, last: int, plain: bool) -> Column:
        coded = None if plain else self._codes.get(place)
        if coded is not None:
            codes = coded.codes[first:last] if self.order is None else coded.codes[self.order[first:last]]
            some = coded.values is not None and bool((codes == UNKNOWN).any())
            return Coded(codes, self._values(place, first, last) if some else None)
        return self._values(place, first, last)

    def _values(self, place: int, first: int, last: int) -> pa.Array:
        column = self.columns[place]
        if self.order is None:
            return column.slice(first, last - first)
        return column.take(pa.array(self.order[first:last]))

    def row_bytes(self) -> I64 | None:
        """The size of each row in sorted order, including keys at the start of a run; None if all rows are small."""
        stored = [self._codes.get(place, column) for place, column in enumerate(self.columns)]
        sizes = row_bytes(stored, self.count)
        longest = sum(int(pc.max(pc.binary_length(k)).as_py() or 0) for k in (self._keys.spaces, self._keys.groupings))
        if not self.count or rows_are_small(int(sizes.max()) + longest):
            return None
        sizes = self._take(sizes)
        starts = self._run_starts[1:] if self._continues else self._run_starts
        sizes[starts] += self._keys.lengths(self._numbers[starts])
        return sizes

    def key(self, row: int) -> SortKey:
        """The sort key of a row, in sorted order."""
        number = self._numbers[row : row + 1] if row >= 0 else self._numbers[row:][:1]
        (space,), (grouping,) = key_bytes(self._keys.spaces_of(number)), key_bytes(self._keys.groupings_of(number))
        return space, grouping, int(self._timestamps[row])


def _numbers(column: pa.ChunkedArray) -> I64:
    return np.asarray(column.cast(pa.int64()).to_numpy()).astype(np.int64, copy=False)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array; strings and binary of 2 GiB or more get 64-bit offsets."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if is_bytes(column.type) and column.nbytes >= 1 << 31:
        column = column.cast(pa.large_string() if pa.types.is_string(column.type) else pa.large_binary())
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
