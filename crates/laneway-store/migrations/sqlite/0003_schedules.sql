-- Schedules, their slots and the log of their runs. Times are milliseconds since 1970 (wall clock), codes are those of
-- laneway-core, ids are 16 bytes, big end first.

-- One row a schedule. The part from next_run_at on changes by itself, slot by slot; payload and note stand apart, so that
-- they are not written again each time.
CREATE TABLE cron_jobs (
    id               BLOB    PRIMARY KEY,
    tenant           TEXT    NOT NULL,
    name             TEXT    NOT NULL,
    owner            TEXT,
    enabled          INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    schedule_kind    TEXT    NOT NULL CHECK (schedule_kind IN ('at', 'every', 'cron')),
    run_at           INTEGER,               -- at
    interval_ms      INTEGER,               -- every
    anchor_at        INTEGER,               -- every: where its grid begins
    cron_expression  TEXT,                  -- cron
    timezone         TEXT,                  -- cron
    template         BLOB    NOT NULL,      -- the job that each slot makes
    delete_after_run INTEGER NOT NULL CHECK (delete_after_run IN (0, 1)),
    catch_up         INTEGER NOT NULL,      -- -1: skip, 0: latest, n: all, at most n
    overlap          INTEGER NOT NULL,
    jitter_ms        INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    next_run_at      INTEGER,
    last_slot        INTEGER,               -- no slot up to this one ever comes again
    waiting_slot     INTEGER,               -- waits for a run to end
    last_run_at      INTEGER,
    last_status      INTEGER,
    last_error       TEXT,
    runs             INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX cron_jobs_name ON cron_jobs (tenant, name);

CREATE TABLE cron_payload (
    id      BLOB PRIMARY KEY,
    payload BLOB NOT NULL,
    note    BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- A slot comes once: the key says so. It is written in the transaction that makes its job.
CREATE TABLE schedule_slot (
    schedule BLOB    NOT NULL,
    slot     INTEGER NOT NULL,
    job      BLOB,                          -- NULL: it passed without one
    PRIMARY KEY (schedule, slot)
) STRICT, WITHOUT ROWID;
-- What retention looks for. Grows at its end.
CREATE INDEX schedule_slot_time ON schedule_slot (slot);

-- The log of runs outlives the schedules.
CREATE TABLE cron_run_logs (
    number        INTEGER PRIMARY KEY,      -- that of the event that says so
    schedule      BLOB    NOT NULL,
    tenant        TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    agent         TEXT    NOT NULL,
    job           BLOB,                     -- NULL: the slot passed without one
    slot          INTEGER NOT NULL,
    status        INTEGER NOT NULL,
    summary       TEXT,
    error         TEXT,
    attempts      INTEGER NOT NULL,
    duration_ms   INTEGER NOT NULL,
    input_tokens  INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    ran_at        INTEGER NOT NULL,
    ended_at      INTEGER NOT NULL
) STRICT;
CREATE INDEX cron_run_logs_schedule ON cron_run_logs (schedule, number);
CREATE INDEX cron_run_logs_tenant ON cron_run_logs (tenant, number);

-- How many entries of the log each schedule has: a list can say so without counting them.
CREATE TABLE cron_run_total (
    schedule BLOB    PRIMARY KEY,
    tenant   TEXT    NOT NULL,
    logs     INTEGER NOT NULL CHECK (logs >= 0)
) STRICT, WITHOUT ROWID;
CREATE INDEX cron_run_total_tenant ON cron_run_total (tenant, logs);
