package esdb

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// entry is a line of the footer: a block that it names (section 16).
type entry struct {
	kind, copy byte
	ordinal    int
	handle     handle
}

func (e entry) compare(other entry) int {
	return cmp.Or(cmp.Compare(e.kind, other.kind), cmp.Compare(e.ordinal, other.ordinal), cmp.Compare(e.copy, other.copy))
}

// footer is the table of the blocks that no other block leads to.
type footer []entry

// parseFooter reads and checks the entries; at is the offset of the footer.
func parseFooter(b *block, at, opening int64) (footer, error) {
	c := &b.body
	if len(c.data) != 20*b.count {
		return nil, corruptAt(c.offset(), "a footer of %d entries has %d bytes", b.count, len(c.data))
	}
	all := make(footer, b.count)
	for i := range all {
		raw := c.data[20*i:]
		e := entry{raw[0], raw[1], int(binary.LittleEndian.Uint16(raw[2:])), parseHandle(raw[4:])}
		all[i] = e
		c.pos = 20 * i
		switch {
		case e.copy > 1:
			return nil, corruptAt(c.offset(), "the footer names a copy %d", e.copy)
		case i > 0 && all[i-1].compare(e) >= 0:
			return nil, corruptAt(c.offset(), "the entries of the footer are not in order")
		case !e.handle.within(at):
			return nil, corruptAt(c.offset(), "the footer names a block at %d of %d bytes, which is not before it", e.handle.offset, e.handle.length)
		case e.copy == 1 && e.kind != kindMetadata && e.kind != kindDictionary && kindNames[e.kind] != "":
			return nil, corruptAt(c.offset(), "the footer names a spare of the %s block", kindNames[e.kind])
		}
	}
	c.pos = 0
	for _, kind := range []byte{kindMetadata, kindDirectoryRoot} {
		if _, ok := all.find(kind, 0, 0); !ok {
			return nil, corruptAt(c.offset(), "the footer names no %s block", kindNames[kind])
		}
	}
	return all, all.checkOpening(c, opening)
}

// checkOpening checks which blocks lie at or after the opening offset (section 4).
func (all footer) checkOpening(c *cursor, opening int64) error {
	first := int64(-1)
	for _, e := range all {
		needed := e.copy == 0 && (e.kind == kindMetadata || e.kind == kindDirectoryRoot || e.kind == kindDictionary)
		switch {
		case e.handle.offset < opening:
			if needed {
				return corruptAt(c.offset(), "the %s block lies before the opening offset %d", kindNames[e.kind], opening)
			}
			continue
		case e.kind == kindFilter || e.copy == 1:
			return corruptAt(c.offset(), "a block of kind %d, copy %d, lies after the opening offset %d", e.kind, e.copy, opening)
		}
		if first < 0 || e.handle.offset < first {
			first = e.handle.offset
		}
	}
	if first != opening {
		return corruptAt(c.offset(), "no block begins at the opening offset %d", opening)
	}
	return nil
}

// find returns the handle of a block.
func (all footer) find(kind, copy byte, ordinal int) (handle, bool) {
	i, ok := slices.BinarySearchFunc(all, entry{kind: kind, copy: copy, ordinal: ordinal}, entry.compare)
	if !ok {
		return handle{}, false
	}
	return all[i].handle, true
}
