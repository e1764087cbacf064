package esdb

import (
	"encoding/binary"

	"github.com/klauspost/compress/zstd"
)

const maxValues = 131072

// columnDictionary is what a dictionary block has for one column (section 14).
type columnDictionary struct {
	count     int    // of values
	values    vector // nil without values
	zstd      *zstd.Decoder
	templates *templateTable
}

// dictionary is a dictionary block: entries by the places of columns in the schema.
type dictionary map[int]*columnDictionary

// dictionary returns the dictionary block with a number; if it is damaged, its spare.
func (f *File) dictionary(number int) (dictionary, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if d, ok := f.dictionaries[number]; ok {
		return d, nil
	}
	h, ok := f.footer.find(kindDictionary, 0, number)
	if !ok {
		return nil, corruptAt(-1, "a data block needs dictionary %d, which the footer does not name", number)
	}
	d, err := f.readDictionary(h)
	if err != nil {
		spare, ok := f.footer.find(kindDictionary, 1, number)
		if !ok {
			return nil, err
		}
		var other error
		if d, other = f.readDictionary(spare); other != nil {
			return nil, err
		}
	}
	f.dictionaries[number] = d
	return d, nil
}

func (f *File) readDictionary(h handle) (dictionary, error) {
	b, err := f.readBlock(h, kindDictionary)
	if err != nil {
		return nil, err
	}
	c := &b.body
	d := dictionary{}
	for range b.count {
		at := *c
		head, err := c.take(12, "an entry of a dictionary")
		if err != nil {
			return nil, err
		}
		place := int(binary.LittleEndian.Uint16(head))
		if place >= len(f.meta.Columns) || d[place] != nil {
			return nil, at.corrupt("a dictionary for column %d, which is not in the schema or had one", place)
		}
		if d[place], err = readColumnDictionary(c, head, f.meta.Columns[place].Type); err != nil {
			return nil, err
		}
	}
	return d, c.end("a dictionary")
}

func readColumnDictionary(c *cursor, head []byte, t *Type) (*columnDictionary, error) {
	d := &columnDictionary{}
	templates := int(binary.LittleEndian.Uint16(head[2:]))
	zstdBytes, values := binary.LittleEndian.Uint32(head[4:]), binary.LittleEndian.Uint32(head[8:])
	if templates > maxTemplates || values > maxValues {
		return nil, c.corrupt("%d templates and %d values of one column", templates, values)
	}
	at := c.offset()
	raw, err := c.take(int64(zstdBytes), "a zstd dictionary")
	if err != nil {
		return nil, err
	}
	if len(raw) > 0 {
		if d.zstd, err = zstdWith(raw); err != nil {
			return nil, &Error{Kind: Corrupt, Offset: at, What: "this is no zstd dictionary", Err: err}
		}
	}
	if values > 0 {
		d.count = int(values)
		r := &nodeReader{cursor: c, end: d.count}
		if d.values, err = r.read(t, d.count, true); err != nil {
			return nil, err
		}
		for i := range d.count {
			if d.values.value(i) == nil {
				return nil, c.corrupt("value %d of a dictionary is null", i)
			}
		}
	}
	if templates > 0 {
		if t.shape() != shapeBytes {
			return nil, c.corrupt("templates for a column of type %s", t.Name)
		}
		d.templates, err = readTemplateTable(c, templates)
	}
	return d, err
}
