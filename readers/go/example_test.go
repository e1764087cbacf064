package esdb_test

import (
	"fmt"
	"log"

	"esformat/esdb"
)

func Example() {
	f, err := esdb.Open("../../fixtures/damaged/sound.esdb") // one event of the space "space"
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	for event, err := range f.History("space", esdb.Reversed()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s %s %s\n", event.Time(), event.Get("type"), event.Get("data"))
	}
	// Output: 1970-01-01 00:00:00.000017 +0000 UTC a payload
}
