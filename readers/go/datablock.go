package esdb

import "encoding/binary"

// rows is a decoded data block, or the part of it that was asked for.
type rows struct {
	leaf    *leaf
	first   int // row of the leaf with which the block begins
	times   []int64
	columns []vector // by place in the schema; nil for those that were not asked for
}

// readRows decodes rows first to end (counted in the block) of a data block, and the wanted columns of them.
func (f *File) readRows(l *leaf, number, first, end int, wanted []bool) (*rows, error) {
	said := &l.blocks[number]
	b, err := f.readBlock(said.handle, kindData)
	if err != nil {
		return nil, err
	}
	count := said.end - said.first
	table := b.body.data[16:]
	base := int64(binary.LittleEndian.Uint64(b.body.data))
	chunks := int64(binary.LittleEndian.Uint32(b.body.data[12:]))
	if b.count != count || base != said.earliest || chunks != int64(2+len(f.meta.Columns)) {
		return nil, corruptAt(b.body.base, "a data block has %d rows from %d on in %d chunks; its leaf says %d from %d on, the schema %d",
			b.count, base, chunks, count, said.earliest, 2+len(f.meta.Columns))
	}
	r := &rows{leaf: l, first: said.first, columns: make([]vector, len(f.meta.Columns))}
	c, err := b.chunk(table, 1)
	if err != nil {
		return nil, err
	}
	if r.times, err = l.readTimes(c, said, base); err != nil {
		return nil, err
	}
	var known dictionary
	if b.dictionary != 0 {
		if known, err = f.dictionary(b.dictionary); err != nil {
			return nil, err
		}
	}
	for i, column := range f.meta.Columns {
		if !wanted[i] {
			continue
		}
		if c, err = b.chunk(table, 2+i); err != nil {
			return nil, err
		}
		reader := &nodeReader{cursor: c, column: known[i], inBlock: true, first: first, end: end}
		r.columns[i] = reader.read(column.Type, count, true)
		if err := c.end("column " + column.Name); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// chunk returns chunk i of a data block, of which it verifies place and checksum (section 10).
func (b *block) chunk(table []byte, i int) (*cursor, error) {
	entry := table[16*i:]
	offset, length := int64(binary.LittleEndian.Uint32(entry)), int64(binary.LittleEndian.Uint32(entry[4:]))
	if offset+length > int64(len(b.chunks.data)) {
		return nil, corruptAt(b.chunks.base, "chunk %d ends behind its block", i)
	}
	data := b.chunks.data[offset : offset+length]
	if !sumIs(data, binary.LittleEndian.Uint64(entry[8:])) {
		return nil, corruptAt(b.chunks.base+offset, "the checksum of chunk %d is wrong", i)
	}
	return &cursor{data: data, base: b.chunks.base + offset, mem: b.chunks.mem}, nil
}

// readTimes reads the timestamps of a data block.
func (l *leaf) readTimes(c *cursor, said *dataBlock, base int64) ([]int64, error) {
	steps := readPack(c, said.end-said.first, "timestamps")
	times := make([]int64, said.end-said.first)
	run := l.runOf(said.first)
	next := 0 // the row of the block with which a run begins
	for i := range times {
		before := base
		if i < next {
			before = times[i-1]
		} else {
			next = l.runEnds[run] - said.first
			run++
		}
		times[i] = before + steps.at(i)
		if times[i] < before {
			c.fail("the timestamp of row %d is before %d", i, before)
		}
	}
	return times, c.end("the timestamps")
}
