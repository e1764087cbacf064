-- Streams: spaces that are named by a tag set, in the canonical text of it. Every stream of an event below the mark of
-- its partition is here; what lies above is looked up in segments and unsealed events when a catalog is opened.

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
