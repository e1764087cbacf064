package esdb

import (
	"bytes"
	"sync"
	"testing"
)

// TestTogether reads one file in several goroutines; `go test -race` watches.
func TestTogether(t *testing.T) {
	data := fixture(t, "golden/zstd-dictionary.esdb")
	f, err := NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	want := int(f.Metadata().Statistics.Events)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			count := 0
			for event, err := range f.Scan() {
				if err != nil {
					t.Error(err)
				}
				if event.Value(0) != nil {
					count++
				}
				if count%500 == 1 {
					for _, err := range f.History(event.Space) {
						if err != nil {
							t.Error(err)
						}
					}
				}
			}
			if count != want {
				t.Errorf("%d events instead of %d", count, want)
			}
		})
	}
	group.Wait()
}
