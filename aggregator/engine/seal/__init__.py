"""The memtable becomes segments."""
