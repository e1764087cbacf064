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
func (r *nodeReader) templates(t *Type, count int) vector {
	table := r.column.templates
	codes := readPack(r.cursor, count, "templates of values")
	shown := make([]shownVariable, len(table.variables))
	slots := 0
	for i := range count {
		code := codes.at(i)
		if code < 0 || code > int64(len(table.templates)) {
			r.fail("template %d of %d", code, len(table.templates))
			return nil
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
		r.fail("the rows of a node show %d slots", slots)
	}
	for i := range shown {
		r.shownValues(table.variables[i], &shown[i])
	}
	if r.err != nil {
		return nil
	}
	return r.render(t, table, &codes, shown)
}

// shownValues reads the values of a variable, if there are any.
func (r *nodeReader) shownValues(v variable, shown *shownVariable) {
	switch {
	case shown.rows == 0:
	case v.kind != varString:
		shown.numbers = readPack(r.cursor, shown.rows, "values of a variable")
	default:
		at, h := r.pos, r.head()
		if h.shape != shapeBytes || h.flags&flagValidity != 0 {
			r.failAt(at, "texts of a variable with shape %d and flags %d", h.shape, h.flags)
		}
		shown.strings = r.bytes(binaryType, h, shown.rows, validity{}, false)
	}
}

// render puts the values of the needed rows together.
func (r *nodeReader) render(t *Type, table *templateTable, codes *pack, shown []shownVariable) vector {
	v := &textVector{text: t.Class == String, first: r.first, null: make([]bool, r.end-r.first)}
	v.ends = make([]int, 0, r.end-r.first)
	v.data = make([]byte, 0, 128*(r.end-r.first))
	for i := r.first; i < r.end && r.err == nil; i++ {
		code, begin := codes.at(i), len(v.data)
		if v.null[i-r.first] = code == 0; code > 0 {
			r.renderRow(v, table, &table.templates[code-1], shown)
		}
		switch value := v.data[begin:]; {
		case v.text && !utf8.Valid(value):
			r.fail("the text of row %d is not UTF-8", i)
		case code > 0 && t.Size >= 0 && len(value) != t.Size:
			r.fail("a value of %d bytes in a column of values of %d bytes", len(value), t.Size)
		}
		v.ends = append(v.ends, len(v.data))
	}
	r.use(int64(len(v.data)))
	return v
}

func (r *nodeReader) renderRow(v *textVector, table *templateTable, used *template, shown []shownVariable) {
	for k := 0; ; k++ {
		v.data = append(v.data, table.literals.at(used.firstLiteral+k)...)
		if len(v.data) > maxTemplateBytes {
			r.fail("a node of templates has more than %d bytes", maxTemplateBytes)
		}
		if r.err != nil || k == len(used.slots) {
			break
		}
		var ok bool
		if v.data, ok = shown[used.slots[k]].show(v.data, table, used.slots[k]); !ok {
			r.fail("variable %d cannot show one of its numbers", used.slots[k])
		}
	}
	for _, variable := range used.shows {
		shown[variable].next++
	}
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
