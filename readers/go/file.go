package esdb

import (
	"io"
	"math"
	"os"
	"sync"
)

const tailBytes = 32 << 10 // read first, from the end

// File is an open .esdb file. Any number of goroutines may use it at the same time.
type File struct {
	path   string
	source io.ReaderAt
	size   int64
	closer io.Closer
	limits Limits

	meta   *Metadata
	footer footer
	root   *root
	filter *filter
	tail   []byte // the end of the file, while it is being opened
	tailAt int64

	lock         sync.Mutex // of what is kept for later:
	dictionaries map[int]dictionary
	kept         keptNodes
}

// Limits bound what a file may make a reader do.
type Limits struct {
	// Memory is the number of bytes that decoding one block may take. More is an Error of kind TooLarge.
	Memory int64
}

// Setting changes how a file is opened.
type Setting func(*File)

// WithLimits sets other limits than the usual ones, which allow every file that the format allows on a machine with
// enough memory: 4 GiB for a block.
func WithLimits(limits Limits) Setting { return func(f *File) { f.limits = limits } }

// Open opens the file at a path.
func Open(path string, settings ...Setting) (*File, error) {
	opened, err := os.Open(path)
	if err != nil {
		return nil, &Error{Kind: Unreadable, Path: path, Offset: -1, What: "the file cannot be opened", Err: err}
	}
	info, err := opened.Stat()
	if err != nil {
		opened.Close()
		return nil, &Error{Kind: Unreadable, Path: path, Offset: -1, What: "the file has no size", Err: err}
	}
	f := &File{path: path, closer: opened}
	if err := f.open(opened, info.Size(), settings); err != nil {
		opened.Close()
		return nil, f.named(err)
	}
	return f, nil
}

// NewReader opens a file that lies somewhere else, of which size bytes can be read. Close does not close the source.
func NewReader(source io.ReaderAt, size int64, settings ...Setting) (*File, error) {
	f := &File{}
	if err := f.open(source, size, settings); err != nil {
		return nil, err
	}
	return f, nil
}

// Close closes the file, if Open opened it. Events remain usable.
func (f *File) Close() error {
	if f.closer == nil {
		return nil
	}
	if err := f.closer.Close(); err != nil {
		return &Error{Kind: Unreadable, Path: f.path, Offset: -1, What: "the file cannot be closed", Err: err}
	}
	return nil
}

// Metadata returns what the file says about itself. It must not be changed.
func (f *File) Metadata() *Metadata { return f.meta }

func (f *File) open(source io.ReaderAt, size int64, settings []Setting) error {
	f.source, f.size, f.limits = source, size, Limits{Memory: 4 << 30}
	f.dictionaries = map[int]dictionary{}
	for _, setting := range settings {
		setting(f)
	}
	if size < headerBytes+trailerBytes {
		return corruptAt(0, "%d bytes are no .esdb file", size)
	}
	tail := make([]byte, min(size, tailBytes))
	if err := f.readAt(tail, size-int64(len(tail))); err != nil {
		return err
	}
	f.tail, f.tailAt = tail, size-int64(len(tail))
	defer func() { f.tail = nil }()
	ends, err := parseTrailer(tail[len(tail)-trailerBytes:], size)
	if err != nil {
		return err
	}
	b, err := f.readBlock(ends.footer, kindFooter)
	if err != nil {
		return err
	}
	if f.footer, err = parseFooter(b, ends.footer.offset, ends.opening); err != nil {
		return err
	}
	if err := f.openMetadata(ends); err != nil {
		return err
	}
	if err := f.openRoot(); err != nil {
		return err
	}
	f.filter = newFilter(f.footer)
	return nil
}

func (f *File) openMetadata(ends *trailer) error {
	h, _ := f.footer.find(kindMetadata, 0, 0)
	b, err := f.readBlock(h, kindMetadata)
	if err != nil {
		return err
	}
	if f.meta, err = parseMetadata(b.body.data); err != nil {
		return &Error{Kind: Corrupt, Offset: b.body.base, What: "the metadata breaks a rule", Err: err}
	}
	f.meta.Major, f.meta.Minor = ends.major, ends.minor
	for i, column := range f.meta.Columns {
		if _, has := f.footer.find(kindIndexRoot, 0, i); has != column.Indexed {
			return corruptAt(ends.footer.offset, "schema and footer do not agree whether column %q has an index", column.Name)
		}
	}
	return nil
}

func (f *File) openRoot() error {
	h, _ := f.footer.find(kindDirectoryRoot, 0, 0)
	b, err := f.readBlock(h, kindDirectoryRoot)
	if err != nil {
		return err
	}
	if f.root, err = f.parseRoot(b); err != nil {
		return err
	}
	var events, blocks int64
	for _, entry := range f.root.entries {
		events, blocks = events+entry.rows, blocks+entry.blocks
	}
	if s := f.meta.Statistics; s.Events != events || s.DataBlocks != blocks {
		return corruptAt(h.offset, "the directory has %d events in %d blocks, the metadata have %d in %d",
			events, blocks, s.Events, s.DataBlocks)
	}
	return nil
}

// Key is a space and a grouping.
type Key struct{ Space, Grouping string }

// KeyRange returns the first and the last key of the file; ok is false if it has no events.
func (f *File) KeyRange() (first, last Key, ok bool, err error) {
	if len(f.root.entries) == 0 {
		return Key{}, Key{}, false, nil
	}
	begin, err := f.leafOfRow(0)
	if err != nil {
		return Key{}, Key{}, false, f.named(err)
	}
	end, err := f.leafOfRow(f.meta.Statistics.Events - 1)
	if err != nil {
		return Key{}, Key{}, false, f.named(err)
	}
	n := len(end.runEnds) - 1
	return Key{begin.spaces.at(0), begin.groupings.at(0)}, Key{end.spaces.at(n), end.groupings.at(n)}, true, nil
}

const maxEvents = math.MaxInt64 >> 8
