package esdb

import "unicode/utf8"

const (
	maxShownSlots    = 1048576
	maxTemplateBytes = 16777216
)

// textVector is the shape TEMPLATES: values that were put together, from the first row that was needed on.
type textVector struct {
	text  bool
	first int
	null  []bool
	data  []byte
	ends  []int
}

func (v *textVector) bytes(i int) []byte {
	start := 0
	if i > v.first {
		start = v.ends[i-v.first-1]
	}
	end := v.ends[i-v.first]
	return v.data[start:end:end]
}

func (v *textVector) value(i int) any {
	switch {
	case v.null[i-v.first]:
		return nil
	case v.text:
		return string(v.bytes(i))
	}
	return v.bytes(i)
}

// shownVariable is the values of a variable in a node.
type shownVariable struct {
	rows    int // how many values there are
	next    int // the value that the next row shows
	strings *byteVector
	numbers pack
}

// templates reads what follows the head of a node of shape TEMPLATES.
func (r *nodeReader) templates(t *Type, count int) (vector, error) {
	table := r.column.templates
	codes, err := readPack(r.cursor, count, "templates of values")
	if err != nil {
		return nil, err
	}
	shown := make([]shownVariable, len(table.variables))
	slots := 0
	for i := range count {
		code := codes.at(i)
		if code < 0 || code > int64(len(table.templates)) {
			return nil, r.corrupt("template %d of %d", code, len(table.templates))
		}
		if code == 0 {
			continue
		}
		used := &table.templates[code-1]
		slots += len(used.slots)
		for _, variable := range used.shows {
			shown[variable].rows++
			if i < r.first {
				shown[variable].next++
			}
		}
	}
	if slots > maxShownSlots {
		return nil, r.corrupt("the rows of a node show %d slots", slots)
	}
	for i := range shown {
		if err := r.shownValues(table.variables[i], &shown[i]); err != nil {
			return nil, err
		}
	}
	return r.render(t, table, &codes, shown)
}

// shownValues reads the values of a variable, if there are any.
func (r *nodeReader) shownValues(v variable, shown *shownVariable) (err error) {
	if shown.rows == 0 {
		return nil
	}
	if v.kind != varString {
		shown.numbers, err = readPack(r.cursor, shown.rows, "values of a variable")
		return err
	}
	start := *r.cursor
	h, err := r.head()
	if err != nil {
		return err
	}
	if h.shape != shapeBytes || h.flags&flagValidity != 0 {
		return start.corrupt("texts of a variable with shape %d and flags %d", h.shape, h.flags)
	}
	shown.strings, err = r.bytes(binaryType, h, shown.rows, validity{}, false)
	return err
}

// render puts the values of the needed rows together.
func (r *nodeReader) render(t *Type, table *templateTable, codes *pack, shown []shownVariable) (vector, error) {
	v := &textVector{text: t.Class == String, first: r.first, null: make([]bool, r.end-r.first)}
	v.ends = make([]int, 0, r.end-r.first)
	var out []byte
	for i := r.first; i < r.end; i++ {
		code := codes.at(i)
		begin := len(out)
		if v.null[i-r.first] = code == 0; code > 0 {
			used := &table.templates[code-1]
			for k, variable := range used.slots {
				out = append(out, table.literals.at(used.firstLiteral+k)...)
				var ok bool
				if out, ok = shown[variable].show(out, table, variable); !ok {
					return nil, r.corrupt("variable %d cannot show a number of row %d", variable, i)
				}
				if len(out) > maxTemplateBytes {
					return nil, r.corrupt("a node of templates has more than %d bytes", maxTemplateBytes)
				}
			}
			out = append(out, table.literals.at(used.firstLiteral+len(used.slots))...)
			for _, variable := range used.shows {
				shown[variable].next++
			}
		}
		switch value := out[begin:]; {
		case len(out) > maxTemplateBytes:
			return nil, r.corrupt("a node of templates has more than %d bytes", maxTemplateBytes)
		case v.text && !utf8.Valid(value):
			return nil, r.corrupt("the text of row %d is not UTF-8", i)
		case code > 0 && t.Size >= 0 && len(value) != t.Size:
			return nil, r.corrupt("a value of %d bytes in a column of values of %d bytes", len(value), t.Size)
		}
		v.ends = append(v.ends, len(out))
	}
	v.data = out
	return v, r.mem.take(int64(len(out)), r.offset())
}

// show appends the text that a slot shows of a variable.
func (s *shownVariable) show(out []byte, table *templateTable, number int) ([]byte, bool) {
	v := table.variables[number]
	switch v.kind {
	case varString:
		return append(out, s.strings.bytes(s.next)...), true
	case varEnum:
		n := s.numbers.at(s.next)
		if n < 0 || n >= int64(v.values) {
			return out, false
		}
		return append(out, table.values.at(v.firstValue+int(n))...), true
	}
	return v.format(out, s.numbers.at(s.next))
}
