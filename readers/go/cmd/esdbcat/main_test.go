package main

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"esformat/esdb"
)

const fixtures = "../../../../fixtures"

// golden returns the files of a pattern, and their expected lines.
func golden(t *testing.T) map[string][]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(fixtures, "golden", "*.esdb"))
	if err != nil || len(paths) == 0 {
		t.Skip("the golden files are not beside this directory")
	}
	files := map[string][]string{}
	for _, path := range paths {
		files[path] = expected(t, strings.TrimSuffix(path, ".esdb"))
	}
	return files
}

func expected(t *testing.T, stem string) []string {
	t.Helper()
	text, err := os.ReadFile(stem + ".jsonl")
	if err != nil {
		packed, err := os.Open(stem + ".jsonl.gz")
		if err != nil {
			t.Fatal(err)
		}
		defer packed.Close()
		unpacked, err := gzip.NewReader(packed)
		if err != nil {
			t.Fatal(err)
		}
		if text, err = io.ReadAll(unpacked); err != nil {
			t.Fatal(err)
		}
	}
	return lines(string(text))
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// cat runs the command, which has to succeed, and returns the lines that it prints.
func cat(t *testing.T, arguments ...string) []string {
	t.Helper()
	var out, errs bytes.Buffer
	if status := run(arguments, &out, &errs); status != 0 {
		t.Fatalf("esdbcat %q: status %d, %s", arguments, status, errs.String())
	}
	return lines(out.String())
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("%s: line %d of %d differs; %d were expected\n%.300s", what, i, len(got), len(want), slices.Concat(got[min(i, len(got)):], []string{"(none)"})[0])
		}
	}
}

func reversed(all []string) []string {
	turned := slices.Clone(all)
	slices.Reverse(turned)
	return turned
}

func TestGoldenFiles(t *testing.T) {
	for path, want := range golden(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			same(t, "forward", cat(t, path, "--exact"), want)
			same(t, "reverse", cat(t, "--exact", "--reverse", path), reversed(want))
		})
	}
}

// event is what tests look at in a line.
type event struct {
	Space, Grouping json.RawMessage
	Timestamp       int64
	Columns         map[string]json.RawMessage
}

func parseLine(t *testing.T, line string) (e event) {
	t.Helper()
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		t.Fatal(err)
	}
	return e
}

// option returns the option that asks for a key.
func option(t *testing.T, key json.RawMessage) []string {
	t.Helper()
	var text string
	if json.Unmarshal(key, &text) == nil {
		return []string{"--space", text}
	}
	var binary struct{ Hex string }
	if err := json.Unmarshal(key, &binary); err != nil {
		t.Fatal(err)
	}
	return []string{"--space-hex", binary.Hex}
}

func TestHistories(t *testing.T) {
	for path, want := range golden(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			histories := map[string][]int{}
			events := make([]event, len(want))
			var keys []string
			for i, line := range want {
				events[i] = parseLine(t, line)
				key := string(events[i].Space)
				if histories[key] == nil {
					keys = append(keys, key)
				}
				histories[key] = append(histories[key], i)
			}
			for n := 0; n < len(keys); n += max(1, len(keys)/50) {
				rows := histories[keys[n]]
				sort.SliceStable(rows, func(i, j int) bool { return events[rows[i]].Timestamp < events[rows[j]].Timestamp })
				var history, late []string
				middle := events[rows[len(rows)/2]].Timestamp
				for _, row := range rows {
					history = append(history, want[row])
					if events[row].Timestamp >= middle {
						late = append(late, want[row])
					}
				}
				arguments := append(option(t, json.RawMessage(keys[n])), "--exact", path)
				same(t, keys[n], cat(t, arguments...), history)
				same(t, keys[n]+" reversed", cat(t, append(arguments, "--reverse")...), reversed(history))
				same(t, keys[n]+" late", cat(t, append(arguments, "--from", fmt.Sprint(middle))...), late)
				early := cat(t, append(arguments, "--to", fmt.Sprint(middle))...)
				same(t, keys[n]+" early", early, history[:len(history)-len(late)])
				same(t, keys[n]+" limit", cat(t, append(arguments, "--limit", "3")...), history[:min(3, len(history))])
			}
			absent := hex.EncodeToString([]byte("\x01 no such space"))
			same(t, "absent", cat(t, "--space-hex", absent, path), nil)
		})
	}
}

func TestGroupings(t *testing.T) {
	path := filepath.Join(fixtures, "golden", "times.esdb")
	want := golden(t)[path]
	var history []string
	for _, line := range want {
		if strings.HasPrefix(line, `{"space": "new", "grouping": "a",`) {
			history = append(history, line)
		}
	}
	same(t, "grouping", cat(t, path, "--exact", "--space", "new", "--grouping", "a"), history)
}

func TestIndexes(t *testing.T) {
	for path, want := range golden(t) {
		f, err := esdb.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		indexes := f.Metadata().Indexes()
		f.Close()
		if len(indexes) == 0 {
			continue
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			events := make([]event, len(want))
			for i, line := range want {
				events[i] = parseLine(t, line)
			}
			for _, index := range indexes {
				byValue := map[string][]string{}
				for i, e := range events {
					if value := string(e.Columns[index]); value != "null" {
						byValue[value] = append(byValue[value], want[i])
					}
				}
				values := make([]string, 0, len(byValue))
				for value := range byValue {
					values = append(values, value)
				}
				sort.Strings(values)
				for n := 0; n < len(values); n += max(1, len(values)/40) {
					text := values[n]
					_ = json.Unmarshal([]byte(values[n]), &text) // if it is a text
					asked := index + "=" + text
					same(t, asked, cat(t, path, "--exact", "--index", asked), byValue[values[n]])
					same(t, asked+" reversed", cat(t, path, "--exact", "--index", asked, "--reverse"), reversed(byValue[values[n]]))
				}
			}
		})
	}
}

// TestPlainForm compares with what the package's command printed for two golden files, some lines of them.
func TestPlainForm(t *testing.T) {
	for name, want := range map[string]string{
		"numbers": `{"space":"s0","grouping":"","timestamp":"1970-01-01T00:00:00.000009Z","float16":65504.0,"float32":5.9604645e-8,"float64":null,"date32":"9999-12-31","date64":"1970-01-01","interval":"P-1M31DT-1000S","timestamp_s":"1152921504606846976","duration_s":"1","time_s":"12:00:00","timestamp_ms":"1152921504606846976","duration_ms":"1","time_ms":"00:00:43.200","timestamp_us":"1152921504606846976","duration_us":"1","time_us":"00:00:00.043200","timestamp_ns":"2006-07-14T23:58:24.606846976","duration_ns":"1","time_ns":"00:00:00.000043200","zoned":null,"decimal128":0.00,"decimal256":1,"thousands":1.2E+4}`,
		"nested":  `{"space":"s0","grouping":"","timestamp":"1970-01-01T00:00:00.000000Z","list":[1,null,3],"large_list":["a","",null],"fixed":[1.5,null],"struct":{"x":1,"name":"a"},"empty_struct":{},"map":{"k":1,"l":null},"list_of_struct":[{"x":1,"name":"a"},null,{"x":null,"name":""},{"x":-3,"name":null}],"list_of_list":[[1],null,[]],"map_of_list":{"1":["x",null],"2":null},"fixed_of_struct":[{"x":1,"name":"a"},null],"struct_of_all":{"l":[true,null],"m":{"a":1.5},"f":["12",null]},"no_decimals":[],"nulls":[null,null]}`,
		"strings": `{"space":"s0","grouping":"","timestamp":"1970-01-01T00:00:00.000003Z","data":"p","string":"Grüße","large_string":"Grüße","binary":{"base64":"//4="},"large_binary":{"base64":"//4="},"fixed":"1234","fixed0":null,"null":null,"only_null":null,"ünïcode name":"v"}`,
	} {
		if printed := cat(t, filepath.Join(fixtures, "golden", name+".esdb")); !slices.Contains(printed, want) {
			t.Errorf("%s: the expected line is missing; the first two are\n%s", name, strings.Join(printed[:2], "\n"))
		}
	}
}

func TestInfo(t *testing.T) {
	printed := strings.Join(cat(t, "--info", filepath.Join(fixtures, "golden", "indexes.esdb")), "\n")
	var info struct {
		Version string
		Events  int
		Columns []struct{ Name, Type string }
		First   []string `json:"first_key"`
	}
	if err := json.Unmarshal([]byte(printed), &info); err != nil {
		t.Fatal(err)
	}
	if info.Version != "1.0" || info.Events == 0 || len(info.Columns) == 0 || len(info.First) != 2 {
		t.Errorf("%+v", info)
	}
}

func TestWrongUsage(t *testing.T) {
	sound := filepath.Join(fixtures, "damaged", "sound.esdb")
	for _, c := range []struct {
		arguments []string
		status    int
		says      string
	}{
		{[]string{}, 2, "one FILE"},
		{[]string{sound, sound}, 2, "one FILE"},
		{[]string{sound, "--nonsense"}, 2, "nonsense"},
		{[]string{sound, "--from", "tomorrow"}, 2, "no time"},
		{[]string{sound, "--space-hex", "0g"}, 2, "hexadecimal"},
		{[]string{sound, "--index", "type"}, 2, "NAME=VALUE"},
		{[]string{sound, "--index", "nothing=1"}, 2, "there are: type"},
		{[]string{sound + "x"}, 1, "cannot be opened"},
		{[]string{"main.go"}, 1, "does not end like"},
	} {
		var out, errs bytes.Buffer
		if status := run(c.arguments, &out, &errs); status != c.status || !strings.Contains(errs.String(), c.says) || out.Len() > 0 {
			t.Errorf("%q: status %d, %s", c.arguments, status, errs.String())
		}
	}
	var out bytes.Buffer
	if status := run([]string{"--help"}, &out, io.Discard); status != 0 || !strings.Contains(out.String(), "Examples:") {
		t.Errorf("--help: status %d", status)
	}
}
