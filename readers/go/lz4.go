package esdb

import "encoding/binary"

// lz4Block decompresses one LZ4 block into out, and says whether that fills it exactly.
//
// A block is a sequence of literals and matches: a token with two lengths of four bits, more bytes of the first
// length, literals, the distance of the match, more bytes of the second length. It ends after literals.
func lz4Block(in, out []byte) bool {
	done := 0
	for len(in) > 0 {
		token := in[0]
		in = in[1:]
		literals, ok := lz4Length(int(token>>4), &in)
		if !ok || literals > len(in) || literals > len(out)-done {
			return false
		}
		copy(out[done:], in[:literals])
		in, done = in[literals:], done+literals
		if len(in) == 0 {
			return done == len(out)
		}
		if len(in) < 2 {
			return false
		}
		distance := int(binary.LittleEndian.Uint16(in))
		in = in[2:]
		match, ok := lz4Length(int(token&15), &in)
		match += 4
		if !ok || distance == 0 || distance > done || match > len(out)-done {
			return false
		}
		for match > 0 { // a match may overlap what it makes: each turn doubles what there is
			copied := copy(out[done:done+match], out[done-distance:done])
			done, match, distance = done+copied, match-copied, distance+copied
		}
	}
	return false
}

// lz4Length reads the bytes that continue a length of 15.
func lz4Length(length int, in *[]byte) (int, bool) {
	if length < 15 {
		return length, true
	}
	for i, b := range *in {
		length += int(b)
		if b != 255 {
			*in = (*in)[i+1:]
			return length, true
		}
	}
	return 0, false
}
