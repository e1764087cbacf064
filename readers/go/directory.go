package esdb

import "sort"

const (
	maxLeafBlocks  = 256
	leavesPerPage  = 256
	maxRuns        = 131072
	maxBlockRows   = 65536
	maxKeyBytes    = 65536
	maxKeptBytes   = 64 << 20
	bytesPerBranch = 160
)

// branch is what the root or a page of the directory says of a leaf or page (section 11).
type branch struct {
	firstSpace         string
	runs, rows, blocks int64
	dataAt             int64 // where its first data block is
	handle             handle
	earliest, latest   int64
	firstRow           int64 // in the file
	firstBlock         int64 // among the data blocks of the file
}

// root is the top of the directory.
type root struct {
	leaves  int
	pages   bool // the entries are pages, not leaves
	entries []branch
}

// readBranches reads entries; before is the number of rows and data blocks of the file before them.
func (f *File) readBranches(c *cursor, count int, firstRow, firstBlock int64) ([]branch, error) {
	if int64(count) > f.size/frameBytes { // each is a block
		c.fail("%d leaves or pages in a file of %d bytes", count, f.size)
	}
	c.use(bytesPerBranch * int64(count))
	if c.err != nil {
		return nil, c.err
	}
	first := readTexts(c, count)
	var packs [9]pack
	for i, what := range []string{"runs", "rows", "data blocks", "offsets of data", "offsets", "lengths", "checks", "times", "spans of time"} {
		packs[i] = readPack(c, count, what+" of leaves or pages")
	}
	if err := c.end("the entries of a directory"); err != nil {
		return nil, err
	}
	all := make([]branch, count)
	for i := range all {
		n := func(k int) int64 { return packs[k].at(i) }
		b := branch{
			firstSpace: first.at(i), runs: n(0), rows: n(1), blocks: n(2), dataAt: n(3),
			handle:   handle{offset: n(4), length: n(5), check: uint32(n(6))},
			earliest: n(7), latest: n(7) + n(8), firstRow: firstRow, firstBlock: firstBlock,
		}
		all[i] = b
		switch {
		case b.blocks < 1 || b.rows < b.blocks || b.rows > maxEvents-firstRow || b.runs < 1 || b.runs > b.rows:
			c.fail("entry %d has %d rows, %d runs, %d blocks", i, b.rows, b.runs, b.blocks)
		case n(6) != int64(b.handle.check) || b.latest < b.earliest:
			c.fail("entry %d has check %d and times from %d to %d", i, n(6), b.earliest, b.latest)
		case i > 0 && all[i-1].firstSpace > b.firstSpace:
			c.fail("the first spaces of entries %d and %d descend", i-1, i)
		}
		if c.err != nil {
			return nil, c.err
		}
		firstRow, firstBlock = firstRow+b.rows, firstBlock+b.blocks
	}
	return all, nil
}

func (f *File) parseRoot(b *block) (*root, error) {
	c := &b.body
	r := &root{leaves: int(c.word(4, "the number of leaves"))}
	r.pages = b.count != r.leaves
	if r.pages && b.count != (r.leaves+leavesPerPage-1)/leavesPerPage {
		c.fail("%d leaves, but %d entries", r.leaves, b.count)
	}
	var err error
	r.entries, err = f.readBranches(c, b.count, 0, 0)
	return r, err
}

// readPage reads page number i of the directory.
func (f *File) readPage(i int) ([]branch, error) {
	above := &f.root.entries[i]
	b, err := f.readBlock(above.handle, kindDirectoryPage)
	if err != nil {
		return nil, err
	}
	if b.count != min(leavesPerPage, f.root.leaves-i*leavesPerPage) {
		b.body.fail("page %d of the directory has %d leaves", i, b.count)
	}
	entries, err := f.readBranches(&b.body, b.count, above.firstRow, above.firstBlock)
	if err != nil {
		return nil, err
	}
	var runs, rows, blocks int64
	for _, e := range entries {
		runs, rows, blocks = runs+e.runs, rows+e.rows, blocks+e.blocks
	}
	if runs != above.runs || rows != above.rows || blocks != above.blocks || entries[0].firstSpace != above.firstSpace {
		return nil, corruptAt(b.body.base, "page %d of the directory is not what the root says of it", i)
	}
	return entries, nil
}

// keptNodes are parts of the directory and the filter that are kept for later.
type keptNodes struct {
	leaves  map[int64]*leaf // by offset
	pages   map[int][]branch
	filters map[int][]byte
	bytes   int64
}

// page returns a page of the directory, kept or read.
func (f *File) page(i int) ([]branch, error) {
	f.lock.Lock()
	entries := f.kept.pages[i]
	f.lock.Unlock()
	if entries != nil {
		return entries, nil
	}
	entries, err := f.readPage(i)
	if err == nil {
		f.keep(bytesPerBranch*int64(len(entries)), func(k *keptNodes) { k.pages[i] = entries })
	}
	return entries, err
}

// leaf returns a leaf, kept or read.
func (f *File) leaf(b *branch) (*leaf, error) {
	f.lock.Lock()
	l := f.kept.leaves[b.handle.offset]
	f.lock.Unlock()
	if l != nil {
		return l, nil
	}
	l, err := f.readLeaf(b)
	if err == nil {
		f.keep(l.bytes(), func(k *keptNodes) { k.leaves[b.handle.offset] = l })
	}
	return l, err
}

// keep keeps something; if too much is kept, it forgets the rest.
func (f *File) keep(bytes int64, put func(*keptNodes)) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if k := &f.kept; k.leaves == nil || k.bytes+bytes > maxKeptBytes {
		*k = keptNodes{leaves: map[int64]*leaf{}, pages: map[int][]branch{}, filters: map[int][]byte{}}
	}
	f.kept.bytes += bytes
	put(&f.kept)
}

// walk visits leaves in order or in reverse: of the root, and of each page, those that choose returns as first and end.
func (f *File) walk(reverse bool, choose func([]branch) (int, int), visit func(*branch) bool) error {
	_, err := f.walkEntries(f.root.entries, f.root.pages, reverse, choose, visit)
	return err
}

func (f *File) walkEntries(entries []branch, pages, reverse bool, choose func([]branch) (int, int), visit func(*branch) bool) (bool, error) {
	first, end := choose(entries)
	for k := range end - first {
		i := first + k
		if reverse {
			i = end - 1 - k
		}
		if !pages {
			if !visit(&entries[i]) {
				return false, nil
			}
			continue
		}
		below, err := f.page(i)
		if err != nil {
			return false, err
		}
		if goOn, err := f.walkEntries(below, false, reverse, choose, visit); err != nil || !goOn {
			return false, err
		}
	}
	return true, nil
}

// everything chooses all entries.
func everything(entries []branch) (int, int) { return 0, len(entries) }

// mayHave chooses the entries in which a space can be.
func mayHave(space string) func([]branch) (int, int) {
	return func(entries []branch) (int, int) {
		first := sort.Search(len(entries), func(i int) bool { return entries[i].firstSpace >= space })
		end := sort.Search(len(entries), func(i int) bool { return entries[i].firstSpace > space })
		return max(first-1, 0), end
	}
}

// leafOfRow returns the leaf that has a row of the file.
func (f *File) leafOfRow(row int64) (*leaf, error) {
	return f.leafWhere(func(b *branch) bool { return b.firstRow > row })
}

// leafOfBlock returns the leaf that has a data block of the file.
func (f *File) leafOfBlock(block int64) (*leaf, error) {
	return f.leafWhere(func(b *branch) bool { return b.firstBlock > block })
}

// leafWhere returns the last leaf that is not behind the wanted place.
func (f *File) leafWhere(behind func(*branch) bool) (*leaf, error) {
	last := func(entries []branch) (int, int) {
		end := sort.Search(len(entries), func(i int) bool { return behind(&entries[i]) })
		return max(end-1, 0), end
	}
	var found *branch
	err := f.walk(false, last, func(b *branch) bool { found = b; return false })
	if err != nil || found == nil {
		return nil, err
	}
	return f.leaf(found)
}
