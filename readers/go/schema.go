package esdb

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	maxColumns   = 4096
	maxTypeDepth = 32
	maxFixedSize = 16777215
)

// parseColumns reads the columns of the schema.
func parseColumns(list []any) ([]Column, error) {
	if len(list) > maxColumns {
		return nil, fmt.Errorf("%d columns are more than %d", len(list), maxColumns)
	}
	seen := map[string]bool{"space": true, "grouping": true, "timestamp": true}
	columns := make([]Column, len(list))
	for i, value := range list {
		found, ok := value.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("column %d is no object", i)
		}
		column, err := parseColumn(found, 0)
		if err != nil {
			return nil, err
		}
		if column.Indexed, err = object(found).flag("indexed"); err != nil {
			return nil, fmt.Errorf("column %q: %w", column.Name, err)
		}
		if seen[column.Name] {
			return nil, fmt.Errorf("two columns are called %q", column.Name)
		}
		if column.Indexed && !column.Type.canBeIndexed() {
			return nil, fmt.Errorf("column %q cannot have an index", column.Name)
		}
		seen[column.Name] = true
		columns[i] = column
	}
	return columns, nil
}

// parseColumn reads a column, or a child that lies within so many types.
func parseColumn(o object, depth int) (Column, error) {
	name, err := o.text("name")
	if err != nil {
		return Column{}, fmt.Errorf("a column: %w", err)
	}
	if strings.ContainsRune(name, 0) || !utf8.ValidString(name) {
		return Column{}, fmt.Errorf("the name %q of a column has a character that names cannot have", name)
	}
	t, err := parseType(o["type"], depth)
	if err != nil {
		return Column{}, fmt.Errorf("column %q: %w", name, err)
	}
	nullable, err := o.flag("nullable")
	if err != nil {
		return Column{}, fmt.Errorf("column %q: %w", name, err)
	}
	if t.Class == Null && !nullable {
		return Column{}, fmt.Errorf("column %q of type null is not nullable", name)
	}
	return Column{Name: name, Type: t, Nullable: nullable}, nil
}

func parseType(value any, depth int) (*Type, error) {
	if depth > maxTypeDepth {
		return nil, fmt.Errorf("a type lies within more than %d others", maxTypeDepth)
	}
	if name, ok := value.(string); ok {
		t, known := simpleTypes[name]
		if !known {
			return nil, fmt.Errorf("unknown type %q", name)
		}
		t.Name, t.Size = name, -1
		return &t, nil
	}
	found, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the type is missing or neither a name nor an object")
	}
	o := object(found)
	for _, name := range []string{"timestamp", "time", "duration", "decimal", "fixed_size_binary", "fixed_size_list", "list", "large_list", "struct", "map"} {
		if _, present := o[name]; present {
			t := &Type{Name: name, Size: -1}
			return t, t.read(o, depth)
		}
	}
	return nil, fmt.Errorf("unknown type %v", value)
}

// read reads what the object says of a type whose name is known.
func (t *Type) read(o object, depth int) error {
	switch t.Name {
	case "timestamp":
		t.Class = Timestamp
		return readTimestamp(o, t)
	case "time":
		t.Class = Time
		return readUnit(o, t)
	case "duration":
		t.Class = Duration
		return readUnit(o, t)
	case "decimal":
		t.Class = DecimalOf
		return readDecimal(o, t)
	case "fixed_size_binary":
		t.Class = Binary
		return readSize(o, t, t.Name)
	case "fixed_size_list":
		t.Class = FixedList
		if err := readSize(o, t, "size"); err != nil {
			return err
		}
		return readChild(o, t, depth)
	case "struct":
		t.Class = Struct
		return readStruct(o, t, depth)
	case "map":
		t.Class = Map
		return readMap(o, t, depth)
	}
	t.Class = List
	return readChild(o, t, depth)
}

func readUnit(o object, t *Type) (err error) {
	t.Unit, err = o.text(t.Name)
	if err == nil && !slices.Contains([]string{"s", "ms", "us", "ns"}, t.Unit) {
		err = fmt.Errorf("unknown unit %q", t.Unit)
	}
	return err
}

func readTimestamp(o object, t *Type) error {
	zone, present := o["zone"]
	if !present {
		return fmt.Errorf("a timestamp without %q", "zone")
	}
	if zone != nil {
		text, ok := zone.(string)
		if !ok {
			return fmt.Errorf("a zone that is no text")
		}
		t.Zone = text
	}
	return readUnit(o, t)
}

func readDecimal(o object, t *Type) error {
	bits, err := o.number("bits", 128, 256)
	if err != nil || bits != 128 && bits != 256 {
		return fmt.Errorf("a decimal of other than 128 or 256 bits")
	}
	list, err := o.list("decimal")
	if err != nil || len(list) != 2 {
		return fmt.Errorf("a decimal without precision and scale")
	}
	precision, err := whole(list[0])
	if err != nil || precision < 1 || bits == 128 && precision > 38 || precision > 76 {
		return fmt.Errorf("a decimal of %d bits with precision %v", bits, list[0])
	}
	scale, err := whole(list[1])
	if err != nil || scale < math.MinInt32 || scale > math.MaxInt32 {
		return fmt.Errorf("a decimal with scale %v", list[1])
	}
	t.Bits, t.Precision, t.Scale = int(bits), int(precision), int(scale)
	return nil
}

func readSize(o object, t *Type, name string) error {
	size, err := o.number(name, 0, maxFixedSize)
	t.Size = int(size)
	return err
}

func readChild(o object, t *Type, depth int) error {
	child, err := o.object(t.Name)
	if err != nil {
		return err
	}
	column, err := parseColumn(child, depth+1)
	t.Children = []Column{column}
	return err
}

func readStruct(o object, t *Type, depth int) error {
	list, err := o.list(t.Name)
	if err != nil {
		return err
	}
	for _, value := range list {
		child, ok := value.(map[string]any)
		if !ok {
			return fmt.Errorf("a child of a struct is no object")
		}
		column, err := parseColumn(child, depth+1)
		if err != nil {
			return err
		}
		t.Children = append(t.Children, column)
	}
	return nil
}

func readMap(o object, t *Type, depth int) error {
	list, err := o.list(t.Name)
	if err != nil || len(list) != 2 {
		return fmt.Errorf("a map without the type of its keys and its items")
	}
	key, err := parseType(list[0], depth+1)
	if err != nil {
		return err
	}
	if key.Class == Null {
		return fmt.Errorf("a map with keys of type null")
	}
	item, ok := list[1].(map[string]any)
	if !ok {
		return fmt.Errorf("the items of a map are no object")
	}
	column, err := parseColumn(item, depth+1)
	if err != nil {
		return err
	}
	if t.Sorted, err = o.flag("sorted"); err != nil {
		return err
	}
	t.Children = []Column{{Name: "key", Type: key}, column}
	return nil
}
