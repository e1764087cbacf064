package esdb

import (
	"encoding/binary"
	"io"

	"github.com/zeebo/xxh3"
)

// The kinds of blocks of section 6.
const (
	kindMetadata      = 1
	kindData          = 2
	kindDirectory     = 3
	kindDirectoryRoot = 4
	kindIndex         = 5
	kindIndexRoot     = 6
	kindPostings      = 7
	kindFilter        = 8
	kindDictionary    = 9
	kindFooter        = 10
	kindDirectoryPage = 11
)

var kindNames = map[byte]string{
	kindMetadata: "METADATA", kindData: "DATA", kindDirectory: "DIRECTORY", kindDirectoryRoot: "DIRECTORY_ROOT",
	kindIndex: "INDEX", kindIndexRoot: "INDEX_ROOT", kindPostings: "POSTINGS", kindFilter: "FILTER",
	kindDictionary: "DICTIONARY", kindFooter: "FOOTER", kindDirectoryPage: "DIRECTORY_PAGE",
}

const (
	headerBytes   = 16
	trailerBytes  = 48
	frameBytes    = 24 // around the body of a block
	maxBlockBytes = 1 << 30
)

// handle says where a block is, and which block it must be (section 3).
type handle struct {
	offset int64
	length int64
	check  uint32
}

func parseHandle(b []byte) handle {
	offset := binary.LittleEndian.Uint64(b)
	if offset > 1<<62 {
		offset = 1 << 62 // beyond every file
	}
	return handle{int64(offset), int64(binary.LittleEndian.Uint32(b[8:])), binary.LittleEndian.Uint32(b[12:])}
}

// within says whether the block lies between the header and some end.
func (h handle) within(end int64) bool {
	return h.offset >= headerBytes && h.length >= frameBytes && h.length <= maxBlockBytes && h.offset <= end-h.length
}

// block is a block of which the frame has been verified.
type block struct {
	kind       byte
	dictionary int
	count      int
	body       cursor // of a data block: its head
	chunks     cursor // of a data block: what follows its checksum
}

// readBlock reads a block and verifies its frame.
func (f *File) readBlock(h handle, kind byte) (*block, error) {
	if !h.within(f.size - trailerBytes) {
		return nil, corruptAt(h.offset, "the handle of the %s block has offset %d and length %d", kindNames[kind], h.offset, h.length)
	}
	mem := &allowance{f.limits.Memory}
	if c := (&cursor{base: h.offset, mem: mem}); !c.use(h.length) {
		return nil, c.err
	}
	data := make([]byte, h.length)
	if err := f.readAt(data, h.offset); err != nil {
		return nil, err
	}
	return parseBlock(data, h, kind, mem)
}

func (f *File) readAt(data []byte, offset int64) error {
	if f.tail != nil && offset >= f.tailAt {
		copy(data, f.tail[offset-f.tailAt:])
		return nil
	}
	if n, err := f.source.ReadAt(data, offset); n < len(data) {
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return &Error{Kind: Unreadable, Offset: offset, What: "the bytes cannot be read", Err: err}
	}
	return nil
}

// acceptAnySum is set by tests of hostile files, whose checksums are right.
var acceptAnySum = false

// sumIs says whether bytes have a checksum.
func sumIs(data []byte, sum uint64) bool { return acceptAnySum || xxh3.Hash(data) == sum }

// parseBlock verifies the frame around a block (section 5).
func parseBlock(data []byte, h handle, kind byte, mem *allowance) (*block, error) {
	name := kindNames[kind]
	if string(data[:4]) != "ESBK" {
		return nil, corruptAt(h.offset, "no %s block here", name)
	}
	end := int64(len(data) - 8)
	if kind == kindData { // its checksum follows its head
		if len(data) < headerBytes+frameBytes {
			return nil, corruptAt(h.offset, "a DATA block of %d bytes", len(data))
		}
		end = headerBytes + 16 + 16*int64(binary.LittleEndian.Uint32(data[28:]))
		if end > int64(len(data)-8) {
			return nil, corruptAt(h.offset+28, "the head of a DATA block is longer than the block")
		}
	}
	sum := binary.LittleEndian.Uint64(data[end:])
	switch {
	case !sumIs(data[:end], sum):
		return nil, corruptAt(h.offset, "the checksum of the %s block is wrong", name)
	case uint32(sum) != h.check && !acceptAnySum:
		return nil, corruptAt(h.offset, "another block than the %s block that its handle names", name)
	case data[4] != kind:
		return nil, corruptAt(h.offset+4, "kind %d instead of %d (%s)", data[4], kind, name)
	case data[5] != 0:
		return nil, corruptAt(h.offset+5, "a reserved field of a block is %d", data[5])
	case int64(binary.LittleEndian.Uint32(data[8:])) != h.length-frameBytes:
		return nil, corruptAt(h.offset+8, "the body of the %s block has another length than its handle says", name)
	}
	b := &block{kind: kind, dictionary: int(binary.LittleEndian.Uint16(data[6:]))}
	count := binary.LittleEndian.Uint32(data[12:])
	if count > 1<<30 {
		return nil, corruptAt(h.offset+12, "the %s block has %d entries", name, count)
	}
	b.count = int(count)
	b.body = cursor{data: data[16:end], base: h.offset + 16, mem: mem}
	b.chunks = cursor{data: data[end+8:], base: h.offset + end + 8, mem: mem}
	if kind != kindData && b.dictionary != 0 {
		return nil, corruptAt(h.offset+6, "the %s block names a dictionary", name)
	}
	return b, nil
}
