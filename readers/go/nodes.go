package esdb

import (
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
)

// The shapes of section 9.
const (
	shapeNull      = 0
	shapeInts      = 1
	shapeWide      = 2
	shapeCodes     = 3
	shapeBytes     = 4
	shapeList      = 5
	shapeFixed     = 6
	shapeStruct    = 7
	shapeTemplates = 8
	shapeFront     = 9
)

const (
	flagValidity   = 1
	flagDictionary = 2
	maxFrameRows   = 1024
	maxElements    = 268435455

	bytesPerElement = 16 // of a list, as a value
	bytesPerFrame   = 64
)

// nodeReader reads the node of a column, or of a dictionary, index or directory, and the nodes in it.
type nodeReader struct {
	*cursor
	column     *columnDictionary // that codes, templates and flag 2 need; nil where none of them may be
	inBlock    bool              // a column of a data block, so that there may be flag 2
	first, end int               // the rows that are needed; other frames of the outermost node are not decompressed
}

// nodeHead is the first four bytes of a node.
type nodeHead struct {
	shape, flags byte
	frameRows    int
}

func (r *nodeReader) head() nodeHead {
	at := r.pos
	h := nodeHead{byte(r.word(1, "a node")), byte(r.word(1, "a node")), int(r.word(2, "a node"))}
	rows := h.frameRows == 0
	if h.shape == shapeBytes {
		rows = h.frameRows >= 1 && h.frameRows <= maxFrameRows
	}
	switch {
	case h.shape > shapeFront:
		r.failAt(at, "unknown shape %d", h.shape)
	case h.flags&^(flagValidity|flagDictionary) != 0:
		r.failAt(at, "unknown flags %d of a node", h.flags)
	case h.flags&flagDictionary != 0 && (h.shape != shapeBytes || !r.inBlock):
		r.failAt(at, "flag 2 on a node that cannot have it")
	case h.flags&flagValidity != 0 && (h.shape == shapeNull || h.shape == shapeCodes || h.shape >= shapeTemplates):
		r.failAt(at, "validity in a node of shape %d", h.shape)
	case !rows:
		r.failAt(at, "a node of shape %d with frames of %d rows", h.shape, h.frameRows)
	}
	return h
}

// read reads a node of count values of a type; only the outermost one may have the shape CODES or TEMPLATES. After an
// error, the vector must not be used.
func (r *nodeReader) read(t *Type, count int, outermost bool) vector {
	at, h := r.pos, r.head()
	var valid validity
	present := count
	if h.flags&flagValidity != 0 {
		valid, present = r.validity(count, h.shape == shapeFixed || h.shape == shapeStruct)
	}
	if r.err != nil {
		return nil
	}
	switch want := t.shape(); {
	case h.shape == shapeCodes && outermost && r.column != nil && r.column.values != nil:
		return r.codes(count)
	case h.shape == shapeTemplates && outermost && r.column != nil && r.column.templates != nil && want == shapeBytes:
		return r.templates(t, count)
	case h.shape != want:
		r.failAt(at, "a node of shape %d for values of type %s", h.shape, t.Name)
		return nil
	}
	switch h.shape {
	case shapeInts:
		return r.ints(t, count, valid)
	case shapeWide:
		return r.wide(t, count, valid)
	case shapeBytes:
		return r.bytes(t, h, count, valid, outermost)
	case shapeList:
		return r.list(t, count, valid)
	case shapeFixed:
		return r.fixed(t, present, valid)
	case shapeStruct:
		return r.structs(t, present, valid)
	}
	return nullVector{}
}

// shape returns the one shape of a type.
func (t *Type) shape() byte {
	switch t.Class {
	case Null:
		return shapeNull
	case String, Binary:
		return shapeBytes
	case List, Map:
		return shapeList
	case FixedList:
		return shapeFixed
	case Struct:
		return shapeStruct
	case DecimalOf, IntervalOf:
		return shapeWide
	}
	return shapeInts
}

// validity reads which values are null, and counts the others.
func (r *nodeReader) validity(count int, places bool) (v validity, present int) {
	v = validity{stored: true, pack: readPack(r.cursor, count, "validity")}
	if places && r.use(4*int64(count)) {
		v.before = make([]uint32, count)
	}
	for i := 0; i < count && r.err == nil; i++ {
		if places {
			v.before[i] = uint32(present)
		}
		bit := v.pack.at(i)
		if bit != 0 && bit != 1 {
			r.fail("validity %d", bit)
		}
		present += int(bit)
	}
	return v, present
}

func (r *nodeReader) ints(t *Type, count int, valid validity) vector {
	numbers := readPack(r.cursor, count, "values")
	least, greatest, bounded := t.bounds()
	if numbers.width == 0 {
		count = min(count, 1) // all are the same
	}
	for i := 0; i < count && bounded; i++ {
		if number := numbers.at(i); number < least || number > greatest {
			r.fail("%d is no value of type %s", number, t.Name)
		}
	}
	return &intVector{t, numbers, valid}
}

func (r *nodeReader) wide(t *Type, count int, valid validity) vector {
	words := make([]pack, t.words())
	for i := range words {
		words[i] = readPack(r.cursor, count, "words of values")
	}
	return &wideVector{t, words, valid}
}

func (r *nodeReader) codes(count int) vector {
	codes := readPack(r.cursor, count, "codes")
	for i := range count {
		if code := codes.at(i); code < 0 || code > int64(r.column.count) {
			r.fail("code %d, but the dictionary has %d values", code, r.column.count)
		}
	}
	return &codeVector{codes, r.column.values}
}

func (r *nodeReader) list(t *Type, count int, valid validity) vector {
	lengths := readPack(r.cursor, count, "lengths of lists")
	if !r.use(4 * int64(count+1)) {
		return nil
	}
	starts := make([]uint32, count+1)
	total := int64(0)
	for i := range count {
		length := lengths.at(i)
		if length < 0 || length > maxElements-total {
			r.fail("lists with more than %d elements, or a length of %d", maxElements, length)
			return nil
		}
		total += length
		starts[i+1] = uint32(total)
	}
	element := t.Children[0].Type
	if t.Class == Map {
		element = &Type{Name: "struct", Class: Struct, Children: t.Children}
	}
	r.use(bytesPerElement * total)
	return &listVector{t.Class == Map, starts, r.read(element, int(total), false), valid}
}

func (r *nodeReader) fixed(t *Type, present int, valid validity) vector {
	if t.Size > 0 && present > maxElements/t.Size {
		r.fail("%d lists of %d elements", present, t.Size)
		return nil
	}
	r.use(bytesPerElement * int64(present*t.Size))
	return &fixedVector{t.Size, r.read(t.Children[0].Type, present*t.Size, false), valid}
}

func (r *nodeReader) structs(t *Type, present int, valid validity) vector {
	children := make([]vector, len(t.Children))
	for i, child := range t.Children {
		children[i] = r.read(child.Type, present, false)
	}
	return &structVector{children, valid}
}

// bytes reads what follows the head of a node of shape BYTES.
func (r *nodeReader) bytes(t *Type, h nodeHead, count int, valid validity, outermost bool) *byteVector {
	v := &byteVector{text: t.Class == String, frameRows: max(h.frameRows, 1), valid: valid}
	sizes := r.lengths(t, v, count)
	codec, width := byte(r.word(1, "a frame table")), int(r.word(1, "a frame table"))
	if codec > codecLZ4 || width != 2 && width != 4 {
		r.fail("frames of codec %d, a table with entries of %d bytes", codec, width)
	}
	table := cursor{data: r.take(int64(width*len(sizes)), "a frame table")}
	var with *zstd.Decoder
	if h.flags&flagDictionary != 0 {
		if r.column == nil || r.column.zstd == nil {
			r.fail("a node needs a zstd dictionary that the block does not have")
		} else {
			with = r.column.zstd
		}
	}
	first, end := 0, count
	if outermost {
		first, end = r.first, r.end
	}
	v.frames = make([][]byte, len(sizes))
	for i, size := range sizes {
		stored := int64(table.word(width, ""))
		if begin := i * v.frameRows; begin >= end || begin+v.frameRows <= first {
			r.take(stored, "a frame")
			continue
		}
		at := r.pos
		v.frames[i] = r.frame(codec, stored, size, with)
		if r.err == nil && v.text && !v.isText(i, count) {
			r.failAt(at, "a text in this frame is not UTF-8")
		}
		if r.err != nil {
			break
		}
	}
	return v
}

// lengths reads the lengths of values. It returns the size of each frame and notes where in it each value starts.
func (r *nodeReader) lengths(t *Type, v *byteVector, count int) []int64 {
	lengths := readPack(r.cursor, count, "lengths of values")
	if !r.use(4*int64(count) + bytesPerFrame*int64(count/v.frameRows+1)) {
		return nil
	}
	v.starts = make([]uint32, count)
	sizes := make([]int64, (count+v.frameRows-1)/v.frameRows)
	for i := range count {
		length, size := lengths.at(i), &sizes[i/v.frameRows]
		if length < 0 || length > maxFrameBytes-*size {
			r.fail("a value of %d bytes, after %d in its frame", length, *size)
			return nil
		}
		if t.Size >= 0 && length != int64(t.Size) && (length != 0 || !v.valid.null(i)) {
			r.fail("a value of %d bytes in a column of values of %d bytes", length, t.Size)
			return nil
		}
		v.starts[i] = uint32(*size)
		*size += length
	}
	return sizes
}

// isText says whether all values of a frame are UTF-8: the frame is, and no value begins within a character.
func (v *byteVector) isText(number, count int) bool {
	frame := v.frames[number]
	if !utf8.Valid(frame) {
		return false
	}
	for i := number * v.frameRows; i < min((number+1)*v.frameRows, count); i++ {
		if at := int(v.starts[i]); at < len(frame) && !utf8.RuneStart(frame[at]) {
			return false
		}
	}
	return true
}
