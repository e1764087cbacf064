package esdb

import "encoding/binary"

const (
	trailerMagic = "\x1a\x0a\x0d\x42\x44\x53\x45\x89"
	majorVersion = 1
)

// trailer is the last 48 bytes of a file (section 4).
type trailer struct {
	opening      int64
	footer       handle
	major, minor int
}

func parseTrailer(b []byte, size int64) (*trailer, error) {
	at := size - trailerBytes
	if string(b[40:]) != trailerMagic {
		return nil, corruptAt(at+40, "the file does not end like an .esdb file: it was cut, or is something else")
	}
	if !sumIs(b[:32], binary.LittleEndian.Uint64(b[32:])) {
		return nil, corruptAt(at, "the checksum of the trailer is wrong")
	}
	t := &trailer{footer: parseHandle(b[8:])}
	t.major, t.minor = int(binary.LittleEndian.Uint16(b[24:])), int(binary.LittleEndian.Uint16(b[26:]))
	if t.major != majorVersion {
		e := corruptAt(at+24, "the file has version %d.%d of the format; this reader knows version %d", t.major, t.minor, majorVersion)
		e.Kind = TooNew
		return nil, e
	}
	if reserved := binary.LittleEndian.Uint32(b[28:]); reserved != 0 {
		return nil, corruptAt(at+28, "a reserved field of the trailer is %d", reserved)
	}
	opening := binary.LittleEndian.Uint64(b)
	if !t.footer.within(at) || t.footer.offset+t.footer.length != at {
		return nil, corruptAt(at+8, "the footer does not end where the trailer begins")
	}
	if opening < headerBytes || opening >= uint64(t.footer.offset) {
		return nil, corruptAt(at, "the opening offset is %d, outside the blocks", opening)
	}
	t.opening = int64(opening)
	return t, nil
}
