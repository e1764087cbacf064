package esdb

import (
	"encoding/binary"
	"math"
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

func (r *nodeReader) head() (nodeHead, error) {
	start := *r.cursor
	b, err := r.take(4, "a node")
	if err != nil {
		return nodeHead{}, err
	}
	h := nodeHead{b[0], b[1], int(binary.LittleEndian.Uint16(b[2:]))}
	rows := h.frameRows == 0
	if h.shape == shapeBytes {
		rows = h.frameRows >= 1 && h.frameRows <= maxFrameRows
	}
	switch {
	case h.shape > shapeFront:
		return h, start.corrupt("unknown shape %d", h.shape)
	case h.flags&^(flagValidity|flagDictionary) != 0:
		return h, start.corrupt("unknown flags %d of a node", h.flags)
	case h.flags&flagDictionary != 0 && (h.shape != shapeBytes || !r.inBlock):
		return h, start.corrupt("flag 2 on a node that cannot have it")
	case h.flags&flagValidity != 0 && (h.shape == shapeNull || h.shape == shapeCodes || h.shape >= shapeTemplates):
		return h, start.corrupt("validity in a node of shape %d", h.shape)
	case !rows:
		return h, start.corrupt("a node of shape %d with frames of %d rows", h.shape, h.frameRows)
	}
	return h, nil
}

// read reads a node of count values of a type; only the outermost one may have the shape CODES or TEMPLATES.
func (r *nodeReader) read(t *Type, count int, outermost bool) (vector, error) {
	start := *r.cursor
	h, err := r.head()
	if err != nil {
		return nil, err
	}
	var valid validity
	present := count
	if h.flags&flagValidity != 0 {
		if valid, present, err = r.validity(count, h.shape == shapeFixed || h.shape == shapeStruct); err != nil {
			return nil, err
		}
	}
	switch want := t.shape(); {
	case h.shape == shapeCodes && outermost && r.column != nil && r.column.values != nil:
		return r.codes(count)
	case h.shape == shapeTemplates && outermost && r.column != nil && r.column.templates != nil && want == shapeBytes:
		return r.templates(t, count)
	case h.shape != want:
		return nil, start.corrupt("a node of shape %d for values of type %s", h.shape, t.Name)
	}
	switch h.shape {
	case shapeNull:
		return nullVector{}, nil
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
	}
	return r.structs(t, present, valid)
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
func (r *nodeReader) validity(count int, places bool) (validity, int, error) {
	v := validity{stored: true}
	var err error
	if v.pack, err = readPack(r.cursor, count, "validity"); err != nil {
		return v, 0, err
	}
	if places {
		if err := r.mem.take(4*int64(count), r.offset()); err != nil {
			return v, 0, err
		}
		v.before = make([]uint32, count)
	}
	present := 0
	for i := range count {
		if places {
			v.before[i] = uint32(present)
		}
		bit := v.pack.at(i)
		if bit != 0 && bit != 1 {
			return v, 0, r.corrupt("validity %d", bit)
		}
		present += int(bit)
	}
	return v, present, nil
}

func (r *nodeReader) ints(t *Type, count int, valid validity) (vector, error) {
	numbers, err := readPack(r.cursor, count, "values")
	if err != nil {
		return nil, err
	}
	if least, greatest, bounded := t.bounds(); bounded {
		for i := range count {
			if number := numbers.at(i); number < least || number > greatest {
				return nil, r.corrupt("%d is no value of type %s", number, t.Name)
			}
			if numbers.constant() {
				break
			}
		}
	}
	return &intVector{t, numbers, valid}, nil
}

func (r *nodeReader) wide(t *Type, count int, valid validity) (vector, error) {
	words := make([]pack, t.words())
	for i := range words {
		var err error
		if words[i], err = readPack(r.cursor, count, "words of values"); err != nil {
			return nil, err
		}
	}
	return &wideVector{t, words, valid}, nil
}

func (r *nodeReader) codes(count int) (vector, error) {
	codes, err := readPack(r.cursor, count, "codes")
	if err != nil {
		return nil, err
	}
	for i := range count {
		if code := codes.at(i); code < 0 || code > int64(r.column.count) {
			return nil, r.corrupt("code %d, but the dictionary has %d values", code, r.column.count)
		}
	}
	return &codeVector{codes, r.column.values}, nil
}

func (r *nodeReader) list(t *Type, count int, valid validity) (vector, error) {
	lengths, err := readPack(r.cursor, count, "lengths of lists")
	if err != nil {
		return nil, err
	}
	if err := r.mem.take(4*int64(count+1), r.offset()); err != nil {
		return nil, err
	}
	starts := make([]uint32, count+1)
	total := int64(0)
	for i := range count {
		length := lengths.at(i)
		if length < 0 || length > maxElements-total {
			return nil, r.corrupt("lists with more than %d elements, or a length of %d", maxElements, length)
		}
		total += length
		starts[i+1] = uint32(total)
	}
	element := t.Children[0].Type
	if t.Class == Map {
		element = &Type{Name: "struct", Class: Struct, Children: t.Children}
	}
	elements, err := r.read(element, int(total), false)
	if err != nil {
		return nil, err
	}
	return &listVector{t.Class == Map, starts, elements, valid}, nil
}

func (r *nodeReader) fixed(t *Type, present int, valid validity) (vector, error) {
	if t.Size > 0 && present > maxElements/t.Size {
		return nil, r.corrupt("%d lists of %d elements", present, t.Size)
	}
	elements, err := r.read(t.Children[0].Type, present*t.Size, false)
	if err != nil {
		return nil, err
	}
	return &fixedVector{t.Size, elements, valid}, nil
}

func (r *nodeReader) structs(t *Type, present int, valid validity) (vector, error) {
	children := make([]vector, len(t.Children))
	for i, child := range t.Children {
		var err error
		if children[i], err = r.read(child.Type, present, false); err != nil {
			return nil, err
		}
	}
	return &structVector{children, valid}, nil
}

// bytes reads what follows the head of a node of shape BYTES.
func (r *nodeReader) bytes(t *Type, h nodeHead, count int, valid validity, outermost bool) (*byteVector, error) {
	v := &byteVector{text: t.Class == String, frameRows: h.frameRows, valid: valid}
	sizes, err := r.lengths(t, v, count)
	if err != nil {
		return nil, err
	}
	intro, err := r.take(2, "a frame table")
	if err != nil {
		return nil, err
	}
	codec, width := intro[0], int64(intro[1])
	if codec > codecLZ4 || width != 2 && width != 4 {
		return nil, r.corrupt("frames of codec %d, a table with entries of %d bytes", codec, width)
	}
	table, err := r.take(width*int64(len(sizes)), "a frame table")
	if err != nil {
		return nil, err
	}
	var with *zstd.Decoder
	if h.flags&flagDictionary != 0 {
		if r.column == nil || r.column.zstd == nil {
			return nil, r.corrupt("a node needs a zstd dictionary that the block does not have")
		}
		with = r.column.zstd
	}
	first, end := 0, count
	if outermost {
		first, end = r.first, r.end
	}
	v.frames = make([][]byte, len(sizes))
	for i, size := range sizes {
		stored := int64(binary.LittleEndian.Uint16(table[int64(i)*width:]))
		if width == 4 {
			stored = int64(binary.LittleEndian.Uint32(table[4*i:]))
		}
		at := r.offset()
		frame, err := r.take(stored, "a frame")
		if err != nil {
			return nil, err
		}
		if begin := i * h.frameRows; begin >= end || begin+h.frameRows <= first {
			continue
		}
		if v.frames[i], err = decompress(codec, frame, size, at, with, r.mem); err != nil {
			return nil, err
		}
		if v.text && !v.isText(i, count) {
			return nil, corruptAt(at, "a text in this frame is not UTF-8")
		}
	}
	return v, nil
}

// lengths reads the lengths of values. It returns the size of each frame and notes where in it each value starts.
func (r *nodeReader) lengths(t *Type, v *byteVector, count int) ([]int64, error) {
	lengths, err := readPack(r.cursor, count, "lengths of values")
	if err != nil {
		return nil, err
	}
	if err := r.mem.take(4*int64(count)+64*int64(count/v.frameRows+1), r.offset()); err != nil {
		return nil, err
	}
	v.starts = make([]uint32, count)
	sizes := make([]int64, (count+v.frameRows-1)/v.frameRows)
	for i := range count {
		length, size := lengths.at(i), &sizes[i/v.frameRows]
		if length < 0 || length > math.MaxInt32-*size {
			return nil, r.corrupt("a value of %d bytes, after %d in its frame", length, *size)
		}
		if t.Size >= 0 && length != int64(t.Size) && (length != 0 || !v.valid.null(i)) {
			return nil, r.corrupt("a value of %d bytes in a column of values of %d bytes", length, t.Size)
		}
		v.starts[i] = uint32(*size)
		*size += length
	}
	return sizes, nil
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
