package esdb

import (
	"cmp"
	"iter"
	"math"
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
	firsts  []int    // of each chunk, its first number
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
		return nil, corruptAt(c.base, "%d pages of an index in a file of %d bytes", b.count, f.size)
	}
	firsts := readValues(c, t, b.count)
	counts := readPack(c, b.count, "values of pages")
	pages := readHandles(c, b.count, "pages")
	if err := c.end("the root of an index"); err != nil {
		return nil, err
	}
	page := sort.Search(b.count, func(i int) bool { return compareValues(firsts.value(i), value) > 0 }) - 1
	if page < 0 {
		return nil, nil
	}
	return f.findInPage(pages[page], t, counts.at(page), value)
}

// readHandles reads packs of offsets, lengths and checks. After an error it returns nil.
func readHandles(c *cursor, count int, of string) []handle {
	offsets := readSizes(c, count, 0, math.MaxInt64, "offsets of "+of)
	lengths := readSizes(c, count, 0, math.MaxInt64, "lengths of "+of)
	checks := readSizes(c, count, 0, 1<<32-1, "checks of "+of)
	if !c.use(24 * int64(count)) {
		return nil
	}
	handles := make([]handle, count)
	for i := range handles {
		handles[i] = handle{int64(offsets[i]), int64(lengths[i]), uint32(checks[i])}
	}
	return handles
}

func (f *File) findInPage(h handle, t *Type, count int64, value any) (*postings, error) {
	b, err := f.readBlock(h, kindIndex)
	if err != nil {
		return nil, err
	}
	c := &b.body
	if b.count < 1 || b.count > maxValues || int64(b.count) != count {
		return nil, corruptAt(c.base, "a page of an index has %d values, the root says %d", b.count, count)
	}
	values := readValues(c, t, b.count)
	readPack(c, b.count, "events of values")
	forms := readSizes(c, b.count, 0, maxForm, "forms of posting lists")
	lengths := readSizes(c, b.count, 0, maxBlockBytes, "lengths of posting lists")
	if c.err != nil {
		return nil, c.err
	}
	place := sort.Search(b.count, func(i int) bool { return compareValues(values.value(i), value) >= 0 })
	if place == b.count || values.value(place) != value {
		return nil, nil
	}
	for _, length := range lengths[:place] {
		c.take(int64(length), "a posting list")
	}
	list := &cursor{base: c.offset(), data: c.take(int64(lengths[place]), "a posting list"), mem: c.mem, err: c.err}
	p := &postings{blocks: forms[place]&formBlocks != 0}
	if forms[place]&formChunked == 0 {
		p.numbers = readList(list)
	} else {
		p.readChunks(list)
	}
	return p, list.end("a posting list")
}

// readChunks reads the table of the chunks of a list.
func (p *postings) readChunks(c *cursor) {
	count := int(c.word(4, "chunks of a posting list"))
	if count < 1 || count > maxChunks {
		c.fail("a posting list in %d chunks", count)
		return
	}
	p.firsts = readSizes(c, count, 0, maxEvents, "first numbers of chunks")
	p.chunks = readHandles(c, count, "chunks")
}

// readList reads a list of ascending numbers.
func readList(c *cursor) []int64 {
	count, first := int(c.word(4, "numbers of a posting list")), int64(c.word(8, "the first number of a posting list"))
	if count < 1 || count > maxNumbers || first < 0 || first > maxEvents {
		c.fail("a posting list has %d numbers from %d on", count, first)
		return nil
	}
	steps := readPack(c, count-1, "differences")
	numbers := []int64{first}
	for i := 0; i < count-1 && c.err == nil; i++ {
		step := steps.at(i)
		if step < 1 || step > maxEvents-numbers[i] {
			c.fail("a posting list goes on %d after %d", step, numbers[i])
		}
		numbers = append(numbers, numbers[i]+step)
	}
	return numbers
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
	numbers := readList(&b.body)
	if err := b.body.end("a posting list"); err != nil {
		return nil, err
	}
	last := numbers[len(numbers)-1]
	if len(numbers) != b.count || numbers[0] != int64(p.firsts[i]) || i+1 < len(p.firsts) && last >= int64(p.firsts[i+1]) {
		return nil, corruptAt(b.body.base, "a chunk has %d numbers from %d to %d, which is not what is said of it", len(numbers), numbers[0], last)
	}
	return numbers, nil
}
