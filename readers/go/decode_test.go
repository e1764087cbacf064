package esdb

import (
	"bytes"
	"encoding/hex"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// unhex returns bytes that are written as in the specification.
func unhex(t *testing.T, text string) *cursor {
	t.Helper()
	data, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return &cursor{data: data, mem: &allowance{1 << 20}}
}

// TestPacks reads the examples of section 8.
func TestPacks(t *testing.T) {
	for text, want := range map[string][]int64{
		"09 ff 00 00 04 00 00 00  01 58 16 00":                                        {1, 300, 5},
		"0a ff 00 00 04 00 00 00  2c b5 b4 22":                                        {300, 301, 555},
		"02 00 00 00 06 00 00 00  01 2c 05 00 01 00":                                  {1, 300, 5},
		"01 00 08 00 03 00 00 00  2c 01 00 00 00 00 00 00  00 01 ff":                  {300, 301, 555},
		"40 ff 00 00 10 00 00 00  ffffffffffffffff 0100000000000000":                  {-1, 1},
		"3f ff 08 00 10 00 00 00  0100000000000000 ffffffffffffff7f01000000 00000000": {math.MinInt64, 3},
		"00 00 00 00 00 00 00 00":                                                     {0, 0, 0, 0},
	} {
		c := unhex(t, text)
		p := readPack(c, len(want), "numbers")
		if err := c.end("a pack"); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for i, number := range want {
			if p.at(i) != number {
				t.Errorf("%s: number %d is %d", text, i, p.at(i))
			}
		}
	}
	for _, text := range []string{
		"09 ff 00 00 03 00 00 00  01 58 16", "00 ff 00 00 00 00 00 00", "09 00 00 00 00 00 00 00", "02 03 00 00 00 00 00 00",
		"01 00 00 03 03 00 00 00 010203", "00 00 04 00 00 00 00 00", "01 01 00 00 01 00 00 00 01020304", "01 00 00 01 03 00 00 00 010203",
	} {
		c := unhex(t, text)
		readPack(c, 3, "numbers")
		if c.err == nil {
			t.Errorf("%s is read", text)
		}
	}
}

// TestFrontCoding reads the example of section 9.
func TestFrontCoding(t *testing.T) {
	c := unhex(t, `09 00 00 00 03 ff 00 00 02 00 00 00 70 01
		04 00 00 04 03 ff 00 00 02 00 00 00 4e 00 00 02 08 00 75 73 65 72 2d 31 32 33`)
	keys := readTexts(c, 3)
	if err := c.end("keys"); err != nil {
		t.Fatal(err)
	}
	if got := []string{keys.at(0), keys.at(1), keys.at(2)}; !slices.Equal(got, []string{"user-1", "user-12", "user-3"}) {
		t.Error(got)
	}
}

// TestTemplates reads the examples of sections 9 and 14.
func TestTemplates(t *testing.T) {
	c := unhex(t, `65 00 00 00 03 00 00 00
		02 ff 00 00 01 00 00 00 06 00 00 00 00 00 00 00 00 02 ff 00 00 01 00 00 00 08 04 00 00 04 00 00 08 00 00 00 00 00 01 00 00 00 00 00 00 00 00 02
		02 00 61 62 02 ff 00 00 01 00 00 00 06 02 ff 00 00 01 00 00 00 24 04 00 00 04 03 ff 00 00 02 00 00 00 b5 00 00 02 0d 00 7b 22 6e 22 3a 2c 22 73
		22 3a 22 22 7d`)
	table := readTemplateTable(c, 2)
	if err := c.end("templates"); err != nil {
		t.Fatal(err)
	}
	node := `08 00 00 00
		02 ff 00 00 01 00 00 00 21
		00 00 08 00 00 00 00 00 07 00 00 00 00 00 00 00
		00 00 08 00 00 00 00 00 01 00 00 00 00 00 00 00
		04 00 00 04 00 00 08 00 00 00 00 00 01 00 00 00 00 00 00 00 00 02 01 00 78`
	want := []any{`{"n":7,"s":"b"}`, nil, "x"}
	text := &Type{Name: "string", Class: String, Size: -1}
	for first := range 3 {
		r := &nodeReader{cursor: unhex(t, node), column: &columnDictionary{templates: table}, inBlock: true, first: first, end: 3}
		v := r.read(text, 3, true)
		if err := r.cursor.end("a node"); err != nil {
			t.Fatal(err)
		}
		for i := first; i < 3; i++ {
			if v.value(i) != want[i] {
				t.Errorf("from row %d on, row %d is %q", first, i, v.value(i))
			}
		}
	}
}

func TestTextsOfNumbers(t *testing.T) {
	for _, c := range []struct {
		kind, parameter int
		number          int64
		want            string // "" if the number cannot be shown
	}{
		{varInteger, 0, math.MinInt64, "-9223372036854775808"},
		{varPadded, 3, 7, "007"}, {varPadded, 3, 1000, ""}, {varPadded, 3, -1, ""}, {varPadded, 18, 1e18 - 1, "999999999999999999"},
		{varDecimal, 2, -5, "-0.05"}, {varDecimal, 2, 1234, "12.34"}, {varDecimal, 18, math.MinInt64, "-9.223372036854775808"},
		{varHex, 4, 0xabc, "0abc"}, {varHex, 4, 0x10000, ""}, {varHex, 4, -1, ""}, {varHex, 16, -1, "ffffffffffffffff"},
		{varDate, 0, 20643, "2026-07-09"}, {varDate, 1, 20643*1440 + 485, "2026-07-09T08:05"},
		{varDate, 3, (20643*86400+29103)*1000 + 7, "2026-07-09T08:05:03.007"},
		{varDate, 8, (20643*86400+29103)*1e6 + 7, "2026-07-09 08:05:03.000007"},
		{varDate, 9, 20643*86400 + 29103, "09/Jul/2026:08:05:03"},
		{varDate, 2, -1, "1969-12-31T23:59:59"}, {varDate, 0, firstDay, "0001-01-01"}, {varDate, 0, firstDay - 1, ""},
		{varDate, 0, lastDay, "9999-12-31"}, {varDate, 0, lastDay + 1, ""}, {varDate, 0, 11016, "2000-02-29"}, {varDate, 0, -25509, "1900-02-28"},
	} {
		got, ok := variable{kind: c.kind, parameter: c.parameter}.format(nil, c.number)
		if ok != (c.want != "") || ok && string(got) != c.want {
			t.Errorf("kind %d, parameter %d, %d: %q", c.kind, c.parameter, c.number, got)
		}
	}
}

func TestLZ4(t *testing.T) {
	for _, c := range []struct {
		in, want string
		ok       bool
	}{
		{"\x30abc", "abc", true},
		{"\x14a\x01\x00\x10b", "aaaaaaaaab", true},                            // a match that overlaps what it makes
		{"\xf0\x01" + strings.Repeat("x", 16), strings.Repeat("x", 16), true}, // a long length
		{"\x30ab", "abc", false}, {"\x14a\x02\x00\x10b", "aaaaaaaaab", false}, // cut; a match from before the beginning
		{"\x14a\x00\x00\x10b", "aaaaaaaaab", false}, {"\xf0\xff", "abc", false}, // a distance of 0; an endless length
		{"\x30abc", "abcd", false}, {"\x1fa\x01\x00\xff\x00", "a", false}, {"", "a", false}, // other sizes
	} {
		out := make([]byte, len(c.want))
		if ok := lz4Block([]byte(c.in), out); ok != c.ok || ok && string(out) != c.want {
			t.Errorf("%q: %v, %q", c.in, ok, out)
		}
	}
}

func TestHalfFloats(t *testing.T) {
	for bits, want := range map[uint16]float32{
		0x3c00: 1, 0xc000: -2, 0x7bff: 65504, 0x0001: 1.0 / (1 << 24), 0x0400: 1.0 / (1 << 14), 0x7c00: float32(math.Inf(1)), 0x3555: 0.33325195,
	} {
		if got := halfFloat(bits); got != want {
			t.Errorf("%04x: %v", bits, got)
		}
	}
	if zero := halfFloat(0x8000); zero != 0 || !math.Signbit(float64(zero)) {
		t.Error("no negative zero")
	}
	if nan := halfFloat(0x7e00); nan == nan {
		t.Error("no NaN")
	}
}

func TestDecimals(t *testing.T) {
	for want, d := range map[string]Decimal{
		"0.00": {big.NewInt(0), 2}, "-0.05": {big.NewInt(-5), 2}, "12.34": {big.NewInt(1234), 2}, "1E-8": {big.NewInt(1), 8},
		"-7E+3": {big.NewInt(-7), -3}, "1.20E+5": {big.NewInt(120), -3}, "5": {big.NewInt(5), 0}, "0E+2147483648": {big.NewInt(0), math.MinInt32},
	} {
		if d.String() != want {
			t.Errorf("%s instead of %s", d, want)
		}
	}
	wide := &Type{Class: DecimalOf, Bits: 128, Scale: 0}
	if got := wide.fromWords([]int64{-2, -1}).(Decimal); got.String() != "-2" {
		t.Error(got)
	}
}

// TestNamesAreExact reads metadata whose names differ only by case, and texts that are no Unicode.
func TestNamesAreExact(t *testing.T) {
	sound := `{"format": "esdb", "Format": "x", "schema": {"keys": "text", "columns": [{"name": "a", "type": "int8", "nullable": true, "indexed": false}]},
		"statistics": {"events": 0, "spaces": 0, "runs": 0, "data_blocks": 0, "min_timestamp": null, "max_timestamp": null, "indexes": {}}}`
	if _, err := parseMetadata([]byte(sound)); err != nil {
		t.Error(err)
	}
	for _, change := range [][2]string{
		{`"format"`, `"FORMAT"`}, {`"name": "a"`, `"name": "\ud800"`}, {`"name": "a"`, `"name": "\u0000"`}, {`"name": "a"`, `"name": "space"`},
		{`"events": 0`, `"events": 0.0`}, {`"events": 0`, `"events": 1e0`}, {`"int8"`, `"int7"`}, {`"int8"`, `"null", "nullable": false, "x": 0`},
		{`"min_timestamp": null, `, ``}, {`"indexes": {}`, `"indexes": 1`},
	} {
		text := strings.Replace(sound, change[0], change[1], 1)
		if change[1] == `"null", "nullable": false, "x": 0` {
			text = strings.Replace(text, `"nullable": true`, `"y": 1`, 1)
		}
		if _, err := parseMetadata([]byte(text)); err == nil {
			t.Errorf("%s for %s is read", change[1], change[0])
		}
	}
	if !bytes.Contains([]byte(sound), []byte("esdb")) || loneSurrogate([]byte(`"\\ud800 \ud83d\ude00"`)) || !loneSurrogate([]byte(`"\ude00\ud83d"`)) {
		t.Error("pairs of surrogates")
	}
}

// TestBitsOfEveryWidth packs random numbers bit by bit and reads them.
func TestBitsOfEveryWidth(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2))
	for width := 1; width <= 64; width++ {
		count := 1 + chance.IntN(40)
		numbers, bits := make([]uint64, count), make([]byte, (width*count+7)/8)
		for i := range numbers {
			numbers[i] = chance.Uint64() >> (64 - width)
			for k := range width {
				at := i*width + k
				bits[at/8] |= byte(numbers[i]>>k&1) << (at % 8)
			}
		}
		head := []byte{byte(width), bitsForm, 0, codecNone, byte(len(bits)), byte(len(bits) >> 8), 0, 0}
		c := &cursor{data: append(head, bits...), mem: &allowance{1 << 20}}
		p := readPack(c, count, "numbers")
		if err := c.end("a pack"); err != nil {
			t.Fatal(err)
		}
		for i, number := range numbers {
			if uint64(p.at(i)) != number {
				t.Errorf("width %d: number %d of %d is %x instead of %x", width, i, count, p.at(i), number)
			}
		}
	}
}

// TestFilter finds every space of a file with several pages of filter, and hardly any other.
func TestFilter(t *testing.T) {
	data := fixture(t, "golden/many-spaces.esdb")
	f, err := NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	if f.filter == nil || len(f.filter.pages) != 3 {
		t.Fatal("the file has another filter")
	}
	count, last := 0, ""
	for event, err := range f.Scan(Only()) {
		if err != nil {
			t.Fatal(err)
		}
		if event.Space != last && f.excludes(event.Space) {
			t.Fatalf("the filter excludes %q", event.Space)
		}
		if last = event.Space; f.excludes(last + "?") {
			count++
		}
	}
	if all := int(f.Metadata().Statistics.Events); count < all*9/10 {
		t.Errorf("of %d other spaces the filter excludes %d", all, count)
	}
}
