package esdb

import (
	"encoding/binary"
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

// decompress returns the contents of a frame that has to have the given size. Without a dictionary, with is nil.
func decompress(codec byte, frame []byte, size, offset int64, with *zstd.Decoder, mem *allowance) ([]byte, error) {
	if size == 0 && len(frame) == 0 && codec <= codecLZ4 {
		return nil, nil
	}
	if size == 0 || size > maxFrameBytes {
		return nil, corruptAt(offset, "a frame of %d bytes has contents of %d bytes", len(frame), size)
	}
	switch codec {
	case codecNone:
		if int64(len(frame)) != size {
			return nil, corruptAt(offset, "a frame without codec has %d bytes instead of %d", len(frame), size)
		}
		return frame, nil
	case codecZstd, codecLZ4:
	default:
		return nil, corruptAt(offset, "unknown codec %d", codec)
	}
	growth := int64(zstdMostGrowth)
	if codec == codecLZ4 {
		growth = lz4MostGrowth
	}
	if size > growth*int64(len(frame)) {
		return nil, corruptAt(offset, "a frame of %d bytes cannot have contents of %d bytes", len(frame), size)
	}
	if err := mem.take(size, offset); err != nil {
		return nil, err
	}
	if codec == codecLZ4 {
		out := make([]byte, size)
		if !lz4Block(frame, out) {
			return nil, corruptAt(offset, "an LZ4 block does not have contents of %d bytes", size)
		}
		return out, nil
	}
	return unzstd(frame, size, offset, with)
}

func unzstd(frame []byte, size, offset int64, with *zstd.Decoder) ([]byte, error) {
	var header zstd.Header
	if err := header.Decode(frame); err != nil || header.Skippable {
		return nil, &Error{Kind: Corrupt, Offset: offset, What: "no zstd frame", Err: err}
	}
	switch {
	case !header.HasFCS || header.FrameContentSize != uint64(size):
		return nil, corruptAt(offset, "a zstd frame does not have contents of %d bytes", size)
	case header.DictionaryID != 0 || header.HasCheckSum:
		return nil, corruptAt(offset, "a zstd frame with a dictionary id or a checksum")
	case !header.SingleSegment && header.WindowSize > zstdMaxWindow:
		return nil, corruptAt(offset, "a zstd frame has a window of %d bytes", header.WindowSize)
	}
	decoder := with
	if with != nil {
		frame = withDictionaryID(frame)
	} else {
		var err error
		if decoder, err = plainZstd(); err != nil {
			return nil, &Error{Kind: Unreadable, Offset: offset, What: "zstd cannot start", Err: err}
		}
	}
	out, err := decoder.DecodeAll(frame, make([]byte, 0, size))
	if err != nil || int64(len(out)) != size {
		return nil, &Error{Kind: Corrupt, Offset: offset, What: "a zstd frame cannot be decompressed", Err: err}
	}
	return out, nil
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
