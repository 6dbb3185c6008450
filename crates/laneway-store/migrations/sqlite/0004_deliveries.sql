-- The news of ended jobs that is or was owed to somebody: at most one a job, named by the job's own number.
CREATE TABLE delivery (
    seq         INTEGER PRIMARY KEY,        -- the job
    job         BLOB    NOT NULL,           -- its id
    tenant      TEXT    NOT NULL,
    state       INTEGER NOT NULL CHECK (state BETWEEN 0 AND 3),
    tries       INTEGER NOT NULL,
    next_at     INTEGER,
    created_at  INTEGER NOT NULL,
    ended_at    INTEGER,
    last_status INTEGER,
    last_error  TEXT
) STRICT;
-- What a start must take up again; ended ones are not in it.
CREATE INDEX delivery_waiting ON delivery (seq) WHERE state = 0;

-- Tries at deliveries that have ended.
CREATE TABLE delivery_try (
    seq     INTEGER NOT NULL,
    number  INTEGER NOT NULL,               -- 1, 2, 3, ... within the delivery
    at      INTEGER NOT NULL,
    took_ms INTEGER NOT NULL,
    status  INTEGER,
    error   TEXT,
    PRIMARY KEY (seq, number)
) STRICT, WITHOUT ROWID;
