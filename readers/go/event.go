package esdb

import "time"

// Event is one event of a file. It remains usable after the loop that it comes from, and keeps the memory of the
// block that it lies in.
type Event struct {
	Space, Grouping string
	Timestamp       int64 // µs since 1970-01-01 UTC
	file            *File
	columns         []vector
	row             int // in the block
}

// Time returns the timestamp as a time in UTC.
func (e Event) Time() time.Time { return time.UnixMicro(e.Timestamp).UTC() }

// Value returns the value of a column, by its place in Metadata.Columns. See [Class] for its Go type; nil is null, or
// a column that [Only] left out. Bytes must not be changed.
func (e Event) Value(column int) any {
	if e.columns[column] == nil {
		return nil
	}
	return e.columns[column].value(e.row)
}

// Get returns the value of a column by its name, and nil if there is no such column.
func (e Event) Get(name string) any {
	if column, ok := e.file.meta.column(name); ok {
		return e.Value(column)
	}
	return nil
}
