package esdb

import "encoding/binary"

// allowance is the memory that decoding may still use. It bounds what a few hostile bytes can ask for.
type allowance struct{ left int64 }

// cursor walks over the bytes of a block or chunk and knows where in the file they are.
//
// It keeps the first error. After that, whatever is read is nothing: no bytes, zeros, nulls. So a sequence of reads
// needs one check of err, before the results are used.
type cursor struct {
	data []byte
	pos  int
	base int64 // offset in the file of the first byte of data
	mem  *allowance
	err  error
}

func (c *cursor) offset() int64 { return c.base + int64(c.pos) }

// fail notes that the bytes are wrong where the cursor is.
func (c *cursor) fail(format string, arguments ...any) { c.failAt(c.pos, format, arguments...) }

// failAt notes that the bytes are wrong at some position.
func (c *cursor) failAt(pos int, format string, arguments ...any) {
	if c.err == nil {
		c.err = corruptAt(c.base+int64(pos), format, arguments...)
	}
}

// use takes some of the memory that is allowed; it returns false if there is no more, or was an error.
func (c *cursor) use(bytes int64) bool {
	if c.err == nil && bytes > c.mem.left {
		c.err = &Error{Kind: TooLarge, Offset: c.offset(), What: "decoding this needs more memory than Limits.Memory"}
	}
	c.mem.left -= bytes
	return c.err == nil
}

// take returns the next n bytes, or nil after an error.
func (c *cursor) take(n int64, what string) []byte {
	if c.err == nil && (n < 0 || n > int64(len(c.data)-c.pos)) {
		c.fail("%s has %d bytes, but only %d follow", what, n, len(c.data)-c.pos)
	}
	if c.err != nil {
		return nil
	}
	taken := c.data[c.pos : c.pos+int(n) : c.pos+int(n)]
	c.pos += int(n)
	return taken
}

// word returns the next n bytes, at most eight, as a number.
func (c *cursor) word(n int, what string) uint64 {
	var bytes [8]byte
	copy(bytes[:], c.take(int64(n), what))
	return binary.LittleEndian.Uint64(bytes[:])
}

// end checks that nothing follows, and returns the error of all that was read.
func (c *cursor) end(what string) error {
	if c.pos != len(c.data) {
		c.fail("%d bytes follow %s", len(c.data)-c.pos, what)
	}
	return c.err
}
