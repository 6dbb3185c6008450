-- What lists of jobs filter by. docs/decisions/0019-lists.md explains the layout. All of it is derived from the tables of jobs.

-- Names and words that jobs have. A row is removed with the last set of jobs that has it.
CREATE TABLE facet_name (
    number    INTEGER PRIMARY KEY,             -- its number in facet.key
    dimension INTEGER NOT NULL,                -- code: tenant, kind, agent, session, tag, error code or word
    text      TEXT    NOT NULL,                -- the name or the word
    chunks    INTEGER NOT NULL,                -- rows of facet that have it
    sum       INTEGER NOT NULL AS (row_sum(number, dimension, text, chunks)) STORED -- checksum of the columns above
) STRICT;
CREATE UNIQUE INDEX facet_name_text ON facet_name (dimension, text);

-- Sets of jobs that have something in common. Jobs are divided into chunks of 16384, by their numbers, and a chunk's sets stand
-- together, so that new jobs change few pages. Jobs that were deleted stay in the sets of names until their chunk is empty.
CREATE TABLE facet (
    key  INTEGER PRIMARY KEY,                  -- chunk * 2^37 + dimension * 2^33 + a number or code
    jobs BLOB    NOT NULL,                     -- the set: two bytes for each job, or 2048 bytes with a bit for each
    sum  INTEGER NOT NULL                      -- checksum of the columns above
) STRICT;

-- When the jobs of each chunk were submitted and ended: the earliest and the latest time of each 256 of them.
CREATE TABLE facet_times (
    chunk    INTEGER PRIMARY KEY,              -- seq / 16384
    created  BLOB    NOT NULL,                 -- 64 pairs of times of 8 bytes
    finished BLOB    NOT NULL,                 -- the same
    sum      INTEGER NOT NULL                  -- checksum of the columns above
) STRICT;
