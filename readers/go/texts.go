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

// readTexts reads a node of text (section 9). After an error it returns nil.
func readTexts(c *cursor, count int) *texts {
	r := &nodeReader{cursor: c, end: count}
	var shared pack
	at, h := c.pos, r.head()
	if h.shape == shapeFront && h.flags == 0 {
		shared = readPack(c, count, "shared bytes")
		at, h = c.pos, r.head()
	}
	if h.flags != 0 || h.shape != shapeBytes {
		c.failAt(at, "a node of text with shape %d and flags %d", h.shape, h.flags)
	}
	if c.err != nil {
		return nil
	}
	ends := r.bytes(binaryType, h, count, validity{}, true)
	if c.err != nil {
		return nil
	}
	return joinTexts(c, shared, ends, count)
}

// joinTexts puts the bytes that each text shares with the one before it in front of the others.
func joinTexts(c *cursor, shared pack, v *byteVector, count int) *texts {
	total, last := int64(0), int64(0)
	for i := range count {
		share := shared.at(i)
		if share < 0 || share > last {
			c.fail("a text shares %d bytes with one of %d", share, last)
			return nil
		}
		last = share + int64(len(v.bytes(i)))
		total += last
	}
	if total > math.MaxUint32 {
		total = math.MaxInt64 / 4 // more than may be used
	}
	if !c.use(2*total + 4*int64(count)) {
		return nil
	}
	data, ends := make([]byte, 0, total), make([]uint32, count)
	start := 0
	for i := range count {
		begin := len(data)
		data = append(data, data[start:start+int(shared.at(i))]...)
		data = append(data, v.bytes(i)...)
		ends[i] = uint32(len(data))
		start = begin
	}
	return &texts{string(data), ends}
}
