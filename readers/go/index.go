package esdb

import (
	"cmp"
	"iter"
	"slices"
	"sort"
	"strings"
)

const (
	formRows    = 0 // the list has rows
	formBlocks  = 1 // the list has data blocks
	formChunked = 2 // added: the list is a table of chunks
	maxForm     = 3
	maxNumbers  = 4096 // of a list
	maxChunks   = 131072
)

// Lookup returns the events that have a value in an indexed column, in the order of the file. The value is a string,
// a bool or an integer of any Go type, as the column is.
func (f *File) Lookup(index string, value any, options ...Option) iter.Seq2[Event, error] {
	return f.sequence(append(slices.Clone(options), Where(index, value)), func(q *query, yield func(Event, error) bool) error {
		wanted := q.where[len(q.where)-1]
		if !f.meta.Columns[wanted.column].Indexed {
			return misused("column %q has no index", index)
		}
		p, err := f.findPostings(wanted.column, wanted.value)
		if err != nil || p == nil {
			return err
		}
		return p.visit(f, q, yield)
	})
}

// indexValue converts a value to the Go type that values of the type have.
func (t *Type) indexValue(value any) (any, error) {
	switch value := value.(type) {
	case string:
		if t.Class == String {
			return value, nil
		}
	case bool:
		if t.Class == Bool {
			return value, nil
		}
	case int:
		return t.indexValue(int64(value))
	case int64:
		if t.Class == Int {
			return value, nil
		}
		if t.Class == Uint && value >= 0 {
			return uint64(value), nil
		}
	case uint64:
		if t.Class == Uint {
			return value, nil
		}
	}
	return nil, misused("values of type %s cannot be compared with %v (%T)", t.Name, value, value)
}

// compareValues compares two values of one type that can have an index.
func compareValues(a, b any) int {
	switch a := a.(type) {
	case string:
		return strings.Compare(a, b.(string))
	case int64:
		return cmp.Compare(a, b.(int64))
	case uint64:
		return cmp.Compare(a, b.(uint64))
	case bool:
		if a == b.(bool) {
			return 0
		} else if a {
			return 1
		}
		return -1
	}
	return 0
}

// postings is the list of a value: rows or data blocks.
type postings struct {
	blocks  bool     // the numbers are of data blocks
	numbers []int64  // the list, if it has no chunks
	chunks  []handle // of POSTINGS blocks
	firsts  []int64  // of each chunk, its first number
}

// readValues reads a node of count values of an index.
func readValues(c *cursor, t *Type, count int) (vector, error) {
	r := &nodeReader{cursor: c, end: count}
	v, err := r.read(t, count, true)
	if err != nil {
		return nil, err
	}
	for i := range count {
		if v.value(i) == nil {
			return nil, c.corrupt("a value of an index is null")
		}
	}
	return v, nil
}

// findPostings finds a value in the index of a column; if it is not there, it returns nil.
func (f *File) findPostings(column int, value any) (*postings, error) {
	h, _ := f.footer.find(kindIndexRoot, 0, column)
	b, err := f.readBlock(h, kindIndexRoot)
	if err != nil {
		return nil, err
	}
	c, t := &b.body, f.meta.Columns[column].Type
	if int64(b.count) > f.size/frameBytes {
		return nil, c.corrupt("%d pages of an index in a file of %d bytes", b.count, f.size)
	}
	firsts, err := readValues(c, t, b.count)
	if err != nil {
		return nil, err
	}
	counts, err := readPack(c, b.count, "values of pages")
	if err != nil {
		return nil, err
	}
	pages, err := readHandles(c, b.count, "pages")
	if err != nil {
		return nil, err
	}
	if err := c.end("the root of an index"); err != nil {
		return nil, err
	}
	page := sort.Search(b.count, func(i int) bool { return compareValues(firsts.value(i), value) > 0 }) - 1
	if page < 0 {
		return nil, nil
	}
	return f.findInPage(pages[page], t, counts.at(page), value)
}

// readHandles reads packs of offsets, lengths and checks.
func readHandles(c *cursor, count int, of string) ([]handle, error) {
	var packs [3]pack
	for i, what := range []string{"offsets of ", "lengths of ", "checks of "} {
		var err error
		if packs[i], err = readPack(c, count, what+of); err != nil {
			return nil, err
		}
	}
	if err := c.mem.take(24*int64(count), c.offset()); err != nil {
		return nil, err
	}
	handles := make([]handle, count)
	for i := range handles {
		check := packs[2].at(i)
		if check < 0 || check > 1<<32-1 {
			return nil, c.corrupt("a check of %s is %d", of, check)
		}
		handles[i] = handle{packs[0].at(i), packs[1].at(i), uint32(check)}
	}
	return handles, nil
}

func (f *File) findInPage(h handle, t *Type, count int64, value any) (*postings, error) {
	b, err := f.readBlock(h, kindIndex)
	if err != nil {
		return nil, err
	}
	c := &b.body
	if b.count < 1 || b.count > maxValues || int64(b.count) != count {
		return nil, c.corrupt("a page of an index has %d values, the root says %d", b.count, count)
	}
	values, err := readValues(c, t, b.count)
	if err != nil {
		return nil, err
	}
	if _, err := readPack(c, b.count, "events of values"); err != nil {
		return nil, err
	}
	forms, err := readSizes(c, b.count, 0, maxForm, "forms of posting lists")
	if err != nil {
		return nil, err
	}
	lengths, err := readSizes(c, b.count, 0, maxBlockBytes, "lengths of posting lists")
	if err != nil {
		return nil, err
	}
	place := sort.Search(b.count, func(i int) bool { return compareValues(values.value(i), value) >= 0 })
	if place == b.count || values.value(place) != value {
		return nil, nil
	}
	for _, length := range lengths[:place] {
		if _, err := c.take(int64(length), "a posting list"); err != nil {
			return nil, err
		}
	}
	at := c.offset()
	list, err := c.take(int64(lengths[place]), "a posting list")
	if err != nil {
		return nil, err
	}
	return f.readPostings(&cursor{data: list, base: at, mem: c.mem}, forms[place])
}

// readPostings reads a posting list, or the table of its chunks.
func (f *File) readPostings(c *cursor, form int) (*postings, error) {
	p := &postings{blocks: form&formBlocks != 0}
	if form&formChunked == 0 {
		var err error
		if p.numbers, err = readList(c); err != nil {
			return nil, err
		}
		return p, c.end("a posting list")
	}
	count, err := c.u32("chunks of a posting list")
	if err != nil {
		return nil, err
	}
	if count < 1 || count > maxChunks {
		return nil, c.corrupt("a posting list in %d chunks", count)
	}
	firsts, err := readPack(c, int(count), "first numbers of chunks")
	if err != nil {
		return nil, err
	}
	for i := range int(count) {
		p.firsts = append(p.firsts, firsts.at(i))
	}
	if p.chunks, err = readHandles(c, int(count), "chunks"); err != nil {
		return nil, err
	}
	return p, c.end("a table of chunks")
}

// readList reads a list of ascending numbers.
func readList(c *cursor) ([]int64, error) {
	count, err := c.u32("numbers of a posting list")
	if err != nil {
		return nil, err
	}
	first, err := c.u64("the first number of a posting list")
	if err != nil {
		return nil, err
	}
	if count < 1 || count > maxNumbers || first > maxEvents {
		return nil, c.corrupt("a posting list has %d numbers from %d on", count, first)
	}
	steps, err := readPack(c, int(count-1), "differences")
	if err != nil {
		return nil, err
	}
	numbers := make([]int64, count)
	numbers[0] = int64(first)
	for i := range steps.count {
		step := steps.at(i)
		if step < 1 || step > maxEvents-numbers[i] {
			return nil, c.corrupt("a posting list goes on %d after %d", step, numbers[i])
		}
		numbers[i+1] = numbers[i] + step
	}
	return numbers, nil
}

// chunk reads chunk i of a list.
func (p *postings) chunk(f *File, i int) ([]int64, error) {
	if p.chunks == nil {
		return p.numbers, nil
	}
	b, err := f.readBlock(p.chunks[i], kindPostings)
	if err != nil {
		return nil, err
	}
	numbers, err := readList(&b.body)
	if err != nil {
		return nil, err
	}
	if len(numbers) != b.count || numbers[0] != p.firsts[i] {
		return nil, b.body.corrupt("%d numbers from %d on in a chunk that begins with %d", len(numbers), numbers[0], p.firsts[i])
	}
	if i+1 < len(p.firsts) && numbers[len(numbers)-1] >= p.firsts[i+1] {
		return nil, b.body.corrupt("the chunks of a posting list overlap")
	}
	return numbers, b.body.end("a posting list")
}
