package main

import (
	"bufio"
	"encoding/json"
	"fmt"

	"esformat/esdb"
)

// printInfo prints what a file says about itself as JSON.
func printInfo(out *bufio.Writer, f *esdb.File) error {
	meta := f.Metadata()
	first, last, ok, err := f.KeyRange()
	if err != nil {
		return err
	}
	type column struct {
		Name     string `json:"name"`
		Type     string `json:"type"`
		Nullable bool   `json:"nullable"`
		Indexed  bool   `json:"indexed"`
	}
	columns := make([]column, len(meta.Columns))
	for i, c := range meta.Columns {
		columns[i] = column{c.Name, c.Type.String(), c.Nullable, c.Indexed}
	}
	s := meta.Statistics
	info := map[string]any{
		"version": fmt.Sprintf("%d.%d", meta.Major, meta.Minor), "codec": meta.Codec, "properties": meta.Properties,
		"columns": columns, "events": s.Events, "spaces": s.Spaces, "runs": s.Runs, "data_blocks": s.DataBlocks,
		"min_timestamp": s.MinTimestamp, "max_timestamp": s.MaxTimestamp, "indexes": s.Indexes,
	}
	if ok {
		p := &printer{binaryKeys: meta.BinaryKeys}
		info["first_key"] = []json.RawMessage{p.key(nil, first.Space), p.key(nil, first.Grouping)}
		info["last_key"] = []json.RawMessage{p.key(nil, last.Space), p.key(nil, last.Grouping)}
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(info)
}
