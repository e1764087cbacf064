-- What a producer wants to be kept with its batch: a pipe, how far it has read.
ALTER TABLE producers ADD COLUMN note TEXT NOT NULL DEFAULT '';

-- Pipes: queries whose answers are copied into the stream {logrange.pipe=NAME} as they come.
CREATE TABLE pipes (
    name       TEXT PRIMARY KEY,
    identity   TEXT NOT NULL UNIQUE, -- never used again; also the name under which it appends, as a producer
    source     TEXT NOT NULL,        -- LQL; empty: every stream
    condition  TEXT NOT NULL,        -- LQL; empty: every record
    backfill   INTEGER NOT NULL,
    created_us INTEGER NOT NULL,
    sequence   INTEGER NOT NULL,     -- of its last batch when `progress` was kept; a later batch tells a later one
    progress   TEXT NOT NULL
) STRICT, WITHOUT ROWID;
