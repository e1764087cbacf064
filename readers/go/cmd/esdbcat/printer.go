package main

import (
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"unicode/utf8"

	"esformat/esdb"
)

// printer writes events as JSON: in the form of `esdb scan --format jsonl`, or exactly, in that of golden files.
type printer struct {
	exact      bool
	columns    []esdb.Column
	binaryKeys bool
	names      [][]byte // of the columns, as JSON
}

// separators between values and after names.
func (p *printer) comma(out []byte) []byte {
	if p.exact {
		return append(out, ", "...)
	}
	return append(out, ',')
}

func (p *printer) name(out []byte, name string) []byte {
	out = append(appendText(out, name), ':')
	if p.exact {
		out = append(out, ' ')
	}
	return out
}

// event appends an event.
func (p *printer) event(out []byte, e esdb.Event) []byte {
	if p.names == nil {
		p.names = make([][]byte, len(p.columns))
		for i, column := range p.columns {
			p.names[i] = p.name(nil, column.Name)
		}
	}
	out = p.key(p.name(append(out, '{'), "space"), e.Space)
	out = p.key(p.name(p.comma(out), "grouping"), e.Grouping)
	out = p.name(p.comma(out), "timestamp")
	if p.exact {
		out = strconv.AppendInt(out, e.Timestamp, 10)
		out = append(p.name(p.comma(out), "columns"), '{')
	} else {
		out = quoted(out, func(out []byte) []byte { return appendMoment(out, e.Timestamp, "us", "Z") })
	}
	for i, column := range p.columns {
		if i > 0 || !p.exact {
			out = p.comma(out)
		}
		out = p.value(append(out, p.names[i]...), column.Type, e.Value(i))
	}
	if p.exact {
		out = append(out, '}')
	}
	return append(out, '}')
}

// key appends a space or grouping.
func (p *printer) key(out []byte, key string) []byte {
	if p.binaryKeys {
		return p.bytes(out, []byte(key))
	}
	return appendText(out, key)
}

// bytes appends bytes: exactly, or as text if they are UTF-8.
func (p *printer) bytes(out, value []byte) []byte {
	switch {
	case p.exact:
		out = append(out, `{"hex": "`...)
		out = hex.AppendEncode(out, value)
		return append(out, `"}`...)
	case utf8.Valid(value):
		return appendText(out, string(value))
	}
	out = append(out, `{"base64":"`...)
	out = base64.StdEncoding.AppendEncode(out, value)
	return append(out, `"}`...)
}

// value appends a value of a type.
func (p *printer) value(out []byte, t *esdb.Type, value any) []byte {
	switch value := value.(type) {
	case nil:
		return append(out, "null"...)
	case bool:
		return strconv.AppendBool(out, value)
	case uint64:
		return strconv.AppendUint(out, value, 10)
	case int64:
		if t.Class == esdb.Int || p.exact {
			return strconv.AppendInt(out, value, 10)
		}
		return quoted(out, func(out []byte) []byte { return appendTemporal(out, t, value) })
	case float32:
		if p.exact || t.Class == esdb.Float16 {
			return p.float(out, float64(value), 64)
		}
		return p.float(out, float64(value), 32)
	case float64:
		return p.float(out, value, 64)
	case esdb.Decimal:
		if p.exact {
			return quoted(out, func(out []byte) []byte { return appendPlainDecimal(out, value) })
		}
		return append(out, value.String()...)
	case esdb.Interval:
		if p.exact {
			out = strconv.AppendInt(append(out, '['), int64(value.Months), 10)
			out = strconv.AppendInt(p.comma(out), int64(value.Days), 10)
			return append(strconv.AppendInt(p.comma(out), value.Nanoseconds, 10), ']')
		}
		return quoted(out, func(out []byte) []byte { return appendInterval(out, value) })
	case string:
		return appendText(out, value)
	case []byte:
		return p.bytes(out, value)
	case []esdb.Pair:
		return p.pairs(out, t, value)
	case []any:
		if t.Class == esdb.Struct {
			return p.fields(out, t, value)
		}
		return p.list(out, t, value)
	}
	panic("a value of a type that the package does not return")
}

func (p *printer) list(out []byte, t *esdb.Type, values []any) []byte {
	out = append(out, '[')
	for i, value := range values {
		if i > 0 {
			out = p.comma(out)
		}
		out = p.value(out, t.Children[0].Type, value)
	}
	return append(out, ']')
}

func (p *printer) fields(out []byte, t *esdb.Type, values []any) []byte {
	out = append(out, '{')
	for i, value := range values {
		if i > 0 {
			out = p.comma(out)
		}
		out = p.value(p.name(out, t.Children[i].Name), t.Children[i].Type, value)
	}
	return append(out, '}')
}

// pairs appends a map: exactly, as a list of pairs; else as an object, whose names are the keys as text.
func (p *printer) pairs(out []byte, t *esdb.Type, pairs []esdb.Pair) []byte {
	key, item := t.Children[0].Type, t.Children[1].Type
	if p.exact {
		out = append(out, '[')
		for i, pair := range pairs {
			if i > 0 {
				out = p.comma(out)
			}
			out = p.value(append(out, '['), key, pair.Key)
			out = append(p.value(p.comma(out), item, pair.Value), ']')
		}
		return append(out, ']')
	}
	out = append(out, '{')
	for i, pair := range pairs {
		if i > 0 {
			out = p.comma(out)
		}
		text := p.value(nil, key, pair.Key)
		switch f, isFloat := asFloat(pair.Key); {
		case isFloat:
			out = appendText(out, keyOfFloat(text, f))
		case text[0] == '"':
			out = append(out, text...)
		default:
			out = appendText(out, string(text))
		}
		out = p.value(append(out, ':'), item, pair.Value)
	}
	return append(out, '}')
}

// quoted puts quotation marks around what another function appends.
func quoted(out []byte, inside func([]byte) []byte) []byte {
	return append(inside(append(out, '"')), '"')
}

// appendText appends a text as JSON.
func appendText(out []byte, text string) []byte {
	const digits = "0123456789abcdef"
	out = append(out, '"')
	start := 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		out = append(out, text[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			out = append(out, '\\', c)
		case '\b':
			out = append(out, `\b`...)
		case '\f':
			out = append(out, `\f`...)
		case '\n':
			out = append(out, `\n`...)
		case '\r':
			out = append(out, `\r`...)
		case '\t':
			out = append(out, `\t`...)
		default:
			out = append(out, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
	}
	return append(append(out, text[start:]...), '"')
}
