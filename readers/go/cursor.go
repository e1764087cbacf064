package esdb

import "encoding/binary"

// allowance is the memory that decoding may still use. It bounds what a few hostile bytes can ask for.
type allowance struct{ left int64 }

// take uses some of the allowance for something at an offset of the file.
func (a *allowance) take(bytes, offset int64) error {
	if bytes > a.left {
		return &Error{Kind: TooLarge, Offset: offset, What: "decoding this needs more memory than Limits.Memory"}
	}
	a.left -= bytes
	return nil
}

// cursor walks over the bytes of a block or chunk and knows where in the file they are.
type cursor struct {
	data []byte
	pos  int
	base int64 // offset in the file of the first byte of data
	mem  *allowance
}

func (c *cursor) offset() int64 { return c.base + int64(c.pos) }

func (c *cursor) corrupt(format string, arguments ...any) *Error {
	return corruptAt(c.offset(), format, arguments...)
}

// take returns the next n bytes.
func (c *cursor) take(n int64, what string) ([]byte, error) {
	if n < 0 || n > int64(len(c.data)-c.pos) {
		return nil, c.corrupt("%s has %d bytes, but only %d follow", what, n, len(c.data)-c.pos)
	}
	taken := c.data[c.pos : c.pos+int(n)]
	c.pos += int(n)
	return taken, nil
}

func (c *cursor) u32(what string) (uint32, error) {
	b, err := c.take(4, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (c *cursor) u64(what string) (uint64, error) {
	b, err := c.take(8, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// end checks that nothing follows.
func (c *cursor) end(what string) error {
	if c.pos != len(c.data) {
		return c.corrupt("%d bytes follow %s", len(c.data)-c.pos, what)
	}
	return nil
}
