package esdb

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const fixtures = "../../fixtures"

// fixture returns the bytes of a file of the fixtures.
func fixture(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(fixtures, name))
	if err != nil {
		t.Skip("the fixtures are not beside this directory")
	}
	return data
}

// everythingOf reads all that can be asked of a file, up to some events, and returns it as text. Every error has to be
// an Error that names a place.
func everythingOf(t testing.TB, data []byte, memory int64) (string, []error) {
	t.Helper()
	var out strings.Builder
	var found []error
	note := func(err error) bool {
		if err == nil {
			return false
		}
		var e *Error
		if !errors.As(err, &e) || e.What == "" || strings.Contains(err.Error(), "\n") {
			t.Fatalf("an error of another form: %#v", err)
		}
		found = append(found, err)
		return true
	}
	f, err := NewReader(bytes.NewReader(data), int64(len(data)), WithLimits(Limits{memory}))
	if note(err) {
		return "", found
	}
	first, last, _, err := f.KeyRange()
	note(err)
	fmt.Fprintln(&out, f.Metadata().Statistics.Events, f.Metadata().Indexes(), first, last)
	values := map[string]any{}
	var spaces []string
	take := func(event Event, err error) bool {
		if note(err) {
			return false
		}
		fmt.Fprint(&out, event.Space, event.Grouping, event.Timestamp)
		for i, column := range f.Metadata().Columns {
			value := event.Value(i)
			if list, ok := value.([]any); !ok || len(list) < 1000 {
				fmt.Fprint(&out, value)
			}
			if column.Indexed && value != nil {
				values[column.Name] = value
			}
		}
		if len(spaces) < 3 && !slices.Contains(spaces, event.Space) {
			spaces = append(spaces, event.Space)
		}
		return out.Len() < 1<<20
	}
	run := func(events func(func(Event, error) bool)) { events(take) }
	run(f.Scan())
	run(f.Scan(Reversed(), From(0), Before(1<<60)))
	for _, space := range spaces {
		run(f.History(space))
		run(f.History(space, Reversed(), InGrouping("")))
	}
	run(f.History("no such space"))
	for _, index := range f.Metadata().Indexes() {
		if value, ok := values[index]; ok {
			run(f.Lookup(index, value))
			run(f.Lookup(index, value, Reversed()))
		} else {
			run(f.Lookup(index, "a"))
		}
	}
	return out.String(), found
}

// TestDamagedFiles opens files that have to be refused, and says by which step.
func TestDamagedFiles(t *testing.T) {
	steps := map[string]string{ // of those that are not refused when they are opened
		"sound": "", "newer_minor": "", "other_names": "",
		"absurd_length": "scan", "absurd_row_count": "scan", "absurd_run_count": "scan", "beyond_64_bits": "scan",
		"bytes_of_nothing": "scan", "chunk_beyond_block": "scan", "codec_without_planes": "scan", "negative_length": "scan",
		"other_base": "scan", "reserved_in_frame": "scan", "unknown_codec": "scan", "unknown_flag": "scan", "unknown_shape": "scan",
		"absurd_page_count": "lookup", "absurd_value_count": "lookup", "unknown_form": "lookup",
	}
	paths, _ := filepath.Glob(filepath.Join(fixtures, "damaged", "*.esdb"))
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".esdb")
		want, listed := steps[name]
		if !listed {
			want = "open"
		}
		step, err := refusedBy(path)
		if step != want {
			t.Errorf("%s: refused by %q instead of %q: %v", name, step, want, err)
		}
		var e *Error
		if err != nil && (!errors.As(err, &e) || e.Path != path || e.Offset < 0 || (e.Kind == TooNew) != (name == "newer_major")) {
			t.Errorf("%s: %#v", name, err)
		}
	}
}

func refusedBy(path string) (string, error) {
	f, err := Open(path)
	if err != nil {
		return "open", err
	}
	defer f.Close()
	for _, err := range f.Scan() {
		if err != nil {
			return "scan", err
		}
	}
	for _, err := range f.Lookup("type", "a") {
		if err != nil {
			return "lookup", err
		}
	}
	return "", nil
}

// TestFlippedBytes changes bytes of files: answers stay the same, or there is an error.
func TestFlippedBytes(t *testing.T) {
	for _, name := range []string{"damaged/sound.esdb", "golden/integers.esdb", "golden/nested.esdb", "golden/zstd.esdb"} {
		data := fixture(t, name)
		want, errs := everythingOf(t, data, 1<<30)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		for i := 0; i < len(data); i += 1 + len(data)/700 {
			flipped := bytes.Clone(data)
			flipped[i] ^= 1 << (i % 8)
			if got, errs := everythingOf(t, flipped, 1<<30); len(errs) == 0 && got != want {
				t.Errorf("%s: other answers, without an error, after a change of byte %d", name, i)
			}
		}
		for n := 0; n < len(data); n += 1 + len(data)/200 {
			if _, errs := everythingOf(t, data[:n], 1<<30); len(errs) == 0 {
				t.Errorf("%s: cut to %d bytes, it is read without an error", name, n)
			}
		}
	}
}

// TestSpareDictionary damages a dictionary block, of which there is a spare.
func TestSpareDictionary(t *testing.T) {
	data := fixture(t, "golden/zstd-dictionary.esdb")
	want, _ := everythingOf(t, data, 1<<30)
	f, err := NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	h, ok := f.footer.find(kindDictionary, 0, 1)
	if !ok {
		t.Fatal("the file has no dictionary")
	}
	damaged := bytes.Clone(data)
	damaged[h.offset+h.length/2] ^= 1
	got, errs := everythingOf(t, damaged, 1<<30)
	if len(errs) > 0 || got != want {
		t.Errorf("the spare does not serve: %v", errs)
	}
}

func TestMisuse(t *testing.T) {
	data := fixture(t, "damaged/sound.esdb")
	f, err := NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	for _, events := range []func(func(Event, error) bool){
		f.Lookup("nothing", "a"), f.Lookup("data", "a"), f.Lookup("type", 1), f.Scan(Only("nothing")), f.Scan(Where("type", true)),
	} {
		for _, err := range events {
			var e *Error
			if !errors.As(err, &e) || e.Kind != Misused {
				t.Errorf("%v", err)
			}
		}
	}
	for event, err := range f.History("space", Only("type")) {
		if err != nil || event.Get("data") != nil || event.Get("type") != "a" || event.Get("nothing") != nil || event.Time().UnixMicro() != 17 {
			t.Errorf("%v %v", event, err)
		}
	}
}

// TestLimits reads a large value with little memory.
func TestLimits(t *testing.T) {
	_, errs := everythingOf(t, fixture(t, "golden/large-payload.esdb"), 1<<20)
	var e *Error
	if len(errs) == 0 || !errors.As(errs[0], &e) || e.Kind != TooLarge {
		t.Errorf("%v", errs)
	}
}

// FuzzOpen reads hostile files. Their checksums count as right, because a fuzzer would not get past them.
func FuzzOpen(f *testing.F) {
	for _, folder := range []string{"golden", "damaged"} {
		paths, _ := filepath.Glob(filepath.Join(fixtures, folder, "*.esdb"))
		for _, path := range paths {
			if data, err := os.ReadFile(path); err == nil && len(data) < 25_000 {
				f.Add(data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		acceptAnySum = true
		defer func() { acceptAnySum = false }()
		everythingOf(t, data, 32<<20)
	})
}
