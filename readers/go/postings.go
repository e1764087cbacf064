package esdb

import "slices"

// visit yields the wanted events of a posting list, chunk by chunk.
func (p *postings) visit(f *File, q *query, yield func(Event, error) bool) error {
	chunks := max(len(p.chunks), 1)
	for k := range chunks {
		i := k
		if q.reverse {
			i = chunks - 1 - k
		}
		numbers, err := p.chunk(f, i)
		if err != nil {
			return err
		}
		if goOn, err := p.visitChunk(f, q, slices.Clone(numbers), yield); err != nil || !goOn {
			return err
		}
	}
	return nil
}

// visitChunk yields the events of some numbers.
func (p *postings) visitChunk(f *File, q *query, numbers []int64, yield func(Event, error) bool) (bool, error) {
	most := f.meta.Statistics.Events
	if p.blocks {
		most = f.meta.Statistics.DataBlocks
	}
	if last := numbers[len(numbers)-1]; last >= most {
		return false, corruptAt(-1, "a posting list has number %d, but the file only %d", last, most)
	}
	if q.reverse {
		slices.Reverse(numbers)
	}
	for len(numbers) > 0 {
		l, number, n, err := p.together(f, numbers)
		if err != nil {
			return false, err
		}
		said := &l.blocks[number]
		places := make([]int, n) // rows of the block
		for i := range places {
			places[i] = int(numbers[i]-l.branch.firstRow) - said.first
		}
		numbers = numbers[n:]
		if !q.mayHave(said.earliest, said.latest) {
			continue
		}
		first, end := 0, said.end-said.first
		if !p.blocks {
			first, end = slices.Min(places), slices.Max(places)+1
		}
		r, err := f.readRows(l, number, first, end, q.wanted)
		if err != nil {
			return false, err
		}
		if p.blocks {
			if !r.yield(q, first, end, yield) {
				return false, nil
			}
			continue
		}
		for _, row := range places {
			if !r.yield(q, row, row+1, yield) {
				return false, nil
			}
		}
	}
	return true, nil
}

// together returns the data block of the first number, and how many of the numbers lie in it.
func (p *postings) together(f *File, numbers []int64) (l *leaf, block, n int, err error) {
	if p.blocks {
		if l, err = f.leafOfBlock(numbers[0]); err != nil {
			return nil, 0, 0, err
		}
		return l, int(numbers[0] - l.branch.firstBlock), 1, nil
	}
	if l, err = f.leafOfRow(numbers[0]); err != nil {
		return nil, 0, 0, err
	}
	block = l.blockOf(int(numbers[0] - l.branch.firstRow))
	first, end := l.branch.firstRow+int64(l.blocks[block].first), l.branch.firstRow+int64(l.blocks[block].end)
	for n < len(numbers) && numbers[n] >= first && numbers[n] < end {
		n++
	}
	return l, block, n, nil
}
