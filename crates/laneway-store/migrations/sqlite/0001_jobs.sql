-- The rows of a Laneway store, version 1. Why they are laid out so: docs/decisions/0001-rows.md.
-- Times are milliseconds since 1970 (wall clock), codes are those of laneway-core, ids are 16 bytes, big end first.

-- Every job, live or ended: inserted once at submit, in the order of seq. The status part (state and what follows it)
-- changes only when a job waits again; an open attempt and an end have rows of their own.
CREATE TABLE job (
    seq        INTEGER PRIMARY KEY,         -- 1, 2, 3, ... in the order of submission
    id         BLOB    NOT NULL,            -- the name for the outside
    tenant     TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    agent      TEXT    NOT NULL,
    lane       TEXT    NOT NULL,
    session    TEXT,
    priority   INTEGER NOT NULL,
    rank_time  INTEGER NOT NULL,            -- engine time for ordering
    created_at INTEGER NOT NULL,
    spec       BLOB    NOT NULL,            -- everything else that was asked for
    state      INTEGER NOT NULL CHECK (state BETWEEN 0 AND 1),
    wake_at    INTEGER,
    attempts   INTEGER NOT NULL,
    failures   INTEGER NOT NULL,
    losses     INTEGER NOT NULL,
    last_event INTEGER NOT NULL
) STRICT;
-- Ids begin with their time, so this index grows at its end.
CREATE UNIQUE INDEX job_id ON job (id);

-- What the handler gets. Apart, so that scans of jobs do not read it.
CREATE TABLE payload (
    seq   INTEGER PRIMARY KEY,
    bytes BLOB NOT NULL
) STRICT;

-- Which jobs have not ended: one bit for each, 1024 jobs a row. A row without bits is removed.
CREATE TABLE live_chunk (
    chunk INTEGER PRIMARY KEY,              -- seq / 1024
    bits  BLOB NOT NULL CHECK (length(bits) = 128)
) STRICT;

-- At most one open attempt a job: the key says so.
CREATE TABLE open_attempt (
    seq         INTEGER PRIMARY KEY,
    attempt     INTEGER NOT NULL,
    attempt_id  BLOB    NOT NULL,
    lease_epoch INTEGER NOT NULL,
    place       TEXT    NOT NULL,
    mode        INTEGER NOT NULL,           -- how it lives and dies there
    state       INTEGER NOT NULL CHECK (state BETWEEN 2 AND 3),
    opened_at   INTEGER NOT NULL,
    started_at  INTEGER,
    last_event  INTEGER NOT NULL,
    lease_ms    INTEGER NOT NULL            -- the longest lease its runner was told
) STRICT;

-- Closed attempts, except those that ended their job.
CREATE TABLE attempt (
    seq         INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    attempt_id  BLOB    NOT NULL,
    lease_epoch INTEGER NOT NULL,
    place       TEXT    NOT NULL,
    mode        INTEGER NOT NULL,           -- how it lives and dies there
    state       INTEGER NOT NULL CHECK (state BETWEEN 2 AND 3),
    opened_at   INTEGER NOT NULL,
    started_at  INTEGER,
    last_event  INTEGER NOT NULL,
    lease_ms    INTEGER NOT NULL,
    ended       INTEGER NOT NULL,           -- code of the attempt's end
    error       BLOB,
    closed_at   INTEGER NOT NULL,
    PRIMARY KEY (seq, attempt)
) STRICT, WITHOUT ROWID;

-- Lanes by number: keeps the index on ended jobs narrow.
CREATE TABLE lane (
    number INTEGER PRIMARY KEY,
    name   TEXT NOT NULL UNIQUE
) STRICT;

-- How jobs ended, in the order of their ends: jobs end in fair order, not in the order they came, and appending is
-- several times cheaper than inserting in the middle.
CREATE TABLE done (
    ended       INTEGER PRIMARY KEY,        -- 1, 2, 3, ... in the order of ending
    seq         INTEGER NOT NULL,
    shelf       INTEGER NOT NULL,           -- lane.number * 2, + 1 for a job with an idempotency key
    state       INTEGER NOT NULL CHECK (state BETWEEN 4 AND 7),
    reason      INTEGER NOT NULL,
    attempt_id  BLOB,
    started_at  INTEGER,
    finished_at INTEGER NOT NULL,
    attempts    INTEGER NOT NULL,
    failures    INTEGER NOT NULL,
    losses      INTEGER NOT NULL,
    last_event  INTEGER NOT NULL,
    error       BLOB,
    result      BLOB
) STRICT;
CREATE UNIQUE INDEX done_seq ON done (seq);
-- What retention looks for. Grows at one end for each shelf.
CREATE INDEX done_shelf ON done (shelf, finished_at);

-- What a client's own key for a submit stands for.
CREATE TABLE idempotency (
    tenant TEXT NOT NULL,
    key    TEXT NOT NULL,
    job    BLOB NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;

-- Lines that attempts wrote.
CREATE TABLE log (
    seq     INTEGER NOT NULL,
    line    INTEGER NOT NULL,               -- 1, 2, 3, ... within the job
    attempt INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    stream  TEXT    NOT NULL,
    text    TEXT    NOT NULL,
    bytes   INTEGER NOT NULL,               -- of all lines so far
    PRIMARY KEY (seq, line)
) STRICT, WITHOUT ROWID;

-- The events of one commit a row. hash = sha256(the hash before, bytes).
CREATE TABLE event_batch (
    first INTEGER PRIMARY KEY,              -- number of the first event
    count INTEGER NOT NULL CHECK (count > 0),
    at    INTEGER NOT NULL,                 -- the latest time among them
    hash  BLOB    NOT NULL CHECK (length(hash) = 32),
    bytes BLOB    NOT NULL
) STRICT;

CREATE TABLE token (
    id         TEXT PRIMARY KEY,
    tenant     TEXT,
    role       INTEGER NOT NULL,
    digest     BLOB    NOT NULL,
    note       TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
) STRICT, WITHOUT ROWID;

-- One row: what must be remembered after the rows that say it are gone.
CREATE TABLE head (
    one          INTEGER PRIMARY KEY CHECK (one = 1),
    last_seq     INTEGER NOT NULL,          -- highest job number when jobs were last purged
    last_ended   INTEGER NOT NULL,          -- highest done.ended when jobs were last purged
    purged_event INTEGER NOT NULL,          -- number of the last event that was purged
    purged_hash  BLOB    NOT NULL,          -- hash of its batch: where the chain goes on from
    overrides    BLOB                       -- the runtime's own settings
) STRICT;
INSERT INTO head VALUES (1, 0, 0, 0, zeroblob(32), NULL);
