package esdb

import (
	"fmt"
	"strings"
)

// Class groups the types of section 15 by how their values look in Go.
type Class int

// The classes of types, with the Go type that [Event.Value] returns for each; null is always nil.
const (
	Null       Class = iota // nil
	Bool                    // bool
	Int                     // int64: int8 … int64
	Uint                    // uint64: uint8 … uint64
	Float16                 // float32
	Float32                 // float32
	Float64                 // float64
	Date32                  // int64: days since 1970-01-01
	Date64                  // int64: milliseconds since 1970-01-01
	Time                    // int64: units since midnight
	Timestamp               // int64: units since 1970-01-01
	Duration                // int64: units
	DecimalOf               // Decimal
	IntervalOf              // Interval
	String                  // string
	Binary                  // []byte
	List                    // []any
	FixedList               // []any
	Struct                  // []any, in the order of Type.Children
	Map                     // []Pair
)

// Type is the type of a column or of a part of one.
type Type struct {
	Name      string // as the metadata name it: "int8", "large_string", "timestamp", "list"
	Class     Class
	Bits      int    // of integers and decimals
	Unit      string // of times, timestamps and durations: "s", "ms", "us" or "ns"
	Zone      string // of timestamps; "" where they have none
	Precision int    // of decimals
	Scale     int    // of decimals
	Size      int    // of fixed-size binaries and lists; otherwise -1
	Sorted    bool   // of maps: the keys are said to be sorted
	// Children are the elements of a list, the fields of a struct, or the key and the item of a map.
	Children []Column
}

// Column is a column of the schema, or a child in a type.
type Column struct {
	Name     string
	Type     *Type
	Nullable bool
	Indexed  bool // only columns of the schema
}

// simpleTypes are those that have a name only.
var simpleTypes = map[string]Type{
	"null": {Class: Null}, "bool": {Class: Bool},
	"int8": {Class: Int, Bits: 8}, "int16": {Class: Int, Bits: 16}, "int32": {Class: Int, Bits: 32}, "int64": {Class: Int, Bits: 64},
	"uint8": {Class: Uint, Bits: 8}, "uint16": {Class: Uint, Bits: 16}, "uint32": {Class: Uint, Bits: 32}, "uint64": {Class: Uint, Bits: 64},
	"float16": {Class: Float16}, "float32": {Class: Float32}, "float64": {Class: Float64},
	"date32": {Class: Date32}, "date64": {Class: Date64}, "month_day_nano_interval": {Class: IntervalOf},
	"string": {Class: String}, "large_string": {Class: String}, "binary": {Class: Binary}, "large_binary": {Class: Binary},
}

// canBeIndexed says whether a column of the type can have an index (section 12).
func (t *Type) canBeIndexed() bool {
	return t.Class == String || t.Class == Bool || t.Class == Int || t.Class == Uint
}

// words returns how many numbers of 64 bits a value has that is stored by the shape WIDE, or 0.
func (t *Type) words() int {
	switch {
	case t.Class == IntervalOf:
		return 2
	case t.Class == DecimalOf:
		return t.Bits / 64
	}
	return 0
}

// bounds returns the least and greatest number of a value that is stored by the shape INTS.
func (t *Type) bounds() (least, greatest int64, bounded bool) {
	switch t.Class {
	case Bool:
		return 0, 1, true
	case Int:
		return -1 << (t.Bits - 1), 1<<(t.Bits-1) - 1, t.Bits < 64
	case Uint:
		return 0, 1<<t.Bits - 1, t.Bits < 64
	case Float16:
		return 0, 1<<16 - 1, true
	case Float32:
		return 0, 1<<32 - 1, true
	case Date32:
		return -1 << 31, 1<<31 - 1, true
	case Time:
		return -1 << 31, 1<<31 - 1, t.Unit == "s" || t.Unit == "ms"
	}
	return 0, 0, false
}

// String returns the type in a short form, such as list<int8> or decimal128(10, 2).
func (t *Type) String() string {
	switch t.Class {
	case Timestamp:
		if t.Zone != "" {
			return fmt.Sprintf("timestamp[%s, %s]", t.Unit, t.Zone)
		}
		return fmt.Sprintf("timestamp[%s]", t.Unit)
	case Time, Duration:
		return fmt.Sprintf("%s[%s]", t.Name, t.Unit)
	case DecimalOf:
		return fmt.Sprintf("decimal%d(%d, %d)", t.Bits, t.Precision, t.Scale)
	case List:
		return fmt.Sprintf("%s<%s>", t.Name, t.Children[0].Type)
	case FixedList:
		return fmt.Sprintf("%s<%s>[%d]", t.Name, t.Children[0].Type, t.Size)
	case Map:
		return fmt.Sprintf("map<%s, %s>", t.Children[0].Type, t.Children[1].Type)
	case Struct:
		fields := make([]string, len(t.Children))
		for i, child := range t.Children {
			fields[i] = child.Name + ": " + child.Type.String()
		}
		return "struct<" + strings.Join(fields, ", ") + ">"
	}
	if t.Size >= 0 {
		return fmt.Sprintf("%s[%d]", t.Name, t.Size)
	}
	return t.Name
}
