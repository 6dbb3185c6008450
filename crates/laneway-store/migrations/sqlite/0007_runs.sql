-- Runs: jobs that depend on one another. A run's jobs are numbered in a row from its first one on, in the order of its
-- nodes, so that no table must say which they are. Their ends stand on shelf -1: they go with their run and not before.
CREATE TABLE run (
    first       INTEGER PRIMARY KEY,        -- number of its first job
    members     INTEGER NOT NULL CHECK (members > 0),
    id          BLOB    NOT NULL,           -- the name for the outside
    tenant      TEXT    NOT NULL,
    lane        TEXT    NOT NULL,           -- whose retention holds
    state       INTEGER NOT NULL CHECK (state BETWEEN 0 AND 4),
    created_at  INTEGER NOT NULL,
    finished_at INTEGER,
    key         TEXT,                       -- a client's own key for the submit
    digest      BLOB,
    spec        BLOB    NOT NULL            -- everything else, the names of its nodes among it
) STRICT;
CREATE UNIQUE INDEX run_id ON run (id);
CREATE UNIQUE INDEX run_key ON run (tenant, key) WHERE key IS NOT NULL;
-- What a start must take up again.
CREATE INDEX run_open ON run (first) WHERE finished_at IS NULL;
-- What retention looks for.
CREATE INDEX run_ended ON run (lane, finished_at) WHERE finished_at IS NOT NULL;

-- Which attempt of its run it is. NULL: its own number.
ALTER TABLE open_attempt ADD COLUMN dispatch_seq INTEGER;
ALTER TABLE attempt ADD COLUMN dispatch_seq INTEGER;

-- The latest call of a node that others of its run call: at most one a node.
CREATE TABLE run_call (
    target      INTEGER PRIMARY KEY,        -- the job of the node that was called
    caller      BLOB    NOT NULL,           -- the fence of the attempt that called: job, attempt, id, epoch
    attempt     INTEGER NOT NULL,
    attempt_id  BLOB    NOT NULL,
    lease_epoch INTEGER NOT NULL,
    request     TEXT    NOT NULL,           -- the caller's own name for the call
    until       INTEGER,
    answer      INTEGER NOT NULL CHECK (answer BETWEEN 0 AND 2), -- 0 none yet, 1 the result, 2 a failure
    code        INTEGER,
    message     TEXT,
    result      BLOB                        -- the latest result of the node
) STRICT;
