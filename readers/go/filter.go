package esdb

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

const (
	bucketBytes    = 32
	bucketsPerPage = 2048
)

var filterSalts = [8]uint32{
	0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d, 0x705495c7, 0x2df1424b, 0x9efc4947, 0x5c6bfb31,
}

// filter tells spaces that are not in the file from those that may be (section 13).
type filter struct {
	pages   []handle
	buckets uint64
}

// newFilter finds the pages of the filter; without pages, or if their sizes make no sense, it returns nil.
func newFilter(all footer) *filter {
	f := &filter{}
	for {
		h, ok := all.find(kindFilter, 0, len(f.pages))
		if !ok {
			break
		}
		f.pages = append(f.pages, h)
	}
	for i, page := range f.pages {
		buckets := (page.length - frameBytes) / bucketBytes
		if (page.length-frameBytes)%bucketBytes != 0 || buckets == 0 || i+1 < len(f.pages) && buckets != bucketsPerPage {
			return nil
		}
		f.buckets += uint64(buckets)
	}
	if len(f.pages) == 0 {
		return nil
	}
	return f
}

// excludes says whether the filter knows that a space is not in the file. A damaged filter knows nothing.
func (f *File) excludes(space string) bool {
	if f.filter == nil {
		return false
	}
	hash := xxh3.HashString(space)
	bucket := (hash >> 32) * f.filter.buckets >> 32
	page := f.filterPage(int(bucket / bucketsPerPage))
	if page == nil {
		return false
	}
	words := page[bucket%bucketsPerPage*bucketBytes:]
	for i, salt := range filterSalts {
		bit := uint32(hash) * salt >> 27
		if binary.LittleEndian.Uint32(words[4*i:])>>bit&1 == 0 {
			return true
		}
	}
	return false
}

// filterPage returns the buckets of a page of the filter, kept or read, and nil if it is damaged.
func (f *File) filterPage(number int) []byte {
	f.lock.Lock()
	page := f.kept.filters[number]
	f.lock.Unlock()
	if page != nil {
		return page
	}
	b, err := f.readBlock(f.filter.pages[number], kindFilter)
	if err != nil {
		return nil
	}
	f.keep(int64(len(b.body.data)), func(k *keptNodes) { k.filters[number] = b.body.data })
	return b.body.data
}
