package esdb

import (
	"math"
	"slices"
)

// Option narrows or turns what a query returns.
type Option func(*query) error

// query is which events to return, and in which order.
type query struct {
	file     *File
	grouping *string
	from, to int64 // both included
	reverse  bool
	wanted   []bool // columns, by place in the schema
	where    []condition
}

// condition is a value that a column has to have.
type condition struct {
	column int
	value  any
}

// InGrouping returns only the events of a grouping.
func InGrouping(grouping string) Option {
	return func(q *query) error { q.grouping = &grouping; return nil }
}

// From returns only events at or after a time, in µs since 1970.
func From(micros int64) Option {
	return func(q *query) error { q.from = max(q.from, micros); return nil }
}

// Before returns only events before a time, in µs since 1970.
func Before(micros int64) Option {
	return func(q *query) error {
		if micros == math.MinInt64 {
			q.from, q.to = 0, -1 // nothing is before it
			return nil
		}
		q.to = min(q.to, micros-1)
		return nil
	}
}

// Reversed returns the events in the opposite order.
func Reversed() Option {
	return func(q *query) error { q.reverse = true; return nil }
}

// Only decodes only some columns; [Event.Value] returns nil for the others.
func Only(columns ...string) Option {
	return func(q *query) error {
		chosen := make([]bool, len(q.wanted))
		for _, name := range columns {
			place, ok := q.file.meta.column(name)
			if !ok {
				return misused("there is no column %q", name)
			}
			chosen[place] = true
		}
		q.wanted = chosen
		return nil
	}
}

// Where returns only events that have a value in a column, which has to be of a type that can have an index.
func Where(column string, value any) Option {
	return func(q *query) error {
		place, ok := q.file.meta.column(column)
		if !ok {
			return misused("there is no column %q", column)
		}
		wanted, err := q.file.meta.Columns[place].Type.indexValue(value)
		if err != nil {
			return err
		}
		q.where = append(q.where, condition{place, wanted})
		return nil
	}
}

func (f *File) newQuery(options []Option) (*query, error) {
	q := &query{file: f, from: math.MinInt64, to: math.MaxInt64}
	q.wanted = slices.Repeat([]bool{true}, len(f.meta.Columns))
	for _, option := range options {
		if err := option(q); err != nil {
			return nil, err
		}
	}
	for _, condition := range q.where {
		q.wanted[condition.column] = true
	}
	return q, nil
}

// mayHave says whether events between two times can be wanted.
func (q *query) mayHave(earliest, latest int64) bool { return earliest <= q.to && latest >= q.from }

// wants says whether a row of a block is wanted; row is counted in the block.
func (q *query) wants(r *rows, row int) bool {
	if at := r.times[row]; at < q.from || at > q.to {
		return false
	}
	for _, c := range q.where {
		if r.columns[c.column].value(row) != c.value {
			return false
		}
	}
	return true
}
