-- Whether the database file is whole without its write-ahead log, and how far checkpoints are. A copy whose files are of
-- different times is noticed by this row and the file laneway.db-mark.

CREATE TABLE store_state (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    closed      INTEGER NOT NULL CHECK (closed IN (0, 1)),  -- 1: closed in order, everything is in the database file
    checkpoints INTEGER NOT NULL                            -- how many checkpoints were begun
) STRICT;
INSERT INTO store_state VALUES (1, 1, 0);

-- Checksums of what is written once: a job as it was submitted, its payload, its end. NULL in rows from before.
ALTER TABLE job ADD COLUMN sum INTEGER;
ALTER TABLE payload ADD COLUMN sum INTEGER;
ALTER TABLE done ADD COLUMN sum INTEGER;
