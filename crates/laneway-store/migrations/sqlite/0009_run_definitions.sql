-- What clients call the whole of a run, in their own form. Apart from the run: it may be long, and lists do not show it.
CREATE TABLE run_definition (
    seq   INTEGER PRIMARY KEY,              -- number of the run's first job; it goes with the run's jobs
    bytes BLOB    NOT NULL
) STRICT;
