-- Segments that lie in the catalog's store, live ones and retired ones whose objects are still there.
CREATE TABLE stored (
    number     INTEGER PRIMARY KEY,
    checksum   BLOB NOT NULL,    -- as in `segments`: with the number, it names the object
    size_bytes INTEGER NOT NULL,
    local      INTEGER NOT NULL CHECK (local IN (0, 1)) -- 0: its file on the disk was let go
) STRICT;
