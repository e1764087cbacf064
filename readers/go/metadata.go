package esdb

import (
	"fmt"
	"math"
)

// Metadata is what a file says about itself (section 15).
type Metadata struct {
	Major, Minor int // the version of the format
	BinaryKeys   bool
	Columns      []Column
	Codec        string // that the writer chose
	Properties   map[string]string
	Statistics   Statistics
}

// Statistics are counts of what is in a file.
type Statistics struct {
	Events, Spaces, Runs, DataBlocks int64
	MinTimestamp, MaxTimestamp       *int64 // µs since 1970; nil without events
	Indexes                          map[string]IndexStatistics
}

// IndexStatistics are counts of what is in an index.
type IndexStatistics struct{ Values, Events int64 }

// Indexes returns the names of the columns that have an index.
func (m *Metadata) Indexes() []string {
	var names []string
	for _, column := range m.Columns {
		if column.Indexed {
			names = append(names, column.Name)
		}
	}
	return names
}

// column returns the place of a column in the schema.
func (m *Metadata) column(name string) (int, bool) {
	for i, column := range m.Columns {
		if column.Name == name {
			return i, true
		}
	}
	return 0, false
}

func parseMetadata(text []byte) (*Metadata, error) {
	o, err := parseObject(text)
	if err != nil {
		return nil, err
	}
	if format, err := o.text("format"); err != nil || format != "esdb" {
		return nil, fmt.Errorf("%q is not %q", "format", "esdb")
	}
	schema, err := o.object("schema")
	if err != nil {
		return nil, err
	}
	keys, err := schema.text("keys")
	if err != nil || keys != "text" && keys != "binary" {
		return nil, fmt.Errorf("%q is neither text nor binary", "keys")
	}
	list, err := schema.list("columns")
	if err != nil {
		return nil, err
	}
	m := &Metadata{BinaryKeys: keys == "binary", Codec: "zstd", Properties: map[string]string{}}
	if m.Columns, err = parseColumns(list); err != nil {
		return nil, err
	}
	if err := m.readOptional(o); err != nil {
		return nil, err
	}
	statistics, err := o.object("statistics")
	if err != nil {
		return nil, err
	}
	return m, m.readStatistics(statistics)
}

func (m *Metadata) readOptional(o object) (err error) {
	if _, present := o["codec"]; present {
		if m.Codec, err = o.text("codec"); err != nil {
			return err
		}
	}
	if _, present := o["properties"]; !present {
		return nil
	}
	properties, err := o.object("properties")
	if err != nil {
		return err
	}
	for name := range properties {
		if m.Properties[name], err = properties.text(name); err != nil {
			return err
		}
	}
	return nil
}

func (m *Metadata) readStatistics(o object) error {
	s := &m.Statistics
	for name, place := range map[string]*int64{
		"events": &s.Events, "spaces": &s.Spaces, "runs": &s.Runs, "data_blocks": &s.DataBlocks,
	} {
		number, err := o.number(name, 0, math.MaxInt64)
		if err != nil {
			return err
		}
		*place = number
	}
	for name, place := range map[string]**int64{"min_timestamp": &s.MinTimestamp, "max_timestamp": &s.MaxTimestamp} {
		if value, present := o[name]; present && value == nil {
			continue
		}
		number, err := o.number(name, math.MinInt64, math.MaxInt64)
		if err != nil {
			return err
		}
		*place = &number
	}
	indexes, err := o.object("indexes")
	if err != nil {
		return err
	}
	s.Indexes = map[string]IndexStatistics{}
	for name := range indexes { // that each index has an entry, only a checker requires
		counts, err := indexes.object(name)
		if err != nil {
			return err
		}
		values, err := counts.number("values", 0, math.MaxInt64)
		if err != nil {
			return err
		}
		events, err := counts.number("events", 0, math.MaxInt64)
		if err != nil {
			return err
		}
		s.Indexes[name] = IndexStatistics{values, events}
	}
	return nil
}
