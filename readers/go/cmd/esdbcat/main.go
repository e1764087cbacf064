// Command esdbcat prints the events of an .esdb file as JSON lines.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"
	"strings"
	"time"

	"esformat/esdb"
)

const usage = `Usage: esdbcat [OPTIONS] FILE

Print the events of an .esdb file as JSON lines, as "esdb scan --format jsonl" does. Bytes that are not UTF-8 are
written as {"base64": "…"}. A number that JSON lacks, such as NaN, becomes null; --exact keeps it.

Options:
  --space KEY          Only the events of this space, oldest first.
  --space-hex HEX      The same, with a hexadecimal key.
  --grouping KEY       Only the events of this grouping.
  --index NAME=VALUE   Only events with this value in an indexed column. Repeatable: all must match.
  --from TIME          Events from this time on: ISO 8601 (UTC if it names no zone), or µs since 1970.
  --to TIME            Events before this time.
  --reverse            The last event first.
  --limit N            At most N events.
  --exact              The notation of the golden files of the format: every value, and bytes as {"hex": "…"}.
  --info               Print what the file says about itself instead of its events.
  -h, --help           Show this message.

Examples:
  esdbcat activity.esdb --limit 3
  esdbcat activity.esdb --space ada --reverse --limit 10
  esdbcat activity.esdb --index type=purchase --from 2026-03-01 --to 2026-04-01
  esdbcat activity.esdb --info

Exit status: 0 on success, 1 if the file cannot be read, 2 for wrong usage.
`

// request is what the command line asks for.
type request struct {
	path            string
	space, grouping *string
	indexes         []string
	from, to        *int64
	reverse         bool
	limit           int
	exact, info     bool
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(arguments []string, out, errs io.Writer) int {
	r, err := parse(arguments)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(out, usage)
		return 0
	}
	if err != nil {
		fmt.Fprintf(errs, "esdbcat: %v\nTry: esdbcat --help\n", err)
		return 2
	}
	buffered := bufio.NewWriterSize(out, 1<<16)
	err = r.print(buffered)
	if flushed := buffered.Flush(); err == nil {
		err = flushed
	}
	if err == nil {
		return 0
	}
	fmt.Fprintf(errs, "esdbcat: %v\n", err)
	var e *esdb.Error
	if errors.As(err, &e) && e.Kind == esdb.Misused {
		return 2
	}
	return 1
}

// parse reads the command line, on which options may follow the file.
func parse(arguments []string) (*request, error) {
	r := &request{limit: -1}
	flags := flag.NewFlagSet("esdbcat", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	text := func(name string, put func(string) error) { flags.Func(name, "", put) }
	text("space", func(s string) error { r.space = &s; return nil })
	text("space-hex", func(s string) error {
		var key []byte
		_, err := fmt.Sscanf(s, "%x", &key)
		if s != "" && (err != nil || 2*len(key) != len(s)) {
			return errors.New("not hexadecimal")
		}
		space := string(key)
		r.space = &space
		return nil
	})
	text("grouping", func(s string) error { r.grouping = &s; return nil })
	text("index", func(s string) error { r.indexes = append(r.indexes, s); return nil })
	text("from", func(s string) (err error) { r.from, err = parseTime(s); return err })
	text("to", func(s string) (err error) { r.to, err = parseTime(s); return err })
	flags.BoolVar(&r.reverse, "reverse", false, "")
	flags.BoolVar(&r.exact, "exact", false, "")
	flags.BoolVar(&r.info, "info", false, "")
	flags.IntVar(&r.limit, "limit", -1, "")
	var files []string
	for {
		if err := flags.Parse(arguments); err != nil {
			return nil, err
		}
		if flags.NArg() == 0 {
			break
		}
		files, arguments = append(files, flags.Arg(0)), flags.Args()[1:]
	}
	if len(files) != 1 {
		return nil, fmt.Errorf("one FILE is needed, %d were given", len(files))
	}
	r.path = files[0]
	return r, nil
}

// parseTime reads a time as µs since 1970.
func parseTime(text string) (*int64, error) {
	if micros, err := strconv.ParseInt(text, 10, 64); err == nil {
		return &micros, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02"} {
		if at, err := time.Parse(layout, text); err == nil {
			micros := at.UnixMicro()
			return &micros, nil
		}
	}
	return nil, errors.New("no time; try 2026-03-01 or 2026-03-01T08:00:00Z")
}

func (r *request) print(out *bufio.Writer) error {
	f, err := esdb.Open(r.path)
	if err != nil {
		return err
	}
	defer f.Close()
	if r.info {
		return printInfo(out, f)
	}
	events, err := r.events(f)
	if err != nil {
		return err
	}
	p := &printer{exact: r.exact, columns: f.Metadata().Columns, binaryKeys: f.Metadata().BinaryKeys}
	var line []byte
	for event, err := range events {
		if err != nil {
			return err
		}
		if r.limit == 0 {
			break
		}
		r.limit--
		line = append(p.event(line[:0], event), '\n')
		if _, err := out.Write(line); err != nil {
			return err
		}
	}
	return nil
}

// events returns the events that are asked for: through the directory if a space is named, else through an index.
func (r *request) events(f *esdb.File) (iter.Seq2[esdb.Event, error], error) {
	var options []esdb.Option
	if r.grouping != nil {
		options = append(options, esdb.InGrouping(*r.grouping))
	}
	if r.from != nil {
		options = append(options, esdb.From(*r.from))
	}
	if r.to != nil {
		options = append(options, esdb.Before(*r.to))
	}
	if r.reverse {
		options = append(options, esdb.Reversed())
	}
	var first string
	var value any
	for i, index := range r.indexes {
		name, text, ok := strings.Cut(index, "=")
		if !ok {
			return nil, &esdb.Error{Kind: esdb.Misused, Offset: -1, What: "--index takes NAME=VALUE"}
		}
		found, err := indexValue(f, name, text)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			first, value = name, found
		} else {
			options = append(options, esdb.Where(name, found))
		}
	}
	switch {
	case r.space != nil && len(r.indexes) > 0:
		return f.History(*r.space, append(options, esdb.Where(first, value))...), nil
	case r.space != nil:
		return f.History(*r.space, options...), nil
	case len(r.indexes) > 0:
		return f.Lookup(first, value, options...), nil
	}
	return f.Scan(options...), nil
}

// indexValue converts the text of a value to the type of its column.
func indexValue(f *esdb.File, name, text string) (any, error) {
	for _, column := range f.Metadata().Columns {
		if column.Name != name || !column.Indexed {
			continue
		}
		var value any = text
		var err error
		switch column.Type.Class {
		case esdb.Bool:
			value, err = strconv.ParseBool(text)
		case esdb.Int:
			value, err = strconv.ParseInt(text, 10, 64)
		case esdb.Uint:
			value, err = strconv.ParseUint(text, 10, 64)
		}
		if err != nil {
			return nil, &esdb.Error{Kind: esdb.Misused, Offset: -1, What: fmt.Sprintf("%q is no value of %q, which has type %s", text, name, column.Type.Name)}
		}
		return value, nil
	}
	return nil, &esdb.Error{Kind: esdb.Misused, Offset: -1, What: fmt.Sprintf("there is no index %q; there are: %s", name, strings.Join(f.Metadata().Indexes(), ", "))}
}
