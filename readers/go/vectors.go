package esdb

// vector is the decoded values of a node. A vector of part of a block has a place for every row all the same; only
// the rows that were asked for may be used.
type vector interface {
	value(i int) any
}

// nullVector is the shape NULL.
type nullVector struct{}

func (nullVector) value(int) any { return nil }

// validity says which values are null.
type validity struct {
	stored bool
	pack   pack
	before []uint32 // how many values before each are not null, if anybody needs to know
}

func (v *validity) null(i int) bool { return v.stored && v.pack.at(i) == 0 }

// place returns the number of values before value i that are not null.
func (v *validity) place(i int) int {
	if v.before == nil {
		return i
	}
	return int(v.before[i])
}

// intVector is the shape INTS.
type intVector struct {
	kind    *Type
	numbers pack
	valid   validity
}

func (v *intVector) value(i int) any {
	if v.valid.null(i) {
		return nil
	}
	return v.kind.fromBits(v.numbers.at(i))
}

// wideVector is the shape WIDE.
type wideVector struct {
	kind  *Type
	words []pack
	valid validity
}

func (v *wideVector) value(i int) any {
	if v.valid.null(i) {
		return nil
	}
	var words [4]int64
	for k := range v.words {
		words[k] = v.words[k].at(i)
	}
	return v.kind.fromWords(words[:len(v.words)])
}

// codeVector is the shape CODES.
type codeVector struct {
	codes  pack
	values vector
}

func (v *codeVector) value(i int) any {
	if code := v.codes.at(i); code > 0 {
		return v.values.value(int(code) - 1)
	}
	return nil
}

// byteVector is the shape BYTES.
type byteVector struct {
	text      bool
	frameRows int
	frames    [][]byte // nil where no row of the frame was asked for
	starts    []uint32 // of each value in its frame
	valid     validity
}

func (v *byteVector) bytes(i int) []byte {
	frame := v.frames[i/v.frameRows]
	end := uint32(len(frame))
	if next := i + 1; next%v.frameRows != 0 && next < len(v.starts) {
		end = v.starts[next]
	}
	return frame[v.starts[i]:end:end]
}

func (v *byteVector) value(i int) any {
	if v.valid.null(i) {
		return nil
	}
	if v.text {
		return string(v.bytes(i))
	}
	return v.bytes(i)
}

// listVector is the shape LIST.
type listVector struct {
	isMap    bool
	starts   []uint32 // one more than lists
	elements vector
	valid    validity
}

func (v *listVector) value(i int) any {
	if v.valid.null(i) {
		return nil
	}
	first, end := int(v.starts[i]), int(v.starts[i+1])
	if v.isMap {
		pairs := make([]Pair, 0, end-first)
		for k := first; k < end; k++ {
			pair := v.elements.value(k).([]any)
			pairs = append(pairs, Pair{pair[0], pair[1]})
		}
		return pairs
	}
	return slice(v.elements, first, end)
}

func slice(v vector, first, end int) []any {
	values := make([]any, 0, end-first)
	for i := first; i < end; i++ {
		values = append(values, v.value(i))
	}
	return values
}

// fixedVector is the shape FIXED.
type fixedVector struct {
	size     int
	elements vector
	valid    validity
}

func (v *fixedVector) value(i int) any {
	if v.valid.null(i) {
		return nil
	}
	first := v.valid.place(i) * v.size
	return slice(v.elements, first, first+v.size)
}

// structVector is the shape STRUCT.
type structVector struct {
	children []vector
	valid    validity
}

func (v *structVector) value(i int) any {
	if v.valid.null(i) {
		return nil
	}
	place := v.valid.place(i)
	values := make([]any, len(v.children))
	for k, child := range v.children {
		values[k] = child.value(place)
	}
	return values
}
