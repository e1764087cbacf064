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
	blocks := int(c.word(4, "the number of data blocks"))
	if blocks < 1 || blocks > maxLeafBlocks || int64(blocks) != above.blocks || b.count > maxRuns || int64(b.count) != above.runs {
		return nil, corruptAt(c.base, "a leaf has %d runs in %d blocks, above it are %d in %d", b.count, blocks, above.runs, above.blocks)
	}
	l := &leaf{branch: above}
	l.readRuns(c, b.count, f.meta.BinaryKeys)
	l.readBlocks(c, blocks)
	return l, c.end("a leaf")
}

func (l *leaf) readRuns(c *cursor, count int, binary bool) {
	rows := readSizes(c, count, 1, maxLeafBlocks*maxBlockRows, "rows of runs")
	l.spaces, l.groupings, l.runEnds = readTexts(c, count), readTexts(c, count), rows
	for i := 0; i < count && c.err == nil; i++ {
		space, grouping := l.spaces.at(i), l.groupings.at(i)
		for _, key := range []string{space, grouping} {
			if len(key) > maxKeyBytes || !binary && !utf8.ValidString(key) {
				c.fail("a key of run %d has more than %d bytes, or is not UTF-8", i, maxKeyBytes)
			}
		}
		if i == 0 {
			continue
		}
		rows[i] += rows[i-1]
		if before := l.spaces.at(i - 1); before > space || before == space && l.groupings.at(i-1) >= grouping {
			c.fail("the keys of runs %d and %d of a leaf do not ascend", i-1, i)
		}
	}
	if c.err == nil && (int64(rows[count-1]) != l.branch.rows || l.spaces.at(0) != l.branch.firstSpace) {
		c.fail("a leaf has %d rows from space %q on, above it are %d from %q on",
			rows[count-1], l.spaces.at(0), l.branch.rows, l.branch.firstSpace)
	}
}

func (l *leaf) readBlocks(c *cursor, count int) {
	rows := readSizes(c, count, 1, maxBlockRows, "rows of data blocks")
	lengths := readSizes(c, count, frameBytes, maxBlockBytes, "lengths of data blocks")
	checks := readSizes(c, count, 0, 1<<32-1, "checks of data blocks")
	earliest := readPack(c, count, "times of data blocks")
	spans := readPack(c, count, "spans of time of data blocks")
	at, row := l.branch.dataAt, 0
	for i := 0; i < count && c.err == nil; i++ {
		from := earliest.at(i)
		b := dataBlock{handle{at, int64(lengths[i]), uint32(checks[i])}, row, row + rows[i], from, from + spans.at(i)}
		if b.latest < from {
			c.fail("data block %d of a leaf ends before it begins", i)
		}
		l.blocks = append(l.blocks, b)
		at, row = at+int64(lengths[i]), row+rows[i]
	}
	if int64(row) != l.branch.rows {
		c.fail("the data blocks of a leaf have %d rows, its runs %d", row, l.branch.rows)
	}
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
