-- What exists. Every name a user chooses is a value here and never part of a path.

CREATE TABLE catalog (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Counts transactions that add or retire segments: readers ask what came after the last one they saw.
CREATE TABLE changes (
    only   INTEGER PRIMARY KEY CHECK (only = 1),
    number INTEGER NOT NULL
) STRICT;
INSERT INTO changes VALUES (1, 0);

CREATE TABLE topics (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT NOT NULL, -- empty once it was deleted
    keys       TEXT NOT NULL CHECK (keys IN ('text', 'binary')),
    indexes    TEXT NOT NULL, -- JSON list of column names
    roll       TEXT NOT NULL, -- JSON
    retention  TEXT NOT NULL, -- JSON
    created_us INTEGER NOT NULL,
    deleted    INTEGER NOT NULL DEFAULT 0 -- 1: no more than its numbers are left; they are never given again
) STRICT;
CREATE UNIQUE INDEX topics_by_name ON topics (name) WHERE deleted = 0;

CREATE TABLE schemas (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    topic   INTEGER NOT NULL REFERENCES topics,
    family  INTEGER NOT NULL, -- schemas of one family share segments
    base    INTEGER REFERENCES schemas, -- of the family: the columns begin with those of that schema
    columns TEXT NOT NULL,    -- JSON, as a segment's metadata has it; only those that the base lacks
    magnitudes TEXT NOT NULL DEFAULT '{}' -- JSON: name of a column to how large its numbers or times are, if not 0
) STRICT;

CREATE TABLE partitions (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    topic        INTEGER NOT NULL REFERENCES topics,
    name         TEXT NOT NULL,
    sealed_index INTEGER NOT NULL DEFAULT 0, -- every event below it lies in a segment, or was retired
    reserved_index INTEGER NOT NULL DEFAULT 0, -- a run that does not sync its appends gives out indexes below it only
    UNIQUE (topic, name)
) STRICT;

-- Openings for writing that gave record indexes, and the newest one. `lineage` has what they are for.
CREATE TABLE incarnations (
    number INTEGER PRIMARY KEY,
    name   BLOB NOT NULL -- 4 bytes
) STRICT;

-- The first record index that an incarnation gives, where it is another than the one before had.
CREATE TABLE incarnation_starts (
    incarnation INTEGER NOT NULL REFERENCES incarnations,
    partition   INTEGER NOT NULL REFERENCES partitions,
    first_index INTEGER NOT NULL,
    PRIMARY KEY (incarnation, partition)
) STRICT, WITHOUT ROWID;

-- Record indexes that were reserved when a run crashed, and that no event has that is there: nobody gets them.
CREATE TABLE holes (
    partition   INTEGER NOT NULL REFERENCES partitions,
    first_index INTEGER NOT NULL,
    end_index   INTEGER NOT NULL, -- behind the last one
    PRIMARY KEY (partition, first_index)
) STRICT, WITHOUT ROWID;

CREATE TABLE segments (
    number        INTEGER PRIMARY KEY, -- also its file name
    partition     INTEGER NOT NULL REFERENCES partitions,
    schema        INTEGER NOT NULL REFERENCES schemas,
    first_index   INTEGER NOT NULL,
    last_index    INTEGER NOT NULL,
    min_timestamp INTEGER NOT NULL,
    max_timestamp INTEGER NOT NULL,
    min_space     BLOB NOT NULL,
    max_space     BLOB NOT NULL,
    rows          INTEGER NOT NULL,
    size_bytes    INTEGER NOT NULL,
    checksum      BLOB NOT NULL,     -- xxh3-64 of the file, 8 bytes, little-endian
    level         INTEGER NOT NULL,  -- 0 as sealed; each compaction adds 1
    created_us    INTEGER NOT NULL,
    min_ahead     INTEGER,           -- the least and the most by which a record index exceeds
    max_ahead     INTEGER,           -- the number of its row in the file; NULL: not known
    change        INTEGER NOT NULL,
    signature     BLOB NOT NULL DEFAULT x'' -- a small filter over its spaces; empty where it has many
) STRICT;
CREATE INDEX segments_by_change ON segments (change);

-- Segments that no new scan sees; their files go when the scans that still read them have ended.
CREATE TABLE retired (
    number     INTEGER PRIMARY KEY,
    size_bytes INTEGER NOT NULL,
    reason     TEXT NOT NULL,
    change     INTEGER NOT NULL
) STRICT;

CREATE TABLE producers (
    partition   INTEGER NOT NULL REFERENCES partitions,
    producer    TEXT NOT NULL,
    sequence    INTEGER NOT NULL,
    fingerprint BLOB NOT NULL, -- 8 bytes, little-endian
    first_index INTEGER NOT NULL,
    count       INTEGER NOT NULL,
    note        TEXT NOT NULL DEFAULT '', -- what the producer keeps with its batch: a pipe, how far it has read
    PRIMARY KEY (partition, producer, sequence)
) STRICT, WITHOUT ROWID;

-- Erased spaces and truncated streams: hidden, and gone from disk when no segment below `end_index` is older than the
-- row. A space of a partition can be hidden in more than one way.
CREATE TABLE tombstones (
    partition  INTEGER NOT NULL REFERENCES partitions,
    space      BLOB NOT NULL,
    end_index  INTEGER NOT NULL, -- events below it are hidden if they lie before the place that follows
    time_us    INTEGER NOT NULL, -- the largest number where every time is before it: the space was erased
    tie_index  INTEGER NOT NULL, -- events of just that time are hidden below this record index
    created_us INTEGER NOT NULL,
    change     INTEGER NOT NULL,
    PRIMARY KEY (partition, space, end_index, time_us, tie_index)
) STRICT, WITHOUT ROWID;

-- Events that could not be sealed. Their record indexes count as sealed; a scan passes over them.
CREATE TABLE quarantine (
    number        INTEGER PRIMARY KEY, -- also its file name
    partition     INTEGER NOT NULL REFERENCES partitions,
    schema        INTEGER NOT NULL REFERENCES schemas,
    first_index   INTEGER NOT NULL,
    last_index    INTEGER NOT NULL,
    min_timestamp INTEGER NOT NULL,
    max_timestamp INTEGER NOT NULL,
    rows          INTEGER NOT NULL,
    size_bytes    INTEGER NOT NULL,
    checksum      BLOB NOT NULL,    -- xxh3-64 of the file, 8 bytes, little-endian
    created_us    INTEGER NOT NULL,
    reason        TEXT NOT NULL
) STRICT;

CREATE TABLE problems (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    subject  TEXT NOT NULL,
    message  TEXT NOT NULL,
    action   TEXT NOT NULL,
    found_us INTEGER NOT NULL
) STRICT;

-- Streams: spaces that are named by a tag set, in the canonical text of it. Every stream of an event below the mark of
-- its partition is here; what lies above is looked up in segments and the memtable when a catalog is opened.
CREATE TABLE streams (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    topic  INTEGER NOT NULL REFERENCES topics,
    name   TEXT NOT NULL,
    UNIQUE (topic, name)
) STRICT;

CREATE TABLE stream_tags (
    stream INTEGER NOT NULL REFERENCES streams ON DELETE CASCADE,
    name   TEXT NOT NULL,
    value  TEXT NOT NULL,
    PRIMARY KEY (stream, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE stream_marks (
    partition INTEGER PRIMARY KEY REFERENCES partitions,
    end_index INTEGER NOT NULL
) STRICT;

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
