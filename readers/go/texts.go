package esdb

import "math"

var binaryType = &Type{Name: "binary", Class: Binary, Size: -1}

// texts are keys or parts of templates, one after another.
type texts struct {
	data string
	ends []uint32
}

func (t *texts) len() int { return len(t.ends) }

func (t *texts) at(i int) string {
	start := uint32(0)
	if i > 0 {
		start = t.ends[i-1]
	}
	return t.data[start:t.ends[i]]
}

// readTexts reads a node of text (section 9), in which flag 2 may not be.
func readTexts(c *cursor, count int) (*texts, error) {
	r := &nodeReader{cursor: c, first: 0, end: count}
	start := *c
	h, err := r.head()
	if err != nil {
		return nil, err
	}
	if h.flags != 0 || h.shape != shapeBytes && h.shape != shapeFront {
		return nil, start.corrupt("a node of text with shape %d and flags %d", h.shape, h.flags)
	}
	var shared pack
	if h.shape == shapeFront {
		if shared, err = readPack(c, count, "shared bytes"); err != nil {
			return nil, err
		}
		start = *c
		if h, err = r.head(); err != nil {
			return nil, err
		}
		if h.flags != 0 || h.shape != shapeBytes {
			return nil, start.corrupt("the ends of texts with shape %d and flags %d", h.shape, h.flags)
		}
	}
	v, err := r.bytes(binaryType, h, count, validity{}, true)
	if err != nil {
		return nil, err
	}
	return joinTexts(c, v, shared, count)
}

// joinTexts puts the beginning that each text shares with the one before it in front of its end.
func joinTexts(c *cursor, v *byteVector, shared pack, count int) (*texts, error) {
	total, last := int64(0), int64(0)
	for i := range count {
		share := int64(0)
		if shared.count > 0 {
			share = shared.at(i)
		}
		if share < 0 || share > last {
			return nil, c.corrupt("a text shares %d bytes with one of %d", share, last)
		}
		last = share + int64(len(v.bytes(i)))
		if total += last; total > math.MaxUint32 {
			return nil, &Error{Kind: TooLarge, Offset: c.offset(), What: "texts of more than 4 GiB in one node"}
		}
	}
	if err := c.mem.take(2*total+4*int64(count), c.offset()); err != nil {
		return nil, err
	}
	data, ends := make([]byte, 0, total), make([]uint32, count)
	start := 0
	for i := range count {
		share := 0
		if shared.count > 0 {
			share = int(shared.at(i))
		}
		begin := len(data)
		data = append(data, data[start:start+share]...)
		data = append(data, v.bytes(i)...)
		ends[i] = uint32(len(data))
		start = begin
	}
	return &texts{string(data), ends}, nil
}
