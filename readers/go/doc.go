// Package esdb reads .esdb files: events, sorted by space, grouping and time, compressed by column.
//
// It was written from the specification of the format, spec/format.md, and shares no code with other readers.
// [Open] a file, then ask for events: [File.Scan] for all of them, [File.History] for those of one space,
// [File.Lookup] for those with a value in an indexed column. Each returns a sequence for a range loop:
//
//	for event, err := range f.History("ada", esdb.Reversed()) {
//		if err != nil {
//			return err
//		}
//		fmt.Println(event.Time(), event.Get("type"))
//	}
//
// Every block and chunk that is used is verified against its checksum. Every length is checked before memory is
// allocated for it. Damaged and hostile files lead to an [Error], the only type of error here, never to a panic.
package esdb
