-- The last eight digits of the ids of jobs, for searches by the short form of an id. Derived from table job, as the tables of lists.
-- A chunk gets its row when all of its jobs are there; the newest chunk has none.
CREATE TABLE id_end (
    chunk INTEGER PRIMARY KEY,                 -- seq / 16384
    ends  BLOB    NOT NULL,                    -- four bytes for each number of the chunk; zeros where there is no job
    sum   INTEGER NOT NULL                     -- checksum of the columns above
) STRICT;
