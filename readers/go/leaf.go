package esdb

import (
	"sort"
	"unicode/utf8"
)

// leaf is a leaf of the directory: the keys and data blocks of some rows (section 11).
type leaf struct {
	branch    *branch
	runEnds   []int // for each run, the row of the leaf behind it
	spaces    *texts
	groupings *texts
	blocks    []dataBlock
}

// dataBlock is what a leaf says of a data block.
type dataBlock struct {
	handle           handle
	first, end       int // rows of the leaf
	earliest, latest int64
}

func (l *leaf) bytes() int64 {
	return int64(len(l.spaces.data)+len(l.groupings.data)+16*len(l.runEnds)+64*len(l.blocks)) + 256
}

func (f *File) readLeaf(above *branch) (*leaf, error) {
	b, err := f.readBlock(above.handle, kindDirectory)
	if err != nil {
		return nil, err
	}
	c := &b.body
	blocks, err := c.u32("the number of data blocks")
	if err != nil {
		return nil, err
	}
	if blocks < 1 || blocks > maxLeafBlocks || int64(blocks) != above.blocks || b.count > maxRuns || int64(b.count) != above.runs {
		return nil, c.corrupt("a leaf has %d runs in %d blocks, above it are %d in %d", b.count, blocks, above.runs, above.blocks)
	}
	l := &leaf{branch: above}
	if err := l.readRuns(c, b.count, f.meta.BinaryKeys); err != nil {
		return nil, err
	}
	if err := l.readBlocks(c, int(blocks)); err != nil {
		return nil, err
	}
	return l, c.end("a leaf")
}

func (l *leaf) readRuns(c *cursor, count int, binary bool) error {
	rows, err := readSizes(c, count, 1, maxLeafBlocks*maxBlockRows, "rows of runs")
	if err != nil {
		return err
	}
	if l.spaces, err = readTexts(c, count); err != nil {
		return err
	}
	if l.groupings, err = readTexts(c, count); err != nil {
		return err
	}
	for i := 1; i < count; i++ {
		rows[i] += rows[i-1]
		before, space := l.spaces.at(i-1), l.spaces.at(i)
		if before > space || before == space && l.groupings.at(i-1) >= l.groupings.at(i) {
			return c.corrupt("the keys of runs %d and %d of a leaf do not ascend", i-1, i)
		}
	}
	l.runEnds = rows
	for i := range count {
		for _, key := range []string{l.spaces.at(i), l.groupings.at(i)} {
			if len(key) > maxKeyBytes || !binary && !utf8.ValidString(key) {
				return c.corrupt("a key of run %d has more than %d bytes, or is not UTF-8", i, maxKeyBytes)
			}
		}
	}
	if int64(rows[count-1]) != l.branch.rows || l.spaces.at(0) != l.branch.firstSpace {
		return c.corrupt("a leaf has %d rows from space %q on, above it are %d from %q on",
			rows[count-1], l.spaces.at(0), l.branch.rows, l.branch.firstSpace)
	}
	return nil
}

func (l *leaf) readBlocks(c *cursor, count int) error {
	rows, err := readSizes(c, count, 1, maxBlockRows, "rows of data blocks")
	if err != nil {
		return err
	}
	lengths, err := readSizes(c, count, frameBytes, maxBlockBytes, "lengths of data blocks")
	if err != nil {
		return err
	}
	checks, err := readSizes(c, count, 0, 1<<32-1, "checks of data blocks")
	if err != nil {
		return err
	}
	earliest, err := readPack(c, count, "times of data blocks")
	if err != nil {
		return err
	}
	spans, err := readPack(c, count, "spans of time of data blocks")
	if err != nil {
		return err
	}
	l.blocks = make([]dataBlock, count)
	at, row := l.branch.dataAt, 0
	for i := range l.blocks {
		from := earliest.at(i)
		l.blocks[i] = dataBlock{handle{at, int64(lengths[i]), uint32(checks[i])}, row, row + rows[i], from, from + spans.at(i)}
		if l.blocks[i].latest < from {
			return c.corrupt("data block %d of a leaf ends before it begins", i)
		}
		at, row = at+int64(lengths[i]), row+rows[i]
	}
	if int64(row) != l.branch.rows {
		return c.corrupt("the data blocks of a leaf have %d rows, its runs %d", row, l.branch.rows)
	}
	return nil
}

// runOf returns the run of a row of the leaf.
func (l *leaf) runOf(row int) int { return sort.SearchInts(l.runEnds, row+1) }

// runStart returns the first row of a run.
func (l *leaf) runStart(run int) int {
	if run == 0 {
		return 0
	}
	return l.runEnds[run-1]
}

// blockOf returns the data block of a row of the leaf.
func (l *leaf) blockOf(row int) int {
	return sort.Search(len(l.blocks), func(i int) bool { return l.blocks[i].end > row })
}

// runsOf returns the first run of a space, and the run behind its last.
func (l *leaf) runsOf(space string) (first, end int) {
	n := l.spaces.len()
	first = sort.Search(n, func(i int) bool { return l.spaces.at(i) >= space })
	end = sort.Search(n, func(i int) bool { return l.spaces.at(i) > space })
	return first, end
}
