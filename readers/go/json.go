package esdb

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// object is a JSON object whose members are read by their exact names.
//
// Go's own mapping to structs ignores case, which would take members that the format does not name.
type object map[string]any

// parseObject parses JSON that has to be an object. Numbers stay text, so that none loses digits.
func parseObject(text []byte) (object, error) {
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("it is not UTF-8")
	}
	if loneSurrogate(text) {
		return nil, fmt.Errorf("a text in it is not Unicode: half of a pair of surrogates")
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if decoder.More() {
		return nil, fmt.Errorf("something follows the object")
	}
	found, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("it is not an object")
	}
	return found, nil
}

// loneSurrogate says whether an escape in JSON is one half of a pair; Go would replace it silently.
func loneSurrogate(text []byte) bool {
	for i := 0; i+1 < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		i++
		unit, ok := escapedUnit(text[i:])
		if !ok || unit < 0xD800 || unit > 0xDFFF {
			continue
		}
		if unit >= 0xDC00 || i+6 > len(text) || text[i+5] != '\\' {
			return true
		}
		low, ok := escapedUnit(text[i+6:])
		if !ok || low < 0xDC00 || low > 0xDFFF {
			return true
		}
		i += 6 + 4
	}
	return false
}

// escapedUnit reads `uXXXX`.
func escapedUnit(text []byte) (uint64, bool) {
	if len(text) < 5 || text[0] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(text[1:5]), 16, 16)
	return unit, err == nil
}

func (o object) text(name string) (string, error) {
	if value, ok := o[name].(string); ok {
		return value, nil
	}
	return "", fmt.Errorf("%q is missing or no text", name)
}

func (o object) flag(name string) (bool, error) {
	if value, ok := o[name].(bool); ok {
		return value, nil
	}
	return false, fmt.Errorf("%q is missing or neither true nor false", name)
}

func (o object) object(name string) (object, error) {
	if value, ok := o[name].(map[string]any); ok {
		return value, nil
	}
	return nil, fmt.Errorf("%q is missing or no object", name)
}

func (o object) list(name string) ([]any, error) {
	if value, ok := o[name].([]any); ok {
		return value, nil
	}
	return nil, fmt.Errorf("%q is missing or no list", name)
}

// number returns a whole number between two bounds.
func (o object) number(name string, least, most int64) (int64, error) {
	number, err := whole(o[name])
	if err != nil || number < least || number > most {
		return 0, fmt.Errorf("%q is missing or no whole number from %d to %d", name, least, most)
	}
	return number, nil
}

func whole(value any) (int64, error) {
	text, ok := value.(json.Number)
	if !ok {
		return 0, fmt.Errorf("no number")
	}
	return strconv.ParseInt(text.String(), 10, 64)
}
