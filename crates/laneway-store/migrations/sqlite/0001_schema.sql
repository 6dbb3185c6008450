-- The tables of a Laneway store. docs/decisions/0001-rows.md explains the layout.
--
-- Times are milliseconds since 1970 by the wall clock, spans are milliseconds. Codes are those of laneway-core. Ids are
-- 16 bytes, big end first. A "form" is a column in the binary encoding of laneway-store's codec.
--
-- Every row has a checksum. Tables that every job writes get it from the program, all others from the function row_sum of the
-- program. So another program can read the tables, but not write them. docs/decisions/0022-row-checksums.md has the reasons.

-- Every job, live or ended. A row is inserted once, at submit, in the order of seq. The columns from state on are the
-- status. They change only when the job waits again: an open attempt and an end have rows of their own.
CREATE TABLE job (
    seq           INTEGER PRIMARY KEY,         -- 1, 2, 3, ... in the order of submission
    id            BLOB    NOT NULL,            -- the public id
    tenant        TEXT    NOT NULL,            -- the tenant that may see it
    kind          TEXT    NOT NULL,            -- selects the handler
    agent         TEXT    NOT NULL,            -- the agent whose fair share it counts against
    lane          TEXT    NOT NULL,            -- the lane it runs in
    session       TEXT,                        -- the key of its session; NULL: none
    priority      INTEGER NOT NULL,            -- a lower number runs sooner
    cost          INTEGER NOT NULL,            -- capacity units that it holds while an attempt is open
    rank_time     INTEGER NOT NULL,            -- engine time for ordering, kept over retries
    created_at    INTEGER NOT NULL,            -- when it was submitted
    spec          BLOB    NOT NULL,            -- the form of every other field of the submitted job
    sum           INTEGER NOT NULL,            -- checksum of the columns above
    state         INTEGER NOT NULL CHECK (state BETWEEN 0 AND 1), -- code: scheduled or queued
    wake_at       INTEGER,                     -- scheduled: when it becomes queued
    attempts      INTEGER NOT NULL,            -- number of the last attempt
    failures      INTEGER NOT NULL,            -- attempts that failed
    losses        INTEGER NOT NULL,            -- attempts that were lost
    rejections    INTEGER NOT NULL,            -- reservations that no worker claimed, and dispatches that a worker rejected
    near_deadline INTEGER NOT NULL,            -- 1: its deadline is near
    denials       INTEGER NOT NULL,            -- recorded denials for lack of capacity
    denied_until  INTEGER,                     -- the next denial is recorded no sooner
    last_event    INTEGER NOT NULL,            -- number of its latest event
    status_sum    INTEGER NOT NULL             -- checksum of seq and of the columns from state on
) STRICT;
-- Ids begin with their time, so this index grows at its end.
CREATE UNIQUE INDEX job_id ON job (id);

-- The payloads of jobs. They are apart, so that scans of jobs do not read them.
CREATE TABLE payload (
    seq   INTEGER PRIMARY KEY,                 -- the job
    bytes BLOB    NOT NULL,                    -- the payload
    sum   INTEGER NOT NULL                     -- checksum of the columns above
) STRICT;

-- Which jobs have not ended: one bit for each job, 1024 jobs in a row. A row without bits is removed.
CREATE TABLE live_chunk (
    chunk INTEGER PRIMARY KEY,                 -- seq / 1024
    bits  BLOB    NOT NULL CHECK (length(bits) = 128), -- bit seq % 1024 of it, the low bit of a byte first
    sum   INTEGER NOT NULL AS (row_sum(chunk, bits)) STORED -- checksum of the columns above
) STRICT;

-- Open attempts. The key allows at most one for each job.
CREATE TABLE open_attempt (
    seq          INTEGER PRIMARY KEY,          -- the job
    attempt      INTEGER NOT NULL,             -- number of the attempt: 1, 2, 3, ...
    attempt_id   BLOB    NOT NULL,             -- its random id, which is the id of its lease, too
    lease_epoch  INTEGER NOT NULL,             -- grows each time it moves to another connection
    executor     TEXT    NOT NULL,             -- where it runs
    mode         INTEGER NOT NULL,             -- code: attached to the server's process, or leased
    state        INTEGER NOT NULL CHECK (state BETWEEN 2 AND 3), -- code: assigned or running
    opened_at    INTEGER NOT NULL,             -- when it was opened
    started_at   INTEGER,                      -- when it started to run
    last_event   INTEGER NOT NULL,             -- number of the job's latest event
    lease_ms     INTEGER NOT NULL,             -- the longest lease that its runner was granted
    worker       TEXT,                         -- the worker that has it
    pid          INTEGER,                      -- the worker's process id
    boot         TEXT,                         -- the boot id of the worker's process
    dispatch_seq INTEGER,                      -- its number within its run; NULL: the same as attempt
    sum          INTEGER NOT NULL AS (row_sum(seq, attempt, attempt_id, lease_epoch, executor, mode, state, opened_at, started_at, last_event, lease_ms, worker, pid, boot, dispatch_seq)) STORED -- checksum of the columns above
) STRICT;

-- Closed attempts, except those that ended their job.
CREATE TABLE attempt (
    seq          INTEGER NOT NULL,             -- see open_attempt
    attempt      INTEGER NOT NULL,             -- see open_attempt
    attempt_id   BLOB    NOT NULL,             -- see open_attempt
    lease_epoch  INTEGER NOT NULL,             -- see open_attempt
    executor     TEXT    NOT NULL,             -- see open_attempt
    mode         INTEGER NOT NULL,             -- see open_attempt
    state        INTEGER NOT NULL CHECK (state BETWEEN 2 AND 3), -- see open_attempt
    opened_at    INTEGER NOT NULL,             -- see open_attempt
    started_at   INTEGER,                      -- see open_attempt
    last_event   INTEGER NOT NULL,             -- see open_attempt
    lease_ms     INTEGER NOT NULL,             -- see open_attempt
    worker       TEXT,                         -- see open_attempt
    pid          INTEGER,                      -- see open_attempt
    boot         TEXT,                         -- see open_attempt
    dispatch_seq INTEGER,                      -- see open_attempt
    ended        INTEGER NOT NULL,             -- code: how it ended
    error        BLOB,                         -- the form of its failure
    closed_at    INTEGER NOT NULL,             -- when it was closed
    sum          INTEGER NOT NULL AS (row_sum(seq, attempt, attempt_id, lease_epoch, executor, mode, state, opened_at, started_at, last_event, lease_ms, worker, pid, boot, dispatch_seq, ended, error, closed_at)) STORED, -- checksum of the columns above
    PRIMARY KEY (seq, attempt)
) STRICT, WITHOUT ROWID;

-- Lanes by number, which keeps the index on ended jobs narrow.
CREATE TABLE lane (
    number INTEGER PRIMARY KEY,                -- 1, 2, 3, ... in the order of their first job
    name   TEXT    NOT NULL UNIQUE,            -- the lane
    sum    INTEGER NOT NULL AS (row_sum(number, name)) STORED -- checksum of the columns above
) STRICT;

-- How jobs ended, in the order of their ends. Jobs end in fair order, not in the order of submission, and an append is
-- several times cheaper than an insert in the middle.
CREATE TABLE done (
    ended            INTEGER PRIMARY KEY,      -- 1, 2, 3, ... in the order of ends
    seq              INTEGER NOT NULL,         -- the job
    retention_bucket INTEGER NOT NULL,         -- lane.number * 2, + 1 with an idempotency key; -1 for a member of a run
    state            INTEGER NOT NULL CHECK (state BETWEEN 4 AND 7), -- code: the terminal state
    reason           INTEGER NOT NULL,         -- code: why it ended so
    attempt_id       BLOB,                     -- the attempt that ended it
    started_at       INTEGER,                  -- when its last attempt started to run
    finished_at      INTEGER NOT NULL,         -- when it ended
    attempts         INTEGER NOT NULL,         -- attempts opened
    failures         INTEGER NOT NULL,         -- attempts that failed
    losses           INTEGER NOT NULL,         -- attempts that were lost
    last_event       INTEGER NOT NULL,         -- number of its last event
    error            BLOB,                     -- the form of its failure
    result           BLOB,                     -- what its handler returned
    sum              INTEGER NOT NULL          -- checksum of the other columns, except ended and retention_bucket
) STRICT;
CREATE UNIQUE INDEX done_seq ON done (seq);
-- Retention looks for the oldest ends of a bucket. The index grows at one end for each bucket.
CREATE INDEX done_retention ON done (retention_bucket, finished_at);

-- Idempotency keys of jobs.
CREATE TABLE idempotency (
    tenant TEXT NOT NULL,                      -- the tenant of the client
    key    TEXT NOT NULL,                      -- the client's key
    job    BLOB NOT NULL,                      -- id of the job that the key stands for
    digest BLOB NOT NULL,                      -- digest of the request
    sum    INTEGER NOT NULL AS (row_sum(tenant, key, job, digest)) STORED, -- checksum of the columns above
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;

-- Log lines of attempts.
CREATE TABLE log (
    seq     INTEGER NOT NULL,                  -- the job
    line    INTEGER NOT NULL,                  -- 1, 2, 3, ... within the job
    attempt INTEGER NOT NULL,                  -- number of the attempt that wrote it
    at      INTEGER NOT NULL,                  -- when it was written
    stream  TEXT    NOT NULL,                  -- stdout, stderr, log, ...
    text    TEXT    NOT NULL,                  -- the line
    bytes   INTEGER NOT NULL,                  -- bytes of all lines of the job so far
    sum     INTEGER NOT NULL AS (row_sum(seq, line, attempt, at, stream, text, bytes)) STORED, -- checksum of the columns above
    PRIMARY KEY (seq, line)
) STRICT, WITHOUT ROWID;

-- The event log: one row for the events of one commit. A hash covers the hash before it and the row's bytes.
CREATE TABLE event_batch (
    first INTEGER PRIMARY KEY,                 -- number of the first event
    count INTEGER NOT NULL CHECK (count > 0),  -- how many events
    at    INTEGER NOT NULL,                    -- the latest time among them
    hash  BLOB    NOT NULL CHECK (length(hash) = 32), -- sha256(hash of the batch before, bytes)
    bytes BLOB    NOT NULL,                    -- the form of the events
    sum   INTEGER NOT NULL AS (row_sum(first, count, at, hash, bytes)) STORED -- checksum of the columns above
) STRICT;

-- Tokens, revoked ones included.
CREATE TABLE token (
    id         TEXT PRIMARY KEY,               -- the public part
    tenant     TEXT,                           -- the tenant it is bound to; NULL: the whole server
    role       INTEGER NOT NULL,               -- code: what it may do
    digest     BLOB    NOT NULL,               -- digest of the secret
    note       TEXT    NOT NULL,               -- a text for people
    created_at INTEGER NOT NULL,               -- when it was created
    expires_at INTEGER,                        -- when it ends by itself
    revoked_at INTEGER,                        -- when it was revoked
    sum        INTEGER NOT NULL AS (row_sum(id, tenant, role, digest, note, created_at, expires_at, revoked_at)) STORED -- checksum of the columns above
) STRICT, WITHOUT ROWID;

-- Sessions of which something must be remembered beside their jobs.
CREATE TABLE session (
    tenant     TEXT    NOT NULL,               -- the tenant of the session
    key        TEXT    NOT NULL,               -- its name
    cutoff     INTEGER,                        -- when it was last stopped as a whole
    generation INTEGER NOT NULL,               -- how often it was reset
    tokens     INTEGER NOT NULL,               -- tokens used of its context window, as last reported
    window     INTEGER NOT NULL,               -- tokens that its context window holds; 0: not known
    updated_at INTEGER NOT NULL,               -- when the row last changed
    sum        INTEGER NOT NULL AS (row_sum(tenant, key, cutoff, generation, tokens, window, updated_at)) STORED, -- checksum of the columns above
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;

-- Jobs that were merged into a debounce batch. The first job of the batch, the leader, runs for them, with their payloads
-- after its own, in the order of seq.
CREATE TABLE merged (
    leader INTEGER NOT NULL,                   -- number of the job that runs
    seq    INTEGER NOT NULL,                   -- number of the job that was merged
    job    BLOB    NOT NULL,                   -- the leader's id, which may outlive the leader's row
    sum    INTEGER NOT NULL AS (row_sum(leader, seq, job)) STORED, -- checksum of the columns above
    PRIMARY KEY (leader, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX merged_seq ON merged (seq);

-- Schedules. The columns from next_at on change by themselves, slot by slot. Payload and note are apart, so that they are
-- not written again each time.
CREATE TABLE schedule (
    id               BLOB    PRIMARY KEY,      -- the public id
    tenant           TEXT    NOT NULL,         -- the tenant that may see it
    name             TEXT    NOT NULL,         -- unique within the tenant
    owner            TEXT,                     -- the user it belongs to
    enabled          INTEGER NOT NULL CHECK (enabled IN (0, 1)), -- 0: no slot comes
    timing           TEXT    NOT NULL CHECK (timing IN ('at', 'every', 'cron')), -- which of the next five columns count
    fire_at          INTEGER,                  -- at: the only slot
    interval_ms      INTEGER,                  -- every: the time between slots
    anchor_at        INTEGER,                  -- every: a slot from which the others are counted
    cron_expression  TEXT,                     -- cron: the expression
    timezone         TEXT,                     -- cron: its time zone; NULL: the server's
    template         BLOB    NOT NULL,         -- the form of the job that each slot creates
    delete_after_run INTEGER NOT NULL CHECK (delete_after_run IN (0, 1)), -- 1: deleted once a firing has ended
    catch_up         INTEGER NOT NULL,         -- missed slots: -1 skip, 0 latest, n all, at most n
    overlap          INTEGER NOT NULL,         -- code: the policy for a slot that meets an active firing
    jitter_ms        INTEGER NOT NULL,         -- the longest random delay of a slot
    created_at       INTEGER NOT NULL,         -- when it was created
    updated_at       INTEGER NOT NULL,         -- when a call last changed it
    next_at          INTEGER,                  -- the next slot
    last_slot        INTEGER,                  -- the latest slot; no slot up to this one fires again
    waiting_slot     INTEGER,                  -- a slot that waits for a firing to end
    last_ended_at    INTEGER,                  -- when its latest firing ended
    last_status      INTEGER,                  -- code: the status of its latest firing
    last_error       TEXT,                     -- the error of its latest firing
    firings          INTEGER NOT NULL,         -- how many jobs it created
    sum              INTEGER NOT NULL AS (row_sum(id, tenant, name, owner, enabled, timing, fire_at, interval_ms, anchor_at, cron_expression, timezone, template, delete_after_run, catch_up, overlap, jitter_ms, created_at, updated_at, next_at, last_slot, waiting_slot, last_ended_at, last_status, last_error, firings)) STORED -- checksum of the columns above
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX schedule_name ON schedule (tenant, name);

-- The large parts of schedules.
CREATE TABLE schedule_payload (
    id      BLOB PRIMARY KEY,                  -- the schedule
    payload BLOB NOT NULL,                     -- the payload of its jobs
    note    BLOB NOT NULL,                     -- bytes that an API keeps with it
    sum     INTEGER NOT NULL AS (row_sum(id, payload, note)) STORED -- checksum of the columns above
) STRICT, WITHOUT ROWID;

-- Slots that fired or were skipped. The key allows each slot once. It is written in the transaction that creates the job.
CREATE TABLE schedule_slot (
    schedule BLOB    NOT NULL,                 -- the schedule
    slot     INTEGER NOT NULL,                 -- the time of the slot
    job      BLOB,                             -- id of the job; NULL: the slot was skipped
    sum      INTEGER NOT NULL AS (row_sum(schedule, slot, job)) STORED, -- checksum of the columns above
    PRIMARY KEY (schedule, slot)
) STRICT, WITHOUT ROWID;
-- Retention looks for the oldest slots. The index grows at its end.
CREATE INDEX schedule_slot_time ON schedule_slot (slot);

-- The firing log. It outlives the schedules.
CREATE TABLE firing_log (
    number        INTEGER PRIMARY KEY,         -- number of the event about the end of the firing
    schedule      BLOB    NOT NULL,            -- the schedule, which may be deleted
    tenant        TEXT    NOT NULL,            -- the tenant of the schedule
    name          TEXT    NOT NULL,            -- the schedule's name when it fired
    agent         TEXT    NOT NULL,            -- the agent of the job
    job           BLOB,                        -- id of the job; NULL: the slot was skipped
    slot          INTEGER NOT NULL,            -- the slot; of a manual fire, the time of the call
    status        INTEGER NOT NULL,            -- code: how it ended
    summary       TEXT,                        -- the result as text
    error         TEXT,                        -- what failed, or why the slot was skipped
    attempts      INTEGER NOT NULL,            -- attempts opened
    duration_ms   INTEGER NOT NULL,            -- from the first start to the end
    input_tokens  INTEGER NOT NULL,            -- tokens read, as reported
    output_tokens INTEGER NOT NULL,            -- tokens written, as reported
    ran_at        INTEGER NOT NULL,            -- when its first attempt started, or when the slot was skipped
    ended_at      INTEGER NOT NULL,            -- when it ended
    sum           INTEGER NOT NULL AS (row_sum(number, schedule, tenant, name, agent, job, slot, status, summary, error, attempts, duration_ms, input_tokens, output_tokens, ran_at, ended_at)) STORED -- checksum of the columns above
) STRICT;
CREATE INDEX firing_log_schedule ON firing_log (schedule, number);
CREATE INDEX firing_log_tenant ON firing_log (tenant, number);

-- How many entries of the firing log each schedule has, so that a list need not count them.
CREATE TABLE firing_count (
    schedule BLOB    PRIMARY KEY,              -- the schedule
    tenant   TEXT    NOT NULL,                 -- its tenant
    entries  INTEGER NOT NULL CHECK (entries >= 0), -- entries of the firing log
    sum      INTEGER NOT NULL AS (row_sum(schedule, tenant, entries)) STORED -- checksum of the columns above
) STRICT, WITHOUT ROWID;
CREATE INDEX firing_count_tenant ON firing_count (tenant, entries);

-- Webhook deliveries: at most one for each job.
CREATE TABLE delivery (
    seq         INTEGER PRIMARY KEY,           -- the job
    job         BLOB    NOT NULL,              -- its id
    tenant      TEXT    NOT NULL,              -- its tenant
    host        TEXT    NOT NULL,              -- host and port of the callback; deliveries are fair between hosts
    state       INTEGER NOT NULL CHECK (state BETWEEN 0 AND 3), -- code: waiting, delivered, failed or dropped
    tries       INTEGER NOT NULL,              -- tries that have ended
    next_at     INTEGER,                       -- when it is tried next
    created_at  INTEGER NOT NULL,              -- when the job ended
    ended_at    INTEGER,                       -- when it was delivered, failed or dropped
    last_status INTEGER,                       -- HTTP status of the last try
    last_error  TEXT,                          -- error of the last try
    sum         INTEGER NOT NULL AS (row_sum(seq, job, tenant, host, state, tries, next_at, created_at, ended_at, last_status, last_error)) STORED -- checksum of the columns above
) STRICT;
-- A start reads the waiting deliveries only.
CREATE INDEX delivery_waiting ON delivery (seq) WHERE state = 0;

-- Tries at deliveries that have ended.
CREATE TABLE delivery_try (
    seq     INTEGER NOT NULL,                  -- the job
    number  INTEGER NOT NULL,                  -- 1, 2, 3, ... within the delivery
    at      INTEGER NOT NULL,                  -- when it ended
    took_ms INTEGER NOT NULL,                  -- how long it took
    status  INTEGER,                           -- HTTP status of the answer
    error   TEXT,                              -- what failed
    sum     INTEGER NOT NULL AS (row_sum(seq, number, at, took_ms, status, error)) STORED, -- checksum of the columns above
    PRIMARY KEY (seq, number)
) STRICT, WITHOUT ROWID;

-- Workflow runs. The jobs of a run are numbered without gaps from its first one on, in the order of its nodes, so that no
-- table has to list them. They are pruned together with their run.
CREATE TABLE run (
    first       INTEGER PRIMARY KEY,           -- number of its first job
    members     INTEGER NOT NULL CHECK (members > 0), -- how many jobs it has
    id          BLOB    NOT NULL,              -- the public id
    tenant      TEXT    NOT NULL,              -- the tenant that may see it
    lane        TEXT    NOT NULL,              -- the lane whose retention applies
    state       INTEGER NOT NULL CHECK (state BETWEEN 0 AND 4), -- code: where it stands
    created_at  INTEGER NOT NULL,              -- when it was submitted
    finished_at INTEGER,                       -- when its last member ended
    key         TEXT,                          -- the client's idempotency key
    digest      BLOB,                          -- digest of the request with that key
    spec        BLOB    NOT NULL,              -- the form of every other field, with the names of the nodes
    sum         INTEGER NOT NULL AS (row_sum(first, members, id, tenant, lane, state, created_at, finished_at, key, digest, spec)) STORED -- checksum of the columns above
) STRICT;
CREATE UNIQUE INDEX run_id ON run (id);
CREATE UNIQUE INDEX run_key ON run (tenant, key) WHERE key IS NOT NULL;
-- A start reads the open runs only.
CREATE INDEX run_open ON run (first) WHERE finished_at IS NULL;
-- Retention looks for the oldest ended runs of a lane.
CREATE INDEX run_ended ON run (lane, finished_at) WHERE finished_at IS NOT NULL;

-- The definitions of runs, in the clients' own format. They may be long, and lists do not show them.
CREATE TABLE run_definition (
    seq   INTEGER PRIMARY KEY,                 -- number of the run's first job
    bytes BLOB    NOT NULL,                    -- the definition
    sum   INTEGER NOT NULL AS (row_sum(seq, bytes)) STORED -- checksum of the columns above
) STRICT;

-- The latest call of each node that a middleware of its run called.
CREATE TABLE run_call (
    target          INTEGER PRIMARY KEY,       -- number of the called node's job
    caller          BLOB    NOT NULL,          -- the fence of the calling attempt: id of its job
    attempt         INTEGER NOT NULL,          -- the fence: number of the attempt
    attempt_id      BLOB    NOT NULL,          -- the fence: id of the attempt
    lease_epoch     INTEGER NOT NULL,          -- the fence: lease epoch
    request         TEXT    NOT NULL,          -- the caller's name for the call
    called_at       INTEGER NOT NULL,          -- when it was made
    attempts_before INTEGER NOT NULL,          -- attempts of the called node from before the call
    until           INTEGER,                   -- the deadline of the call
    payload         BLOB,                      -- the payload of the call
    answer          INTEGER NOT NULL CHECK (answer BETWEEN 0 AND 2), -- 0 none yet, 1 the result, 2 a failure
    code            INTEGER,                   -- code: why the call failed
    message         TEXT,                      -- the same for people
    result          BLOB,                      -- the latest result of the node
    sum             INTEGER NOT NULL AS (row_sum(target, caller, attempt, attempt_id, lease_epoch, request, called_at, attempts_before, until, payload, answer, code, message, result)) STORED -- checksum of the columns above
) STRICT;

-- One row: counters that must survive the rows they were counted from, and the state of the server.
CREATE TABLE server_state (
    one          INTEGER PRIMARY KEY CHECK (one = 1), -- always 1
    last_seq     INTEGER NOT NULL,             -- highest job.seq when jobs were last pruned
    last_ended   INTEGER NOT NULL,             -- highest done.ended when jobs were last pruned
    pruned_event INTEGER NOT NULL,             -- number of the last event that was pruned
    pruned_hash  BLOB    NOT NULL,             -- hash of its batch, from which the chain goes on
    overrides    BLOB,                         -- settings that were changed through the API
    clock_seen   INTEGER,                      -- the time up to which retention has counted; a clock jump deletes nothing
    epoch        INTEGER NOT NULL,             -- how often the store was opened for writing; older writers are fenced
    sum          INTEGER NOT NULL AS (row_sum(one, last_seq, last_ended, pruned_event, pruned_hash, overrides, clock_seen, epoch)) STORED -- checksum of the columns above
) STRICT;
INSERT INTO server_state VALUES (1, 0, 0, 0, zeroblob(32), NULL, NULL, 0);

-- One row: whether the database file is complete without its write-ahead log. With the file laneway.db-mark, it shows
-- whether the files of a copy belong together.
CREATE TABLE store_state (
    one         INTEGER PRIMARY KEY CHECK (one = 1), -- always 1
    closed      INTEGER NOT NULL CHECK (closed IN (0, 1)), -- 1: closed in order, everything is in the database file
    checkpoints INTEGER NOT NULL,              -- how many checkpoints were begun
    log_id      BLOB,                          -- the id of the commit log; NULL: there was none yet
    stored      INTEGER NOT NULL,              -- the last commit of the log that the tables have
    facets_built INTEGER NOT NULL,             -- 1: the tables that lists are read from are complete
    sum          INTEGER NOT NULL AS (row_sum(one, closed, checkpoints, log_id, stored, facets_built)) STORED -- checksum of the columns above
) STRICT;
INSERT INTO store_state VALUES (1, 1, 0, NULL, 0, 0);

-- Views for people who look with SQL, with the names of hosts of add-ons. The program does not read them.
CREATE VIEW scheduler_jobs AS
SELECT lower(hex(job.id)) AS job_id, job.tenant, job.agent AS addon_id, job.kind AS job_type, job.lane, job.cost AS cost_units, job.priority,
       CASE WHEN done.state = 4 THEN 'DONE'
            WHEN done.state = 5 THEN 'FAILED'
            WHEN done.state IS NOT NULL THEN 'CANCELED'
            WHEN open_attempt.state = 2 THEN 'DISPATCHING'
            WHEN open_attempt.state = 3 THEN 'RUNNING'
            ELSE 'QUEUED' END AS state,
       coalesce(done.attempts, open_attempt.attempt, job.attempts) + job.denials AS attempts,
       CASE WHEN done.seq IS NULL AND open_attempt.seq IS NULL THEN coalesce(job.wake_at, job.denied_until) END AS next_earliest_start_at,
       lower(hex(open_attempt.attempt_id)) AS lease_id, open_attempt.worker, open_attempt.pid,
       job.created_at, done.finished_at
FROM job LEFT JOIN open_attempt USING (seq) LEFT JOIN done USING (seq);

CREATE VIEW scheduler_leases AS
SELECT lower(hex(open_attempt.attempt_id)) AS lease_id, lower(hex(job.id)) AS job_id, job.tenant, job.agent AS addon_id,
       job.kind AS job_type, job.cost AS cost_units, open_attempt.worker, open_attempt.pid,
       CASE open_attempt.state WHEN 2 THEN 'DISPATCHING' ELSE 'ACTIVE' END AS state,
       open_attempt.opened_at AS granted_at, open_attempt.lease_ms
FROM open_attempt JOIN job USING (seq)
WHERE open_attempt.executor = 'leases';

-- The history of each job, from its rows. The complete event log, with denials, is in event_batch and in the API.
CREATE VIEW scheduler_job_events AS
WITH history (seq, ts, event_type, to_state, attempt, lease, worker, reason) AS (
    SELECT seq, created_at, 'SUBMITTED', 'QUEUED', 0, NULL, NULL, 'submitted' FROM job
    UNION ALL
    SELECT seq, opened_at, 'DISPATCHING', 'DISPATCHING', attempt, attempt_id, NULL, 'admitted' FROM attempt
    UNION ALL
    SELECT seq, started_at, 'RUNNING', 'RUNNING', attempt, attempt_id, worker, 'ack' FROM attempt WHERE started_at IS NOT NULL
    UNION ALL
    SELECT seq, closed_at, 'QUEUED', 'QUEUED', attempt, attempt_id, worker,
           CASE ended WHEN 5 THEN 'lease_expired' WHEN 7 THEN 'dispatch_timeout' WHEN 6 THEN 'handed_back' ELSE 'retry' END
    FROM attempt WHERE NOT EXISTS (SELECT 1 FROM done WHERE done.seq = attempt.seq AND done.attempt_id = attempt.attempt_id)
    UNION ALL
    SELECT seq, opened_at, 'DISPATCHING', 'DISPATCHING', attempt, attempt_id, NULL, 'admitted' FROM open_attempt
    UNION ALL
    SELECT seq, started_at, 'RUNNING', 'RUNNING', attempt, attempt_id, worker, 'ack' FROM open_attempt WHERE started_at IS NOT NULL
    UNION ALL
    -- The attempt that ended its job has no other row.
    SELECT seq, started_at, 'RUNNING', 'RUNNING', attempts, attempt_id, NULL, 'ack' FROM done
    WHERE started_at IS NOT NULL AND attempt_id IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM open_attempt WHERE open_attempt.seq = done.seq)
    UNION ALL
    SELECT seq, finished_at,
           CASE WHEN state = 4 THEN 'DONE' WHEN state = 5 AND reason IN (3, 4) THEN 'TIMEOUT' WHEN state = 5 THEN 'FAILED' ELSE 'CANCELED' END,
           CASE state WHEN 4 THEN 'DONE' WHEN 5 THEN 'FAILED' ELSE 'CANCELED' END,
           attempts, attempt_id, NULL, NULL
    FROM done
)
SELECT history.ts, lower(hex(job.id)) AS job_id, job.tenant, job.agent AS addon_id, job.kind AS job_type, job.lane,
       history.event_type, history.to_state, history.attempt, lower(hex(history.lease)) AS lease_id, history.worker, history.reason
FROM history JOIN job USING (seq);
