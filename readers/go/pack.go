package esdb

import "encoding/binary"

const bitsForm = 255 // in place of the number of raw planes

// pack is a sequence of whole numbers (section 8). Numbers are computed when they are asked for, so that a pack of
// width 0 needs no memory, however many numbers it has.
type pack struct {
	count  int
	base   int64
	width  int // of each number: in bits if bits, else the number of planes
	bits   bool
	raw    []byte // the lowest planes, or the bits
	planes []byte // the planes above
}

// readPack reads a pack of count numbers.
func readPack(c *cursor, count int, what string) pack {
	start, head := c.pos, c.take(8, what)
	if c.err != nil {
		return pack{}
	}
	width, raw, baseLength, codec := int(head[0]), int(head[1]), head[2], head[3]
	stored := int64(binary.LittleEndian.Uint32(head[4:]))
	if count == 0 {
		if binary.LittleEndian.Uint64(head) != 0 {
			c.failAt(start, "%s: a pack of no numbers is not zero", what)
		}
		return pack{}
	}
	p := pack{count: count, width: width, bits: raw == bitsForm}
	if baseLength != 0 && baseLength != 8 {
		c.failAt(start, "%s: a base of %d bytes", what, baseLength)
	}
	p.base = int64(c.word(int(baseLength), what))
	if p.bits {
		if width < 1 || width > 64 || codec != codecNone || stored != (int64(width)*int64(count)+7)/8 {
			c.failAt(start, "%s: %d numbers of %d bits in %d bytes, codec %d", what, count, width, stored, codec)
		}
		p.raw = c.take(stored, what)
	} else {
		if width > 8 || raw > width || raw == width && (codec != codecNone || stored != 0) {
			c.failAt(start, "%s: width %d, %d raw planes, codec %d, %d bytes", what, width, raw, codec, stored)
		}
		p.raw = c.take(int64(raw)*int64(count), what)
		p.planes = c.frame(codec, stored, int64(width-raw)*int64(count), nil)
	}
	if c.err != nil {
		return pack{}
	}
	return p
}

// at returns number i.
func (p *pack) at(i int) int64 {
	if p.bits {
		return p.base + int64(p.bitsAt(i))
	}
	if p.width == 0 { // also the pack that is returned after an error
		return p.base
	}
	var number uint64
	low := len(p.raw) / p.count
	for k := range p.width {
		var plane byte
		if k < low {
			plane = p.raw[k*p.count+i]
		} else {
			plane = p.planes[(k-low)*p.count+i]
		}
		number |= uint64(plane) << (8 * k)
	}
	return p.base + int64(number)
}

func (p *pack) bitsAt(i int) uint64 {
	bit := i * p.width
	first, shift := bit>>3, bit&7
	var word [9]byte
	var number uint64
	if first+8 <= len(p.raw) {
		number = binary.LittleEndian.Uint64(p.raw[first:])
		if first+8 < len(p.raw) {
			word[8] = p.raw[first+8]
		}
	} else {
		copy(word[:], p.raw[first:])
		number = binary.LittleEndian.Uint64(word[:])
	}
	number >>= shift
	if shift+p.width > 64 {
		number |= uint64(word[8]) << (64 - shift)
	}
	if p.width < 64 {
		number &= 1<<p.width - 1
	}
	return number
}

// readSizes reads a pack of lengths or counts between least and most. After an error it returns nil.
func readSizes(c *cursor, count int, least, most int64, what string) []int {
	p := readPack(c, count, what)
	if !c.use(8 * int64(count)) {
		return nil
	}
	all := make([]int, count)
	for i := range all {
		number := p.at(i)
		if number < least || number > most {
			c.fail("%s: %d is not between %d and %d", what, number, least, most)
			return nil
		}
		all[i] = int(number)
	}
	return all
}
