package esdb

import (
	"container/heap"
	"iter"
	"slices"
)

// History returns the events of one space, oldest first. Events of the same time are in the order of their groupings,
// and in the order of arrival within a grouping. It reads only the parts of the file that can have the space.
func (f *File) History(space string, options ...Option) iter.Seq2[Event, error] {
	return f.sequence(options, func(q *query, yield func(Event, error) bool) error {
		if f.excludes(space) {
			return nil
		}
		h := &history{query: q, cursors: map[string]*runCursor{}, blocks: map[int64]*sharedBlock{}}
		var failed error
		err := f.walk(false, mayHave(space), func(b *branch) bool {
			failed = h.add(b, space)
			return failed == nil
		})
		if failed != nil || err != nil {
			return firstError(failed, err)
		}
		return h.merge(yield)
	})
}

func firstError(errors ...error) error {
	for _, err := range errors {
		if err != nil {
			return err
		}
	}
	return nil
}

// history merges the runs of a space by time.
type history struct {
	query   *query
	cursors map[string]*runCursor // by grouping
	blocks  map[int64]*sharedBlock
}

// piece is rows of one run in one data block.
type piece struct {
	leaf       *branch
	block      int // of the leaf
	first, end int // rows of the block
	run        int // of the leaf
}

// runCursor is a place in a run.
type runCursor struct {
	order  int // of its grouping
	pieces []piece
	rows   *rows
	row    int // the wanted row at which it stands, of the first of the pieces, or of the last in reverse
	at     int64
}

// sharedBlock is a data block in which several runs of the space have rows.
type sharedBlock struct {
	first, end int // rows of the block that any of them needs
	users      int
	rows       *rows
}

// add notes where in a leaf the runs of the space are.
func (h *history) add(b *branch, space string) error {
	q := h.query
	if !q.mayHave(b.earliest, b.latest) {
		return nil
	}
	l, err := q.file.leaf(b)
	if err != nil {
		return err
	}
	first, end := l.runsOf(space)
	for run := first; run < end; run++ {
		grouping := l.groupings.at(run)
		if q.grouping != nil && grouping != *q.grouping {
			continue
		}
		c := h.cursors[grouping]
		if c == nil {
			c = &runCursor{order: len(h.cursors)}
			h.cursors[grouping] = c
		}
		low, high := l.runStart(run), l.runEnds[run]
		for number := l.blockOf(low); number < len(l.blocks) && l.blocks[number].first < high; number++ {
			said := &l.blocks[number]
			if !q.mayHave(said.earliest, said.latest) {
				continue
			}
			p := piece{b, number, max(low-said.first, 0), min(high, said.end) - said.first, run}
			c.pieces = append(c.pieces, p)
			shared := h.blocks[p.number()]
			if shared == nil {
				shared = &sharedBlock{first: p.first}
				h.blocks[p.number()] = shared
			}
			shared.end = p.end
			shared.users++
		}
	}
	return nil
}

// number returns the number of the block in the file.
func (p *piece) number() int64 { return p.leaf.firstBlock + int64(p.block) }

// merge yields the events of all runs in the order of their times.
func (h *history) merge(yield func(Event, error) bool) error {
	waiting := runHeap{reverse: h.query.reverse}
	for _, c := range h.cursors {
		if h.query.reverse {
			slices.Reverse(c.pieces)
		}
		if more, err := h.enter(c); err != nil {
			return err
		} else if more {
			waiting.cursors = append(waiting.cursors, c)
		}
	}
	heap.Init(&waiting)
	for len(waiting.cursors) > 0 {
		c := waiting.cursors[0]
		if !yield(c.rows.event(h.query.file, c.pieces[0].run, c.row), nil) {
			return nil
		}
		if more, err := h.advance(c); err != nil {
			return err
		} else if more {
			heap.Fix(&waiting, 0)
		} else {
			heap.Pop(&waiting)
		}
	}
	return nil
}

// enter goes to the first wanted row of the first piece that has one.
func (h *history) enter(c *runCursor) (bool, error) {
	if len(c.pieces) == 0 {
		return false, nil
	}
	p := &c.pieces[0]
	shared := h.blocks[p.number()]
	if shared.rows == nil {
		l, err := h.query.file.leaf(p.leaf)
		if err != nil {
			return false, err
		}
		shared.rows, err = h.query.file.readRows(l, p.block, shared.first, shared.end, h.query.wanted)
		if err != nil {
			return false, err
		}
	}
	c.rows, c.row = shared.rows, p.first-1
	if h.query.reverse {
		c.row = p.end
	}
	return h.advance(c)
}

// advance goes to the next wanted row.
func (h *history) advance(c *runCursor) (bool, error) {
	step := 1
	if h.query.reverse {
		step = -1
	}
	p := &c.pieces[0]
	for c.row += step; c.row >= p.first && c.row < p.end; c.row += step {
		if h.query.wants(c.rows, c.row) {
			c.at = c.rows.times[c.row]
			return true, nil
		}
	}
	if shared := h.blocks[p.number()]; shared.users == 1 {
		shared.rows = nil
	} else {
		shared.users--
	}
	c.pieces = c.pieces[1:]
	return h.enter(c)
}

// runHeap has the run with the next event on top.
type runHeap struct {
	cursors []*runCursor
	reverse bool
}

func (r *runHeap) Len() int      { return len(r.cursors) }
func (r *runHeap) Swap(i, j int) { r.cursors[i], r.cursors[j] = r.cursors[j], r.cursors[i] }
func (r *runHeap) Push(any)      {}
func (r *runHeap) Pop() any {
	last := len(r.cursors) - 1
	c := r.cursors[last]
	r.cursors = r.cursors[:last]
	return c
}

func (r *runHeap) Less(i, j int) bool {
	a, b := r.cursors[i], r.cursors[j]
	if r.reverse {
		a, b = b, a
	}
	if a.at != b.at {
		return a.at < b.at
	}
	return a.order < b.order
}
