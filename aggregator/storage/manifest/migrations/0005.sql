-- Truncated streams are hidden as erased ones are, but only up to a place in the order of time and record index. A
-- space of a partition can be hidden in more than one way.
CREATE TABLE cuts (
    partition  INTEGER NOT NULL REFERENCES partitions,
    space      BLOB NOT NULL,
    end_index  INTEGER NOT NULL, -- events below it are hidden if they lie before that place
    time_us    INTEGER NOT NULL, -- the largest number where every time is before it: the space was erased
    tie_index  INTEGER NOT NULL, -- events of just that time are hidden below this record index
    created_us INTEGER NOT NULL,
    change     INTEGER NOT NULL,
    PRIMARY KEY (partition, space, end_index, time_us, tie_index)
) STRICT, WITHOUT ROWID;
INSERT INTO cuts
    SELECT partition, space, end_index, 9223372036854775807, 9223372036854775807, created_us, change FROM tombstones;
DROP TABLE tombstones;
ALTER TABLE cuts RENAME TO tombstones;
