package esdb

import "github.com/klauspost/compress/zstd"

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
	b, err := f.readBlock(h, kindDictionary)
	if err != nil {
		spare, ok := f.footer.find(kindDictionary, 1, number)
		if !ok {
			return nil, err
		}
		var failed error
		if b, failed = f.readBlock(spare, kindDictionary); failed != nil {
			return nil, err
		}
	}
	d, err := f.parseDictionary(b)
	if err == nil {
		f.dictionaries[number] = d
	}
	return d, err
}

func (f *File) parseDictionary(b *block) (dictionary, error) {
	c := &b.body
	d := dictionary{}
	for range b.count {
		at, place := c.pos, int(c.word(2, "an entry of a dictionary"))
		if place >= len(f.meta.Columns) || d[place] != nil {
			c.failAt(at, "a dictionary for column %d, which is not in the schema or had one", place)
		}
		if c.err != nil {
			break
		}
		d[place] = readColumnDictionary(c, f.meta.Columns[place].Type)
	}
	return d, c.end("a dictionary")
}

func readColumnDictionary(c *cursor, t *Type) *columnDictionary {
	d := &columnDictionary{}
	const what = "an entry of a dictionary"
	templates, zstdBytes, values := int(c.word(2, what)), int64(c.word(4, what)), int(c.word(4, what))
	if templates > maxTemplates || values > maxValues {
		c.fail("%d templates and %d values of one column", templates, values)
	}
	at := c.pos
	if raw := c.take(zstdBytes, "a zstd dictionary"); len(raw) > 0 {
		var err error
		if d.zstd, err = zstdWith(raw); err != nil {
			c.failAt(at, "this is no zstd dictionary: %v", err)
		}
	}
	if values > 0 && c.err == nil {
		d.count, d.values = values, readValues(c, t, values)
	}
	if templates > 0 {
		if t.shape() != shapeBytes {
			c.fail("templates for a column of type %s", t.Name)
		}
		d.templates = readTemplateTable(c, templates)
	}
	return d
}

// readValues reads a node of values of a dictionary or an index, of which none is null.
func readValues(c *cursor, t *Type, count int) vector {
	r := &nodeReader{cursor: c, end: count}
	v := r.read(t, count, true)
	for i := 0; i < count && c.err == nil; i++ {
		if v.value(i) == nil {
			c.fail("a value of a dictionary or an index is null")
		}
	}
	return v
}
