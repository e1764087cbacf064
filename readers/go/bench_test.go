package esdb

import (
	"os"
	"slices"
	"testing"
)

// million opens the file that ESDB_FILE names, such as one of a million events.
func million(b *testing.B) *File {
	b.Helper()
	path := os.Getenv("ESDB_FILE")
	if path == "" {
		b.Skip("ESDB_FILE names no file")
	}
	f, err := Open(path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	return f
}

// someSpaces returns a thousand spaces, of which each space of the file has the same chance to be one.
func someSpaces(b *testing.B, f *File) []string {
	b.Helper()
	var all []string
	err := f.walk(false, everything, func(branch *branch) bool {
		l, err := f.leaf(branch)
		if err != nil {
			b.Fatal(err)
		}
		for i := range l.runEnds {
			all = append(all, l.spaces.at(i))
		}
		return true
	})
	if err != nil {
		b.Fatal(err)
	}
	all = slices.Compact(all)
	spaces := make([]string, 1000)
	for i := range spaces {
		spaces[i] = all[i*7919%len(all)]
	}
	return spaces
}

func use(b *testing.B, events func(func(Event, error) bool), values bool) (count int) {
	b.Helper()
	for event, err := range events {
		if err != nil {
			b.Fatal(err)
		}
		count++
		for i := 0; values && i < len(event.columns); i++ {
			event.Value(i)
		}
	}
	return count
}

func BenchmarkScan(b *testing.B) {
	f, count := million(b), 0
	for b.Loop() {
		count += use(b, f.Scan(), true)
	}
	b.ReportMetric(float64(count)/b.Elapsed().Seconds(), "events/s")
}

func BenchmarkScanTimesOnly(b *testing.B) {
	f, count := million(b), 0
	for b.Loop() {
		count += use(b, f.Scan(Only()), false)
	}
	b.ReportMetric(float64(count)/b.Elapsed().Seconds(), "events/s")
}

func BenchmarkHistory(b *testing.B) {
	f := million(b)
	spaces, i := someSpaces(b, f), 0
	for b.Loop() {
		use(b, f.History(spaces[i*617%len(spaces)]), true)
		i++
	}
}

func BenchmarkOpenAndHistory(b *testing.B) {
	spaces, i := someSpaces(b, million(b)), 0
	for b.Loop() {
		f := million(b)
		use(b, f.History(spaces[i*617%len(spaces)]), true)
		f.Close()
		i++
	}
}

func BenchmarkLookup(b *testing.B) {
	f, count := million(b), 0
	for b.Loop() {
		count += use(b, f.Lookup("type", "purchase"), true)
	}
	b.ReportMetric(float64(count)/b.Elapsed().Seconds(), "events/s")
}
