package esdb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// The codecs of section 7.
const (
	codecNone = 0
	codecZstd = 1
	codecLZ4  = 2
)

const (
	zstdMaxWindow  = 8 << 20
	zstdMostGrowth = 32768 // 128 KiB from a block of four bytes
	lz4MostGrowth  = 255
	maxFrameBytes  = 1<<31 - 1
	dictionaryID   = 0x65736462 // given to every dictionary here; frames do not contain an id
)

func zstdOptions(more ...zstd.DOption) []zstd.DOption {
	// The window is checked here; the library would count a single segment as a window.
	return append(more, zstd.WithDecoderMaxWindow(1<<32), zstd.WithDecoderMaxMemory(1<<31),
		zstd.WithDecoderConcurrency(0))
}

// plainZstd decompresses frames that need no dictionary.
var plainZstd = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstdOptions()...)
})

// zstdWith returns a decoder of frames that need a dictionary.
func zstdWith(dictionary []byte) (*zstd.Decoder, error) {
	if len(dictionary) >= 8 {
		dictionary = append([]byte(nil), dictionary...)
		binary.LittleEndian.PutUint32(dictionary[4:], dictionaryID)
	}
	return zstd.NewReader(nil, zstdOptions(zstd.WithDecoderDicts(dictionary))...)
}

// frame takes a frame of so many stored bytes and returns its contents, which have to have the given size. Without a
// dictionary, with is nil.
func (c *cursor) frame(codec byte, stored, size int64, with *zstd.Decoder) []byte {
	start, frame := c.pos, c.take(stored, "a frame")
	growth := int64(1)
	switch codec {
	case codecNone:
	case codecZstd:
		growth = zstdMostGrowth
	case codecLZ4:
		growth = lz4MostGrowth
	default:
		c.failAt(start, "unknown codec %d", codec)
	}
	if (size == 0) != (stored == 0) || size > maxFrameBytes || size > growth*stored || codec == codecNone && size != stored {
		c.failAt(start, "a frame of %d bytes with codec %d cannot have contents of %d bytes", stored, codec, size)
	}
	if c.err != nil || size == 0 {
		return nil
	}
	if codec == codecNone {
		return frame
	}
	if !c.use(size) {
		return nil
	}
	out := make([]byte, size)
	if codec == codecLZ4 && !lz4Block(frame, out) {
		c.failAt(start, "an LZ4 block does not have contents of %d bytes", size)
	}
	if codec == codecZstd {
		if err := unzstd(frame, out, with); err != nil {
			c.failAt(start, "a zstd frame with contents of %d bytes: %v", size, err)
		}
	}
	return out
}

// unzstd decompresses a zstd frame into out, which it has to fill.
func unzstd(frame, out []byte, with *zstd.Decoder) error {
	var header zstd.Header
	if err := header.Decode(frame); err != nil {
		return err
	}
	switch {
	case header.Skippable || !header.HasFCS || header.FrameContentSize != uint64(len(out)):
		return errors.New("its header does not say that size")
	case header.DictionaryID != 0 || header.HasCheckSum:
		return errors.New("it has a dictionary id or a checksum")
	case !header.SingleSegment && header.WindowSize > zstdMaxWindow:
		return fmt.Errorf("its window of %d bytes is too large", header.WindowSize)
	}
	decoder, err := plainZstd()
	if with != nil {
		decoder, frame = with, withDictionaryID(frame)
	}
	if err != nil {
		return err
	}
	filled, err := decoder.DecodeAll(frame, out[:0])
	if err == nil && len(filled) != len(out) {
		err = fmt.Errorf("there are %d", len(filled))
	}
	return err
}

// withDictionaryID returns a copy of a frame whose header has the id by which the library finds the dictionary.
func withDictionaryID(frame []byte) []byte {
	at := 5 // behind magic and descriptor
	if frame[4]&0x20 == 0 {
		at++ // the window
	}
	copied := make([]byte, 0, len(frame)+4)
	copied = append(copied, frame[:at]...)
	copied[4] |= 3 // an id of four bytes
	copied = binary.LittleEndian.AppendUint32(copied, dictionaryID)
	return append(copied, frame[at:]...)
}
