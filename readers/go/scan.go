package esdb

import "iter"

// Scan returns all events in the order of the file: by space, grouping and time.
//
// If something is wrong, the last pair has the error, and an event that must not be used. This is so for each
// sequence that this package returns.
func (f *File) Scan(options ...Option) iter.Seq2[Event, error] {
	return f.sequence(options, func(q *query, yield func(Event, error) bool) error {
		return f.walk(q.reverse, everything, f.visitor(q, yield, func(l *leaf) (int, int) {
			return 0, int(l.branch.rows)
		}))
	})
}

// sequence makes a sequence of a query; run calls yield until that returns false.
func (f *File) sequence(options []Option, run func(q *query, yield func(Event, error) bool) error) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		q, err := f.newQuery(options)
		if err == nil {
			err = run(q, yield)
		}
		if err != nil {
			yield(Event{}, f.named(err))
		}
	}
}

// visitor returns a function that yields the wanted events of each leaf that it visits, among the rows that choose
// returns. An error goes to yield at once.
func (f *File) visitor(q *query, yield func(Event, error) bool, choose func(*leaf) (int, int)) func(*branch) bool {
	return func(b *branch) bool {
		if !q.mayHave(b.earliest, b.latest) {
			return true
		}
		l, err := f.leaf(b)
		if err != nil {
			yield(Event{}, f.named(err))
			return false
		}
		first, end := choose(l)
		goOn, err := f.yieldRows(q, l, first, end, yield)
		if err != nil {
			yield(Event{}, f.named(err))
		}
		return goOn && err == nil
	}
}

// yieldRows yields the wanted events among some rows of a leaf.
func (f *File) yieldRows(q *query, l *leaf, first, end int, yield func(Event, error) bool) (bool, error) {
	if first >= end {
		return true, nil
	}
	from, to := l.blockOf(first), l.blockOf(end-1)
	for k := range to - from + 1 {
		number := from + k
		if q.reverse {
			number = to - k
		}
		said := &l.blocks[number]
		if !q.mayHave(said.earliest, said.latest) {
			continue
		}
		low, high := max(first-said.first, 0), min(end, said.end)-said.first
		r, err := f.readRows(l, number, low, high, q.wanted)
		if err != nil {
			return false, err
		}
		if !r.yield(q, low, high, yield) {
			return false, nil
		}
	}
	return true, nil
}

// yield yields the wanted events among some rows of the block.
func (r *rows) yield(q *query, first, end int, yield func(Event, error) bool) bool {
	row, step := first, 1
	if q.reverse {
		row, step = end-1, -1
	}
	run := r.leaf.runOf(r.first + row)
	for ; row >= first && row < end; row += step {
		for r.first+row >= r.leaf.runEnds[run] {
			run++
		}
		for r.first+row < r.leaf.runStart(run) {
			run--
		}
		if q.grouping != nil && r.leaf.groupings.at(run) != *q.grouping {
			continue
		}
		if q.wants(r, row) && !yield(r.event(q.file, run, row), nil) {
			return false
		}
	}
	return true
}

func (r *rows) event(f *File, run, row int) Event {
	return Event{r.leaf.spaces.at(run), r.leaf.groupings.at(run), r.times[row], f, r.columns, row}
}
