-- A small filter over the spaces of a segment; empty where it has many, or was made before there was one.
ALTER TABLE segments ADD COLUMN signature BLOB NOT NULL DEFAULT x'';
